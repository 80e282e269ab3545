//! Text that kernels of the executor's own devices print.
//!
//! A vendor's driver prints to the process's standard output, which [`crate::capture`] attributes by
//! running such kernels one at a time. The executor's own devices attribute each kernel's text
//! themselves, so that kernels which print run at the same time.

use std::cell::RefCell;
use std::sync::Arc;

/// Receives a kernel's text.
pub type Output = Arc<dyn Fn(&[u8]) + Send + Sync>;

thread_local! {
    static OUTPUT: RefCell<Option<Output>> = const { RefCell::new(None) };
}

/// Kernels that this thread launches print there from now on.
pub fn set(output: Output) {
    OUTPUT.set(Some(output));
}

/// The output of kernels that this thread launches; the process's standard output if none is set.
pub fn of_thread() -> Output {
    OUTPUT
        .with_borrow(Clone::clone)
        .unwrap_or_else(|| Arc::new(to_standard_output))
}

/// One write keeps lines intact.
fn to_standard_output(text: &[u8]) {
    let stdout = rustix::stdio::stdout();
    let mut rest = text;
    while !rest.is_empty() {
        match rustix::io::write(stdout, rest) {
            Ok(n) => rest = &rest[n..],
            Err(rustix::io::Errno::INTR) => {}
            // The rest is lost, as with any driver.
            Err(_) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_ring::Locked;
    use std::sync::Mutex;

    #[test]
    fn each_thread_has_its_output() {
        let printed = ["one", "two"].map(|name| {
            let text = Arc::new(Mutex::new(Vec::new()));
            let own = text.clone();
            let thread = std::thread::spawn(move || {
                set(Arc::new(move |text: &[u8]| {
                    own.locked().extend_from_slice(text)
                }));
                of_thread()(name.as_bytes());
            });
            thread.join().unwrap();
            let text = text.locked().clone();
            text
        });
        assert_eq!(printed, [b"one", b"two"]);
    }
}
