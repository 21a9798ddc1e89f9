//! The headers that every answer has, whatever answers.

use serde_json::json;

use super::routes::book::{self, Book};
use crate::support::{ALICE, shared};

#[test]
fn every_answer_of_every_route_keeps_browsers_from_guessing_caching_and_running_it() {
    let server = shared();
    let run = server.create_run();
    let operations = Book::new(&server).operations();
    assert!(operations.len() >= 30, "{}", operations.len());
    for (method, template) in operations {
        let path = book::path(&template, &run);
        // A stream of events has no end to wait for.
        let keys = if path.ends_with("/stream") { &[None][..] } else { &[None, Some(ALICE)] };
        for key in keys {
            let reply = server.call(&method, &path).key(*key).json(&json!({})).send();
            let name = format!("{method} {template} {key:?}: {}", reply.status);
            assert_eq!(reply.header("x-content-type-options"), "nosniff", "{name}");
            assert_eq!(reply.header("referrer-policy"), "no-referrer", "{name}");
            assert_ne!(reply.header("cache-control"), "", "{name}");
            let policy = reply.header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'"), "{name}: {policy}");
            assert!(reply.header("x-request-id").starts_with("req-"), "{name}");
            if matches!(reply.status, 429 | 503) {
                assert_ne!(reply.header("retry-after"), "", "{name}");
            }
        }
    }
}
