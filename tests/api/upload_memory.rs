//! Memory that an upload takes while it passes through.

use std::io::{Cursor, Read, repeat};

use crate::{
    api::uploads::{BOUNDARY, TYPE, upload},
    support::{Setup, clip_bytes},
};

/// A clip, and nothing behind it until the form is `size` bytes long: an MP4 may have as much free
/// space as it likes (ISO 14496-12 8.1.2). Gives it bit by bit.
fn long_form(clip: &[u8], size: u64) -> impl Read + Send + use<> {
    let head = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.mp4\"\r\n\r\n"
    );
    let tail = format!("\r\n--{BOUNDARY}--\r\n");
    let free = size - (head.len() + clip.len() + tail.len()) as u64;
    let mut start = head.into_bytes();
    start.extend_from_slice(clip);
    start.extend_from_slice(&[0, 0, 0, 1]);
    start.extend_from_slice(b"free");
    start.extend_from_slice(&free.to_be_bytes());
    let space = repeat(0).take(free - 16);
    Cursor::new(start).chain(space).chain(Cursor::new(tail.into_bytes()))
}

#[test]
fn a_long_upload_takes_no_memory_to_speak_of() {
    let size: u64 = clips::sized(256 << 20, 1 << 30);
    let setup = Setup::temporary().var("SERVICE_MAX_UPLOAD_BYTES", &(size + 1).to_string());
    let server = setup.start();
    let clip = clip_bytes("motion.mp4");
    upload(&server, "first.mp4", &clip);
    // The peak from here on (proc(5), clear_refs).
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("reset");
    let before = server.memory_kb("VmRSS");
    let form = reqwest::blocking::Body::sized(long_form(&clip, size), size);
    let reply = server
        .call("POST", "/v1/upload")
        .header("content-type", TYPE)
        .body(form)
        .send()
        .assert_ok();
    let grown = server.memory_kb("VmHWM").saturating_sub(before);
    println!("{size} bytes uploaded: {grown} kB more at the most");
    assert!(grown < 32 << 10, "{grown} kB more");
    let kept = reply.json()["bytes"].as_u64().expect("a size");
    assert!(size - kept < 1000, "{kept} bytes are kept");
}
