//! The memory of live sessions is shared: one principal cannot take all of it while others have keys.

use super::whip::{offer, publishing};
use crate::support::{ALICE, BOB, Setup};

/// Memory reserved for a session.
const SESSION_BYTES: u64 = 25 << 20;

#[test]
fn one_principal_takes_half_of_the_media_memory_and_leaves_the_rest() {
    let memory = (4 * SESSION_BYTES).to_string();
    let server = Setup::temporary().var("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", &memory).start();
    for key in [ALICE, BOB] {
        let publish = || publishing(&server, &offer("VP8")).key(Some(key)).send();
        let replies = [0, 1, 2].map(|_| publish());
        let statuses = replies.each_ref().map(|reply| reply.status);
        assert_eq!(statuses, [201, 201, 503], "{key}: {}", replies[2].text);
        let refused = &replies[2];
        assert!(refused.text.contains("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"), "{}", refused.text);
        assert_ne!(refused.header("retry-after"), "");
        let path = replies[0].header("location");
        let deleted = server.call("DELETE", path).key(Some(key)).send();
        assert_eq!((deleted.status, publish().status), (200, 201), "{key}: it is given back");
    }
    let told = &server.get("/v1/limits").json()["limits"]["live_principal_memory"]["max"];
    assert_eq!(told.as_u64(), Some(2 * SESSION_BYTES));
}
