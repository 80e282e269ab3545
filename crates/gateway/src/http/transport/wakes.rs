//! Wake-ups of a worker's connections by other threads.
//!
//! For each task that another thread wakes, Tokio writes to a descriptor of the task's runtime. A
//! thread that completes the calls of many connections would spend much of its time on these
//! writes. Here it appends the connection to a queue of the connection's worker and notifies the
//! worker once, which then wakes its connections itself.

use crossbeam_queue::SegQueue;
use std::cell::Cell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use tokio::sync::Notify;

thread_local! {
    /// The address of this thread's [`Wakes`]; 0: this thread is not a worker.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// The connections of a worker that other threads have woken.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    woken: SegQueue<Arc<Connection>>,
    notify: Notify,
}

/// The wakers that the futures of a connection call.
#[derive(Debug)]
struct Connection {
    wakes: Arc<Wakes>,
    task: Waker,
    /// Whether it is in the queue.
    queued: AtomicBool,
}

impl Wakes {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Makes this thread the worker that runs the connections.
    pub fn own(&self) {
        OWN.set(self.address());
    }

    /// Wakes the queued connections, indefinitely; to be run by the worker.
    pub async fn forward(&self) {
        loop {
            self.notify.notified().await;
            while let Some(connection) = self.woken.pop() {
                // A swap, not a store: it acquires the writes of a thread that has just found the
                // connection queued.
                connection.queued.swap(false, AcqRel);
                connection.task.wake_by_ref();
            }
        }
    }

    /// Runs a connection, whose futures other threads wake through the queue.
    pub async fn run<F: Future>(self: Arc<Self>, connection: F) -> F::Output {
        let mut connection = pin!(connection);
        let mut wakers: Option<(Waker, Waker)> = None;
        poll_fn(|context| {
            let task = context.waker();
            let (_, own) = match &mut wakers {
                Some(wakers) if wakers.0.will_wake(task) => wakers,
                wakers => wakers.insert((task.clone(), self.waker(task.clone()))),
            };
            connection.as_mut().poll(&mut Context::from_waker(own))
        })
        .await
    }

    fn waker(self: &Arc<Self>, task: Waker) -> Waker {
        Waker::from(Arc::new(Connection {
            wakes: self.clone(),
            task,
            queued: AtomicBool::new(false),
        }))
    }
}

impl Wake for Connection {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if OWN.get() == self.wakes.address() {
            self.task.wake_by_ref();
        } else if !self.queued.swap(true, AcqRel) {
            self.wakes.woken.push(self.clone());
            self.wakes.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tokio::sync::oneshot;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    type Polled = Pin<Box<dyn Future<Output = ()> + Send>>;

    /// A connection that waits, its sender, and the number of wake-ups of its task.
    fn waiting(wakes: &Arc<Wakes>) -> (Polled, oneshot::Sender<()>, Arc<Count>) {
        let (sender, receiver) = oneshot::channel();
        let run = wakes.clone().run(async { receiver.await.unwrap() });
        let mut connection: Polled = Box::pin(run);
        let count = Arc::new(Count::default());
        assert!(poll(&mut connection, &count));
        (connection, sender, count)
    }

    /// Whether it is pending.
    fn poll(future: &mut Polled, count: &Arc<Count>) -> bool {
        let waker = Waker::from(count.clone());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        polled.is_pending()
    }

    #[test]
    fn another_thread_notifies_the_worker_once_for_all_connections() {
        let wakes = Arc::new(Wakes::default());
        wakes.own();
        let notified = Arc::new(Count::default());
        let this = wakes.clone();
        let mut forward: Polled = Box::pin(async move { this.forward().await });
        for round in 1..=3 {
            assert!(poll(&mut forward, &notified));
            let mut waiting: Vec<_> = (0..100).map(|_| waiting(&wakes)).collect();
            let senders: Vec<_> = waiting
                .iter_mut()
                .map(|(_, sender, _)| std::mem::replace(sender, oneshot::channel().0))
                .collect();
            std::thread::spawn(move || senders.into_iter().for_each(|s| s.send(()).unwrap()))
                .join()
                .unwrap();
            assert_eq!(notified.0.load(SeqCst), round);
            assert!(waiting
                .iter()
                .all(|(_, _, count)| count.0.load(SeqCst) == 0));
            assert!(poll(&mut forward, &notified));
            for (connection, _, count) in &mut waiting {
                assert_eq!(count.0.load(SeqCst), 1);
                assert!(!poll(connection, count));
            }
        }
    }

    #[test]
    fn the_worker_wakes_its_connections_directly() {
        let wakes = Arc::new(Wakes::default());
        wakes.own();
        let (mut connection, sender, count) = waiting(&wakes);
        sender.send(()).unwrap();
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(wakes.woken.is_empty());
        assert!(!poll(&mut connection, &count));
    }
}
