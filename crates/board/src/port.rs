//! A connection to a board's host port.

pub use crate::error::Error;

use crate::binding::Binding;
use crate::error::malformed;
use crate::image::{Description, Image};
use crate::link::{IsCancelled, Link};
use crate::packet::{Op, Reply, Request, VERSION};
use baltra_ring::memory::{Memory, Range};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::net::{socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Result and cost of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Bytes of the answer.
    pub bytes: u64,
    /// From the call's descriptor to its report.
    pub cycles: u32,
    /// Cycles of the kernel alone.
    pub kernel_cycles: u32,
    /// The region that ran the call.
    pub region: u32,
    /// Whether the region was loaded for the call.
    pub loaded: bool,
}

/// A call of a program or function; body and answer are in the window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// The function or program.
    pub number: u32,
    /// Offset and bytes of the body.
    pub body: (u64, u64),
    /// Offset of the answer and its maximum length in bytes.
    pub answer: (u64, u64),
    /// Scalars.
    pub params: [u32; 4],
    /// Maximum cycles; 0: unlimited.
    pub timeout: u32,
}

/// A buffer of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// In board memory, a multiple of eight.
    pub address: u32,
    /// Length of the buffer; 0: a null argument.
    pub bytes: u64,
    /// Whether the kernel may store to it.
    pub is_writable: bool,
}

/// The image that a region holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The region.
    pub region: u32,
    /// The checksum of the image's header ([`Image::checksum`]), which identifies it.
    pub checksum: u32,
    /// A function of the board's table that has this image; empty: none.
    pub function: String,
}

/// A launch of a kernel that is compiled from OpenCL C.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel, from [`Port::bring`].
    pub number: u32,
    /// The argument block.
    pub words: &'a [u64],
    /// The buffers that its pointers refer to, in their order.
    pub buffers: &'a [Buffer],
    /// A part of the window for the launch: offset and bytes. The rest of it is for text.
    pub scratch: (u64, u64),
    /// Maximum cycles; 0: the board's own limit.
    pub timeout: u32,
}

/// A connection with its shared window, [`Port::window`]. Threads share it: each waits for its own
/// reply.
pub struct Port {
    link: Link,
    /// A duplicate of the socket, to wait for its end.
    watched: OwnedFd,
    window: Memory,
    /// The board's properties, from its welcome.
    pub about: Reply,
}

impl Port {
    /// Connects and shares a window of `window_bytes`.
    pub fn connect(path: &Path, window_bytes: u64) -> Result<Port, Error> {
        let failed = |source: io::Error| Error::Connect {
            path: path.to_owned(),
            source,
        };
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|e| failed(e.into()))?;
        let address = SocketAddrUnix::new(path).map_err(|e| failed(e.into()))?;
        rustix::net::connect(&socket, &address).map_err(|e| failed(e.into()))?;
        let request = Request {
            bytes: window_bytes,
            ..Request::default()
        };
        let watched = socket.try_clone().map_err(Error::Lost)?;
        let link = Link::new(socket);
        let (about, fd) = link.exchange(Op::Hello, request, None, None)?;
        let about = outcome(about)?;
        if about.version != VERSION {
            return Err(Error::Version(about.version));
        }
        let fd = fd.ok_or_else(|| malformed("the welcome had no descriptor of the window"))?;
        let window = Memory::map(&fd, window_bytes).map_err(Error::Lost)?;
        Ok(Port {
            watched,
            link,
            window,
            about,
        })
    }

    /// Blocks until the board disconnects.
    pub fn wait_gone(&self) {
        let mut fds = [PollFd::new(&self.watched, PollFlags::empty())];
        let ended = PollFlags::HUP | PollFlags::ERR;
        while !fds[0].revents().intersects(ended) {
            // Only a signal interrupts it.
            let _ = poll(&mut fds, None);
        }
    }

    /// The memory that is shared with the board. The caller decides on its layout.
    pub fn window(&self) -> &Memory {
        &self.window
    }

    /// Adds a function for all users of the board, HTTP included, under `about`'s name, and
    /// replaces an existing one of that name. Copies `image` through the start of the window.
    /// Returns its number.
    pub fn define(&self, image: &Image<'_>, about: &Description) -> Result<u32, Error> {
        let request = Request {
            timeout: about.timeout,
            speed: about.speed,
            name: about.name.clone(),
            scalars: about.scalars.clone(),
            ..self.image(image, 0)?
        };
        Ok(self.request(Op::Define, request)?.number)
    }

    /// Removes a function.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let request = Request {
            name: name.into(),
            ..Request::default()
        };
        self.request(Op::Remove, request).map(drop)
    }

    /// Loads a program for this connection alone; copies the image to `offset` of the window.
    /// Returns its number.
    pub fn load(&self, image: &Image<'_>, offset: u64) -> Result<u32, Error> {
        Ok(self.request(Op::Load, self.image(image, offset)?)?.number)
    }

    /// Unloads a program.
    pub fn unload(&self, number: u32) -> Result<(), Error> {
        let request = Request {
            number,
            ..Request::default()
        };
        self.request(Op::Unload, request).map(drop)
    }

    /// Reads which image each region holds; regions that are empty or being loaded are left out.
    pub fn held(&self) -> Result<Vec<Held>, Error> {
        let mut held = Vec::new();
        for region in 0..self.about.regions {
            let request = Request {
                number: region,
                ..Request::default()
            };
            let reply = self.request(Op::Region, request)?;
            if reply.loaded {
                held.push(Held {
                    region,
                    checksum: reply.place as u32,
                    function: reply.text,
                });
            }
        }
        Ok(held)
    }

    /// Calls a function or program and waits for its end.
    pub fn call(&self, call: &Call, is_cancelled: IsCancelled<'_>) -> Result<Done, Error> {
        let request = Request {
            number: call.number,
            offset: call.body.0,
            bytes: call.body.1,
            answer: call.answer.0,
            room: call.answer.1,
            params: call.params,
            timeout: call.timeout,
            cost: call.body.1.min(u32::MAX.into()) as u32,
            ..Request::default()
        };
        let called = self
            .link
            .exchange(Op::Call, request, None, Some(is_cancelled));
        Ok(cost(&outcome(called?.0)?))
    }

    /// Loads a kernel of a simulation library, for this connection alone. `configuration`: bytes of
    /// the bitstream that it stands for. Returns its number.
    pub fn bring(
        &self,
        library: BorrowedFd<'_>,
        kernel: u32,
        configuration: u64,
    ) -> Result<u32, Error> {
        let request = Request {
            number: kernel,
            bytes: configuration,
            ..Request::default()
        };
        let (reply, _) = self
            .link
            .exchange(Op::Bring, request, Some(library), None)?;
        Ok(outcome(reply)?.number)
    }

    /// Adds a function that is bound to a kernel of a simulation library, for HTTP, under `about`'s
    /// name. `configuration`: bytes of the bitstream that it stands for. Returns its number.
    pub fn bind(
        &self,
        library: BorrowedFd<'_>,
        kernel: u32,
        configuration: u64,
        binding: &Binding,
        about: &Description,
    ) -> Result<u32, Error> {
        let mut block = Vec::new();
        block.extend((binding.words.len() as u32).to_ne_bytes());
        block.extend((binding.buffers.len() as u32).to_ne_bytes());
        block.extend(binding.answer.to_ne_bytes());
        let beats = binding.words.iter().chain(&binding.buffers);
        block.extend(beats.flat_map(|beat| beat.to_ne_bytes()));
        let length = block.len() as u64;
        self.range(0, length)?.copy_in(0, &block);
        let request = Request {
            number: kernel,
            bytes: configuration,
            room: length,
            timeout: about.timeout,
            speed: about.speed,
            name: about.name.clone(),
            scalars: about.scalars.clone(),
            ..Request::default()
        };
        let (reply, _) = self.link.exchange(Op::Bind, request, Some(library), None)?;
        Ok(outcome(reply)?.number)
    }

    /// Takes zeroed board memory; returns its address.
    pub fn take(&self, bytes: u64) -> Result<u32, Error> {
        let request = Request {
            bytes,
            ..Request::default()
        };
        Ok(self.request(Op::Take, request)?.place as u32)
    }

    /// Gives memory back.
    pub fn give(&self, address: u32) -> Result<(), Error> {
        self.copy(Op::Give, 0, address, 0)
    }

    /// Copies a multiple of [`crate::image::ALIGNMENT`] bytes from the window into board memory.
    pub fn put(&self, offset: u64, address: u32, bytes: u64) -> Result<(), Error> {
        self.copy(Op::Put, offset, address, bytes)
    }

    /// Copies as many bytes from board memory into the window.
    pub fn get(&self, offset: u64, address: u32, bytes: u64) -> Result<(), Error> {
        self.copy(Op::Get, offset, address, bytes)
    }

    fn copy(&self, op: Op, offset: u64, address: u32, bytes: u64) -> Result<(), Error> {
        let request = Request {
            offset,
            answer: address.into(),
            bytes,
            ..Request::default()
        };
        self.request(op, request).map(drop)
    }

    /// Launches a kernel and waits for its end. Returns its cost and its text.
    pub fn launch(
        &self,
        launch: &Launch<'_>,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<(Done, Vec<u8>), Error> {
        let mut block = Vec::new();
        block.extend((launch.words.len() as u32).to_ne_bytes());
        block.extend((launch.buffers.len() as u32).to_ne_bytes());
        block.extend(launch.words.iter().flat_map(|word| word.to_ne_bytes()));
        for buffer in launch.buffers {
            block.extend(buffer.bytes.to_ne_bytes());
            block.extend(buffer.address.to_ne_bytes());
            block.extend(u32::from(buffer.is_writable).to_ne_bytes());
        }
        let (offset, bytes) = launch.scratch;
        let length = block.len() as u64;
        let room = bytes.checked_sub(length).ok_or(Error::Window(length))?;
        self.range(offset, length)?.copy_in(0, &block);
        let request = Request {
            number: launch.number,
            offset,
            bytes: length,
            answer: offset + length,
            room,
            timeout: launch.timeout,
            ..Request::default()
        };
        let launched = self
            .link
            .exchange(Op::Launch, request, None, Some(is_cancelled));
        let reply = outcome(launched?.0)?;
        let mut text = vec![0; reply.bytes.min(room) as usize];
        self.range(offset + length, room)?.copy_out(0, &mut text);
        Ok((cost(&reply), text))
    }

    /// A range of the window: `bytes` from `offset`.
    pub fn range(&self, offset: u64, bytes: u64) -> Result<Range, Error> {
        let range = self.window.slice(offset, bytes);
        range.ok_or(Error::Window(bytes))
    }

    fn image(&self, image: &Image<'_>, offset: u64) -> Result<Request, Error> {
        image.suits(self.about.shell, self.about.regions)?;
        let bytes = image.bytes.len() as u64;
        self.range(offset, bytes)?.copy_in(0, image.bytes);
        Ok(Request {
            offset,
            bytes,
            ..Request::default()
        })
    }

    fn request(&self, op: Op, request: Request) -> Result<Reply, Error> {
        outcome(self.link.exchange(op, request, None, None)?.0)
    }
}

/// The cost of a call or a launch.
fn cost(reply: &Reply) -> Done {
    Done {
        bytes: reply.bytes,
        cycles: reply.cycles,
        kernel_cycles: reply.kernel_cycles,
        region: reply.region,
        loaded: reply.loaded,
    }
}

/// A reply as a result (status codes: host_pkg::end_t, and host_status of the protocol's header).
fn outcome(reply: Reply) -> Result<Reply, Error> {
    match reply.status {
        0 => Ok(reply),
        1 => Err(Error::Killed),
        2 => Err(Error::Room(reply.bytes)),
        status @ 16..=31 => Err(Error::Refused {
            region: reply.region,
            result: status - 16,
        }),
        65 => Err(Error::Full(reply.text)),
        66 => Err(Error::Unknown(reply.text)),
        67 => Err(Error::Fault {
            buffer: reply.buffer,
            offset: reply.place,
            is_write: reply.is_write,
        }),
        68 => Err(Error::Failed(reply.kernel_status)),
        status => Err(Error::Wrong {
            status,
            text: reply.text,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_load_names_the_region_and_the_reason() {
        let reply = Reply {
            status: 16 + 5,
            region: 2,
            ..Reply::default()
        };
        let error = outcome(reply).unwrap_err().to_string();
        assert!(
            error.contains("region 2: it is made for another region"),
            "{error}"
        );
    }
}
