//! Messages of the control channel.

use crate::{Call, Event, Id, Payload};
use serde::{Deserialize, Serialize};

/// An image's pixel format: `cl_image_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFormat {
    /// `cl_channel_order`
    pub order: u32,
    /// `cl_channel_type`
    pub kind: u32,
}

/// An image's shape: `cl_image_desc` without its memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageShape {
    /// `cl_mem_object_type`
    pub kind: u32,
    /// Width, pixels.
    pub width: u64,
    /// Height, pixels.
    pub height: u64,
    /// Depth, pixels.
    pub depth: u64,
    /// Layers.
    pub array_size: u64,
    /// Bytes from row to row for an image in a buffer, otherwise 0.
    pub row_pitch: u64,
}

/// Location of a buffer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// In the device's memory; the bytes of the payload, if any, are its initial contents.
    Device(Option<Payload>),
    /// In the arena itself, which the device uses in place (`host_memory` devices only).
    Arena(Payload),
    /// At this address of shared virtual memory allocated by the device (see
    /// [`Request::SvmAlloc`]).
    /// From version 1.2 on.
    Svm(u64),
}

/// A message of the control channel. Creations have no reply: commands that use an object whose
/// creation failed return that creation's error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control<'a> {
    /// Maps a new arena: the socket passes its sealed memfd, in the order of these messages.
    ArenaAdd {
        /// Id of the arena, which is never reused.
        arena: u32,
        /// Bytes.
        len: u64,
    },
    /// Unmaps an arena that is no longer used.
    ArenaDrop(u32),
    /// Adds event slots: `payload` holds `payload.len / 64` of them, numbered from `first`.
    EventsAdd {
        /// The number of the first slot, which is the number of slots so far.
        first: u32,
        /// The slots' memory, zeroed.
        payload: Payload,
    },
    /// `clCreateContext` for the session's device and its sub-devices (0: the device itself).
    Context {
        /// Id of the new context.
        id: Id,
        /// The devices, four bytes each.
        #[serde(borrow)]
        devices: &'a [u8],
    },
    /// A command queue and its channel.
    Queue {
        /// Id of the new queue.
        id: Id,
        /// The context.
        context: Id,
        /// A sub-device, or 0.
        device: Id,
        /// `cl_command_queue_properties`
        properties: u64,
        /// The ring, zeroed (see `baltra-ring` for its layout).
        ring: Payload,
    },
    /// `clCreateBuffer`.
    Buffer {
        /// Id of the new buffer.
        id: Id,
        /// The context.
        context: Id,
        /// `cl_mem_flags` without the host pointer's flags.
        flags: u64,
        /// Bytes.
        size: u64,
        /// Location of its bytes.
        backing: Backing,
    },
    /// `clCreateSubBuffer`.
    SubBuffer {
        /// Id of the new sub-buffer.
        id: Id,
        /// The buffer.
        parent: Id,
        /// `cl_mem_flags`
        flags: u64,
        /// First byte.
        origin: u64,
        /// Bytes.
        size: u64,
    },
    /// `clCreateImage`.
    Image {
        /// Id of the new image.
        id: Id,
        /// The context.
        context: Id,
        /// `cl_mem_flags` without the host pointer's flags.
        flags: u64,
        /// The pixels.
        format: ImageFormat,
        /// The shape.
        shape: ImageShape,
        /// The buffer or image on which it is based, or 0.
        parent: Id,
        /// Initial contents, without gaps.
        contents: Option<Payload>,
    },
    /// `clCreateSampler`.
    Sampler {
        /// Id of the new sampler.
        id: Id,
        /// The context.
        context: Id,
        /// `cl_sampler_properties`, zero-terminated, eight bytes each.
        #[serde(borrow)]
        properties: &'a [u8],
    },
    /// `clCreateProgramWithSource`.
    ProgramSource {
        /// Id of the new program.
        id: Id,
        /// The context.
        context: Id,
        /// The strings, joined.
        #[serde(borrow)]
        source: &'a [u8],
    },
    /// A user event's status: 0 or negative.
    UserEvent {
        /// The event.
        event: Event,
        /// `CL_COMPLETE` or an error.
        status: i32,
    },
    /// Requests a [`crate::Notice::Completed`] when the event is complete.
    Watch(Event),
    /// `clCreateKernel`.
    Kernel {
        /// Id of the new kernel.
        id: Id,
        /// A built program.
        program: Id,
        /// The name of the function.
        #[serde(borrow)]
        name: &'a str,
    },
    /// Releases an object. Commands that refer to it and were enqueued earlier remain valid:
    /// `after` is the number of commands that each queue's channel had at that time.
    Release {
        /// The object.
        id: Id,
        /// Queue and command count, 12 little-endian bytes each (`u32`, `u64`).
        #[serde(borrow)]
        after: &'a [u8],
        /// Requests a [`crate::Notice::Freed`] once the driver has released the object.
        notify: bool,
    },
    /// A request with a reply.
    Call {
        /// The reply's number.
        call: Call,
        /// The request.
        #[serde(borrow)]
        request: Request<'a>,
    },
    /// Frees shared virtual memory (see [`Request::SvmAlloc`]), in the same order as a release.
    SvmFree {
        /// The address.
        address: u64,
        /// See [`Control::Release`].
        #[serde(borrow)]
        after: &'a [u8],
    },
    /// Like [`Control::ArenaAdd`], in a session whose memory is a [`crate::Share`]: a part of the
    /// share.
    ArenaPart {
        /// Id of the arena.
        arena: u32,
        /// Offset in the share; a multiple of a page.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A command of this session is past its deadline: the session ends at once, and its executor
    /// too if the running command does not end.
    Abort {
        /// Description of the command and its deadline, for logs.
        #[serde(borrow)]
        reason: &'a str,
    },
    /// A queue whose ring is marked as parked (not read by a thread) has commands (`baltra-ring`:
    /// `Producer::take_parked`). From version 1.2 on.
    QueueRun(Id),
    /// The running command of a queue is past its time limit and waits, as far as its client can
    /// see, for an older command of another queue. The session continues: the executor determines
    /// the command that blocks the queue, and ends that one's session once the queue has waited for
    /// the device's `contended_ms`. Void once the queue has made progress. From version 1.6 on.
    Late {
        /// The queue.
        queue: Id,
        /// The command's time limit on the device, milliseconds.
        allowed_ms: u64,
    },
    /// `clCreatePipe`. From version 1.8 on.
    Pipe {
        /// Id of the new pipe.
        id: Id,
        /// The context.
        context: Id,
        /// Packets of the pipe.
        shape: PipeShape,
    },
    /// The program has read these facts about the device ([`crate::facts`]). The first message of a
    /// session, and repeated with all of them when there is another one. From version 1.9 on.
    FactsRead(u64),
}

/// The packets of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeShape {
    /// Bytes of a packet.
    pub packet_bytes: u32,
    /// Packets that it holds.
    pub packets: u32,
}

/// A request with a [`crate::Notice::Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// No operation: its reply confirms that all earlier messages have been processed.
    Sync,
    /// `clCreateSubDevices`; the ids of the created ones are `first`, `first + 1`, …
    SubDevices {
        /// The device to partition, or 0.
        parent: Id,
        /// `cl_device_partition_property`, zero-terminated, eight bytes each.
        #[serde(borrow)]
        properties: &'a [u8],
        /// The id of the first sub-device.
        first: Id,
        /// Number of consecutive ids that the client has reserved.
        count_max: u32,
    },
    /// `clCreateProgramWithBinary`, one binary for each device.
    ProgramBinary {
        /// Id of the new program.
        id: Id,
        /// The context.
        context: Id,
        /// The devices, four bytes each.
        #[serde(borrow)]
        devices: &'a [u8],
        /// One binary for each device.
        #[serde(borrow)]
        binaries: Vec<&'a [u8]>,
    },
    /// `clCreateProgramWithIL`.
    ProgramIl {
        /// Id of the new program.
        id: Id,
        /// The context.
        context: Id,
        /// The intermediate language.
        #[serde(borrow)]
        il: &'a [u8],
    },
    /// `clCreateProgramWithBuiltInKernels`.
    ProgramBuiltIn {
        /// Id of the new program.
        id: Id,
        /// The context.
        context: Id,
        /// The devices, four bytes each.
        #[serde(borrow)]
        devices: &'a [u8],
        /// The kernels' names, separated by semicolons.
        #[serde(borrow)]
        names: &'a str,
    },
    /// `clSetProgramSpecializationConstant`.
    SpecializationConstant {
        /// The program.
        program: Id,
        /// The constant.
        id: u32,
        /// Value of the constant.
        #[serde(borrow)]
        value: &'a [u8],
    },
    /// `clBuildProgram`.
    Build {
        /// The program.
        program: Id,
        /// Sub-devices or 0, four bytes each; empty: all.
        #[serde(borrow)]
        devices: &'a [u8],
        /// The options.
        #[serde(borrow)]
        options: &'a str,
        /// Files included by the source: path below one directory, content. The entry with an empty
        /// path is the source to build, which includes the others by these paths.
        #[serde(borrow)]
        files: Vec<(&'a str, &'a [u8])>,
    },
    /// `clCompileProgram`.
    Compile {
        /// The program.
        program: Id,
        /// See [`Request::Build`].
        #[serde(borrow)]
        devices: &'a [u8],
        /// The options.
        #[serde(borrow)]
        options: &'a str,
        /// Programs with header sources, four bytes each.
        #[serde(borrow)]
        headers: &'a [u8],
        /// Names of the headers.
        #[serde(borrow)]
        header_names: Vec<&'a str>,
        /// See [`Request::Build`].
        #[serde(borrow)]
        files: Vec<(&'a str, &'a [u8])>,
    },
    /// `clLinkProgram`.
    Link {
        /// The id of the new program.
        id: Id,
        /// The context.
        context: Id,
        /// See [`Request::Build`].
        #[serde(borrow)]
        devices: &'a [u8],
        /// The options.
        #[serde(borrow)]
        options: &'a str,
        /// Compiled programs, four bytes each.
        #[serde(borrow)]
        inputs: &'a [u8],
    },
    /// An information query that the client cannot answer itself; the reply has the raw bytes.
    Query(#[serde(borrow)] Query<'a>),
    /// `clSVMAlloc`: maps `payload` (page-aligned, alone in its arena) at `address` in the
    /// executor; the client has mapped it at the same address.
    SvmMap {
        /// The address, the same in both processes.
        address: u64,
        /// The memory.
        payload: Payload,
    },
    /// `clSVMAlloc` by the device's driver; the reply is the address as eight bytes.
    SvmAlloc {
        /// The context.
        context: Id,
        /// `cl_svm_mem_flags`
        flags: u64,
        /// Bytes.
        len: u64,
        /// Bytes.
        alignment: u32,
    },
    /// Describes the kernels of a program, for `clCloneKernel`: the client stores arguments, so a
    /// clone is a second kernel of the same name.
    Kernels {
        /// The program.
        program: Id,
    },
    /// The result of an object's creation, after all earlier messages: the reply is its error, if
    /// it failed. From version 1.2 on.
    Creation(Id),
    /// Whether the executor can use announced memory. From version 1.2 on.
    Memory(Payload),
    /// The current state of an event's command, `CL_QUEUED` to `CL_COMPLETE`, as a count: only the
    /// driver can report the start of a command. From version 1.2 on.
    EventStatus(Event),
    /// [`Request::ProgramBinary`] with the binaries' SHA-256 in place of their bytes; the reply is
    /// [`crate::Reply::Lacking`] if the node lacks one of them. From version 1.4 on.
    ProgramDigest {
        /// Id of the new program.
        id: Id,
        /// The context.
        context: Id,
        /// The devices, four bytes each.
        #[serde(borrow)]
        devices: &'a [u8],
        /// One digest for each device, 32 bytes each.
        #[serde(borrow)]
        digests: &'a [u8],
    },
    /// Creates and builds a program from an accelerator in the node's store, which an operator has
    /// added; the reply is that of [`Request::Build`]. From version 1.5 on.
    ProgramStored {
        /// Id of the new program.
        id: Id,
        /// The context.
        context: Id,
        /// The device.
        device: Id,
        /// The accelerator's name or digest.
        #[serde(borrow)]
        accelerator: &'a str,
        /// The options.
        #[serde(borrow)]
        options: &'a str,
    },
}

/// An information query that is passed to the driver unchanged; `param` is OpenCL's number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Query<'a> {
    /// `clGetDeviceInfo` of a sub-device (or 0).
    Device {
        /// The device.
        device: Id,
        /// The parameter.
        param: u32,
    },
    /// `clGetProgramInfo`; for `CL_PROGRAM_BINARIES` the reply is the device's binary.
    Program {
        /// The program.
        program: Id,
        /// The parameter.
        param: u32,
    },
    /// `clGetProgramBuildInfo`.
    ProgramBuild {
        /// The program.
        program: Id,
        /// The device.
        device: Id,
        /// The parameter.
        param: u32,
    },
    /// `clGetKernelWorkGroupInfo`.
    KernelWorkGroup {
        /// The kernel.
        kernel: Id,
        /// The device.
        device: Id,
        /// The parameter.
        param: u32,
    },
    /// `clGetKernelSubGroupInfo`.
    KernelSubGroup {
        /// The kernel.
        kernel: Id,
        /// The device.
        device: Id,
        /// The parameter.
        param: u32,
        /// The input value.
        #[serde(borrow)]
        input: &'a [u8],
        /// Size limit of the answer, bytes.
        len_max: u32,
    },
    /// `clGetMemObjectInfo`.
    Memory {
        /// The object.
        object: Id,
        /// The parameter.
        param: u32,
    },
    /// `clGetImageInfo`.
    Image {
        /// The image.
        image: Id,
        /// The parameter.
        param: u32,
    },
    /// `clGetSupportedImageFormats`: order and type, eight bytes per format.
    ImageFormats {
        /// The context.
        context: Id,
        /// `cl_mem_flags`
        flags: u64,
        /// `cl_mem_object_type`
        kind: u32,
    },
    /// `clGetDeviceAndHostTimer`: device, then host, eight bytes each.
    Timers,
    /// `clGetKernelArgInfo`.
    KernelArg {
        /// The kernel.
        kernel: Id,
        /// The argument's index.
        index: u32,
        /// The parameter.
        param: u32,
    },
}
