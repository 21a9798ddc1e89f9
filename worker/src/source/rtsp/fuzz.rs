//! Invariants of a conversation with an RTSP server, for any messages that it sends.

use super::client::RtspClient;
use crate::protocol::RtspCredentials;

/// Bytes that arrive at once, so that messages are split anywhere.
const PIECE_BYTES: usize = 113;
/// Most bytes sent in answer to one piece.
const SAID_BYTES_MAX: usize = 1 << 20;

/// Feeds the bytes of an RTSP server to a client, from the start.
pub fn conversation(bytes: &[u8]) {
    let credentials = RtspCredentials { user: "u".to_owned(), password: "p".to_owned() };
    let url = "rtsp://camera.test/live".to_owned();
    let mut client = RtspClient::new(url, Some(credentials), "once");
    for piece in bytes.chunks(PIECE_BYTES) {
        client.push(piece);
        let mut events = 0;
        loop {
            match client.poll() {
                Ok(Some(_)) => events += 1,
                Ok(None) => break,
                Err(error) => {
                    assert!(error.to_string().len() < 600, "{error}");
                    return;
                }
            }
            assert!(events <= bytes.len(), "more events than bytes");
        }
        let said = client.take_output().len();
        assert!(said <= SAID_BYTES_MAX, "{said} bytes in answer to {}", piece.len());
    }
    client.keep_alive();
    client.tear_down();
    assert!(client.ended().to_string().len() < 200);
}
