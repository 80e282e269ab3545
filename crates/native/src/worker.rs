//! The process: one thread per lane takes calls off its ring, runs them and writes the answers.

use crate::library::{Aligned, Library, Memory as Block};
use crate::protocol::{
    aligned, framed, memory_bytes, rings, AnswerHead, Buffer, Head, Start, Started,
    ANSWER_HEAD_BYTES, SOCKET_BYTES_MAX, TEXT_BYTES_MAX,
};
use anyhow::{bail, ensure, Context, Result};
use baltra_ring::{Consumer, Locked, Memory, Producer};
use baltra_sandbox::Sandbox;
use baltra_session::fd::recv_with_fds;
use rustix::io::Errno;
use rustix::net::{send, SendFlags};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of answers in the ring before the gateway is notified.
const NOTIFY_EVERY: u32 = 32;
/// Pause while the other side drains a ring.
const PAUSE: Duration = Duration::from_micros(50);

type Constants = Mutex<HashMap<u32, Arc<Aligned>>>;

/// The subcommand `native-worker`: its standard input is the socket to the gateway.
pub fn main(args: &[String]) -> Result<()> {
    ensure!(
        args.is_empty(),
        "native-worker takes no arguments: the gateway starts it, with a socket as its input"
    );
    let input = rustix::stdio::stdin().try_clone_to_owned()?;
    run(UnixStream::from(input))
}

/// Serves a gateway until its end of the socket closes.
pub fn run(mut socket: UnixStream) -> Result<()> {
    let (start, fds) = receive(&socket)?;
    let notify = Arc::new(socket.try_clone()?);
    let lanes = ready(&start, fds, &notify);
    let error = match &lanes {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    };
    socket.write_all(&framed(&Started { error })?)?;
    for (number, lane) in lanes?.into_iter().enumerate() {
        let thread = std::thread::Builder::new().name(format!("lane {number}"));
        thread.spawn(move || {
            if let Err(error) = lane.run() {
                // The gateway violated the protocol or has exited.
                eprintln!("native worker: {error:#}");
                std::process::exit(1);
            }
        })?;
    }
    // The socket carries no further messages; its end signals that the gateway has exited.
    let mut rest = [0; 16];
    while socket.read(&mut rest).is_ok_and(|n| n > 0) {}
    // Threads are in the library's code: they end with the process.
    std::process::exit(0);
}

fn receive(socket: &UnixStream) -> Result<(Start, Vec<OwnedFd>)> {
    let mut len = [0; 4];
    let (n, fds) = recv_with_fds(socket, &mut len, true)?;
    ensure!(n == 4, "the gateway closed the connection");
    let len = u32::from_le_bytes(len) as usize;
    ensure!(
        len <= SOCKET_BYTES_MAX,
        "the gateway's message has {len} bytes (at most {SOCKET_BYTES_MAX} allowed)"
    );
    let mut body = vec![0; len];
    (&mut &*socket).read_exact(&mut body)?;
    Ok((postcard::from_bytes(&body)?, fds))
}

fn ready(start: &Start, fds: Vec<OwnedFd>, notify: &Arc<UnixStream>) -> Result<Vec<Lane>> {
    let [memory]: [OwnedFd; 1] = match fds.try_into() {
        Ok(fds) => fds,
        Err(_) => bail!("expected one descriptor, of the rings' memory"),
    };
    let bytes = memory_bytes(start.lanes, start.ring_bytes);
    let memory = Memory::map(&memory, bytes).context("cannot map the rings")?;
    if start.sandbox {
        let sandbox = Sandbox {
            library: start.library.clone().into(),
            work_dir: start.work_dir.clone().into(),
            ..Sandbox::default()
        };
        sandbox.enter().context("cannot enter the sandbox")?;
    }
    let library = Library::open(Path::new(&start.library), &start.symbols)?;
    let library = Arc::new(library);
    let constants = Arc::new(Constants::default());
    let lane = |number| {
        let (requests, answers) =
            rings(&memory, number, start.ring_bytes).context("the rings' memory is too small")?;
        Ok(Lane {
            library: library.clone(),
            constants: constants.clone(),
            requests: Consumer::new(requests)?,
            answers: Producer::new(answers)?,
            notify: notify.clone(),
            spin: Duration::from_micros(start.spin_us),
            unpublished: 0,
        })
    };
    (0..start.lanes).map(lane).collect()
}

struct Lane {
    library: Arc<Library>,
    constants: Arc<Constants>,
    requests: Consumer,
    answers: Producer,
    notify: Arc<UnixStream>,
    spin: Duration,
    unpublished: u32,
}

impl Lane {
    fn run(mut self) -> Result<()> {
        let mut request = Vec::new();
        let mut room = Room::default();
        loop {
            if self.requests.pop(&mut request)? {
                self.carry_out(&request, &mut room)?;
                if self.unpublished >= NOTIFY_EVERY {
                    self.publish()?;
                }
                continue;
            }
            self.publish()?;
            self.requests.wait(self.spin, None);
        }
    }

    /// Publishes the answers to the gateway.
    fn publish(&mut self) -> Result<()> {
        if self.unpublished > 0 {
            self.unpublished = 0;
            if self.answers.show() {
                notify(&self.notify)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, request: &[u8], room: &mut Room) -> Result<()> {
        let began = Instant::now();
        let (head, rest): (Head, &[u8]) = postcard::take_from_bytes(request)?;
        let bytes = aligned(request.len() - rest.len());
        let bytes = request.get(bytes..).unwrap_or_default();
        match head {
            Head::Constant { index, len } => {
                let value = bytes
                    .get(..len as usize)
                    .context("a constant is truncated")?;
                let mut constants = self.constants.locked();
                constants
                    .entry(index)
                    .or_insert_with(|| Arc::new(Aligned::of(value)));
                Ok(())
            }
            Head::Call {
                id,
                symbol,
                buffers,
                args,
            } => {
                room.lay_out(&buffers, bytes, &self.constants)?;
                let called = self
                    .library
                    .call(symbol as usize, &mut room.memory(&buffers), &args);
                room.end(id, began, &called);
                self.answer(&room.answer)
            }
        }
    }

    fn answer(&mut self, answer: &Aligned) -> Result<()> {
        let answer = answer.bytes();
        self.unpublished += 1;
        if self.answers.try_push(answer).is_ok() {
            return Ok(());
        }
        self.publish()?;
        let socket = self.notify.clone();
        let pause = || {
            std::thread::sleep(PAUSE);
            notify(&socket).is_ok()
        };
        let pushed = self.answers.push_large(answer, pause);
        pushed.context("cannot put the answer into the ring")?;
        self.unpublished = 0;
        notify(&self.notify)
    }
}

/// A lane's memory, reused from call to call.
#[derive(Default)]
struct Room {
    inputs: Aligned,
    scratch: Aligned,
    constants: Vec<Option<Arc<Aligned>>>,
    /// Header and outputs.
    answer: Aligned,
    /// Offset of each buffer in the block that holds it.
    places: Vec<usize>,
}

impl Room {
    /// Assigns memory to each buffer: inputs are copied, outputs are zeroed.
    fn lay_out(&mut self, buffers: &[Buffer], bytes: &[u8], constants: &Constants) -> Result<()> {
        let (mut input, mut scratch, mut output) = (0usize, 0usize, ANSWER_HEAD_BYTES);
        self.places.clear();
        self.constants.clear();
        for buffer in buffers {
            let mut constant = None;
            self.places.push(match *buffer {
                Buffer::Input(len) => advance(&mut input, len)?,
                Buffer::Scratch(len) => advance(&mut scratch, len)?,
                Buffer::Output(len) => advance(&mut output, len)?,
                Buffer::InOut(from, to) => advance(&mut output, from.max(to))?,
                Buffer::Constant(index) => {
                    let constants = constants.locked();
                    let found = constants.get(&index).context("an unknown constant")?;
                    constant = Some(found.clone());
                    0
                }
            });
            self.constants.push(constant);
        }
        self.scratch.resize(scratch);
        self.answer.resize(0);
        self.answer.resize(output);
        self.inputs.resize(input);
        let mut from = 0usize;
        for (buffer, at) in buffers.iter().zip(&self.places) {
            let len = buffer.input() as usize;
            let end = from
                .checked_add(len)
                .context("a request's lengths overflow")?;
            let source = match len {
                0 => &[],
                _ => bytes.get(from..end).context("a request is truncated")?,
            };
            match buffer {
                Buffer::Input(_) => self.inputs.bytes_mut()[*at..at + len].copy_from_slice(source),
                Buffer::InOut(..) => self.answer.bytes_mut()[*at..at + len].copy_from_slice(source),
                _ => continue,
            }
            from = aligned(end);
        }
        Ok(())
    }

    /// The memory passed to the library.
    fn memory(&mut self, buffers: &[Buffer]) -> Vec<Block> {
        let pairs = buffers.iter().zip(&self.places).enumerate();
        let mut blocks = Vec::with_capacity(buffers.len());
        for (number, (buffer, &at)) in pairs {
            blocks.push(match *buffer {
                Buffer::Input(len) => self.inputs.block(at, len as usize),
                Buffer::Scratch(len) => self.scratch.block(at, len as usize),
                Buffer::Output(len) => self.answer.block(at, len as usize),
                Buffer::InOut(from, to) => self.answer.block(at, from.max(to) as usize),
                Buffer::Constant(_) => match &self.constants[number] {
                    Some(constant) => constant.shared_block(),
                    None => Block::default(),
                },
            });
        }
        blocks
    }

    /// Completes the answer.
    fn end(&mut self, id: u64, began: Instant, called: &Result<(), String>) {
        let mut head = AnswerHead {
            id,
            ran_ns: began.elapsed().as_nanos() as u64,
            ..AnswerHead::default()
        };
        if let Err(text) = called {
            let mut cut = TEXT_BYTES_MAX.min(text.len());
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            let text = &text.as_bytes()[..cut];
            (head.status, head.text) = (-1, text.len() as u32);
            self.answer.resize(ANSWER_HEAD_BYTES + text.len());
            self.answer.bytes_mut()[ANSWER_HEAD_BYTES..].copy_from_slice(text);
        }
        head.write(self.answer.bytes_mut());
    }
}

/// Sends a wake-up byte to the gateway; a full socket already holds one.
fn notify(socket: &UnixStream) -> Result<()> {
    match send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn advance(at: &mut usize, len: u64) -> Result<usize> {
    let start = *at;
    let end = usize::try_from(len)
        .ok()
        .and_then(|len| start.checked_add(len));
    let end = end.filter(|end| *end < isize::MAX as usize / 2);
    *at = aligned(end.context("a request's lengths overflow")?);
    Ok(start)
}
