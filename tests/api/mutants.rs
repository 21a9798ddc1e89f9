//! Broken media over HTTP: whatever a file holds, the answer is frames or a reason.

use serde_json::json;

use crate::support::{
    Setup, clips,
    damaged::{MUTANTS, Mutants},
};

#[test]
fn mutated_media_get_frames_or_a_reason_and_the_server_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mutants = Mutants::new(1);
    let server = Setup::new(dir.path()).own_root().start();
    let ingest = |name: &str| {
        let run = server.create_run();
        server.post_run(&run, "ingest", &json!({ "source_uri": name, "max_frames": 40 }))
    };
    let mut statuses = Vec::new();
    for number in 0..clips::sized(MUTANTS / 20, MUTANTS) {
        let name = format!("mutant-{number}");
        let path = dir.path().join("root").join(&name);
        std::fs::write(&path, mutants.get(number).1).expect("written");
        let reply = ingest(&name);
        match reply.status {
            200 => assert!(reply.json()["decoded_frames"].is_u64(), "{name}: {}", reply.text),
            422 => assert!(!reply.source_message().is_empty(), "{name}: {}", reply.text),
            status => panic!("{name}: {status}: {}", reply.text),
        }
        statuses.push(reply.status);
        std::fs::remove_file(path).expect("removed");
    }
    assert!(statuses.contains(&200) && statuses.contains(&422), "{statuses:?}");
    std::fs::copy(clips().join("motion.mp4"), dir.path().join("root/whole.mp4")).expect("copied");
    assert_eq!(ingest("whole.mp4").assert_ok().json()["decoded_frames"], 40);
}
