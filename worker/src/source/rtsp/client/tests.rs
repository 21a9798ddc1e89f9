//! Tests of conversations with conforming and faulty servers.

use proptest::prelude::*;

use super::*;

const SDP: &str = "v=0\r\na=control:*\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
                   a=control:track1\r\n";

fn client(user: Option<&str>) -> RtspClient {
    let credentials =
        user.map(|user| RtspCredentials { user: user.to_owned(), password: "p".to_owned() });
    RtspClient::new("rtsp://camera.test/live?channel=1".to_owned(), credentials, "once")
}

/// Returns the first lines and headers that the client sends next, without the constant ones.
fn said(client: &mut RtspClient) -> String {
    let words = String::from_utf8(client.take_output()).expect("text");
    let is_news = |line: &&str| !line.starts_with("User-Agent") && !line.is_empty();
    words.lines().filter(is_news).collect::<Vec<_>>().join("|")
}

fn answer(client: &mut RtspClient, status: &str, headers: &str, body: &str) {
    let number = client.number;
    let len = body.len();
    let text = format!(
        "RTSP/1.0 {status}\r\nCSeq: {number}\r\n{headers}Content-Length: {len}\r\n\r\n{body}"
    );
    client.push(text.as_bytes());
}

fn ok(client: &mut RtspClient, headers: &str, body: &str) {
    answer(client, "200 OK", headers, body);
}

fn ready(client: &mut RtspClient) {
    for (headers, body) in [
        ("Public: DESCRIBE, GET_PARAMETER\r\n", ""),
        ("Content-Base: rtsp://camera.test/base/\r\n", SDP),
    ] {
        ok(client, headers, body);
        assert_eq!(client.poll().expect("proceeds"), None);
    }
    let setup = "Session: 42;timeout=30\r\nTransport: RTP/AVP/TCP;unicast;interleaved=2-3\r\n";
    ok(client, setup, "");
    assert!(matches!(client.poll().expect("proceeds"), Some(RtspEvent::Ready(_))));
}

#[test]
fn a_conversation_leads_to_packets() {
    let mut client = client(None);
    let url = "rtsp://camera.test/live?channel=1";
    assert_eq!(said(&mut client), format!("OPTIONS {url} RTSP/1.0|CSeq: 1"));
    ok(&mut client, "Public: DESCRIBE, GET_PARAMETER\r\n", "");
    assert_eq!(client.poll().expect("proceeds"), None);
    let describe = format!("DESCRIBE {url} RTSP/1.0|CSeq: 2|Accept: application/sdp");
    assert_eq!(said(&mut client), describe);
    ok(&mut client, "", SDP);
    assert_eq!(client.poll().expect("proceeds"), None);
    assert_eq!(
        said(&mut client),
        format!(
            "SETUP {url}/track1 RTSP/1.0|CSeq: 3|Transport: RTP/AVP/TCP;unicast;interleaved=0-1"
        )
    );
    ok(&mut client, "Session: 42 ;timeout=30\r\nTransport: RTP/AVP/TCP;interleaved=2-3\r\n", "");
    let Some(RtspEvent::Ready(text)) = client.poll().expect("proceeds") else {
        panic!("not ready")
    };
    assert!(text.contains("m=video 9 RTP/AVP 96\r\n"), "{text}");
    let play = format!("PLAY {url} RTSP/1.0|CSeq: 4|Session: 42|Range: npt=0.000-");
    assert_eq!(said(&mut client), play);
    // A packet may precede the response; packets of other streams and blank lines are skipped.
    client.push(b"$\x02\x00\x03abc");
    ok(&mut client, "", "");
    client.push(b"\r\n$\x00\x00\x01x$\x03\x00\x02de$\x02");
    assert_eq!(client.poll().expect("a packet"), Some(RtspEvent::Packet(b"abc".to_vec())));
    assert_eq!(client.poll().expect("a packet"), Some(RtspEvent::Packet(b"de".to_vec())));
    assert_eq!(client.poll().expect("half a header"), None);
    client.push(b"\x00\x00");
    assert_eq!(client.poll().expect("an empty packet"), Some(RtspEvent::Packet(Vec::new())));
    assert_eq!(client.keep_alive_every(), Duration::from_secs(15));
    client.keep_alive();
    assert_eq!(said(&mut client), format!("GET_PARAMETER {url} RTSP/1.0|CSeq: 5|Session: 42"));
    answer(&mut client, "451 Invalid Parameter", "", "");
    assert_eq!(client.poll().expect("does not matter"), None);
    client.push(b"OPTIONS * RTSP/1.0\r\nCSeq: 7\r\n\r\nANNOUNCE * RTSP/1.0\r\nCSeq: 8\r\n\r\n");
    assert_eq!(client.poll().expect("answered"), None);
    assert_eq!(said(&mut client), "RTSP/1.0 200 OK|CSeq: 7|RTSP/1.0 501 Not Implemented|CSeq: 8");
    client.tear_down();
    assert_eq!(said(&mut client), format!("TEARDOWN {url} RTSP/1.0|CSeq: 6|Session: 42"));
}

#[test]
fn a_sign_of_life_does_not_answer_for_what_was_asked() {
    let mut client = client(None);
    ready(&mut client);
    let play = client.number;
    client.take_output();
    client.keep_alive();
    let alive = format!("GET_PARAMETER rtsp://camera.test/base/ RTSP/1.0|CSeq: {}", play + 1);
    assert!(said(&mut client).starts_with(&alive), "it is said all the same");
    ok(&mut client, "", "");
    assert_eq!(client.poll().expect("of no interest"), None);
    client.push(format!("RTSP/1.0 453 Not Enough\r\nCSeq: {play}\r\n\r\n").as_bytes());
    let refused = client.poll().expect_err("PLAY was refused");
    assert!(matches!(refused, RtspError::Status { method: "PLAY", status: 453, .. }), "{refused}");
}

#[test]
fn addresses_are_joined_as_cameras_mean_them() {
    for (base, control, expected) in [
        ("rtsp://h/a", Some("t"), "rtsp://h/a/t"),
        ("rtsp://h/a/", Some("t"), "rtsp://h/a/t"),
        ("rtsp://h/a?b=1", Some("t"), "rtsp://h/a?b=1/t"),
        ("rtsp://h/a", Some("*"), "rtsp://h/a"),
        ("rtsp://h/a", None, "rtsp://h/a"),
        ("rtsp://h/a", Some("rtsp://h/b"), "rtsp://h/b"),
        ("rtsp://h/a", Some("t HTTP/1.1\u{7}"), "rtsp://h/a/tHTTP/1.1"),
    ] {
        assert_eq!(joined(base, control), expected);
    }
}

#[test]
fn a_challenge_is_answered_at_most_twice() {
    let digest = |nonce: &str| {
        format!(
            "WWW-Authenticate: Digest realm=\"r\", nonce=\"{nonce}\"\r\n\
                 WWW-Authenticate: Basic realm=\"r\"\r\n"
        )
    };
    let mut known = client(Some("u"));
    answer(&mut known, "401 Unauthorized", &digest("a"), "");
    assert_eq!(known.poll().expect("asks again"), None);
    let again = said(&mut known);
    assert!(again.contains("CSeq: 2|Authorization: Digest username=\"u\""), "{again}");
    answer(&mut known, "401 Unauthorized", &digest("b"), "");
    assert_eq!(known.poll().expect("a stale nonce"), None);
    answer(&mut known, "401 Unauthorized", &digest("c"), "");
    assert!(matches!(known.poll(), Err(RtspError::Unauthorized)));
    let mut basic = client(Some("u"));
    for expected in [true, false] {
        answer(&mut basic, "401 Unauthorized", "WWW-Authenticate: Basic realm=\"r\"\r\n", "");
        assert_eq!(basic.poll().is_ok(), expected, "the same answer is not given twice");
    }
    let mut nobody = client(None);
    answer(&mut nobody, "401 Unauthorized", &digest("a"), "");
    assert!(matches!(nobody.poll(), Err(RtspError::CredentialsRequired)));
}

#[test]
fn what_goes_wrong_is_told_apart() {
    let after_options = |status: &str, headers: &str, body: &str| {
        let mut client = client(None);
        ok(&mut client, "", "");
        client.poll().expect("proceeds");
        answer(&mut client, status, headers, body);
        client.poll().expect_err(status).to_string()
    };
    for (status, headers, body, told) in [
        ("404 Not Found", "", "", "the RTSP server answers DESCRIBE with status 404 Not Found"),
        (
            "302 Moved",
            "Location: rtsp://elsewhere/\r\n",
            "",
            "the RTSP server redirects to rtsp://elsewhere/: redirects are not followed, \
             use that address",
        ),
        ("200 OK", "", "m=audio 0 RTP/AVP 0\r\n", "no video stream (streams: 1)"),
        ("200 OK", "", "m=video 0 RTP/AVP 31\r\n", "unsupported video codec: "),
    ] {
        assert_eq!(after_options(status, headers, body), told);
    }
    let mut http = client(None);
    http.push(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = http.poll().expect_err("not RTSP").to_string();
    assert_eq!(error, "the RTSP server's answer is malformed: no RTSP message");
    let mut endless = client(None);
    endless.push(b"RTSP/1.0 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n");
    assert_eq!(endless.poll().expect("half an answer"), None);
    endless.push(&vec![b'x'; ANSWER_BYTES_MAX]);
    assert!(matches!(endless.poll(), Err(RtspError::TooLarge { .. })));
    let mut udp = client(None);
    let early = |client: &RtspClient, during: &str| {
        let told = format!("the RTSP server ended the connection early, {during}");
        assert_eq!(client.ended().to_string(), told);
    };
    early(&udp, "before it answered anything");
    ok(&mut udp, "", "");
    udp.poll().expect("proceeds");
    early(&udp, "before it described the media");
    ok(&mut udp, "", SDP);
    udp.poll().expect("proceeds");
    early(&udp, "before it sent any media");
    ok(&mut udp, "Session: 1\r\nTransport: RTP/AVP/UDP;client_port=1-2\r\n", "");
    assert!(matches!(udp.poll(), Err(RtspError::Malformed { .. })));
}

proptest! {
    #[test]
    fn no_server_is_too_strange(
        is_ready in any::<bool>(),
        pieces in proptest::collection::vec(piece(), 0..30),
    ) {
        let mut client = client(Some("u"));
        if is_ready {
            ready(&mut client);
        }
        for piece in pieces {
            client.push(&piece);
            let mut packets = 0;
            loop {
                match client.poll() {
                    Ok(Some(_)) => packets += 1,
                    Ok(None) => break,
                    Err(error) => {
                        prop_assert!(error.to_string().len() < 600);
                        return Ok(());
                    }
                }
                prop_assert!(packets <= piece.len());
            }
            prop_assert!(client.incoming.len() <= ANSWER_BYTES_MAX + piece.len());
            prop_assert!(client.take_output().len() <= 2 * ANSWER_BYTES_MAX);
        }
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let line = proptest::sample::select(vec![
        "RTSP/1.0 200 OK\r\n",
        "RTSP/1.0 401 Unauthorized\r\n",
        "OPTIONS * RTSP/1.0\r\n",
        "CSeq: 1\r\n",
        "CSeq: 2\r\n",
        "CSeq: 5\r\n",
        "Session: 1;timeout=99999999999999999999\r\n",
        "Transport: interleaved=300\r\n",
        "WWW-Authenticate: Digest realm=\"\r\n",
        "Content-Length: 20\r\n",
        "\r\n",
        "$\x00\x00\x04abcd",
        SDP,
    ]);
    prop_oneof![
        line.prop_map(|line| line.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ]
}
