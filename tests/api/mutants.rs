//! Broken media over HTTP: whatever a file holds, the answer is frames or a reason.

use clips::rendered;
use serde_json::json;

use crate::support::Setup;

/// A few frames of a test picture.
fn clip(name: &str, codec: &str) -> Vec<u8> {
    let source = "-f lavfi -i testsrc=size=96x64:rate=10:duration=2 -pix_fmt yuv420p";
    std::fs::read(rendered(name, &format!("{source} {codec}"))).expect("readable")
}

/// The `n`th way to break `bytes`, the same each time.
fn mutant(bytes: &[u8], n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let mut below = |limit: usize| random.usize(..limit);
    let mut bytes = bytes.to_vec();
    let at = below(bytes.len());
    let end = (at + 1 + below(200)).min(bytes.len());
    match n % 5 {
        0 => (0..1 + below(30)).for_each(|_| {
            let at = below(bytes.len());
            bytes[at] ^= 1 << below(8);
        }),
        1 => bytes.truncate(at),
        2 => bytes[at..end].fill(0xff),
        3 => drop(bytes.drain(at..end)),
        // The boxes or elements at the start, where sizes and counts stand.
        _ => (0..4).for_each(|_| {
            let at = below(bytes.len().min(600));
            bytes[at] = below(256) as u8;
        }),
    }
    bytes
}

#[test]
fn mutated_media_get_frames_or_a_reason_and_the_server_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let clips = [clip("whole.mp4", "-c:v mpeg4 -g 5"), clip("whole.webm", "-c:v libvpx -b:v 100k")];
    let server = Setup::new(dir.path()).own_root().start();
    let ingest = |name: &str| {
        let run = server.create_run();
        server.post_run(&run, "ingest", &json!({ "source_uri": name }))
    };
    let mut statuses = Vec::new();
    for n in 0..50 {
        let name = format!("mutant-{n}");
        let bytes = mutant(&clips[n as usize % clips.len()], n);
        std::fs::write(dir.path().join("root").join(&name), bytes).expect("written");
        let reply = ingest(&name);
        match reply.status {
            200 => assert!(reply.json()["decoded_frames"].is_u64(), "{name}: {}", reply.text),
            422 => assert!(!reply.source_message().is_empty(), "{name}: {}", reply.text),
            status => panic!("{name}: {status}: {}", reply.text),
        }
        statuses.push(reply.status);
    }
    assert!(statuses.contains(&200) && statuses.contains(&422), "{statuses:?}");
    std::fs::write(dir.path().join("root/whole.mp4"), &clips[0]).expect("written");
    let reply = ingest("whole.mp4");
    assert_eq!(
        (reply.status, &reply.json()["decoded_frames"]),
        (200, &json!(20)),
        "{}",
        reply.text
    );
}
