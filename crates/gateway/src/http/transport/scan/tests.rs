use super::*;
use proptest::prelude::*;

fn scan(text: &str) -> Result<Within, Refusal> {
    let mut scanner = Scanner::new(8192);
    scanner.feed(text.as_bytes())?;
    Ok(scanner.within())
}

fn refused(text: &str) -> bool {
    matches!(scan(text), Err(Refusal::Ambiguous(_)))
}

const GOOD: [&str; 9] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe\nlo",
    "POST /x HTTP/1.1\r\ncontent-length:0\r\n\r\n",
    "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab\ncd\r\n0\r\n\r\n",
    "POST /x HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\nA;x=y\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nTe: trailers\r\nContent-Type: a\r\nCookie: content-length: 3\r\n\r\n",
    "GET /content-length HTTP/1.1\r\n\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
];

#[test]
fn requests_that_all_parsers_read_alike_pass() {
    for text in GOOD {
        let within = scan(text).unwrap_or_else(|e| panic!("{e:?}: {text:?}"));
        let last = text.contains("184467440737");
        let expected = if last { Within::Body } else { Within::Nothing };
        assert_eq!(within, expected, "{text:?}");
    }
}

#[test]
fn what_is_under_way_is_known() {
    assert_eq!(scan(""), Ok(Within::Nothing));
    assert_eq!(scan("G"), Ok(Within::Head));
    assert_eq!(scan("GET / HTTP/1.1\r\n\r"), Ok(Within::Head));
    let counted = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(scan(counted), Ok(Within::Body));
    assert_eq!(scan(&format!("{counted}a")), Ok(Within::Body));
    assert_eq!(scan(&format!("{counted}ab")), Ok(Within::Nothing));
    assert_eq!(scan(&format!("{counted}abP")), Ok(Within::Head));
    let chunks = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n";
    assert_eq!(scan(chunks), Ok(Within::Body));
    assert_eq!(scan(&format!("{chunks}\r\n")), Ok(Within::Nothing));
}

#[test]
fn smuggling_shapes_are_refused() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    let shapes = [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "Content-Length: 3, 3\r\n\r\n",
        "Content-Length: +3\r\n\r\n",
        "Content-Length: -3\r\n\r\n",
        "Content-Length: 0x3\r\n\r\n",
        "Content-Length: 18446744073709551616\r\n\r\n",
        "Content-Length:\r\n\r\n",
        "Content-Length : 3\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Transfer-Encoding:\u{b}chunked\r\n\r\n",
        "X: a\r\n b\r\n\r\n",
        "X: a\r\n\tb\r\n\r\n",
        "X: a\nContent-Length: 3\r\n\r\n",
        "X: a\r\n\n",
        "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3;x\ny\r\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\n\r\n",
    ];
    for shape in shapes {
        let text = format!("{head}{shape}");
        assert!(refused(&text), "{shape:?} passed: {:?}", scan(&text));
    }
}

#[test]
fn a_long_value_hides_no_length() {
    let spaces = " ".repeat(100);
    assert!(refused(&format!(
        "POST / HTTP/1.1\r\nContent-Length:{spaces}3\r\n\r\n"
    )));
    let shape = format!("POST / HTTP/1.1\r\nTransfer-Encoding:{spaces}chunked\r\n\r\n");
    assert!(refused(&shape));
}

#[test]
fn a_head_without_end_is_refused() {
    let text = format!("GET /{} HTTP/1.1\r\n", "a".repeat(9000));
    assert_eq!(scan(&text), Err(Refusal::HeadTooLarge));
    let lines = format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(2000));
    assert_eq!(scan(&lines), Err(Refusal::HeadTooLarge));
}

proptest! {
    #[test]
    fn reading_in_pieces_changes_nothing(
        picks in proptest::collection::vec(0..GOOD.len() - 1, 1..6),
        sizes in proptest::collection::vec(1usize..9, 1..50),
    ) {
        let text: String = picks.iter().map(|i| GOOD[*i]).collect();
        let mut scanner = Scanner::new(8192);
        let (mut rest, mut i) = (text.as_bytes(), 0);
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(sizes[i % sizes.len()].min(rest.len()));
            prop_assert!(scanner.feed(piece).is_ok(), "{text:?}");
            (rest, i) = (left, i + 1);
        }
        prop_assert_eq!(scanner.within(), Within::Nothing);
    }

    #[test]
    fn any_bytes_are_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut scanner = Scanner::new(8192);
        let _ = scanner.feed(&bytes);
    }
}
