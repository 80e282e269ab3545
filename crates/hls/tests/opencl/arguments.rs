//! Kernels with as many bytes of arguments as the device claims; `refused` has one byte more.

use super::kernels::{random, Bytes};
use super::launch::{Argument::Buffer, Argument::Word, End, Program};

#[test]
fn arguments_have_as_many_bytes_as_the_device_claims() {
    // 8 + 1,016 bytes: a structure whose elements are selected, and arguments of a byte each.
    let bytes = (0..1016).map(|i| format!(", uchar c{i}"));
    let source = format!(
        "typedef struct {{ int a[254]; }} S;\n\
         kernel void whole(global int *o, S s) {{\n  \
         size_t i = get_global_id(0);\n  o[i] = s.a[i];\n}}\n\
         kernel void many(global int *o{}) {{\n  \
         o[0] = c0, o[1] = c53, o[2] = c54, o[3] = c511, o[4] = c1015;\n}}\n",
        bytes.collect::<String>()
    );
    let program = Program::new(&source, &[]);
    let values: Vec<i32> = random(254).iter().map(|r| *r as i32).collect();
    let pairs = values.chunks_exact(2);
    let words = pairs.map(|p| Word(u64::from(p[0] as u32) | u64::from(p[1] as u32) << 32));
    let mut out = vec![0; 4 * 254];
    let mut arguments: Vec<_> = [Buffer(&mut out)].into_iter().chain(words).collect();
    let outcome = program.run("whole", [254, 1, 1], [1; 3], &mut arguments);
    assert_eq!(outcome.end, End::Done);
    assert_eq!(i32::read(&out), values);
    let mut out = vec![0; 20];
    let words = (0..1016).map(|i| Word(i % 251));
    let mut arguments: Vec<_> = [Buffer(&mut out)].into_iter().chain(words).collect();
    let outcome = program.run("many", [1; 3], [1; 3], &mut arguments);
    assert_eq!(outcome.end, End::Done);
    let expected = [0, 53, 54, 511, 1015].map(|i| i % 251);
    assert_eq!(i32::read(&out), expected);
}
