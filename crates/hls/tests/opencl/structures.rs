//! Structures within structures.

use super::kernels::{done, Bytes};
use super::launch::{Argument, Program};
use Argument::{Buffer, ReadOnly, Word};

/// Sizes in bytes: `outer` has a pair from byte 4 on and two from byte 12 on, `mixed` a packed
/// structure of 41 bytes from byte 3 on and then an `outer`.
const OUTER: usize = 28;
const MIXED: usize = 3 + PACKED + OUTER;
const PACKED: usize = 1 + 16 + 8 + 16;

#[test]
fn members_of_nested_structures_have_their_places_in_each_memory() {
    let program = Program::new(include_str!("structures.cl"), &[]);
    let n = 8;
    let (mut outer, mut mixed) = (vec![0; OUTER * n], vec![0; MIXED * n]);
    let mut arguments = [Buffer(&mut outer), Buffer(&mut mixed)];
    let outcome = program.run("fill", [n as u64, 1, 1], [4, 1, 1], &mut arguments);
    done("fill", n as u64, &outcome);
    let mut expected = (vec![0; OUTER * n], vec![0; MIXED * n]);
    for i in 0..n {
        let o = &mut expected.0[OUTER * i..OUTER * (i + 1)];
        o[0] = i as u8;
        o[8..10].copy_from_slice(&(100 + i as i16).to_le_bytes());
        let more = 12 + 8 * (i & 1);
        o[more..more + 4].copy_from_slice(&(1000 + i as i32).to_le_bytes());
        let m = &mut expected.1[MIXED * i..MIXED * (i + 1)];
        m[1] = (i as u8).wrapping_neg();
        m[4..20].copy_from_slice(&f32::bytes(&[i as f32, 1.0, 2.0, 3.0]));
        m[3 + 25 + 7] = i as u8 * 3;
        m[3 + PACKED..].copy_from_slice(o);
    }
    assert_eq!(outer, expected.0);
    assert_eq!(mixed, expected.1);

    let mut out = vec![0; 4 * n];
    let mut arguments = [ReadOnly(&mixed), Buffer(&mut out), Word(1)];
    let outcome = program.run("pass", [n as u64, 1, 1], [4, 1, 1], &mut arguments);
    done("pass", n as u64, &outcome);
    let sums = (0..n).map(|i| {
        let first = i & !3;
        // The group's first work-item has an even number, so that its pair is the one at 0.
        let near = 1000.0 + first as f32 + (3 * first) as f32;
        2.0 * i as f32 + near - i as f32
    });
    assert_eq!(f32::read(&out), sums.collect::<Vec<f32>>());
}
