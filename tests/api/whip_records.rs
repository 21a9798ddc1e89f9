//! What a run of live video is known by, after a restart as before it.

use serde_json::{Value, json};

use crate::{
    support::{Server, Setup},
    whip::{offer, publishing},
};

fn record(server: &Server, run: &str) -> Value {
    server.get(&format!("/v1/runs/{run}")).json()
}

#[test]
fn a_live_run_keeps_its_tenant_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path());
    let mut server = setup.start();
    let rows = [Some("acme \"north\""), None];
    let runs = rows.map(|tenant| {
        let mut call = publishing(&server, &offer("VP8"));
        if let Some(tenant) = tenant {
            call = call.header("x-tenant-id", tenant);
        }
        let reply = call.send();
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.header("x-service-run-id").to_owned()
    });
    for round in ["before", "after"] {
        for (run, tenant) in runs.iter().zip(rows) {
            let record = record(&server, run);
            let found = (&record["source"], &record["tenant_id"]);
            assert_eq!(found, (&json!("whip"), &json!(tenant)), "{round} the restart");
        }
        server.kill();
        server = setup.start();
    }
}
