//! Operations on channels: the inputs of their handshakes (`hdl/kernels/rtl/kernel_channels.sv`).

use super::emitter::{ChannelOperation, Emitter, Missing, Spot};
use crate::ir::{Channel, Channels, EngineCall, Type, Value};
use crate::verilog::{Connection, DataType, Declaration, Expression, Instance, Item, Statement};

/// Bits of a word of an element.
const WORD: u32 = 64;
/// Bits of all elements together, at least: a model has wide ports as arrays of words.
const DATA_BITS_MIN: u32 = 96;

/// Bits of an element.
fn bits(channel: &Channel) -> u32 {
    channel.bytes as u32 * 8
}

/// By port: the first bit of an element among those of all ports; then their number.
fn places(channels: &[Channel]) -> (Vec<u32>, u32) {
    let mut next = 0;
    let places = channels.iter().map(|channel| {
        let place = next;
        next += bits(channel).next_multiple_of(32);
        place
    });
    let places = places.collect();
    (places, next.max(DATA_BITS_MIN))
}

impl Emitter<'_> {
    /// The channels of the kernel, if it has any.
    fn used_channels(&self) -> Option<&Channels> {
        Some(self.channels).filter(|channels| !channels.is_empty())
    }

    /// Definitions of the kernel's ports (`hdl/kernels/rtl/kernel_channel_ports.svh`).
    pub fn channel_defines(&self) -> Vec<String> {
        let Some(channels) = self.used_channels() else {
            return Vec::new();
        };
        let side = |direction: &str, channels: &[Channel]| {
            [
                format!("CHANNELS_{direction} {}", channels.len().max(1)),
                format!("CHANNEL_{direction}_BITS {}", places(channels).1),
            ]
        };
        let mut defines = vec!["KERNEL_CHANNELS".to_owned()];
        defines.extend(side("IN", &channels.read));
        defines.extend(side("OUT", &channels.written));
        defines
    }

    /// Adds an operation on a channel, and returns its result, if any.
    pub fn channel_call(
        &mut self,
        spot: Spot,
        call: EngineCall,
        arguments: &[(Type, Value)],
        when: Expression,
    ) -> Option<Expression> {
        let condition = arguments.first().map_or(Value::Bits(1), |a| a.1);
        let when = match condition {
            Value::Bits(1) => when,
            other => when.and(self.view(spot, other, 1)),
        };
        let mut words = Vec::new();
        for (_, word) in arguments.iter().skip(1) {
            words.push(self.view(spot, *word, WORD));
        }
        let begins = self.code(spot.function, spot.block).schedule.entry() == Some(spot.step);
        let mut operation = ChannelOperation {
            when,
            missing: if begins {
                Missing::Repeats
            } else {
                Missing::Waits
            },
            words,
        };
        match call {
            EngineCall::ChannelRead(port) => {
                self.channel_reads.entry(port).or_default().push(operation);
                None
            }
            EngineCall::ChannelWrite(port) => {
                self.channel_writes.entry(port).or_default().push(operation);
                None
            }
            EngineCall::ChannelTryRead(port) => {
                operation.missing = Missing::Passes;
                self.channel_reads.entry(port).or_default().push(operation);
                Some(Expression::name("channel_in_valid").bit(port))
            }
            EngineCall::ChannelTryWrite(port) => {
                operation.missing = Missing::Passes;
                self.channel_writes.entry(port).or_default().push(operation);
                Some(Expression::name("channel_out_ready").bit(port))
            }
            EngineCall::ChannelWord(port) => {
                let Value::Bits(word) = condition else {
                    return Some(Expression::Literal(0, WORD));
                };
                let first = word as u32 * WORD;
                let channel = &self.channels.read[port as usize];
                let place = places(&self.channels.read).0[port as usize];
                let last = (first + WORD).min(bits(channel)) - 1;
                let data = Expression::name("channel_in_data");
                Some(data.slice(place + last, place + first).resized(WORD))
            }
            _ => None,
        }
    }

    /// The condition under which a step's operations on channels are complete.
    pub fn channels_ready(&self) -> Option<Expression> {
        let ready = self.used_channels();
        ready.map(|_| Expression::name("channels_ready"))
    }

    /// Signals and handshakes.
    pub fn channels(&mut self, items: &mut Vec<Item>) {
        let Some(channels) = self.used_channels() else {
            return;
        };
        let counts = [channels.read.len(), channels.written.len()].map(|n| n.max(1) as u32);
        let vector = |bits: u32, names: [&str; 2]| {
            let mut declaration = Declaration::new(DataType::Vector(bits), names[0]);
            declaration.names.push(names[1].to_owned());
            declaration
        };
        items.push(Item::Blank);
        let mut first_reads = vector(counts[0], ["reads", "read_tries"]);
        first_reads.names.push("first_reads".to_owned());
        items.push(Item::Aligned(vec![
            first_reads,
            vector(counts[1], ["writes", "write_tries"]),
        ]));
        items.push(Item::Declaration(Declaration::new(
            DataType::Logic(1),
            "others_done",
        )));
        let done = self.later.iter().cloned();
        let done = done.map(|steps| steps.equals(Expression::Fill(false)));
        let done = done
            .reduce(Expression::and)
            .unwrap_or(Expression::Fill(true));
        items.push(Item::Assign(Expression::name("others_done"), done));
        items.push(Item::Blank);
        items.push(Item::Instance(Instance {
            module: "kernel_channels".to_owned(),
            parameters: vec![("IN", counts[0]), ("OUT", counts[1])],
            name: "u_channels".to_owned(),
            connections: vec![Connection::All],
        }));
        let (places, _) = places(&channels.written);
        let widths: Vec<u32> = channels.written.iter().map(bits).collect();
        let names = [
            "reads",
            "read_tries",
            "first_reads",
            "writes",
            "write_tries",
            "channel_out_data",
        ];
        let none = |name: &str| (Expression::name(name), Expression::Fill(false));
        let mut statements = vec![Statement::Aligned(names.map(none).to_vec())];
        let set = |name: &str, port: u32| {
            Statement::assign(Expression::name(name).bit(port), Expression::Fill(true))
        };
        for (port, all) in std::mem::take(&mut self.channel_reads) {
            for read in all {
                let name = match read.missing {
                    Missing::Waits => "reads",
                    Missing::Passes => "read_tries",
                    Missing::Repeats => "first_reads",
                };
                statements.push(Statement::when(read.when, vec![set(name, port)]));
            }
        }
        for (port, all) in std::mem::take(&mut self.channel_writes) {
            let (place, width) = (places[port as usize], widths[port as usize]);
            for write in all {
                let name = match write.missing {
                    Missing::Passes => "write_tries",
                    _ => "writes",
                };
                let mut drive = vec![set(name, port)];
                for (at, word) in write.words.into_iter().enumerate() {
                    let first = at as u32 * WORD;
                    let last = (first + WORD).min(width);
                    let data = Expression::name("channel_out_data");
                    let to = data.slice(place + last - 1, place + first);
                    drive.push(Statement::assign(to, word.resized(last - first)));
                }
                statements.push(Statement::when(write.when, drive));
            }
        }
        items.push(Item::Combinational(statements));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Position;

    #[test]
    fn elements_begin_at_multiples_of_words_of_32_bits() {
        let channel = |bytes| Channel {
            name: String::new(),
            bytes,
            depth: 0,
            position: Position::default(),
        };
        let all = [1, 16, 6, 8].map(channel);
        assert_eq!(places(&all), (vec![0, 32, 160, 224], 288));
        assert_eq!(places(&all[..1]), (vec![0], DATA_BITS_MIN));
    }
}
