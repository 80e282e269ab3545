use super::*;
use crate::function::tests::with_kernel;
use crate::{Argument, Function, Request};
use http::{HeaderMap, Method};
use proptest::prelude::*;

fn rows() -> Function {
    with_kernel(
        "inputs:\n  - {name: x, type: u16, shape: [rows, width]}\n  - {name: gain, type: f32, from: query, default: 1}\n\
         outputs:\n  - {name: y, type: u8, shape: [rows, 3]}\n  - {name: z, type: u32, shape: [rows]}\n\
         symbols: {rows: {max: 100}}\nbatching: {max: 8, wait_us: 10, dimension: rows}",
        "kernel: f\n      args: [x, gain, y, z, \"u32(rows)\"]\n      global: [rows]\n",
    )
    .unwrap()
}

fn call(function: &Function, query: &str, body: Vec<u8>) -> Call {
    let request = Request {
        method: &Method::POST,
        path: "",
        query,
        headers: &HeaderMap::new(),
    };
    function.bind(&request, body.into()).unwrap()
}

#[test]
fn a_body_of_one_needs_no_batch() {
    let function = rows();
    assert_eq!(call(&function, "", vec![0; 8]).outputs[0].shape, [1, 3]);
    assert_eq!(
        call(&function, "width=2", vec![0; 8]).outputs[0].shape,
        [2, 3]
    );
    assert_eq!(call(&function, "rows=4", vec![0; 8]).outputs[1].shape, [4]);
}

#[test]
fn only_what_is_equal_but_for_the_batch_is_merged() {
    let function = rows();
    let one = call(&function, "", vec![1; 8]);
    assert!(one.mergeable(&call(&function, "width=4", vec![2; 32])));
    assert!(
        !one.mergeable(&call(&function, "", vec![2; 10])),
        "another width"
    );
    assert!(
        !one.mergeable(&call(&function, "gain=2", vec![2; 8])),
        "another number"
    );
    assert!(
        !one.mergeable(&call(&rows(), "", vec![2; 8])),
        "another function"
    );
    assert!(Call::merge(&[one.clone(), call(&function, "", vec![2; 10])]).is_none());
    assert!(Call::merge(&[]).is_none());
    let many = call(&function, "width=4", vec![0; 99 * 8]);
    assert!(Call::merge(&[many.clone(), one.clone()]).is_some());
    assert!(
        Call::merge(&[many, one.clone(), one]).is_none(),
        "more than the symbol's bound"
    );
}

#[test]
fn a_merged_call_has_everything_once() {
    let function = rows();
    let calls = [
        call(&function, "", vec![1; 8]),
        call(&function, "width=4", vec![2; 16]),
        call(&function, "rows=0&width=4", vec![]),
    ];
    let merged = Call::merge(&calls).unwrap();
    assert_eq!(merged.items, 3);
    let Buffer::Input(body) = &merged.buffers[0] else {
        panic!()
    };
    assert_eq!(body.to_bytes(), [vec![1; 8], vec![2; 16]].concat());
    assert_eq!(merged.launches[0].steps[0].global, [3, 1, 1]);
    assert_eq!(
        merged.launches[0].steps[0].arguments[4],
        Argument::Scalar(Scalar::U32(3))
    );
    let outputs = [
        Bytes::from_static(b"abcdefghi"),
        Bytes::from_static(b"000011112222"),
    ];
    let parts = merged.split(&outputs).unwrap();
    assert_eq!(
        parts,
        [
            vec![Bytes::from("abc"), Bytes::from("0000")],
            vec![Bytes::from("defghi"), Bytes::from("11112222")],
            vec![Bytes::new(), Bytes::new()],
        ]
    );
    assert!(merged.split(&outputs[..1]).is_none());
    assert!(merged
        .split(&[outputs[0].slice(1..), outputs[1].clone()])
        .is_none());
    assert_eq!(
        calls[0]
            .split(&[Bytes::from("abc"), Bytes::from("0000")])
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_function_without_arrays_batches_too() {
    let function = with_kernel(
        "batching: {max: 8, wait_us: 10, dimension: calls}",
        "kernel: f\n      global: [calls]\n",
    )
    .unwrap();
    let one = call(&function, "", Vec::new());
    let merged = Call::merge(&[one.clone(), one.clone(), one]).unwrap();
    assert_eq!(
        (merged.items, merged.launches[0].steps[0].global),
        (3, [3, 1, 1])
    );
    assert_eq!(merged.split(&[]).unwrap(), vec![Vec::<Bytes>::new(); 3]);
}

proptest! {
    /// The parts of a result computed on the whole equal the results computed on the parts.
    #[test]
    fn parts_of_the_whole_are_the_parts(sizes in prop::collection::vec(0u64..12, 1..8), width in 1u64..5) {
        let function = rows();
        // In place of the kernel: the first column's sum and the low bytes of a row.
        let compute = |call: &Call| {
            let Buffer::Input(body) = &call.buffers[0] else { panic!() };
            let bytes = body.to_bytes();
            let rows: Vec<&[u8]> = bytes.chunks(2 * width as usize).collect();
            let y: Vec<u8> = rows.iter().flat_map(|row| [row[0], row[1], row[row.len() - 1]]).collect();
            let z: Vec<u8> = rows.iter().flat_map(|row| row.iter().map(|b| u32::from(*b)).sum::<u32>().to_le_bytes()).collect();
            [Bytes::from(y), Bytes::from(z)]
        };
        let mut next = 0u8;
        let calls: Vec<Call> = sizes.iter().map(|size| {
            let body = (0..size * width * 2).map(|_| { next = next.wrapping_mul(5).wrapping_add(3); next }).collect();
            call(&function, &format!("width={width}&rows={size}"), body)
        }).collect();
        let merged = Call::merge(&calls).unwrap();
        let parts = merged.split(&compute(&merged)).unwrap();
        prop_assert_eq!(parts.len(), calls.len());
        for (part, call) in parts.iter().zip(&calls) {
            prop_assert_eq!(part.as_slice(), &compute(call)[..]);
        }
    }
}
