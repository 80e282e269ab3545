//! The whole process, sandbox included. The test program starts itself as the executor.

mod common;

use baltra_channel::Channel;
use baltra_executor::Options;
use baltra_ring::Segment;
use baltra_wire::executor::{SessionStart, ToExecutor, ToManager};
use baltra_wire::{Limits, SessionFlags};
use common::{Client, Peer, POCL};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Not a test: the program that the tests start.
#[test]
#[ignore = "started by the other tests"]
fn executor() {
    let Ok(dir) = std::env::var("EXECUTOR_DIR") else {
        return;
    };
    let options = Options {
        name: "pocl".into(),
        work_dir: PathBuf::from(&dir).join("work"),
        cache_root: Some(PathBuf::from(&dir).join("cache")),
        adopt: Some(PathBuf::from(&dir).join("manager")),
        ..Options::new(POCL)
    };
    baltra_executor::run(options).unwrap();
}

struct Executor {
    child: Child,
    channel: Channel,
    dir: PathBuf,
}

impl Executor {
    fn start(name: &str) -> Executor {
        let dir = std::env::temp_dir().join(format!("executor-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("cache/red")).unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["executor", "--exact", "--ignored", "--nocapture"])
            .env("EXECUTOR_DIR", &dir)
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let executor = Executor {
            child,
            channel: ours,
            dir,
        };
        match executor.receive() {
            Some(ToManager::Ready { device, .. }) => {
                assert!(device.host_memory && device.name == "pocl");
                assert!(device.device.len() > 50 && !device.image_formats.is_empty());
            }
            other => panic!("{other:?}"),
        }
        executor
    }

    fn receive(&self) -> Option<ToManager> {
        let received = self.channel.receive::<ToManager>().unwrap();
        received.map(|(message, _)| message)
    }

    fn assign(&self) {
        let message = ToExecutor::Assign {
            tenant: "red".into(),
            cache_dir: self.dir.join("cache/red").to_string_lossy().into_owned(),
        };
        self.channel.send(&message, &[]).unwrap();
    }

    fn session(&self, session: u64) -> Client {
        let (page, bell) = baltra_ring::lease::create().unwrap();
        let granter = baltra_ring::LeaseGranter::new(&page, bell.try_clone().unwrap()).unwrap();
        granter.grant();
        let (socket, theirs) = UnixStream::pair().unwrap();
        let (segment, fd) = Segment::create().unwrap();
        let start = SessionStart {
            session,
            tenant: "red".into(),
            limits: Limits::default(),
            flags: SessionFlags::default(),
            lease: session,
            instance: "web-1".into(),
        };
        let fds = [theirs.as_fd(), fd.as_fd(), page.as_fd(), bell.as_fd()];
        self.channel
            .send(&ToExecutor::Session(start), &fds)
            .unwrap();
        Client::new(socket, segment, granter)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn run_a_kernel(client: &mut Client, source: &str) -> i32 {
    let context = client.context();
    let mut queue = client.queue(context, 0);
    let kernel = client.kernel(context, source, "work");
    let event = client.event();
    client.launch(&mut queue, event, &[], kernel, 64, &[]);
    queue.flush();
    client.wait(event)
}

#[test]
fn kernels_are_compiled_and_run_inside_the_sandbox() {
    let mut executor = Executor::start("sandbox");
    executor.assign();
    let mut client = executor.session(1);
    assert_eq!(run_a_kernel(&mut client, "kernel void work() {}"), 0);
    let kept = std::fs::read_dir(executor.dir.join("cache/red")).unwrap();
    assert!(kept.count() > 0, "no compiled kernel in the tenant's cache");
    let status = std::fs::read_to_string(format!("/proc/{}/status", executor.child.id())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"));
    drop(client);
    match executor.receive() {
        Some(ToManager::SessionEnded { session: 1, reason }) => {
            assert_eq!(reason, "the client disconnected");
        }
        other => panic!("{other:?}"),
    }
    executor.channel.send(&ToExecutor::Exit, &[]).unwrap();
    assert!(executor.child.wait().unwrap().success());
    assert!(!executor.dir.join("work/own").exists());
}

#[test]
fn a_kernel_that_faults_ends_its_own_executor_only() {
    let mut other = Peer::new();
    let executor = Executor::start("fault");
    let mut client = executor.session(1);
    let context = client.context();
    let mut queue = client.queue(context, 0);
    let source = "kernel void work() { *(global int*)(get_global_id(0) + 8) = 1; }";
    let kernel = client.kernel(context, source, "work");
    let event = client.event();
    client.launch(&mut queue, event, &[], kernel, 1, &[]);
    queue.flush();
    // The manager observes the end of its socket, the client that of its own.
    assert!(executor.receive().is_none());
    let mut end = [0u8; 1];
    let mut socket = &client.socket;
    assert!(matches!(
        std::io::Read::read(&mut socket, &mut end),
        Ok(0) | Err(_)
    ));
    let context = other.context();
    other.kernel(context, "kernel void work() {}", "work");
}

#[test]
fn sessions_outlive_their_manager_and_the_executor_does_not_outlive_them() {
    let mut executor = Executor::start("orphan");
    let mut client = executor.session(1);
    assert_eq!(run_a_kernel(&mut client, "kernel void work() {}"), 0);
    let (gone, _) = Channel::pair().unwrap();
    drop(std::mem::replace(&mut executor.channel, gone));
    assert_eq!(run_a_kernel(&mut client, "kernel void work() { }"), 0);
    drop(client);
    assert!(executor.child.wait().unwrap().success());
}

#[test]
fn a_draining_executor_ends_with_its_last_session() {
    let mut executor = Executor::start("drain");
    let mut client = executor.session(1);
    executor.channel.send(&ToExecutor::Drain, &[]).unwrap();
    assert_eq!(run_a_kernel(&mut client, "kernel void work() {}"), 0);
    drop(client);
    assert!(executor.child.wait().unwrap().success());
}

#[test]
fn an_orphan_reports_to_the_next_manager() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let mut executor = Executor::start("adopted");
    executor.assign();
    let mut client = executor.session(7);
    assert_eq!(run_a_kernel(&mut client, "kernel void work() {}"), 0);
    let listener = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let path = executor.dir.join("manager");
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let (gone, _) = Channel::pair().unwrap();
    drop(std::mem::replace(&mut executor.channel, gone));
    executor.channel = Channel::new(rustix::net::accept(&listener).unwrap());
    let (message, fds) = executor.channel.receive::<ToManager>().unwrap().unwrap();
    let ToManager::Adopt {
        tenant,
        sessions,
        leases,
        ..
    } = message
    else {
        panic!("another message");
    };
    assert_eq!(tenant, "red");
    assert_eq!(sessions[0].session, 7);
    assert_eq!(leases, [(7, "red".to_owned())]);
    assert_eq!(fds.len(), 2);
    let named = ToManager::Named {
        session: 7,
        instance: "web-1".into(),
    };
    assert_eq!(executor.receive(), Some(named));
    assert_eq!(run_a_kernel(&mut client, "kernel void work() { }"), 0);
    drop(client);
    let ended = executor.receive();
    assert!(matches!(
        ended,
        Some(ToManager::SessionEnded { session: 7, .. })
    ));
}
