//! Caches of the cluster's objects, for daemons with few replicas.

use anyhow::Result;
use futures_util::StreamExt;
use kube::runtime::reflector::{self, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::Event;
use kube::runtime::{watcher, WatchStreamExt};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// A cache that follows the cluster while the runtime exists; `on_event` is called for every event
/// of an object, after the cache has applied it.
///
/// # Errors
/// The cache cannot be started.
pub async fn cache<K>(
    api: Api<K>,
    config: watcher::Config,
    on_event: impl Fn(&Event<K>) + Send + 'static,
) -> Result<Store<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let watched = watcher(api, config).backoff(Again::default());
    let mut stream = reflector::reflector(writer, watched).boxed();
    tokio::spawn(async move {
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => on_event(&event),
                Err(error) => {
                    let kind = K::kind(&());
                    tracing::warn!(%kind, %error, "cannot watch objects");
                }
            }
        }
    });
    store.wait_until_ready().await?;
    Ok(store)
}

/// Pauses between attempts to watch: short at first and bounded, so that a recovered API server is
/// detected soon. A cluster has only a few such daemons. (Agents, which run on every node, use the
/// longer default.)
#[derive(Debug, Default)]
struct Again(u32);

impl Again {
    const FIRST: Duration = Duration::from_millis(200);
    const DOUBLINGS_MAX: u32 = 3;
}

impl Iterator for Again {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = Self::FIRST * (1 << self.0);
        self.0 = (self.0 + 1).min(Self::DOUBLINGS_MAX);
        Some(pause)
    }
}

impl Backoff for Again {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_again_soon_however_often_it_failed() {
        let ms = |again: &mut Again, n: usize| -> Vec<u128> {
            again.take(n).map(|pause| pause.as_millis()).collect()
        };
        let mut again = Again::default();
        assert_eq!(ms(&mut again, 6), [200, 400, 800, 1_600, 1_600, 1_600]);
        again.reset();
        assert_eq!(ms(&mut again, 1), [200]);
    }
}
