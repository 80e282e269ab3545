//! Events with the reasons of decisions, which `kubectl describe` shows.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::Client;

/// Publishes events in the cluster.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Events whose source is a daemon.
    pub fn new(client: Client, daemon: &str) -> Events {
        let reporter = Reporter {
            controller: format!("baltra-{daemon}"),
            instance: std::env::var("HOSTNAME").ok(),
        };
        Events(Recorder::new(client, reporter))
    }

    /// Publishes an event of type Normal.
    pub async fn normal(&self, about: &ObjectReference, reason: &str, note: &str) {
        self.publish(EventType::Normal, about, reason, note).await;
    }

    /// Publishes an event of type Warning.
    pub async fn warning(&self, about: &ObjectReference, reason: &str, note: &str) {
        self.publish(EventType::Warning, about, reason, note).await;
    }

    async fn publish(&self, kind: EventType, about: &ObjectReference, reason: &str, note: &str) {
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            // The API server limits notes to 1 KiB.
            note: Some(note.chars().take(1_000).collect()),
            action: reason.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, about).await {
            tracing::debug!(%error, reason, note, "cannot publish an event");
        }
    }
}
