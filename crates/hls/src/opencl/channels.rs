//! The channels of a program: each has one kernel that writes it, and one that reads it.

use super::manifest::{ChannelUse, KernelInfo};
use crate::error::{Error, Position, Result};
use crate::ir::{Channel, Channels};
use std::collections::HashMap;

/// A kernel's channels in the order of its ports.
pub fn uses(channels: &Channels) -> Vec<ChannelUse> {
    let of = |channel: &Channel, writes| ChannelUse {
        name: channel.name.clone(),
        writes,
        bytes: channel.bytes,
        depth: channel.depth,
        line: channel.position.line as u64,
    };
    let read = channels.read.iter().map(|c| of(c, false));
    read.chain(channels.written.iter().map(|c| of(c, true)))
        .collect()
}

/// The channels of a program in the order of their numbers.
pub fn of_program(kernels: &[KernelInfo]) -> Vec<&ChannelUse> {
    let mut all: Vec<&ChannelUse> = Vec::new();
    for channel in kernels.iter().flat_map(|kernel| &kernel.channels) {
        if !all.iter().any(|c| c.name == channel.name) {
            all.push(channel);
        }
    }
    all
}

/// Words of 32 bits of an element.
fn words(channel: &ChannelUse) -> u64 {
    channel.bytes.div_ceil(4)
}

/// The channels as the harness has them (`hdl/board/sim/emulate_kernels.cpp`). Beside its depth, a channel
/// holds the element that its reader is about to take.
pub fn list(all: &[&ChannelUse]) -> String {
    let channels = all.iter().map(|channel| {
        let capacity = channel.depth.max(1) + 1;
        format!(" C(\"{}\", {}, {capacity})", channel.name, words(channel))
    });
    channels.collect()
}

/// A kernel's channels that it reads, or that it writes.
fn of(kernel: &KernelInfo, writes: bool) -> impl Iterator<Item = &ChannelUse> {
    kernel.channels.iter().filter(move |c| c.writes == writes)
}

/// The ports of a kernel in the harness; empty: it has no channels.
pub fn ports(number: usize, kernel: &KernelInfo, all: &[&ChannelUse]) -> String {
    if kernel.channels.is_empty() {
        return String::new();
    }
    let list = |name: &str, writes| {
        let mut first = 0;
        let mut list = String::new();
        for channel in of(kernel, writes) {
            let at = all.iter().position(|c| c.name == channel.name);
            list += &format!("{{{}, {first}}}, ", at.unwrap_or(0));
            first += words(channel);
        }
        format!("  static constexpr Port {name}[] = {{{list}{{0, 0}}}};\n")
    };
    let count = |writes| of(kernel, writes).count();
    format!(
        "template <>\nstruct Ports<{number}> {{\n  static constexpr bool kAny = true;\n  \
         static constexpr unsigned kIn = {}, kOut = {};\n{}{}}};\n",
        count(false),
        count(true),
        list("in", false),
        list("out", true)
    )
}

/// By channel and direction: its use, and the kernel.
type Ends<'a> = HashMap<(&'a str, bool), (&'a ChannelUse, &'a str)>;

fn ends(kernels: &[KernelInfo]) -> Result<Ends<'_>> {
    let mut ends = Ends::new();
    for kernel in kernels {
        for channel in &kernel.channels {
            let end = (channel.name.as_str(), channel.writes);
            if let Some((_, other)) = ends.insert(end, (channel, &kernel.name)) {
                let (what, who) = if channel.writes {
                    ("writes", "writer")
                } else {
                    ("reads", "reader")
                };
                return Err(Error::unsupported(format!(
                    "kernel '{}' {what} channel '{}', which kernel '{other}' {what}: \
                     a channel has one {who}",
                    kernel.name, channel.name
                ))
                .at(&position(channel)));
            }
        }
    }
    Ok(ends)
}

fn position(channel: &ChannelUse) -> Position {
    Position {
        file: super::clang::SOURCE.to_owned(),
        line: channel.line as usize,
    }
}

/// Refuses channels that two kernels read or write.
pub fn check(kernels: &[KernelInfo]) -> Result<()> {
    ends(kernels).map(|_| ())
}

/// Warns of channels without a reader or a writer.
pub fn warn(kernels: &[KernelInfo], log: &mut String) {
    let Ok(ends) = ends(kernels) else {
        return;
    };
    for kernel in kernels {
        for channel in &kernel.channels {
            if !ends.contains_key(&(channel.name.as_str(), !channel.writes)) {
                let other = if channel.writes { "reads" } else { "writes" };
                log.push_str(&format!(
                    "{}:{}: warning: no kernel {other} channel '{}'\n",
                    super::clang::SOURCE,
                    channel.line,
                    channel.name
                ));
            }
        }
    }
}
