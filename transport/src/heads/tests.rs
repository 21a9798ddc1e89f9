//! Tests of connections as scripts of arrivals, in every way to split them into reads.

use super::*;

const WITHIN: Duration = Duration::from_secs(15);
const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Arrival time in milliseconds, and the bytes.
type Step<'a> = (u64, &'a [u8]);

/// Returns the time in ms at which a connection whose responses end at `free` is given up.
fn given_up(steps: &[Step<'_>], free: u64) -> Option<u64> {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut heads = Heads::new();
    let mut late = None;
    for (ms, bytes) in steps.iter().copied().chain([(u64::MAX >> 20, &b""[..])]) {
        let due = heads.due(at(free), WITHIN).filter(|due| *due <= at(ms));
        late = late.or(due.map(|due| (due - start).as_millis() as u64));
        heads.read(bytes, at(ms)).expect("a clear end");
    }
    late
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1], payload].concat()
}

#[test]
fn a_head_has_fifteen_seconds_from_its_first_byte_to_its_last() {
    let text = |ms, text: &'static str| (ms, text.as_bytes());
    let drip: Vec<Step<'_>> = (0..40).map(|second| (second * 1000, &b"a"[..])).collect();
    let after = |first, each: &[Step<'static>]| [&[text(0, first)], each].concat();
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nha";
    let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\nha";
    let rows: [(&str, Vec<Step<'_>>, Option<u64>); 11] = [
        ("a byte a second", drip.clone(), Some(15_000)),
        ("nothing", vec![], None),
        ("a whole one", vec![text(0, GET)], None),
        ("in time", after("GET / HTTP/1.1\r\nhost", &[text(14_999, ": a\r\n\r\n")]), None),
        (
            "just late",
            after("GET / HTTP/1.1\r\nhost", &[text(15_000, ": a\r\n\r\n")]),
            Some(15_000),
        ),
        ("empty lines", after("\r\n", &[text(9000, "\r\n")]), Some(15_000)),
        ("a slow body", after(post, &[text(90_000, "lf")]), None),
        ("half a head after a body", after(post, &[text(90_000, "lfG")]), Some(105_000)),
        ("a slow chunk", after(chunked, &[text(90_000, "lf\r\n0\r\n\r\n")]), None),
        (
            "half a head after chunks",
            after(chunked, &[text(90_000, "lf\r\n0\r\nx: y\r\n\r\nG")]),
            Some(105_000),
        ),
        ("half a head after a whole one", after(GET, &[text(20_000, "G")]), Some(35_000)),
    ];
    for (name, steps, expected) in rows {
        assert_eq!(given_up(&steps, 0), expected, "{name}");
    }
    let steps = [text(0, GET), text(1, "GET")];
    assert_eq!(given_up(&steps, 40_000), Some(55_000), "what waits for an answer is not slow");
}

#[test]
fn the_heads_of_http2_have_as_long() {
    let headers = frame(1, 0, &[0x82]);
    let [whole, data] = [frame(1, 4, &[0x82; 8]), frame(0, 0, &[7; 200])];
    let [more, last] = [frame(9, 0, &[0x86]), frame(9, 4, &[0x84])];
    let rows: [(&str, Vec<Step<'_>>, Option<u64>); 8] = [
        ("half a preface", vec![(0, &PREFACE[..9]), (9000, &PREFACE[9..20])], Some(15_000)),
        ("a preface", vec![(0, &PREFACE)], None),
        ("a whole head", vec![(0, &PREFACE), (50, &whole)], None),
        ("half a frame of a head", vec![(0, &PREFACE), (50, &whole[..12])], Some(15_050)),
        ("half the header of a frame", vec![(0, &PREFACE), (50, &whole[..4])], Some(15_050)),
        ("half a body", vec![(0, &PREFACE), (50, &whole), (60, &data[..20])], None),
        (
            "continued in time",
            vec![(0, &PREFACE), (50, &headers), (9000, &more), (15_000, &last)],
            None,
        ),
        (
            "continued and continued",
            vec![(0, &PREFACE), (50, &headers), (9000, &more), (14_000, &more), (40_000, &last)],
            Some(15_050),
        ),
    ];
    for (name, steps, expected) in rows {
        assert_eq!(given_up(&steps, 0), expected, "{name}");
    }
}

/// Returns the bytes before the ambiguous head if `bytes` are read in pieces of `size`.
fn ambiguous(bytes: &[u8], size: usize) -> Option<usize> {
    let mut heads = Heads::new();
    let mut read = 0;
    for piece in bytes.chunks(size) {
        if let Err(Ambiguous { before }) = heads.read(piece, Instant::now()) {
            return Some(read + before);
        }
        read += piece.len();
    }
    assert!(!heads.is_within(), "{}", String::from_utf8_lossy(bytes));
    None
}

#[test]
fn a_head_with_an_uncertain_end_is_refused_wherever_it_stands() {
    let spaces = " ".repeat(80);
    let long = format!("transfer-encoding:{spaces}chunked\r\n");
    let rows: [(&str, bool); 19] = [
        ("content-length: 4\r\ntransfer-encoding: chunked\r\n", true),
        ("transfer-encoding: chunked\r\ncontent-length: 4\r\n", true),
        ("Transfer-Encoding: chunked\r\nx: y\r\nCONTENT-LENGTH: 4\r\n", true),
        ("transfer-encoding: chunked\ncontent-length: 4\n", true),
        ("transfer-encoding: gzip, chunked\r\n", true),
        ("transfer-encoding: identity\r\n", true),
        ("transfer-encoding: chunked, identity\r\n", true),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", true),
        ("transfer-encoding: xchunked\r\n", true),
        ("transfer-encoding:\r\n", true),
        (&long, true),
        ("content-length: 4\r\ncontent-length: 5\r\n", true),
        ("content-length: 4, 4\r\n", true),
        ("content-length: +4\r\n", true),
        ("content-length: \r\n", true),
        ("content-length: 0\r\ncontent-length: 0\r\n", false),
        ("content-length:0\r\n", false),
        ("x-transfer-encoding: gzip\r\nx-content-length: 4\r\n", false),
        ("te: trailers\r\nx: transfer-encoding: gzip\r\n", false),
    ];
    let earlier = [
        "",
        GET,
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n\r\n\r\nG",
        "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n00b;x=\"y\"\r\na: b\r\n\r\nGET\r\n0\r\n\r\n",
    ];
    for ((fields, is_refused), before) in rows.iter().flat_map(|row| earlier.map(|one| (row, one)))
    {
        let bytes = format!("{before}PRI /x HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        for size in 1..=bytes.len() {
            let found = ambiguous(bytes.as_bytes(), size);
            assert_eq!(found.is_some(), *is_refused, "{size} of {bytes:?}");
        }
        let whole = ambiguous(bytes.as_bytes(), bytes.len());
        assert_eq!(
            whole,
            is_refused.then_some(before.len()),
            "{bytes:?}: what is before is served"
        );
    }
}
