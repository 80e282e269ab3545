use super::*;
use baltra_channel::Channel;

fn pool(isolation: Isolation, prestart: usize) -> Pool {
    Pool::new(PoolOptions {
        isolation,
        prestart,
        count_max: 3,
        start_timeout: Duration::from_millis(50),
        idle: Duration::ZERO,
    })
}

fn starting(pool: &Pool, id: u64) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    let process = Process::new(ours, std::process::id(), None).unwrap();
    pool.add(id, Arc::new(process), Phase::Starting);
    theirs
}

fn warm(pool: &Pool, id: u64) -> Channel {
    let theirs = starting(pool, id);
    pool.ready(id);
    theirs
}

#[test]
fn sessions_of_a_tenant_share_an_executor_and_tenants_do_not() {
    let pool = pool(Isolation::Tenant, 2);
    let _ends = [warm(&pool, 1), warm(&pool, 2)];
    let first = pool.place("red", 10).unwrap();
    assert!(first.assign);
    let second = pool.place("red", 11).unwrap();
    assert_eq!((first.executor, second.assign), (second.executor, false));
    let other = pool.place("blue", 12).unwrap();
    assert_ne!(other.executor, first.executor);
    assert_eq!(pool.lacking(), 1, "room for one more of three");
}

#[test]
fn each_session_has_its_own_executor_where_asked_for() {
    let pool = pool(Isolation::Session, 1);
    let ends = [warm(&pool, 1), warm(&pool, 2)];
    let first = pool.place("red", 10).unwrap();
    let second = pool.place("red", 11).unwrap();
    assert_ne!(first.executor, second.executor);
    pool.session_ended(1, 10);
    let (message, _) = ends[0].receive::<ToExecutor>().unwrap().unwrap();
    assert_eq!(message, ToExecutor::Exit);
}

#[test]
fn all_share_one_executor_where_asked_for() {
    let pool = pool(Isolation::Device, 2);
    assert_eq!(pool.lacking(), 1);
    let _end = warm(&pool, 1);
    let first = pool.place("red", 10).unwrap();
    let second = pool.place("blue", 11).unwrap();
    assert_eq!(first.executor, second.executor);
    assert!(!first.assign && !second.assign);
    assert_eq!(pool.lacking(), 0);
}

#[test]
fn a_driver_that_fails_is_said_and_tried_again_later() {
    let pool = pool(Isolation::Tenant, 2);
    let _end = starting(&pool, 1);
    pool.remove(1, Some("no such library".into()), "exit status: 1");
    assert_eq!(pool.lacking(), 0);
    let error = pool.place("red", 10).err().unwrap();
    assert!(error.to_string().contains("no such library"));
}

#[test]
fn executors_killed_while_they_start_are_replaced_at_once_but_not_for_ever() {
    let pool = pool(Isolation::Tenant, 2);
    for id in 1..SILENT_DEATHS_MAX.into() {
        let _end = starting(&pool, id);
        pool.remove(id, None, "signal: 9 (SIGKILL)");
        assert_eq!((pool.failure(), pool.lacking()), (None, 2));
    }
    let _end = starting(&pool, 9);
    pool.remove(9, None, "signal: 11 (SIGSEGV)");
    assert!(pool.failure().unwrap().contains("signal: 11"));
}

#[test]
fn a_full_pool_and_a_slow_driver_are_distinguished() {
    let full = pool(Isolation::Tenant, 1);
    let _ends: Vec<_> = (0..3).map(|id| warm(&full, id)).collect();
    for name in ["a", "b", "c"] {
        full.place(name, 1).unwrap();
    }
    assert!(matches!(full.place("d", 1), Err(Error::Full(3))));
    let slow = pool(Isolation::Tenant, 1);
    assert!(matches!(slow.place("a", 1), Err(Error::Slow(_))));
}

#[test]
fn an_idle_executor_is_ended_and_gets_no_more_sessions() {
    let pool = pool(Isolation::Tenant, 0);
    let end = warm(&pool, 1);
    pool.place("red", 10).unwrap();
    pool.reap();
    pool.session_ended(1, 10);
    std::thread::sleep(Duration::from_millis(2));
    pool.reap();
    let (message, _) = end.receive::<ToExecutor>().unwrap().unwrap();
    assert_eq!(message, ToExecutor::Exit);
    assert!(matches!(pool.place("red", 11), Err(Error::Slow(_))));
}

#[test]
fn who_faults_again_waits_and_shares_no_executor_any_more() {
    let pool = pool(Isolation::Device, 1);
    let _first = warm(&pool, 1);
    pool.place("red", 10).unwrap();
    pool.failing(1, "red", Fault::ContextLost);
    assert_eq!(pool.lacking(), 1, "a failing executor takes no sessions");
    let _second = warm(&pool, 2);
    assert_eq!(pool.place("red", 11).unwrap().executor, 2);
    assert_eq!(pool.place("blue", 12).unwrap().executor, 2);
    pool.record_fault("red", Fault::Overdue);
    // The pause is longer than the pool's patience.
    assert!(matches!(pool.place("red", 13), Err(Error::Slow(_))));
    assert_eq!(pool.place("blue", 14).unwrap().executor, 2);
    std::thread::sleep(Duration::from_millis(110));
    let _third = warm(&pool, 3);
    let own = pool.place("red", 15).unwrap();
    assert_eq!((own.executor, own.assign), (3, true));
    assert_eq!(pool.place("red", 16).unwrap().executor, 3);
    assert_eq!(pool.place("blue", 17).unwrap().executor, 2);
    assert_eq!(pool.faults().len(), 2);
}

/// Number of times that this thread has slept.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn sessions_that_wait_do_not_wake_each_other() {
    let pool = pool(Isolation::Tenant, 0);
    let _end = starting(&pool, 1);
    let waiting = |session| {
        let before = sleeps();
        assert!(matches!(pool.place("red", session), Err(Error::Slow(_))));
        sleeps() - before
    };
    let slept = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|s| {
                scope.spawn({
                    let waiting = &waiting;
                    move || waiting(s)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).max()
    });
    assert!(slept.unwrap() < 20, "{slept:?} sleeps in 50 ms");
}

#[test]
fn killed_and_closed_executors_get_no_more_sessions_while_they_end() {
    for killed in [true, false] {
        let pool = pool(Isolation::Tenant, 0);
        let (ours, _theirs) = Channel::pair().unwrap();
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let child = child.unwrap();
        let process = Arc::new(Process::new(ours, child.id(), Some(child)).unwrap());
        pool.add(1, process.clone(), Phase::Starting);
        pool.ready(1);
        pool.place("red", 10).unwrap();
        if killed {
            process.kill("its task took too long");
        } else {
            assert!(!pool.closed(1), "nobody has ordered it to exit");
        }
        let _others: Vec<_> = (2..4).map(|id| starting(&pool, id)).collect();
        // It waits for another one, also if there are as many as there may be.
        assert!(matches!(pool.place("red", 11), Err(Error::Slow(_))));
        pool.ready(2);
        assert_eq!(pool.place("red", 12).unwrap().executor, 2);
        process.kill("the test ends");
        process.finish();
    }
}

#[test]
fn an_executor_whose_process_is_ending_gets_no_more_sessions() {
    let pool = pool(Isolation::Tenant, 0);
    let (ours, _theirs) = Channel::pair().unwrap();
    let mut child = std::process::Command::new("cat");
    let child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let process = Arc::new(Process::new(ours, child.id(), Some(child)).unwrap());
    pool.add(1, process.clone(), Phase::Starting);
    pool.ready(1);
    assert_eq!(pool.place("red", 10).unwrap().executor, 1);
    assert!(!process.is_exiting());
    // Nobody waits for it yet, so that it stays in this state.
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while !process.is_exiting() {
        std::thread::yield_now();
    }
    let _other = warm(&pool, 2);
    assert_eq!(pool.place("red", 11).unwrap().executor, 2);
    assert!(!pool.closed(1), "nobody has ordered it to exit");
    process.finish();
}
