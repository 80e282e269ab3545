//! Selects the arenas that are pinned ([`crate::driver::Pinned`]): on a GPU, an arena by its first
//! transfer; a large one once transfers have moved half its size, because pinning costs about as
//! much as it saves on one transfer of the whole.
//!
//! NVIDIA's driver takes as much memory of the device as it pins of the host. Therefore arenas are
//! pinned for at most [`SHARE`] of the device's memory, only while they are in use, and not at all
//! for a time after the driver has refused memory: then all are unpinned, and the command that was
//! refused is tried again. If it is refused again, pinned memory was not the cause: arenas are
//! pinned again at once, and further commands of that tenant unpin nothing for a time that doubles
//! ([`Refusals`]), so that one tenant does not slow down the transfers of all.

use super::residence::{Fixed, Residence};
use crate::driver::{Context, Pinned, Queue};
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Locked, Memory, Range};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

/// Arenas up to this size are pinned at the first transfer, which takes up to 1.5 ms.
const AT_ONCE_BYTES: u64 = 16 << 20;
/// The part of the device's memory that pinned arenas may take: one in this number.
const SHARE: u64 = 8;
/// An arena that no transfer has used for this long is unpinned, and after a refusal none is pinned
/// for as long. Pinning again takes 90 µs per megabyte.
const IDLE_NS: u64 = 10_000_000_000;
/// Maximum wait for other threads' transfers in flight, after which their arenas are unpinned.
const TRANSFERS_MAX: Duration = Duration::from_millis(100);

/// Most doublings of the time for which a tenant's refused commands unpin nothing.
const DOUBLINGS_MAX: u32 = 6;

enum PinState {
    /// With the bytes that transfers have moved.
    Without(u64),
    /// With the time of the last transfer, ns.
    With(Arc<PinnedMemory>, u64),
}

/// An arena's pin.
pub struct Pin(Mutex<PinState>);

impl Default for Pin {
    fn default() -> Pin {
        Pin(Mutex::new(PinState::Without(0)))
    }
}

impl Pin {
    /// For a transfer of `bytes` from or to the arena's memory: the pin, if it has one. Pins the
    /// memory when it is due; may wait for another thread's pinning.
    pub fn hold(
        self: &Arc<Pin>,
        pinning: &Pinning,
        memory: &Memory,
        bytes: u64,
    ) -> Option<Arc<PinnedMemory>> {
        let mut state = self.0.locked();
        let moved = match &mut *state {
            PinState::With(memory, used_ns) => {
                *used_ns = monotonic_ns();
                return Some(memory.clone());
            }
            PinState::Without(moved) => moved,
        };
        *moved = moved.saturating_add(bytes);
        if memory.len() > AT_ONCE_BYTES && *moved < memory.len() / 2 {
            return None;
        }
        let pinned = pinning.pin(memory.slice(0, memory.len())?, self)?;
        *state = PinState::With(pinned.clone(), monotonic_ns());
        Some(pinned)
    }

    /// Gives up the pin unless a transfer has used it since `since_ns`. Transfers in flight still
    /// hold it.
    fn give_up(&self, since_ns: u64) -> Option<Arc<PinnedMemory>> {
        let mut state = self.0.locked();
        match &*state {
            PinState::With(_, used_ns) if *used_ns <= since_ns => {}
            _ => return None,
        }
        match std::mem::replace(&mut *state, PinState::Without(0)) {
            PinState::With(memory, _) => Some(memory),
            PinState::Without(_) => None,
        }
    }
}

/// Tenants whose commands the driver refused although nothing was pinned.
#[derive(Default)]
struct Refusals {
    tenants: HashMap<String, Refused>,
}

#[derive(Clone, Copy, Default)]
struct Refused {
    /// Refusals in a row that unpinning did not avert.
    in_a_row: u32,
    /// The tenant's commands unpin nothing before.
    not_before_ns: u64,
}

impl Refusals {
    /// Whether a refused command of the tenant may unpin the arenas.
    fn allows(&self, tenant: &str, now_ns: u64) -> bool {
        let refused = self.tenants.get(tenant);
        refused.is_none_or(|refused| now_ns >= refused.not_before_ns)
    }

    /// Records whether the command succeeded once the arenas were unpinned.
    fn record(&mut self, tenant: &str, succeeded: bool, now_ns: u64) {
        if succeeded {
            self.tenants.remove(tenant);
            return;
        }
        let longest_ns = IDLE_NS << DOUBLINGS_MAX;
        // Tenants without a recent refusal are forgotten.
        self.tenants
            .retain(|_, refused| now_ns < refused.not_before_ns.saturating_add(longest_ns));
        let refused = self.tenants.entry(tenant.to_owned()).or_default();
        refused.in_a_row = refused.in_a_row.saturating_add(1);
        let pause_ns = IDLE_NS << refused.in_a_row.min(DOUBLINGS_MAX);
        refused.not_before_ns = now_ns.saturating_add(pause_ns);
    }
}

/// Pins arenas of all sessions of the process.
pub struct Pinning {
    context: Arc<Context>,
    queue: Arc<Queue>,
    /// Counts what is pinned as memory of the device.
    residence: Option<Arc<Residence>>,
    most_bytes: u64,
    bytes: Arc<AtomicU64>,
    /// Those of arenas that have been pinned.
    pins: Mutex<Vec<Weak<Pin>>>,
    /// None is pinned before.
    not_before_ns: AtomicU64,
    refusals: Mutex<Refusals>,
}

/// Pinned memory, unpinned once the arena has given it up and no transfer uses it.
pub struct PinnedMemory {
    _pinned: Pinned,
    _fixed: Option<Fixed>,
    counted: Counted,
}

struct Counted {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Pinning {
    /// With nothing pinned, on a device of `device_bytes`.
    pub fn new(
        context: &Arc<Context>,
        queue: Queue,
        residence: Option<Arc<Residence>>,
        device_bytes: u64,
    ) -> Pinning {
        Pinning {
            context: context.clone(),
            queue: Arc::new(queue),
            residence,
            most_bytes: device_bytes / SHARE,
            bytes: Arc::default(),
            pins: Mutex::default(),
            not_before_ns: 0.into(),
            refusals: Mutex::default(),
        }
    }

    /// Pins the whole of an arena, if there is room.
    fn pin(&self, all: Range, pin: &Arc<Pin>) -> Option<Arc<PinnedMemory>> {
        let memory = self.pin_range(all)?;
        let mut pins = self.pins.locked();
        let own = Arc::downgrade(pin);
        pins.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&own));
        pins.push(own);
        Some(memory)
    }

    /// Pins memory for as long as the result lives, if there is room.
    pub(super) fn pin_range(&self, all: Range) -> Option<Arc<PinnedMemory>> {
        if self.is_paused() {
            return None;
        }
        let bytes = all.len() as u64;
        let counted = self.count(bytes)?;
        let fixed = self
            .residence
            .as_ref()
            .map(|residence| residence.fix(bytes));
        let Ok(pinned) = Pinned::new(&self.context, &self.queue, all) else {
            self.pause();
            return None;
        };
        // The driver may have refused memory meanwhile, and another thread waits for this.
        if self.is_paused() {
            return None;
        }
        Some(Arc::new(PinnedMemory {
            _pinned: pinned,
            _fixed: fixed,
            counted,
        }))
    }

    fn count(&self, bytes: u64) -> Option<Counted> {
        let counted = Counted {
            all: self.bytes.clone(),
            bytes,
        };
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= self.most_bytes).then_some(counted)
    }

    fn is_paused(&self) -> bool {
        monotonic_ns() < self.not_before_ns.load(Ordering::Relaxed)
    }

    fn pause(&self) {
        let end = monotonic_ns().saturating_add(IDLE_NS);
        self.not_before_ns.store(end, Ordering::Relaxed);
    }

    /// Whether anything is pinned.
    fn is_used(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    /// Unpins arenas that have been idle for long.
    pub fn unpin_idle(&self) {
        if !self.is_used() {
            return;
        }
        for memory in self.give_up(monotonic_ns().saturating_sub(IDLE_NS)) {
            let bytes = memory.counted.bytes;
            let_go(memory, bytes);
        }
    }

    /// Whether a refused command of the tenant may unpin the arenas, and there are any. If so, the
    /// caller unpins them, tries the command again and reports the result.
    pub fn may_unpin(&self, tenant: &str) -> bool {
        self.is_used() && self.refusals.locked().allows(tenant, monotonic_ns())
    }

    /// Records whether the tenant's command succeeded once the arenas were unpinned.
    pub fn report(&self, tenant: &str, succeeded: bool) {
        let now_ns = monotonic_ns();
        self.refusals.locked().record(tenant, succeeded, now_ns);
        if !succeeded {
            self.not_before_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Unpins all arenas after a refusal; waits a moment for those that transfers use. The caller's
    /// own transfers are complete.
    pub fn unpin_all(&self) {
        self.pause();
        drop(self.give_up(u64::MAX));
        let began = Instant::now();
        while self.is_used() && began.elapsed() < TRANSFERS_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn give_up(&self, since_ns: u64) -> Vec<Arc<PinnedMemory>> {
        // `Pinning::pin` is called under a pin's lock and takes this one.
        let known = self.pins.locked().clone();
        let pins = known.iter().filter_map(Weak::upgrade);
        pins.filter_map(|pin| pin.give_up(since_ns)).collect()
    }
}

/// Drops what unmaps or unpins `bytes` in a separate thread if there are many of them: that takes
/// tens of milliseconds, too long for a command queue's thread.
pub fn let_go(gone: impl Send + 'static, bytes: u64) {
    type Gone = Box<dyn Send>;
    static GONE: LazyLock<Option<Mutex<Sender<Gone>>>> = LazyLock::new(|| {
        let (sender, gone) = channel::<Gone>();
        let thread = std::thread::Builder::new().name("arenas".into());
        let started = thread.spawn(move || gone.iter().for_each(drop));
        started.is_ok().then(|| Mutex::new(sender))
    });
    if bytes <= AT_ONCE_BYTES {
        return;
    }
    if let Some(sender) = &*GONE {
        let sender = sender.locked();
        // The thread lives as long as the process.
        let _ = sender.send(Box::new(gone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_whose_commands_are_always_refused_unpins_ever_more_seldom() {
        let mut refusals = Refusals::default();
        let (mut now_ns, mut unpinned) = (0, 0);
        // Its commands are refused all the time, for 100 minutes.
        while now_ns < 600 * IDLE_NS {
            if refusals.allows("red", now_ns) {
                refusals.record("red", false, now_ns);
                unpinned += 1;
            }
            assert!(refusals.allows("blue", now_ns));
            now_ns += IDLE_NS / 10;
        }
        assert!((10..=15).contains(&unpinned), "{unpinned}");
        // A success shows that pinned memory was the cause.
        assert!(!refusals.allows("red", now_ns));
        refusals.record("red", true, now_ns);
        assert!(refusals.allows("red", now_ns));
        refusals.record("red", false, now_ns);
        assert!(!refusals.allows("red", now_ns + IDLE_NS));
        assert!(refusals.allows("red", now_ns + 2 * IDLE_NS));
    }

    #[test]
    fn tenants_that_have_left_are_forgotten() {
        let mut refusals = Refusals::default();
        for tenant in 0..1000u64 {
            refusals.record(&tenant.to_string(), false, tenant * 10 * IDLE_NS);
        }
        assert!(refusals.tenants.len() < 10, "{}", refusals.tenants.len());
    }
}
