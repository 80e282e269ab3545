//! A client with programs, which uses the protocol directly instead of an OpenCL library.
#![allow(dead_code)]

use baltra_session::client::{Client, Handler, Queue};
use baltra_testkit::{hello, Daemon};
use baltra_wire::{Control, Event, Id, Operation, Query, Reply, Request};
use std::sync::{Arc, Mutex};

/// `CL_DEVICE_NOT_AVAILABLE`.
pub const NOT_AVAILABLE: i32 = -2;
/// `CL_PROGRAM_BINARIES`.
const BINARIES: u32 = 0x1166;

/// Notifications from the executor.
#[derive(Default)]
pub struct Messages(Mutex<String>);

impl Handler for Messages {
    fn printed(&self, _: &[u8]) {}
    fn context_error(&self, _: Id, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
    fn lost(&self, _: i32, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

/// A session with one context.
pub struct Tenant {
    pub client: Arc<Client>,
    context: Id,
    messages: Arc<Messages>,
}

impl Tenant {
    pub fn new(daemon: &Daemon, name: &str, device: &str) -> Tenant {
        Tenant::instance(daemon, name, device, None)
    }

    /// A session that names its instance in a pool.
    pub fn instance(daemon: &Daemon, name: &str, device: &str, instance: Option<&str>) -> Tenant {
        Tenant::at(&daemon.endpoint(), name, device, instance)
    }

    /// A session through an endpoint.
    pub fn at(endpoint: &str, name: &str, device: &str, instance: Option<&str>) -> Tenant {
        let messages = Arc::new(Messages::default());
        let mut hello = hello(device);
        hello.tenant = name.to_owned();
        if let Some(instance) = instance {
            hello.instance = instance.to_owned();
        }
        let endpoint = endpoint.parse().unwrap();
        let client = Client::connect(&endpoint, hello, messages.clone()).unwrap();
        let context = client.new_id();
        let devices = &0u32.to_le_bytes();
        let id = context;
        client.control(&Control::Context { id, devices }).unwrap();
        Tenant {
            client,
            context,
            messages,
        }
    }

    /// All messages so far.
    pub fn messages(&self) -> String {
        self.messages.0.lock().unwrap().clone()
    }

    /// Enqueues a command that waits until [`Tenant::go_on`].
    pub fn be_busy(&self) -> (Queue, Event) {
        let queue = self.client.open_queue(self.context, 0, 0).unwrap();
        let gate = self.client.new_event().unwrap();
        queue.push(0, &[gate], &Operation::Marker).unwrap();
        queue.flush();
        (queue, gate)
    }

    /// Starts that command, and waits for its end.
    pub fn go_on(&self, (queue, gate): (Queue, Event)) {
        let done = Control::UserEvent {
            event: gate,
            status: 0,
        };
        self.client.control(&done).unwrap();
        queue.wait(1).unwrap();
    }

    pub fn binary_program(&self, binary: &[u8]) -> (Id, Reply) {
        let (id, reply) = self.load(binary);
        (id, reply.expect("the session is open"))
    }

    /// Creates a program from a binary; no reply: the session has ended.
    pub fn load(&self, binary: &[u8]) -> (Id, Option<Reply>) {
        let id = self.client.new_id();
        let reply = self.client.call(Request::ProgramBinary {
            id,
            context: self.context,
            devices: &0u32.to_le_bytes(),
            binaries: vec![binary],
        });
        (id, reply.ok())
    }

    pub fn source_program(&self, source: &str) -> (Id, Reply) {
        let id = self.client.new_id();
        let source = Control::ProgramSource {
            id,
            context: self.context,
            source: source.as_bytes(),
        };
        self.client.control(&source).unwrap();
        (id, self.build(id))
    }

    pub fn build(&self, program: Id) -> Reply {
        let build = Request::Build {
            program,
            devices: &[],
            options: "",
            files: Vec::new(),
        };
        self.client.call(build).unwrap()
    }

    pub fn binary(&self, source: &str) -> Vec<u8> {
        let (program, built) = self.source_program(source);
        assert!(matches!(built, Reply::Built { code: 0, .. }), "{built:?}");
        let param = BINARIES;
        let query = Request::Query(Query::Program { program, param });
        let Reply::Bytes(binary) = self.client.call(query).unwrap() else {
            panic!("no binary");
        };
        binary
    }
}

/// The source of a program with one kernel of that name.
pub fn source(kernel: &str) -> String {
    format!("kernel void {kernel}(global int *a) {{ a[get_global_id(0)] += 1; }}")
}
