//! The image of a device that holds one at a time: its state according to the manager, the sessions
//! of this process that use it, and programs' requests for their images.
//!
//! A builder thread sends a request and waits; the process's main loop transfers messages. When the
//! manager has exited, the last known image is the only one available.

use baltra_ring::{Locked, Unpoisoned};
use baltra_wire::executor::{ToManager, Verdict};
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{MemfdFlags, SealFlags};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Interval at which a waiting thread checks whether its session still needs the answer.
const LOOK: Duration = Duration::from_millis(50);

/// Most bytes of an accelerator's name or digest: no accelerator has a longer one, and the message
/// must fit into a packet.
const ACCELERATOR_BYTES_MAX: usize = 64;

const SESSION_ENDED: &str = "the session ended";
const NO_MANAGER: &str =
    "the node's store cannot be read, because its manager does not run: try again once it has \
     restarted";

/// The file of an image, or why there is none.
type Fetched = Result<OwnedFd, String>;

/// A message to the manager and the descriptor beside it.
pub type Letter = (ToManager, Option<OwnedFd>);

struct Question {
    digest: String,
    verdict: Option<Verdict>,
}

#[derive(Default)]
struct State {
    /// The image that the device holds; empty: not known.
    held: String,
    connected: bool,
    /// Whether the manager has not started this executor, and may be of an earlier release, which
    /// has no message for a load's success.
    adopted: bool,
    outbox: Vec<Letter>,
    questions: HashMap<u64, Question>,
    /// Requests for images of the node's store.
    fetches: HashMap<u64, Option<Fetched>>,
    next: u64,
    /// Number of programs by session and digest of their image.
    uses: HashMap<(u64, String), usize>,
}

/// State shared by the sessions of a process.
pub struct Images {
    exclusive: AtomicBool,
    state: Mutex<State>,
    answered: Condvar,
    wake: Arc<OwnedFd>,
}

/// A program's claim to its image; the manager is notified when a session drops its last claim.
pub struct Use {
    images: Arc<Images>,
    session: u64,
    digest: String,
}

/// An image's name: sha256, lower-case hexadecimal.
pub fn digest(image: &[u8]) -> String {
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|d| char::from(b"0123456789abcdef"[d as usize]));
    Sha256::digest(image).iter().flat_map(digits).collect()
}

impl Images {
    /// For a device that holds several programs, until the manager reports otherwise.
    pub fn new() -> io::Result<Images> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Images {
            exclusive: AtomicBool::new(false),
            state: Mutex::default(),
            answered: Condvar::new(),
            wake: Arc::new(wake),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Readable when there are messages for the manager.
    pub fn wake(&self) -> Arc<OwnedFd> {
        self.wake.clone()
    }

    /// Whether the device holds one image at a time.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive.load(Ordering::Acquire)
    }

    /// The messages that wait for the manager.
    pub fn take_outbox(&self) -> Vec<Letter> {
        std::mem::take(&mut self.state().outbox)
    }

    fn post(&self, state: &mut State, message: ToManager, fd: Option<OwnedFd>) {
        if state.connected {
            state.outbox.push((message, fd));
            // A full counter wakes as well.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }

    /// A manager has connected: sends it the images in use.
    pub fn connect(&self) {
        let mut state = self.state();
        state.connected = true;
        let held = state.held.clone();
        let using = state.uses.keys().filter(|(_, digest)| *digest == held);
        let using: Vec<_> = using.cloned().collect();
        for (session, digest) in using {
            self.post(&mut state, ToManager::InUse { session, digest }, None);
        }
    }

    /// The manager has exited: requests are answered from the last known state.
    pub fn lose(&self) {
        let mut state = self.state();
        state.connected = false;
        state.adopted = true;
        state.outbox.clear();
        let held = state.held.clone();
        for question in state.questions.values_mut() {
            let local = || alone(&held, &question.digest);
            question.verdict.get_or_insert_with(local);
        }
        for fetched in state.fetches.values_mut() {
            fetched.get_or_insert_with(|| Err(NO_MANAGER.into()));
        }
        drop(state);
        self.answered.notify_all();
    }

    /// Sets the image that the device holds, if it holds one at a time.
    pub fn set_held(&self, held: Option<String>) {
        self.exclusive.store(true, Ordering::Release);
        if let Some(held) = held {
            self.state().held = held;
        }
    }

    /// The manager's answer.
    pub fn answer(&self, call: u64, verdict: Verdict) {
        let mut state = self.state();
        let state = &mut *state;
        if let Some(question) = state.questions.get_mut(&call) {
            if verdict == Verdict::Loaded {
                state.held.clone_from(&question.digest);
            }
            question.verdict = Some(verdict);
        }
        self.answered.notify_all();
    }

    /// The manager's answer to a request for an image of the node's store.
    pub fn fetched(&self, call: u64, error: String, image: Option<OwnedFd>) {
        let mut state = self.state();
        if let Some(fetched) = state.fetches.get_mut(&call) {
            *fetched = Some(image.ok_or(error));
        }
        self.answered.notify_all();
    }

    /// The driver has loaded an image that the device was to hold.
    pub fn loaded(&self, image: &Use) {
        let mut state = self.state();
        if !state.adopted {
            let message = ToManager::Loaded {
                session: image.session,
                digest: image.digest.clone(),
            };
            self.post(&mut state, message, None);
        }
    }

    /// The driver refused an image that the device was to hold.
    pub fn not_loaded(&self, image: &Use, reason: String) {
        let mut state = self.state();
        if state.held == image.digest {
            state.held.clear();
        }
        let message = ToManager::NotLoaded {
            session: image.session,
            digest: image.digest.clone(),
            reason,
        };
        self.post(&mut state, message, None);
    }

    /// The result of [`baltra_wire::executor::ToExecutor::Load`].
    pub fn load_ended(&self, call: u64, error: String) {
        let mut state = self.state();
        self.post(&mut state, ToManager::LoadEnded { call, error }, None);
    }

    /// Waits until the device holds the image of `digest`; the error is the reason for a refusal.
    /// `image`: its bytes, if the node needs them. `is_over`: the result is no longer needed.
    pub fn load(
        self: &Arc<Self>,
        session: u64,
        digest: String,
        image: Option<&[u8]>,
        kernels: &[String],
        is_over: &dyn Fn() -> bool,
    ) -> Result<Use, String> {
        let claim = self.claim(session, digest);
        let mut image = image;
        let mut fd = None;
        loop {
            match self.ask(&claim, kernels, fd.take(), is_over) {
                Verdict::Loaded => return Ok(claim),
                Verdict::Refused(reason) => return Err(reason),
                Verdict::Lacking => {
                    let bytes = image.take().ok_or("the node no longer has the image")?;
                    let packed = pack(bytes)
                        .map_err(|e| format!("cannot put the image into shared memory: {e}"));
                    fd = Some(packed?);
                }
            }
        }
    }

    /// The bytes of an accelerator's image in the node's store; the error is for its user.
    pub fn fetch(
        &self,
        session: u64,
        accelerator: &str,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, String> {
        if accelerator.len() > ACCELERATOR_BYTES_MAX {
            return Err(format!(
                "the accelerator's name has more than {ACCELERATOR_BYTES_MAX} bytes"
            ));
        }
        let mut state = self.state();
        if !state.connected {
            return Err(NO_MANAGER.into());
        }
        let call = state.next;
        state.next += 1;
        state.fetches.insert(call, None);
        let message = ToManager::Fetch {
            call,
            session,
            accelerator: accelerator.to_owned(),
        };
        self.post(&mut state, message, None);
        let mut fetched = None;
        while fetched.is_none() && !is_over() {
            fetched = state.fetches.get_mut(&call).and_then(Option::take);
            if fetched.is_none() {
                let waited = self.answered.wait_timeout(state, LOOK);
                state = waited.unpoisoned().0;
            }
        }
        state.fetches.remove(&call);
        drop(state);
        let file = fetched.unwrap_or_else(|| Err(SESSION_ENDED.into()))?;
        let mut file = File::from(file);
        let mut image = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut image));
        read.map_err(|e| format!("cannot read the image of '{accelerator}': {e}"))?;
        Ok(image)
    }

    fn claim(self: &Arc<Self>, session: u64, digest: String) -> Use {
        let mut state = self.state();
        *state.uses.entry((session, digest.clone())).or_default() += 1;
        drop(state);
        Use {
            images: self.clone(),
            session,
            digest,
        }
    }

    fn ask(
        &self,
        claim: &Use,
        kernels: &[String],
        fd: Option<OwnedFd>,
        is_over: &dyn Fn() -> bool,
    ) -> Verdict {
        let mut state = self.state();
        if !state.connected {
            return alone(&state.held, &claim.digest);
        }
        let call = state.next;
        state.next += 1;
        let question = Question {
            digest: claim.digest.clone(),
            verdict: None,
        };
        state.questions.insert(call, question);
        let message = ToManager::Program {
            call,
            session: claim.session,
            digest: claim.digest.clone(),
            kernels: bounded(kernels),
        };
        self.post(&mut state, message, fd);
        while !is_over() {
            let question = &mut state.questions.get_mut(&call).expect("inserted above");
            if let Some(verdict) = question.verdict.take() {
                state.questions.remove(&call);
                return verdict;
            }
            let waited = self.answered.wait_timeout(state, LOOK);
            state = waited.unpoisoned().0;
        }
        state.questions.remove(&call);
        Verdict::Refused(SESSION_ENDED.into())
    }
}

impl Use {
    /// The image's name.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = self.images.state();
        let key = (self.session, std::mem::take(&mut self.digest));
        let count = state.uses.get_mut(&key).expect("counted when it was made");
        *count -= 1;
        if *count == 0 {
            state.uses.remove(&key);
            let (session, digest) = key;
            let message = ToManager::Unused { session, digest };
            self.images.post(&mut state, message, None);
        }
    }
}

/// The verdict without a manager.
fn alone(held: &str, digest: &str) -> Verdict {
    if held == digest {
        Verdict::Loaded
    } else {
        Verdict::Refused(
            "the device needs to be reconfigured, but its manager does not run: try again once it has restarted"
                .into(),
        )
    }
}

/// Kernel names, for operators: as many as fit into a packet.
fn bounded(kernels: &[String]) -> Vec<String> {
    let short = kernels.iter().filter(|name| name.len() <= 256);
    short.take(128).cloned().collect()
}

/// An image in a sealed memory file.
fn pack(image: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("baltra-image", flags)?);
    file.write_all(image)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(images: &Arc<Images>, image: &[u8]) -> Result<Use, String> {
        images.load(7, digest(image), Some(image), &[], &|| false)
    }

    /// Answers the questions in the outbox until `count` were answered.
    fn manager(images: &Arc<Images>, verdicts: Vec<Verdict>) -> std::thread::JoinHandle<usize> {
        let images = images.clone();
        std::thread::spawn(move || {
            let mut descriptors = 0;
            for verdict in verdicts {
                let call = loop {
                    let mut letters = images.take_outbox().into_iter();
                    let request = letters.find_map(|(message, fd)| match message {
                        ToManager::Program { call, .. } => Some((call, fd)),
                        _ => None,
                    });
                    if let Some((call, fd)) = request {
                        descriptors += usize::from(fd.is_some());
                        break call;
                    }
                    std::thread::yield_now();
                };
                images.answer(call, verdict);
            }
            descriptors
        })
    }

    #[test]
    fn missing_bytes_are_sent_and_the_last_use_is_reported() {
        let images = Arc::new(Images::new().unwrap());
        images.set_held(None);
        images.connect();
        let answers = manager(
            &images,
            vec![Verdict::Lacking, Verdict::Loaded, Verdict::Loaded],
        );
        let first = load(&images, b"abc").unwrap();
        assert!(first.digest().starts_with("ba7816bf"));
        let second = load(&images, b"abc").unwrap();
        assert_eq!(answers.join().unwrap(), 1);
        drop(first);
        assert!(images.take_outbox().is_empty());
        drop(second);
        let sent = images.take_outbox();
        assert!(matches!(
            &sent[..],
            [(ToManager::Unused { session: 7, .. }, None)]
        ));
    }

    #[test]
    fn an_image_of_the_store_is_read_or_the_reason_is_reported() {
        let images = Arc::new(Images::new().unwrap());
        let fetch = |images: &Images| images.fetch(7, "sobel", &|| false);
        assert_eq!(fetch(&images).unwrap_err(), NO_MANAGER);
        images.connect();
        let long = images.fetch(7, &"x".repeat(65), &|| false);
        assert!(long.unwrap_err().contains("64 bytes"));
        let answers = [Some(pack(b"abc").unwrap()), None];
        for answer in answers {
            let manager = std::thread::spawn({
                let images = images.clone();
                move || loop {
                    for (message, _) in images.take_outbox() {
                        if let ToManager::Fetch { call, .. } = message {
                            return images.fetched(call, "unknown".into(), answer);
                        }
                    }
                    std::thread::yield_now();
                }
            });
            let expected = fetch(&images);
            manager.join().unwrap();
            match expected {
                Ok(bytes) => assert_eq!(bytes, b"abc"),
                Err(reason) => assert_eq!(reason, "unknown"),
            }
        }
    }

    #[test]
    fn without_a_manager_the_last_known_image_is_the_only_one() {
        let images = Arc::new(Images::new().unwrap());
        images.set_held(Some(digest(b"abc")));
        images.connect();
        images.lose();
        let held = load(&images, b"abc").unwrap();
        let reason = load(&images, b"other").err().unwrap();
        assert!(reason.contains("manager does not run"), "{reason}");
        images.connect();
        let sent = images.take_outbox();
        assert!(matches!(
            &sent[..],
            [(ToManager::InUse { session: 7, .. }, None)]
        ));
        drop(held);
    }

    #[test]
    fn a_manager_that_dies_leaves_nobody_waiting() {
        let images = Arc::new(Images::new().unwrap());
        images.set_held(None);
        images.connect();
        let asker = std::thread::spawn({
            let images = images.clone();
            move || load(&images, b"abc").err()
        });
        while images.take_outbox().is_empty() {
            std::thread::yield_now();
        }
        images.lose();
        assert!(asker.join().unwrap().is_some());
    }
}
