//! A kernel's arguments, kept in their encoded form: a launch only copies the bytes.
//!
//! The table is one sequence of postcard-encoded [`Arg`]s in argument order. Setting an argument
//! whose encoding has the same length as before, which is the usual case, overwrites it in place;
//! another length moves the arguments behind it.

use baltra_wire::{decode, encode, Arg};

/// Position of an argument in the table.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    /// 0: the argument has not been set (no encoding is empty).
    len: u32,
}

/// The arguments of one kernel object.
#[derive(Clone, Debug, Default)]
pub struct ArgTable {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    unset: usize,
    scratch: Vec<u8>,
}

impl ArgTable {
    /// A table of `count` arguments, none of them set.
    pub fn new(count: usize) -> ArgTable {
        ArgTable {
            bytes: Vec::with_capacity(count * 8),
            spans: vec![Span::default(); count],
            unset: count,
            scratch: Vec::new(),
        }
    }

    /// Sets argument `index`, which the caller has checked.
    pub fn set(&mut self, index: usize, arg: &Arg<'_>) {
        self.scratch.clear();
        encode(arg, &mut self.scratch).expect("an argument can always be encoded");
        let span = self.spans[index];
        let (start, old) = (span.start as usize, span.len as usize);
        let new = self.scratch.len();
        if old == new {
            self.bytes[start..start + new].copy_from_slice(&self.scratch);
            return;
        }
        if old == 0 {
            self.unset -= 1;
        }
        self.bytes
            .splice(start..start + old, self.scratch.iter().copied());
        self.spans[index].len = new as u32;
        for later in &mut self.spans[index + 1..] {
            later.start = (later.start as usize + new - old) as u32;
        }
    }

    /// The encoded arguments; `None` while one of them is not set.
    pub fn encoded(&self) -> Option<&[u8]> {
        (self.unset == 0).then_some(&self.bytes[..])
    }

    /// Bytes of the local memory arguments that are set, together.
    pub fn local_bytes(&self) -> u64 {
        let set = self.spans.iter().filter(|s| s.len > 0);
        set.map(|s| {
            let bytes = &self.bytes[s.start as usize..][..s.len as usize];
            match decode(bytes) {
                Ok(Arg::Local(bytes)) => bytes,
                _ => 0,
            }
        })
        .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(table: &ArgTable) -> Vec<Arg<'_>> {
        let mut rest = table.encoded().expect("all set");
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (arg, tail) = postcard::take_from_bytes(rest).expect("well formed");
            all.push(arg);
            rest = tail;
        }
        all
    }

    #[test]
    fn arguments_set_in_any_order_come_out_in_theirs() {
        let mut table = ArgTable::new(3);
        table.set(2, &Arg::Local(1 << 20));
        assert!(table.encoded().is_none(), "two are not set");
        assert_eq!(table.local_bytes(), 1 << 20);
        table.set(0, &Arg::Memory(7));
        table.set(1, &Arg::Value(&[1, 2, 3, 4]));
        assert_eq!(
            decoded(&table),
            [
                Arg::Memory(7),
                Arg::Value(&[1, 2, 3, 4]),
                Arg::Local(1 << 20)
            ]
        );
    }

    #[test]
    fn a_longer_or_shorter_value_leaves_its_neighbors_whole() {
        let mut table = ArgTable::new(3);
        for index in 0..3 {
            table.set(index, &Arg::Memory(index as u32));
        }
        table.set(1, &Arg::Value(&[9; 300]));
        table.set(2, &Arg::Sampler(70_000));
        table.set(1, &Arg::Svm(5));
        assert_eq!(
            decoded(&table),
            [Arg::Memory(0), Arg::Svm(5), Arg::Sampler(70_000)]
        );
    }

    #[test]
    fn a_kernel_without_arguments_is_always_ready() {
        assert_eq!(ArgTable::new(0).encoded(), Some(&[][..]));
    }
}
