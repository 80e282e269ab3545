use crate::function::tests::{function, with_kernel};
use crate::{Argument, BindError, Body, Buffer, Call, Function, Request, Scalar, Tensor, Type};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;

/// A request: `METHOD[/path][?query]`, a content type, a body.
fn bind_frames(
    function: &Function,
    line: &str,
    content_type: &str,
    body: Body,
) -> Result<Call, BindError> {
    let (line, query) = line.split_once('?').unwrap_or((line, ""));
    let (method, path) = line.find('/').map_or((line, ""), |at| line.split_at(at));
    let mut headers = HeaderMap::new();
    if !content_type.is_empty() {
        headers.insert("content-type", HeaderValue::from_str(content_type).unwrap());
    }
    headers.insert("x-depth", HeaderValue::from_static("7"));
    let method: Method = method.parse().unwrap();
    function.bind(
        &Request {
            method: &method,
            path,
            query,
            headers: &headers,
        },
        body,
    )
}

fn bind(
    function: &Function,
    line: &str,
    content_type: &str,
    body: &[u8],
) -> Result<Call, BindError> {
    bind_frames(
        function,
        line,
        content_type,
        Body::from_bytes(Bytes::copy_from_slice(body)),
    )
}

/// Status and reason of a rejection.
fn refusal(result: Result<Call, BindError>) -> (u16, String) {
    let error = result.expect_err("refused");
    (error.status(), error.to_string())
}

fn input(call: &Call, index: usize) -> Bytes {
    match &call.buffers[index] {
        Buffer::Input(body) | Buffer::InOut(body, _) => body.to_bytes(),
        other => panic!("{other:?}"),
    }
}

fn image() -> Function {
    with_kernel(
        "inputs:\n  - {name: image, type: u8, shape: [height, width], codecs: [png, npy, raw, json]}\n  \
         - {name: gain, type: f32, from: query, default: 1, min: 0, max: 8}\n\
         outputs:\n  - {name: out, type: u16, shape: [height, \"width * 2\"], codecs: [raw, json, npy]}\n\
         symbols: {width: {min: 1, max: 1000}, height: {min: 1, max: 1000}}\n\
         limits: {body_bytes: 4096, memory_bytes: 8KiB}",
        "kernel: f\n      args: [image, out, gain, \"i32(width)\", \"local(width)\"]\n      \
         global: [\"align(width, 4)\", height]\n      local: [4, 1]\n",
    )
    .unwrap()
}

#[test]
fn raw_bytes_take_their_shape_from_parameters_and_length() {
    let function = image();
    let call = bind(
        &function,
        "POST?width=3&height=2&gain=2.5",
        "application/octet-stream",
        &[1; 6],
    )
    .unwrap();
    assert_eq!(input(&call, 0).len(), 6);
    assert_eq!(
        (
            call.outputs[0].bytes,
            call.outputs[0].kind,
            call.outputs[0].shape.as_slice()
        ),
        (24, Type::U16, &[2, 6][..])
    );
    let step = &call.launches[0].steps[0];
    assert_eq!(
        (step.global, step.local, step.dimensions),
        ([4, 2, 1], Some([4, 1, 1]), 2)
    );
    let arguments = [
        Argument::Buffer(0),
        Argument::Buffer(1),
        Argument::Scalar(Scalar::F32(2.5)),
        Argument::Scalar(Scalar::I32(3)),
        Argument::Local(3),
    ];
    assert_eq!(step.arguments, arguments);
    // One of two dimensions is enough.
    let call = bind(&function, "POST?width=3", "", &[1; 12]).unwrap();
    assert_eq!(call.outputs[0].shape, [4, 6]);
    assert_eq!(
        bind(&function, "POST?height=3", "", &[1; 12])
            .unwrap()
            .outputs[0]
            .shape,
        [3, 8]
    );
}

#[test]
fn frames_are_not_put_together() {
    let frames = Body(
        [&[1u8, 2][..], &[], &[3, 4, 5], &[6]]
            .map(Bytes::from_static)
            .to_vec(),
    );
    let first = frames.0[0].as_ptr();
    let call = bind_frames(&image(), "POST?width=3", "", frames).unwrap();
    let Buffer::Input(body) = &call.buffers[0] else {
        panic!()
    };
    assert_eq!(body.0.iter().filter(|frame| !frame.is_empty()).count(), 3);
    assert_eq!(body.0[0].as_ptr(), first);
    assert_eq!(body.to_bytes(), &[1u8, 2, 3, 4, 5, 6][..]);
}

/// Request line, content type, body, and the refusal's status and a part of its reason.
const REFUSALS: &[(&str, &str, &[u8], u16, &str)] = &[
    ("GET", "", &[], 405, "POST"),
    ("POST/deeper", "", &[], 404, "no paths"),
    (
        "POST?widht=3",
        "",
        &[0; 6],
        400,
        "no parameter 'widht': it has gain, height, width",
    ),
    (
        "POST?width=3&width=3",
        "",
        &[0; 6],
        400,
        "duplicate parameter 'width'",
    ),
    ("POST?width=3x", "", &[0; 6], 400, "'width' is '3x'"),
    ("POST?width=-3", "", &[0; 6], 400, "'width' is '-3'"),
    ("POST?width=%zz", "", &[0; 6], 400, "percent-encoded"),
    ("POST?gain=nan&width=3", "", &[0; 6], 400, "'gain' is 'nan'"),
    (
        "POST?gain=9&width=3",
        "",
        &[0; 6],
        422,
        "'gain' is 9, must be a number, at least 0, at most 8",
    ),
    ("POST", "", &[0; 6], 400, "'height' or 'width' is missing"),
    (
        "POST?width=4",
        "",
        &[0; 6],
        422,
        "6 bytes, which match image: u8[height, width] for no value of 'height'",
    ),
    (
        "POST?width=4&height=2",
        "",
        &[0; 6],
        422,
        "has 6 bytes; image: u8[height, width] has 8",
    ),
    (
        "POST?width=2000",
        "",
        &[0; 6],
        422,
        "'width' is 2000, must be 1 to 1000",
    ),
    (
        "POST?width=4097",
        "",
        &[0; 4097],
        413,
        "4097 bytes; the function accepts at most 4096",
    ),
    (
        "POST?width=64",
        "",
        &[0; 4096],
        413,
        "out would take 16384 bytes; the function may use 8192",
    ),
    ("POST", "text/html", &[0; 6], 415, "'text/html'"),
    (
        "POST",
        "image/jpeg",
        &[0; 6],
        415,
        "'image/jpeg' is not supported by the function, which accepts image/png",
    ),
    (
        "POST",
        "image/png",
        &[0; 6],
        422,
        "cannot decode the picture",
    ),
    (
        "POST",
        "",
        b"\x89PNG\r\n\x1a\nrubbish",
        422,
        "cannot decode the picture",
    ),
    (
        "POST",
        "application/json",
        b"[[1,2],[3]]",
        422,
        "elements are mixed",
    ),
    (
        "POST",
        "application/json",
        b"[1,2]",
        422,
        "the shape [2], must have [height, width]",
    ),
    (
        "POST?width=3",
        "application/json",
        b"[[1,2]]",
        422,
        "'width' is 2 here and 3 elsewhere",
    ),
    ("POST", "application/json", b"[[1,2]", 400, "not JSON"),
    ("POST", "application/x-npy", b"PK", 422, "not a NumPy file"),
];

#[test]
fn every_refusal_has_its_status_and_names_what_is_wrong() {
    let function = image();
    for (line, content_type, body, status, part) in REFUSALS.iter().copied() {
        let (got, reason) = refusal(bind(&function, line, content_type, body));
        assert_eq!(got, status, "{line} {content_type}: {reason}");
        assert!(reason.contains(part), "{line} {content_type}: {reason}");
    }
}

#[test]
fn the_first_bytes_decide_without_a_content_type() {
    let function = image();
    let png = crate::codec::picture::encode(
        crate::manifest::Codec::Png,
        Type::U8,
        &[2, 3],
        &[9, 8, 7, 6, 5, 4],
    )
    .unwrap();
    for content_type in [
        "",
        "application/x-www-form-urlencoded",
        "image/png",
        "IMAGE/PNG; q=1",
    ] {
        let call = bind(&function, "POST", content_type, &png).unwrap();
        assert_eq!(input(&call, 0), &[9u8, 8, 7, 6, 5, 4][..]);
    }
    let mut npy = crate::codec::npy::write_header(Type::U8, &[2, 3]);
    npy.extend_from_slice(&[9, 8, 7, 6, 5, 4]);
    assert_eq!(
        input(&bind(&function, "POST", "", &npy).unwrap(), 0).len(),
        6
    );
    // The content type takes precedence over the signature.
    let raw = bind(
        &function,
        &format!("POST?width={}", npy.len()),
        "application/octet-stream",
        &npy,
    )
    .unwrap();
    assert_eq!(raw.outputs[0].shape[0], 1);
    npy.push(0);
    assert!(refusal(bind(&function, "POST", "", &npy))
        .1
        .contains("1 trailing bytes"));
    assert!(refusal(bind(&function, "POST", "", &npy[..npy.len() - 3]))
        .1
        .contains("truncated"));
    let float = crate::codec::npy::write_header(Type::F32, &[0, 3]);
    assert!(refusal(bind(&function, "POST", "", &float))
        .1
        .contains("f32, not u8"));
}

#[test]
fn an_unknown_in_several_places_is_found_from_the_length() {
    let function = function(
        "inputs:\n  - {name: a, type: f32, shape: [n, n]}\n  - {name: b, type: f32, shape: [n]}\n  - {name: s, type: f32}\n\
         outputs:\n  - {name: c, type: f32, shape: [n]}",
    )
    .unwrap();
    let call = bind(&function, "POST", "", &vec![0; (7 * 7 + 7 + 1) * 4]).unwrap();
    assert_eq!(call.outputs[0].shape, [7]);
    assert_eq!(refusal(bind(&function, "POST", "", &[0; 40])).0, 422);
    let mut npy = Vec::new();
    for (shape, count) in [(&[2u64, 2][..], 4), (&[2], 2), (&[], 1)] {
        npy.extend(crate::codec::npy::write_header(Type::F32, shape));
        npy.extend(vec![1u8; count * 4]);
    }
    assert_eq!(
        bind(&function, "POST", "", &npy).unwrap().outputs[0].shape,
        [2]
    );
    let json = br#"{"b": [1, 2], "a": [[1,2],[3,4]], "s": 2}"#;
    let call = bind(&function, "POST", "application/json", json).unwrap();
    assert!(call.launches[0].steps[0]
        .arguments
        .contains(&Argument::Scalar(Scalar::F32(2.0))));
    let missing = refusal(bind(
        &function,
        "POST",
        "application/json",
        br#"{"a": [[1,2],[3,4]], "s": 2}"#,
    ));
    assert!(
        missing.0 == 400 && missing.1.contains("part of the body 'b' is missing"),
        "{missing:?}"
    );
}

#[test]
fn a_number_and_a_dimension_of_one_name_are_one() {
    let function = function(
        "inputs:\n  - {name: x, type: u8, shape: [width]}\n  - {name: width, type: u16, from: query}\n\
         outputs:\n  - {name: y, type: u8, shape: [\"width + 1\"]}",
    )
    .unwrap();
    for line in ["POST", "POST?width=5"] {
        let call = bind(&function, line, "", &[0; 5]).unwrap();
        assert_eq!(call.outputs[0].shape, [6]);
        assert_eq!(
            call.launches[0].steps[0].arguments[1],
            Argument::Scalar(Scalar::U16(5))
        );
    }
    assert_eq!(refusal(bind(&function, "POST?width=4", "", &[0; 5])).0, 422);
    let long = refusal(bind(&function, "POST", "", &vec![0; 70000]));
    assert!(
        long.0 == 422 && long.1.contains("not a valid u16"),
        "{long:?}"
    );
}

#[test]
fn path_method_header_and_lists_are_bound() {
    let function = function(
        "methods: [GET, DELETE]\ninputs:\n  - {name: path, type: u8, shape: [p], from: path}\n  \
         - {name: method, type: u8, shape: [m], from: method}\n  - {name: list, type: i16, shape: [k], from: query}\n  \
         - {name: depth, type: i32, from: header}",
    )
    .unwrap();
    let call = bind(&function, "DELETE/a%20b?list=-1,2,300", "", &[]).unwrap();
    assert_eq!(input(&call, 0), "/a b");
    assert_eq!(input(&call, 1), "DELETE");
    assert_eq!(input(&call, 2), &[255u8, 255, 2, 0, 44, 1][..]);
    assert_eq!(
        call.launches[0].steps[0].arguments[3],
        Argument::Scalar(Scalar::I32(7))
    );
    assert_eq!(
        input(&bind(&function, "GET?list=", "", &[]).unwrap(), 2).len(),
        0
    );
    assert!(refusal(bind(&function, "GET", "", &[]))
        .1
        .contains("parameter 'list' is missing"));
    assert!(refusal(bind(&function, "GET?list=1,,2", "", &[]))
        .1
        .contains("'list' is ''"));
    assert!(refusal(bind(&function, "GET?list=1", "", &[1]))
        .1
        .contains("accepts no body"));
}

#[test]
fn work_items_are_multiples_of_their_group() {
    let function = with_kernel(
        "inputs:\n  - {name: x, type: u8, shape: [n]}",
        "kernel: f\n      global: [n]\n      local: [64]\n",
    )
    .unwrap();
    assert!(bind(&function, "POST", "", &[0; 128]).is_ok());
    assert!(refusal(bind(&function, "POST", "", &[0; 100]))
        .1
        .contains("use align()"));
    assert_eq!(
        bind(&function, "POST", "", &[]).unwrap().launches[0].steps[0].global,
        [0, 1, 1]
    );
}

#[test]
fn sizes_that_are_none_are_refused() {
    let function = function(
        "inputs:\n  - {name: x, type: u8, shape: [n]}\n\
         outputs:\n  - {name: y, type: u8, shape: [\"n - 5\"]}\n  - {name: z, type: u8, shape: [\"100 / n\"]}",
    )
    .unwrap();
    assert!(refusal(bind(&function, "POST", "", &[0; 3]))
        .1
        .contains("y: n - 5 is -2"));
    let call = bind(&function, "POST", "", &[0; 5]).unwrap();
    assert_eq!((call.outputs[0].bytes, call.outputs[1].bytes), (0, 20));
}

#[test]
fn tensors_bind_like_bodies() {
    let function = image();
    let tensor = |name: &str, kind, shape: &[u64], data: &[u8]| Tensor {
        name: name.into(),
        kind,
        shape: shape.to_vec(),
        data: data.to_vec().into(),
    };
    let image = || tensor("image", Type::U8, &[2, 3], &[1; 6]);
    let call = function
        .bind_tensors(vec![
            tensor("gain", Type::F32, &[1], &2f32.to_le_bytes()),
            image(),
        ])
        .unwrap();
    assert_eq!(
        call.launches[0].steps[0].arguments[2],
        Argument::Scalar(Scalar::F32(2.0))
    );
    assert_eq!(call.outputs[0].shape, [2, 6]);
    let outputs = vec![Bytes::from(vec![5; 24])];
    let answer = function
        .answer_tensors(&call, outputs.clone(), &["out"])
        .unwrap();
    assert_eq!(
        (answer[0].kind, answer[0].shape.as_slice()),
        (Type::U16, &[2, 6][..])
    );
    let mut json = Vec::new();
    answer[0].data_to_json(&mut json);
    assert_eq!(
        Tensor::data_from_json(Type::U16, &json, 24).unwrap(),
        answer[0].data
    );
    assert_eq!(
        Tensor::data_from_json(Type::U16, &json, 23)
            .unwrap_err()
            .status(),
        422
    );
    assert_eq!(
        function
            .answer_tensors(&call, outputs, &["image"])
            .unwrap_err()
            .status(),
        400
    );
    for (tensors, part) in [
        (vec![], "'image' is missing"),
        (vec![image(), image()], "duplicate"),
        (vec![tensor("x", Type::U8, &[1], &[1])], "no input 'x'"),
        (
            vec![tensor("image", Type::I8, &[2, 3], &[1; 6])],
            "INT8, must be UINT8",
        ),
        (vec![tensor("image", Type::U8, &[2, 3], &[1; 5])], "5 bytes"),
        (
            vec![tensor("image", Type::U8, &[u64::MAX, 3], &[1; 5])],
            "5 bytes",
        ),
        (
            vec![tensor("image", Type::U8, &[6], &[1; 6])],
            "must have [height, width]",
        ),
        (
            vec![image(), tensor("gain", Type::F32, &[2], &[0; 8])],
            "'gain' is one f32",
        ),
    ] {
        let error = function.bind_tensors(tensors).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let metadata = serde_json::to_value(function.metadata()).unwrap();
    assert_eq!(metadata["inputs"][0]["shape"], serde_json::json!([-1, -1]));
    assert_eq!(
        metadata["inputs"][1],
        serde_json::json!({"name": "gain", "datatype": "FP32", "shape": [1]})
    );
    assert_eq!(metadata["outputs"][0]["datatype"], "UINT16");
}

#[test]
fn answers_have_the_form_that_was_asked_for() {
    let function = image();
    let call = bind(&function, "POST?width=1", "", &[0; 2]).unwrap();
    let outputs = vec![Bytes::from_static(&[1, 0, 2, 0, 3, 0, 4, 1])];
    let answer = |accept| function.answer(&call, outputs.clone(), accept).unwrap();
    let raw = answer(None);
    assert_eq!(
        (raw.body.to_bytes(), raw.content_type),
        (outputs[0].clone(), "application/octet-stream")
    );
    assert_eq!(raw.body.0[0].as_ptr(), outputs[0].as_ptr(), "not copied");
    assert_eq!(raw.headers, [("x-baltra-shape", "out=u16[2,2]".to_owned())]);
    assert_eq!(
        answer(Some("application/json")).body.to_bytes(),
        "{\"out\":[[1,2],[3,260]]}\n"
    );
    let npy = answer(Some("application/x-npy")).body.to_bytes();
    let header = crate::codec::npy::header(&npy).unwrap();
    assert_eq!(
        (header.shape.as_slice(), &npy[header.data..]),
        (&[2, 2][..], &outputs[0][..])
    );
    assert_eq!(
        function
            .answer(&call, outputs.clone(), Some("image/png"))
            .unwrap_err()
            .status(),
        406
    );
    assert_eq!(
        function.answer(&call, vec![], None).unwrap_err().status(),
        500
    );
    assert_eq!(
        function
            .answer(&call, vec![Bytes::from_static(&[1])], None)
            .unwrap_err()
            .status(),
        500
    );
}

#[test]
fn an_output_is_as_long_as_it_says() {
    let function = function(
        "inputs:\n  - {name: x, type: u8, shape: [n]}\noutputs:\n  - {name: y, type: u16, shape: [n], length: used}\n  \
         - {name: used, type: u64}",
    )
    .unwrap();
    let call = bind(&function, "POST", "", &[0; 3]).unwrap();
    let outputs = |used: u64| {
        vec![
            Bytes::from_static(&[1, 0, 2, 0, 3, 0]),
            used.to_le_bytes().to_vec().into(),
        ]
    };
    let answer = function.answer(&call, outputs(2), None).unwrap();
    assert_eq!(answer.body.to_bytes(), &[1u8, 0, 2, 0][..]);
    assert_eq!(answer.headers[0].1, "y=u16[2]");
    assert_eq!(
        function.answer_tensors(&call, outputs(1), &[]).unwrap()[0].shape,
        [1]
    );
    assert_eq!(
        function
            .answer(&call, outputs(4), None)
            .unwrap_err()
            .status(),
        500
    );
    assert_eq!(function.metadata().outputs.len(), 1);
}

proptest! {
    #[test]
    fn no_request_panics_and_every_input_has_its_size(
        query in "(width|height|gain|x|%41)?(=[0-9a-z.%+-]{0,6})?(&(width|height)=[0-9]{1,4})?",
        kind in 0usize..6,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let function = image();
        let types = ["", "application/json", "application/x-npy", "image/png", "application/octet-stream", "a/b;c"];
        if let Ok(call) = bind(&function, &format!("POST?{query}"), types[kind], &body) {
            prop_assert_eq!(call.outputs[0].bytes, input(&call, 0).len() as u64 * 4);
        }
    }
}
