//! The console's page: served without a key, under a strict policy, behind a prefix, or not at all.

use std::path::Path;

use crate::support::{Server, Setup, shared};

const VIEWS: [&str; 6] = ["/", "/runs", "/runs/run-0", "/live", "/search", "/machine"];

fn get(server: &Server, path: &str, header: (&str, &str)) -> crate::support::Reply {
    server.call("GET", path).key(None).header(header.0, header.1).send()
}

#[test]
fn every_view_is_the_page_under_a_strict_policy() {
    let server = shared();
    for path in VIEWS {
        let reply = get(&server, path, ("accept", "text/html"));
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        assert_eq!(reply.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(reply.header("cache-control"), "no-cache");
        let policy = reply.header("content-security-policy");
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
        let is_built =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("console/dist/index.html").exists();
        assert_eq!(reply.text.contains("without its console"), !is_built, "{}", reply.text);
    }
    for path in ["/nothing", "/runs/a/b", "/assets/none.js", "/assets/..%2findex.html"] {
        assert_eq!(get(&server, path, ("accept", "*/*")).status, 404, "{path}");
    }
}

#[test]
fn assets_are_beside_the_page_and_kept_for_good() {
    let server = shared();
    for (page, up) in [("/", "\"./assets/"), ("/runs/run-0", "\"../assets/")] {
        let text = get(&server, page, ("accept", "text/html")).text;
        for name in text.split(up).skip(1).filter_map(|rest| rest.split('"').next()) {
            let path = format!("/assets/{name}");
            let [whole, packed] = ["identity, gzip;q=0", "br, gzip"]
                .map(|coding| get(&server, &path, ("accept-encoding", coding)));
            assert_eq!((whole.status, packed.status), (200, 200), "{path}");
            assert_eq!(whole.header("cache-control"), "public, max-age=31536000, immutable");
            assert_eq!(whole.header("content-encoding"), "", "{path}");
            assert_eq!(packed.header("content-encoding"), "gzip", "{path}");
        }
    }
}

#[test]
fn a_setting_turns_it_off() {
    let server = Setup::temporary().var("SERVICE_CONSOLE", "off").start();
    for path in VIEWS {
        assert_eq!(get(&server, path, ("accept", "text/html")).status, 404, "{path}");
    }
    assert_eq!(server.get("/v1/runs").status, 200);
}
