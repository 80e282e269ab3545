//! Calls of the message engines, and of the kernel's own logic.

/// A call that the message engines execute (`hum_port_NAME` in humboldt/fabric/port.h), or the
/// kernel's own logic (`__baltra_NAME` in crates/hls/opencl/builtins.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineCall {
    Rank,
    Cycles,
    Send,
    Put,
    Sent,
    Take,
    Get,
    Beat,
    Outcome,
    Bytes,
    Text,
    End,
    /// Waits until the kernel is started.
    Start,
    /// Bits of a word of the argument block: number of the word, lowest bit.
    Word,
    /// A work-item's identifiers in a dimension; `work_items` replaces them.
    LocalId,
    GroupId,
    GlobalId,
    /// A barrier of a work-group; `work_items` replaces it.
    Barrier,
    /// Makes earlier stores visible to other kernels, and theirs to this one. Argument: whether it
    /// is executed.
    Fence,
    /// Operations on channels, by the number of the kernel's port; `passes::channels` makes them.
    /// First argument: whether the operation is executed; then the words of an element to write.
    ChannelRead(u32),
    ChannelWrite(u32),
    /// The same without waiting; the result is whether an element was transferred.
    ChannelTryRead(u32),
    ChannelTryWrite(u32),
    /// A word of the element that the read before it has returned. Argument: its number.
    ChannelWord(u32),
}

impl EngineCall {
    /// The call with a function's name.
    pub fn named(name: &str) -> Option<EngineCall> {
        if let Some(name) = name.strip_prefix("__baltra_") {
            return Some(match name {
                "word" => EngineCall::Word,
                "local_id" => EngineCall::LocalId,
                "group_id" => EngineCall::GroupId,
                "global_id" => EngineCall::GlobalId,
                "barrier" => EngineCall::Barrier,
                "text" => EngineCall::Text,
                _ => return None,
            });
        }
        Some(match name.strip_prefix("hum_port_")? {
            "rank" => EngineCall::Rank,
            "cycles" => EngineCall::Cycles,
            "send" => EngineCall::Send,
            "put" => EngineCall::Put,
            "sent" => EngineCall::Sent,
            "take" => EngineCall::Take,
            "get" => EngineCall::Get,
            "beat" => EngineCall::Beat,
            "outcome" => EngineCall::Outcome,
            "bytes" => EngineCall::Bytes,
            "text" => EngineCall::Text,
            "end" => EngineCall::End,
            _ => return None,
        })
    }

    /// Number of arguments.
    pub fn arguments(self) -> usize {
        match self {
            EngineCall::Send | EngineCall::Take | EngineCall::Word => 2,
            EngineCall::Put
            | EngineCall::Text
            | EngineCall::End
            | EngineCall::LocalId
            | EngineCall::GroupId
            | EngineCall::GlobalId => 1,
            _ => 0,
        }
    }

    /// Whether it waits for its engine, so that its step has no other call.
    pub fn waits(self) -> bool {
        matches!(
            self,
            EngineCall::Send
                | EngineCall::Put
                | EngineCall::Sent
                | EngineCall::Take
                | EngineCall::Get
                | EngineCall::Text
                | EngineCall::End
                | EngineCall::Start
                | EngineCall::Fence
        )
    }

    /// Whether it is an operation on a channel.
    pub fn uses_channel(self) -> bool {
        matches!(
            self,
            EngineCall::ChannelRead(_)
                | EngineCall::ChannelWrite(_)
                | EngineCall::ChannelTryRead(_)
                | EngineCall::ChannelTryWrite(_)
        )
    }

    /// Whether its result has no effect if it is not used.
    pub fn is_pure(self) -> bool {
        self.is_constant() || matches!(self, EngineCall::ChannelWord(_))
    }

    /// Whether it only reads a value that does not change while the kernel runs.
    pub fn is_constant(self) -> bool {
        matches!(
            self,
            EngineCall::Word | EngineCall::LocalId | EngineCall::GroupId | EngineCall::GlobalId
        )
    }
}
