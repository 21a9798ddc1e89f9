//! Names that owners give their runs: changes, and what a restart knows. [`super::limits`] has their bounds.

use serde_json::{Value, json};

use crate::support::{Server, Setup};

fn label(server: &Server, run: &str) -> Value {
    server.record(run)["label"].clone()
}

#[test]
fn labels_are_known_after_a_restart_and_change_no_state() {
    let setup = Setup::temporary();
    let mut server = setup.start();
    let made = |label: &str| server.post("/v1/runs", &json!({"label": label})).assert_ok().run();
    let (kept, changed, removed, ended) = (made("kept"), made("old"), made("old"), made("old"));
    let patch = |run: &str, label: Value| {
        let call = server.call("PATCH", &format!("/v1/runs/{run}"));
        let reply = call.json(&json!({"label": label})).send().assert_ok();
        reply.json()
    };
    assert_eq!(patch(&changed, json!("newer"))["status"], "pending");
    patch(&changed, json!("new"));
    patch(&changed, json!("new"));
    patch(&removed, Value::Null);
    assert_eq!(server.call("POST", &format!("/v1/runs/{ended}/finish")).send().status, 200);
    assert_eq!(patch(&ended, json!("done"))["status"], "completed");
    let kinds = ["run_created", "run_labelled", "run_labelled", "run_labelled"];
    assert_eq!(server.kinds(&changed), kinds, "the same label again is nothing new");
    let told = server.events(&removed)[2]["payload"].clone();
    assert_eq!((&told["label"], told["request_id"].is_string()), (&Value::Null, true));
    server.kill();
    server = setup.start();
    for (run, expected) in [
        (&kept, json!("kept")),
        (&changed, json!("new")),
        (&removed, Value::Null),
        (&ended, json!("done")),
    ] {
        assert_eq!(label(&server, run), expected);
    }
    let listed = server.get("/v1/runs").json();
    assert_eq!((&listed[0]["label"], &listed[3]["label"]), (&json!("done"), &json!("kept")));
}
