//! Calls that a relay issues itself through a tunnel. It converts their numbers, because the relay
//! of the other node accepts only a client's.

use baltra_wire::{decode, encode, Call, Notice};

/// Bit that marks a relay's own calls; a client's numbers never reach it.
pub(crate) const OWN_CALL: Call = 1 << 31;
/// Bit that marks such a call on the way; a client's numbers do not reach it, either.
const ON_THE_WAY: Call = 1 << 30;

/// The number of a relay's own call on the way.
pub(crate) fn sent(call: Call) -> Call {
    call & !OWN_CALL | ON_THE_WAY
}

/// The reply to a relay's own call with the relay's number, if `notice` is one that was sent.
pub(crate) fn answered(notice: &[u8]) -> Option<Vec<u8>> {
    let Ok(Notice::Reply { call, reply }) = decode(notice) else {
        return None;
    };
    if call & ON_THE_WAY == 0 {
        return None;
    }
    let call = call & !ON_THE_WAY | OWN_CALL;
    let mut bytes = Vec::new();
    encode(&Notice::Reply { call, reply }, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_wire::Reply;

    #[test]
    fn a_relays_call_comes_back_with_its_number() {
        let reply = |call| {
            let mut bytes = Vec::new();
            let reply = Reply::Done;
            encode(&Notice::Reply { call, reply }, &mut bytes).unwrap();
            bytes
        };
        for call in [OWN_CALL, OWN_CALL | 7, OWN_CALL | 70_000] {
            assert!(sent(call) < OWN_CALL);
            assert_eq!(answered(&reply(sent(call))), Some(reply(call)));
        }
        assert_eq!(answered(&reply(7)), None);
    }
}
