//! Recognizes a driver's context that is in error for as long as the process lives.
//!
//! A stray store on a GPU does that: NVIDIA's driver answers the wait with
//! `CL_INVALID_COMMAND_QUEUE`, everything that follows with `CL_OUT_OF_RESOURCES`, and builds and
//! new contexts with −9999. Each of these may have another reason, so that a probe decides: a marker
//! on a queue made before the first session, which needs no memory and no other command. Only the
//! end of the process helps, so that every later call returns `CL_DEVICE_NOT_AVAILABLE`.

use crate::driver::{Code, Context, Device, Queue};
use baltra_opencl::*;
use baltra_ring::Locked;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

/// Validity of a probe's result: errors may occur by the thousand.
const PROBE_EVERY: Duration = Duration::from_millis(200);
/// Maximum wait of a probe for the device; after that its result is unknown.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// The driver's state, as derived from errors.
pub struct Health {
    device: Device,
    probe: Option<Arc<Queue>>,
    /// The session whose work lost the context; 0: the context is intact.
    culprit: AtomicU64,
    is_lost: AtomicBool,
    is_probing: Arc<AtomicBool>,
    probed: Mutex<Option<Instant>>,
    wake: Arc<OwnedFd>,
}

/// Whether a code is defined neither by OpenCL nor by one of its extensions.
fn is_unknown(code: Code) -> bool {
    (-999..=-73).contains(&code) || code <= -2000
}

/// Whether a code may come from a lost context.
fn is_suspicious(code: Code) -> bool {
    const SUSPICIOUS: [Code; 3] = [
        CL_INVALID_COMMAND_QUEUE,
        CL_OUT_OF_RESOURCES,
        CL_DEVICE_NOT_AVAILABLE,
    ];
    SUSPICIOUS.contains(&code) || is_unknown(code)
}

impl Health {
    /// Of a context that is well. `wake` is written to when it no longer is.
    pub fn new(context: &Context, device: Device, wake: Arc<OwnedFd>) -> Health {
        Health {
            device,
            // Without one only new contexts are tried.
            probe: context.queue(device, 0).ok().map(Arc::new),
            culprit: 0.into(),
            is_lost: false.into(),
            is_probing: Arc::default(),
            probed: Mutex::default(),
            wake,
        }
    }

    /// Whether the context is lost, so that results of commands are invalid.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// The session whose work lost the context, if it is lost.
    pub fn culprit(&self) -> Option<u64> {
        self.is_lost().then(|| self.culprit.load(Ordering::Relaxed))
    }

    /// The error to report to a session in place of a driver's error. May wait for a probe.
    pub fn verdict(&self, session: u64, code: Code) -> Code {
        if self.is_lost() {
            return CL_DEVICE_NOT_AVAILABLE;
        }
        if !is_suspicious(code) {
            return code;
        }
        let mut probed = self.probed.locked();
        if self.is_lost() {
            return CL_DEVICE_NOT_AVAILABLE;
        }
        // A code that OpenCL does not define is not an ordinary error.
        let recent = probed.is_some_and(|at| at.elapsed() < PROBE_EVERY);
        if recent && !is_unknown(code) {
            return code;
        }
        let lost = self.is_context_lost(is_unknown(code));
        *probed = Some(Instant::now());
        if !lost {
            return code;
        }
        tracing::warn!(session, code, "the driver's context was lost");
        self.culprit.store(session, Ordering::Relaxed);
        self.is_lost.store(true, Ordering::Release);
        // It can only be full, and then it is readable anyway.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        CL_DEVICE_NOT_AVAILABLE
    }

    /// Tests the context and, with `anew`, whether another one can be created.
    fn is_context_lost(&self, anew: bool) -> bool {
        if self.is_probing.swap(true, Ordering::AcqRel) {
            // The last one still waits for the device.
            return false;
        }
        let (probe, device, probing) = (self.probe.clone(), self.device, self.is_probing.clone());
        let (sender, result) = mpsc::channel();
        let try_both = move || {
            let used = probe.map_or(Ok(()), |queue| {
                queue.marker(&[], false)?;
                queue.finish()
            });
            let lost = match used {
                Err(_) => true,
                Ok(()) if anew => Context::new(&[device]).is_err_and(is_unknown),
                Ok(()) => false,
            };
            probing.store(false, Ordering::Release);
            // The caller may have stopped waiting.
            let _ = sender.send(lost);
        };
        let name = std::thread::Builder::new().name("probe".into());
        if name.spawn(try_both).is_err() {
            self.is_probing.store(false, Ordering::Release);
            return false;
        }
        result.recv_timeout(PROBE_MAX).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_opencl_and_its_extensions_are_known() {
        for code in [-1, -5, -36, -72, -1000, -1001, -1057, -1092] {
            assert!(!is_unknown(code), "{code}");
        }
        for code in [-73, -999, -9999, i32::MIN] {
            assert!(is_unknown(code) && is_suspicious(code), "{code}");
        }
        for code in [-36, -5, -2] {
            assert!(is_suspicious(code), "{code}");
        }
        for code in [-4, -6, -11, -14, -30, -54] {
            assert!(!is_suspicious(code), "{code}");
        }
    }
}
