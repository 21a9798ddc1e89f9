//! Requests that are hidden in others, straight to the server and through nginx: whatever the two take for the end of a message,
//! what is hidden is not carried out, and what nginx forbids reaches nobody.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::json;

use crate::{
    api::abuse::{h2_headers, preface},
    support::{ALICE, Server, Setup, shared, whip::servers::Neighbour},
};

/// The end of a connection that is in step.
const LAST: &str = "GET /v1/health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// The request that is hidden: it would leave an event in `run`.
fn hidden(run: &str) -> String {
    format!(
        "POST /v1/runs/{run}/keepalive HTTP/1.1\r\nhost: a\r\nx-api-key: {ALICE}\r\ncontent-length: 0\r\n\r\n"
    )
}

/// Fields that obscure a coding, beside a length that covers all: whoever sees the coding ends at `0`.
const CODINGS: [&str; 23] = [
    "transfer-encoding: chunked",
    "Transfer-Encoding: CHUNKED",
    "transfer-encoding:\tchunked",
    "transfer-encoding: xchunked",
    "transfer-encoding: chunked ",
    "transfer-encoding : chunked",
    "transfer-encoding: chunked\r\ntransfer-encoding: x",
    "transfer-encoding: x\r\ntransfer-encoding: chunked",
    "transfer-encoding: identity\r\ntransfer-encoding: chunked",
    "transfer-encoding: identity, chunked",
    "transfer-encoding: chunked, identity",
    "transfer-encoding: \"chunked\"",
    "transfer-encoding: chunked;q=1",
    "transfer-encoding: \u{b}chunked",
    "transfer-encoding: chunked\0",
    "transfer-encoding:\r\n chunked",
    "transfer-encoding\r\n : chunked",
    " transfer-encoding: chunked",
    "x: y\r\n\ttransfer-encoding: chunked",
    "x: y\ntransfer-encoding: chunked",
    "x: y\rtransfer-encoding: chunked",
    "transfer_encoding: chunked",
    "\0transfer-encoding: chunked",
];

/// Fields for a length of nothing, which may be overlooked beside the one that covers all.
const LENGTHS: [&str; 12] = [
    "content-length: 0\r\ncontent-length: {}",
    "content-length: {}\r\ncontent-length: 0",
    "content-length: 0, {}",
    "content-length: {}, 0",
    "content-length: +{}",
    "content-length: 0x{}",
    "content-length: {} 0",
    "content-length : 0\r\ncontent-length: {}",
    " content-length: 0\r\ncontent-length: {}",
    "content-length: 0\r\n {}",
    "content-length: 0\ncontent-length: {}",
    "connection: content-length\r\ncontent-length: {}",
];

/// Chunks, of which some parser may take the size for another; `{}` is that of the hidden request.
const CHUNKS: [&str; 14] = [
    "{};x=y\r\n",
    "{};x=\"\r\n\"\r\n",
    "{} \r\n",
    "{}\n",
    "{};\n",
    "{}\r",
    "00000000000000000000{}\r\n",
    "+{}\r\n",
    "0x{}\r\n",
    "-1\r\n",
    "10000000000000000\r\n\r\n",
    "fffffffffffffffff\r\n",
    "1\r\nZ{}\r\n",
    "0;\n{}\r\n",
];

/// Rows of a name and of the bytes in which `hidden` is none of the sender's requests.
fn rows(hidden: &str) -> Vec<(String, String)> {
    let post = format!(
        "POST /v1/query HTTP/1.1\r\nhost: a\r\nx-api-key: {ALICE}\r\ncontent-type: application/json\r\n"
    );
    let (len, last_first) = (hidden.len(), format!("0\r\n\r\n{hidden}"));
    let chunk = format!("{len:x}\r\n{hidden}\r\n0\r\n\r\n");
    let covers = format!("content-length: {}", last_first.len());
    let mut rows = Vec::new();
    for coding in CODINGS {
        let bytes = format!("{post}{covers}\r\n{coding}\r\n\r\n{last_first}");
        rows.push((format!("CL.TE {coding:?}"), bytes));
        // Of a field that is no coding by anybody's reading, what follows its body is the sender's own.
        if !coding.contains('_') {
            let short = format!("{post}{coding}\r\ncontent-length: 4\r\n\r\n{chunk}");
            rows.push((format!("TE.CL {coding:?}"), short));
        }
    }
    for length in LENGTHS {
        let fields = length.replace("{}", &len.to_string());
        rows.push((format!("{length:?}"), format!("{post}{fields}\r\n\r\n{hidden}")));
    }
    for size in CHUNKS {
        let line = size.replace("{}", &format!("{len:x}"));
        let bytes = format!("{post}transfer-encoding: chunked\r\n\r\n{line}{hidden}\r\n0\r\n\r\n");
        rows.push((format!("chunk {size:?}"), bytes));
    }
    let has_body = format!("host: a\r\ncontent-length: {len}\r\n\r\n{hidden}");
    let old = format!(
        "content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n{last_first}",
        last_first.len()
    );
    let others = [
        ("a body of GET", format!("GET /v1/health HTTP/1.1\r\n{has_body}")),
        ("a body of HEAD", format!("HEAD /v1/health HTTP/1.1\r\n{has_body}")),
        ("a body of OPTIONS", format!("OPTIONS /v1/runs HTTP/1.1\r\n{has_body}")),
        ("a body of no route", format!("POST /nothing HTTP/1.1\r\n{has_body}")),
        ("a body of no method", format!("BREW /v1/runs HTTP/1.1\r\n{has_body}")),
        (
            "1.0 with a coding",
            format!("POST /v1/query HTTP/1.0\r\nconnection: keep-alive\r\n{old}"),
        ),
        (
            "bare line ends",
            format!("POST /v1/query HTTP/1.1\nhost: a\ncontent-length: {len}\n\n{hidden}"),
        ),
        (
            "an expectation",
            format!("{post}expect: 100-continue\r\ncontent-length: {len}\r\n\r\n{hidden}"),
        ),
        ("a path in the authority", format!("GET http://a/v1/health?x= HTTP/1.1\r\n{has_body}")),
        ("two versions", format!("POST /v1/query HTTP/1.1 HTTP/1.1\r\n{has_body}")),
        ("a later version", format!("POST /v1/query HTTP/1.9\r\n{has_body}")),
        ("a path with a line end", format!("POST /v1/query\r\n HTTP/1.1\r\n{has_body}")),
        (
            "an upgrade to HTTP/2",
            format!(
                "GET /v1/health HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\
                 http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n{has_body}"
            ),
        ),
    ];
    rows.extend(others.map(|(name, bytes)| (name.to_owned(), bytes)));
    rows
}

/// Sends `bytes` and the end of a connection that is in step; returns what is answered before a pause.
fn answers(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).expect("accepted");
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    // A refusal may come before everything is sent.
    stream.write_all(&[bytes, LAST.as_bytes()].concat()).ok();
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        read.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

fn is_untouched(server: &Server, run: &str) -> bool {
    server.kinds(run) == ["run_created"]
}

#[test]
fn what_is_hidden_in_a_request_is_not_carried_out() {
    let server = Setup::temporary().start();
    let address: SocketAddr = server.addr().parse().expect("an address");
    let upstream = server.addr().to_owned();
    let Some(nginx) = Neighbour::nginx(|listen| {
        format!(
            "upstream sightline {{ server {upstream}; keepalive 1; }}\n\
             server {{ listen {listen}; ignore_invalid_headers off; underscores_in_headers on;\n\
             proxy_http_version 1.1; proxy_set_header connection \"\"; proxy_request_buffering off;\n\
             location / {{ proxy_pass http://sightline; }} location ~ /keepalive {{ return 403; }} }}"
        )
    }) else {
        return;
    };
    let run = server.create_run();
    let hidden_one = hidden(&run);
    let mut wrong = Vec::new();
    for (name, bytes) in rows(&hidden_one) {
        for (to, way) in [(address, "straight"), (nginx.address(), "nginx")] {
            let told = answers(to, bytes.as_bytes());
            if told.contains(" 101 ") || !is_untouched(&server, &run) {
                wrong.push(format!("{name}, {way}: {told}"));
            }
            if to == address && !is_untouched(&server, &run) {
                panic!("{wrong:?}");
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // Whoever comes next over the connections of nginx gets its own answer.
    for _ in 0..4 {
        let told = answers(nginx.address(), b"");
        assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("\"status\""), "{told}");
    }
    let other = "GET http://evil.example/v1/health HTTP/1.1\r\nhost: a\r\n\r\n";
    assert!(!answers(address, other.as_bytes()).contains("evil.example"));
    assert!(answers(nginx.address(), hidden_one.as_bytes()).starts_with("HTTP/1.1 403 "));
    assert!(is_untouched(&server, &run), "nginx forbids it");
    assert!(answers(address, hidden_one.as_bytes()).starts_with("HTTP/1.1 200 "));
    assert!(!is_untouched(&server, &run), "not hidden, it is carried out");
}

#[test]
fn fields_of_http2_carry_no_lines() {
    let server = shared();
    let rows: [(&str, &[(&str, &str)]); 11] = [
        ("a line in the path", &[(":path", "/v1/health\r\nx: y")]),
        ("a line in the authority", &[(":authority", "a\r\nx: y")]),
        ("a request in the method", &[(":method", "GET / HTTP/1.1\r\nx: y")]),
        ("a line in a value", &[("x", "y\r\ntransfer-encoding: chunked")]),
        ("a bare line end in a value", &[("x", "y\nz: w")]),
        ("a zero byte in a value", &[("x", "y\0z")]),
        ("a line in a name", &[("x: y\r\nz", "w")]),
        ("a large letter in a name", &[("X", "y")]),
        ("a coding", &[("transfer-encoding", "chunked")]),
        ("a connection's field", &[("connection", "transfer-encoding")]),
        ("a length that differs", &[("content-length", "5")]),
    ];
    for (name, fields) in rows {
        let mut stream = TcpStream::connect(server.addr()).expect("accepted");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        stream.write_all(&[preface(), h2_headers(fields)].concat()).expect("sent");
        let (mut read, mut piece) = (Vec::new(), [0; 4096]);
        // A frame's kind is its fourth byte: an answer, a reset, or the end of the connection.
        let kinds = |mut rest: &[u8]| {
            let mut kinds = Vec::new();
            while let Some((head, after)) = rest.split_first_chunk::<9>() {
                let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let Some((payload, after)) = after.split_at_checked(len) else { break };
                kinds.push((head[3], payload.first().copied().unwrap_or_default()));
                rest = after;
            }
            kinds
        };
        while !kinds(&read).iter().any(|(kind, _)| [1, 3, 7].contains(kind)) {
            match stream.read(&mut piece) {
                Ok(count @ 1..) => read.extend_from_slice(&piece[..count]),
                _ => break,
            }
        }
        let found = kinds(&read);
        // 0x88 is `:status 200` in the static table.
        assert!(!found.contains(&(1, 0x88)), "{name} is served: {found:?}");
        assert!(found.iter().any(|(kind, _)| [1, 3, 7].contains(kind)), "{name}: {found:?}");
        assert_eq!(server.get("/v1/health").json()["status"], json!("ok"), "{name}");
    }
}
