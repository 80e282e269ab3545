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
    /// Pixels.
    pub width: u64,
    /// Pixels.
    pub height: u64,
    /// Pixels.
    pub depth: u64,
    /// Layers.
    pub array_size: u64,
    /// Bytes from row to row for an image in a buffer, otherwise 0.
    pub row_pitch: u64,
}

/// Location of a buffer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// In the device's memory; bytes of the payload, if any, are its first contents.
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
    /// Maps a new arena: its sealed memfd comes over the socket, in the order of these messages.
    ArenaAdd {
        /// Its id, which is never reused.
        arena: u32,
        /// Bytes.
        len: u64,
    },
    /// Unmaps an arena that nothing uses any more.
    ArenaDrop(u32),
    /// Adds event slots: `payload` holds `payload.len / 64` of them, numbered from `first`.
    EventsAdd {
        /// The first slot's number: the count of slots so far.
        first: u32,
        /// The slots' memory, zeroed.
        payload: Payload,
    },
    /// `clCreateContext` over the session's device and sub-devices of it (0: the device itself).
    Context {
        /// Its name.
        id: Id,
        /// Four bytes each.
        #[serde(borrow)]
        devices: &'a [u8],
    },
    /// A command queue and its channel.
    Queue {
        /// Its name.
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
        /// Its name.
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
        /// Its name.
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
        /// Its name.
        id: Id,
        /// The context.
        context: Id,
        /// `cl_mem_flags` without the host pointer's flags.
        flags: u64,
        /// The pixels.
        format: ImageFormat,
        /// The shape.
        shape: ImageShape,
        /// The buffer or image that it is made over, or 0.
        parent: Id,
        /// First contents, tight.
        contents: Option<Payload>,
    },
    /// `clCreateSampler`.
    Sampler {
        /// Its name.
        id: Id,
        /// The context.
        context: Id,
        /// `cl_sampler_properties`, zero-terminated, eight bytes each.
        #[serde(borrow)]
        properties: &'a [u8],
    },
    /// `clCreateProgramWithSource`.
    ProgramSource {
        /// Its name.
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
    /// Asks for a [`crate::Notice::Completed`] once the event is complete.
    Watch(Event),
    /// `clCreateKernel`.
    Kernel {
        /// Its name.
        id: Id,
        /// A built program.
        program: Id,
        /// The function.
        #[serde(borrow)]
        name: &'a str,
    },
    /// Releases an object. Commands that name it and were enqueued earlier remain valid: `after` is
    /// the number of commands that each queue's channel had at that time.
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
    /// Frees shared virtual memory (see [`Request::SvmAlloc`]), ordered as a release.
    SvmFree {
        /// The address.
        address: u64,
        /// As in [`Control::Release`].
        #[serde(borrow)]
        after: &'a [u8],
    },
    /// As [`Control::ArenaAdd`] in a session whose memory is a [`crate::Share`]: a part of that.
    ArenaPart {
        /// Its name.
        arena: u32,
        /// From the share's start; a multiple of a page.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Work of this session is past its deadline: the session ends at once, and its executor with
    /// it where a command that runs does not end.
    Abort {
        /// Description of the work and its deadline, for logs.
        #[serde(borrow)]
        reason: &'a str,
    },
    /// A queue whose ring is marked as parked (not read by a thread) has commands (`baltra-ring`:
    /// `Producer::take_parked`). From version 1.2 on.
    QueueRun(Id),
}

/// A request that is answered with a [`crate::Notice::Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// No operation: its reply confirms that all earlier messages have been carried out.
    Sync,
    /// `clCreateSubDevices`; the ids of those made are `first`, `first + 1`, …
    SubDevices {
        /// The device to part, or 0.
        parent: Id,
        /// `cl_device_partition_property`, zero-terminated, eight bytes each.
        #[serde(borrow)]
        properties: &'a [u8],
        /// The first sub-device's name.
        first: Id,
        /// Number of consecutive ids that the client has reserved.
        count_max: u32,
    },
    /// `clCreateProgramWithBinary`, one binary for each device.
    ProgramBinary {
        /// Its name.
        id: Id,
        /// The context.
        context: Id,
        /// Four bytes each.
        #[serde(borrow)]
        devices: &'a [u8],
        /// One a device.
        #[serde(borrow)]
        binaries: Vec<&'a [u8]>,
    },
    /// `clCreateProgramWithIL`.
    ProgramIl {
        /// Its name.
        id: Id,
        /// The context.
        context: Id,
        /// The intermediate language.
        #[serde(borrow)]
        il: &'a [u8],
    },
    /// `clCreateProgramWithBuiltInKernels`.
    ProgramBuiltIn {
        /// Its name.
        id: Id,
        /// The context.
        context: Id,
        /// Four bytes each.
        #[serde(borrow)]
        devices: &'a [u8],
        /// Separated by semicolons.
        #[serde(borrow)]
        names: &'a str,
    },
    /// `clSetProgramSpecializationConstant`.
    SpecializationConstant {
        /// The program.
        program: Id,
        /// The constant.
        id: u32,
        /// Its value.
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
        /// As in a build.
        #[serde(borrow)]
        devices: &'a [u8],
        /// The options.
        #[serde(borrow)]
        options: &'a str,
        /// Programs of source, four bytes each.
        #[serde(borrow)]
        headers: &'a [u8],
        /// Their names.
        #[serde(borrow)]
        header_names: Vec<&'a str>,
        /// As in a build.
        #[serde(borrow)]
        files: Vec<(&'a str, &'a [u8])>,
    },
    /// `clLinkProgram`.
    Link {
        /// The new program's name.
        id: Id,
        /// The context.
        context: Id,
        /// As in a build.
        #[serde(borrow)]
        devices: &'a [u8],
        /// The options.
        #[serde(borrow)]
        options: &'a str,
        /// Compiled programs, four bytes each.
        #[serde(borrow)]
        inputs: &'a [u8],
    },
    /// An information query that the client cannot answer by itself: the raw bytes.
    Query(#[serde(borrow)] Query<'a>),
    /// `clSVMAlloc`: maps `payload` (page-aligned, the only one of its arena) at `address` in the
    /// executor; the client has mapped it at the same address.
    SvmMap {
        /// The address, the same in both processes.
        address: u64,
        /// The memory.
        payload: Payload,
    },
    /// `clSVMAlloc` in the device's own way; the reply is the address as eight bytes.
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
    /// `clCloneKernel`: arguments are the client's business, so a second kernel of the name.
    Kernels {
        /// The program: describe its kernels.
        program: Id,
    },
    /// The result of an object's creation, once all earlier messages have been carried out: the
    /// reply is its error, if it failed. From version 1.2 on.
    Creation(Id),
    /// Whether the executor can use memory that was announced to it. From version 1.2 on.
    Memory(Payload),
    /// The current state of an event's command, `CL_QUEUED` to `CL_COMPLETE`, as a count: only the
    /// driver can report when a command begins to run. From version 1.2 on.
    EventStatus(Event),
}

/// An information query passed to the driver as it stands; `param` is OpenCL's number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Query<'a> {
    /// `clGetDeviceInfo` of a sub-device (or 0).
    Device {
        /// The device.
        device: Id,
        /// What.
        param: u32,
    },
    /// `clGetProgramInfo`; for `CL_PROGRAM_BINARIES` the reply is the device's binary.
    Program {
        /// The program.
        program: Id,
        /// What.
        param: u32,
    },
    /// `clGetProgramBuildInfo`.
    ProgramBuild {
        /// The program.
        program: Id,
        /// The device.
        device: Id,
        /// What.
        param: u32,
    },
    /// `clGetKernelWorkGroupInfo`.
    KernelWorkGroup {
        /// The kernel.
        kernel: Id,
        /// The device.
        device: Id,
        /// What.
        param: u32,
    },
    /// `clGetKernelSubGroupInfo`.
    KernelSubGroup {
        /// The kernel.
        kernel: Id,
        /// The device.
        device: Id,
        /// What.
        param: u32,
        /// The input value.
        #[serde(borrow)]
        input: &'a [u8],
        /// Maximum length of the answer in bytes.
        len_max: u32,
    },
    /// `clGetMemObjectInfo`.
    Memory {
        /// The object.
        object: Id,
        /// What.
        param: u32,
    },
    /// `clGetImageInfo`.
    Image {
        /// The image.
        image: Id,
        /// What.
        param: u32,
    },
    /// `clGetSupportedImageFormats`: eight bytes each (order, type).
    ImageFormats {
        /// The context.
        context: Id,
        /// `cl_mem_flags`
        flags: u64,
        /// `cl_mem_object_type`
        kind: u32,
    },
    /// `clGetDeviceAndHostTimer`: device then host, eight bytes each.
    Timers,
    /// `clGetKernelArgInfo`.
    KernelArg {
        /// The kernel.
        kernel: Id,
        /// The argument's index.
        index: u32,
        /// What.
        param: u32,
    },
}
