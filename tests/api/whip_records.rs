//! Record of a run of live video, after a restart as before it.

use serde_json::json;

use crate::{
    api::whip::{attached, offer, publishing},
    support::Setup,
};

#[test]
fn a_live_run_keeps_its_tenant_and_its_label_after_a_restart() {
    let setup = Setup::temporary();
    let mut server = setup.start();
    let rows = [(Some("acme \"north\""), Some("gate 3")), (None, None)];
    let runs = rows.map(|(tenant, label)| {
        let mut call = publishing(&server, &offer("VP8"));
        if let Some(tenant) = tenant {
            call = call.header("x-tenant-id", tenant);
        }
        if let Some(label) = label {
            call = call.header("x-attach-config", &attached(&json!({"label": label})));
        }
        let reply = call.send().assert_status(201);
        reply.header("x-service-run-id").to_owned()
    });
    for round in ["before", "after"] {
        for (run, (tenant, label)) in runs.iter().zip(rows) {
            let record = server.record(run);
            let found = (&record["source"], &record["tenant_id"], &record["label"]);
            let expected = (&json!("whip"), &json!(tenant), &json!(label));
            assert_eq!(found, expected, "{round} the restart");
        }
        server.kill();
        server = setup.start();
    }
}
