//! The memory of live sessions is shared: one principal cannot take all of it while others have keys.

use super::whip::{offer, publishing};
use crate::support::{ALICE, BOB, Server, Setup};

/// Memory reserved for a session.
const SESSION_BYTES: u64 = 25 << 20;

fn start(dir: &std::path::Path, sessions: u64, keys: &str) -> Server {
    Setup::new(dir)
        .var("SERVICE_API_KEYS", keys)
        .var("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", &(sessions * SESSION_BYTES).to_string())
        .start()
}

#[test]
fn one_principal_takes_half_of_the_media_memory_and_leaves_the_rest() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two) = (format!("alice:{ALICE}"), format!("alice:{ALICE},bob:{BOB}"));
    let rows = [
        ("both have keys", 4, &two, [201, 201, 503], [201, 201, 503]),
        ("an odd session is nobody's own", 3, &two, [201, 503, 503], [201, 503, 503]),
        ("one at least", 1, &two, [201, 503, 503], [503, 503, 503]),
        ("nobody else has a key", 3, &one, [201, 201, 201], [401, 401, 401]),
    ];
    for (at, (name, sessions, keys, alices, bobs)) in rows.into_iter().enumerate() {
        let server = start(&dir.path().join(at.to_string()), sessions, keys);
        for (key, expected) in [(ALICE, alices), (BOB, bobs)] {
            let publish = || publishing(&server, &offer("VP8")).key(Some(key)).send();
            let replies = [0, 1, 2].map(|_| publish());
            let statuses = replies.each_ref().map(|reply| reply.status);
            assert_eq!(statuses, expected, "{name}, {key}: {}", replies[2].text);
            if let (201, true) = (statuses[0], statuses.contains(&503)) {
                let path = replies[0].header("location");
                let deleted = server.call("DELETE", path).key(Some(key)).send();
                assert_eq!(
                    (deleted.status, publish().status),
                    (200, 201),
                    "{name}: it is given back"
                );
            }
            let refused = replies.iter().filter(|reply| reply.status == 503);
            for reply in refused {
                assert!(reply.text.contains("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"), "{}", reply.text);
                assert_ne!(reply.header("retry-after"), "");
            }
        }
        let told = &server.get("/v1/limits").json()["limits"]["live_principal_memory"]["max"];
        let share = if keys == &one { sessions } else { (sessions / 2).max(1) };
        assert_eq!(told.as_u64().map(|bytes| bytes / SESSION_BYTES), Some(share), "{name}");
    }
}
