//! Places for calls in progress, whose number is limited ('gateway.limits.calls_max').
//!
//! If there are several functions or tenants, the calls of one tenant to one function may take
//! [`SHARE`] times as many places as are free: however many of them arrive, others are admitted.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Places of one function and tenant for each free place.
const SHARE: usize = 3;

/// The permit of a call to take a place, released when dropped.
#[derive(Debug)]
pub(crate) struct CallPermit<'a> {
    all: Option<&'a AtomicUsize>,
    own: &'a AtomicUsize,
}

impl<'a> CallPermit<'a> {
    /// Takes one of `max` places, of which `all` are taken, `own` of them by the same function and
    /// tenant; `None` if there is none for it. `is_shared`: other functions or tenants exist.
    pub fn take(
        all: &'a AtomicUsize,
        own: &'a AtomicUsize,
        max: usize,
        is_shared: bool,
    ) -> Option<CallPermit<'a>> {
        let taken = all.fetch_add(1, Relaxed);
        let place = CallPermit {
            own: count(own),
            all: Some(all),
        };
        let before = own.load(Relaxed).saturating_sub(1);
        fits(max.saturating_sub(taken), before, is_shared).then_some(place)
    }

    /// Like [`CallPermit::take`], for a call that is counted among the `taken` ones already.
    pub fn share(
        taken: usize,
        own: &'a AtomicUsize,
        max: usize,
        is_shared: bool,
    ) -> Option<CallPermit<'a>> {
        let place = CallPermit {
            own: count(own),
            all: None,
        };
        let before = own.load(Relaxed).saturating_sub(1);
        fits((max + 1).saturating_sub(taken), before, is_shared).then_some(place)
    }
}

fn count(own: &AtomicUsize) -> &AtomicUsize {
    own.fetch_add(1, Relaxed);
    own
}

/// Whether there is a place for a further call, with this number of free places and of own ones.
pub(crate) fn fits(free: usize, own: usize, is_shared: bool) -> bool {
    free > 0 && (!is_shared || own < free.saturating_mul(SHARE))
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.own.fetch_sub(1, Relaxed);
        if let Some(all) = self.all {
            all.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_floods_leaves_places_for_others() {
        let all = AtomicUsize::new(0);
        let own: [AtomicUsize; 3] = Default::default();
        let take = |n: usize, is_shared| {
            let places = (0..1000).map_while(|_| CallPermit::take(&all, &own[n], 64, is_shared));
            places.collect::<Vec<_>>()
        };
        let first = take(0, true);
        assert_eq!(first.len(), 48);
        let second = take(1, true);
        assert!((10..16).contains(&second.len()), "{}", second.len());
        assert!(!take(2, true).is_empty());
        drop((first, second));
        // The only function and tenant takes all.
        assert_eq!(take(0, false).len(), 64);
        assert_eq!(all.load(Relaxed), 0);
        assert!(own.iter().all(|own| own.load(Relaxed) == 0));
    }
}
