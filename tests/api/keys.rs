//! Keys: their length, their owners, what opens the metrics, and wrong ones.

use media::RunId;
use serde_json::json;

use crate::support::{ALICE, BOB, Setup, seed};

const BARE: &str = "a-secret-without-name";
/// Record of [`BARE`] by earlier versions: the start of its SHA-256.
const FORMER: &str = "538c49f68c6e";

#[test]
fn wrong_keys_of_an_address_have_a_limit_that_locks_nobody_else_out() {
    let server = Setup::temporary().start();
    let status = |key| server.call("GET", "/v1/runs").key(key).send().status;
    let at_once: Vec<u16> = (0..20).map(|_| status(Some("wrong"))).collect();
    assert_eq!(at_once, [401; 20]);
    // One a second is given back meanwhile.
    let call = || server.call("GET", "/v1/metrics").key(Some("wrong")).send();
    let refused = (0..500)
        .map(|_| call())
        .find(|reply| reply.status != 401)
        .expect("an end")
        .assert_refused(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!((status(Some(ALICE)), status(Some(BOB)), status(None)), (200, 200, 401));
    assert!(server.metric(r#"service_refusals_total{reason="failed_authentications"}"#) > 0.0);
}

#[test]
fn a_short_key_stops_the_start_and_says_what_to_do() {
    for variable in ["SERVICE_API_KEYS", "SERVICE_METRICS_API_KEYS"] {
        let ended = Setup::temporary().var(variable, "carol:fifteen-bytes-k").command().output();
        let ended = ended.expect("it runs");
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "{told}");
        for part in [variable, "fewer than 16 characters", "carol", "openssl rand -hex 24"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("fifteen-bytes-k"), "{told}");
    }
}

#[test]
fn a_bare_key_owns_what_it_owned_and_is_named_by_a_digest_that_others_cannot_make() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = RunId::from_bytes([7; 16]);
    {
        let log = seed::log(dir.path());
        let created = seed::created(FORMER);
        seed::append(&log, old, [created]);
        log.close();
    }
    let setup = Setup::new(dir.path()).var("SERVICE_API_KEYS", &format!("alice:{ALICE},{BARE}"));
    let mut owners = Vec::new();
    for _start in 0..2 {
        let server = setup.start();
        let status = |path: &str, key| server.call("GET", path).key(Some(key)).send().status;
        let path = format!("/v1/runs/{old}");
        assert_eq!((status(&path, BARE), status(&path, ALICE)), (200, 404));
        let run = server.call("POST", "/v1/runs").key(Some(BARE)).json(&json!({})).send().json();
        let query = json!({ "run_id": run["run_id"] });
        let found = server.call("POST", "/v1/query").key(Some(BARE)).json(&query).send().json();
        let owner = found["matches"][0]["payload"]["principal_key"].as_str().expect("a name");
        assert!(owner.len() == 36 && owner.starts_with("key-"), "{owner}");
        owners.push(owner.to_owned());
    }
    assert_eq!(owners[0], owners[1], "the secret is kept");
}

#[test]
fn keys_of_the_metrics_open_nothing_else() {
    const SCRAPER: &str = "the-key-of-the-scraper";
    let keys = format!("prometheus:{SCRAPER}");
    let server = Setup::temporary().var("SERVICE_METRICS_API_KEYS", &keys).start();
    let status = |path: &str, key| server.call("GET", path).key(Some(key)).send().status;
    for (key, metrics, rest) in [(SCRAPER, 200, 401), (ALICE, 200, 200)] {
        assert_eq!(status("/v1/metrics", key), metrics, "{key}");
        for path in ["/v1/runs", "/v1/ready", "/v1/limits"] {
            assert_eq!(status(path, key), rest, "{key} on {path}");
        }
    }
}
