//! Names that owners give their runs: bounds, changes, and what a restart knows.

use serde_json::{Value, json};

use crate::support::{BOB, Server, Setup, shared};

fn label(server: &Server, run: &str) -> Value {
    server.record(run)["label"].clone()
}

#[test]
fn a_label_holds_at_its_bound_and_not_past_it() {
    let server = shared();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}");
    // A label, whether it is one, and whether a run can be made with it: there null is none.
    let rows = [
        (json!("gate 3"), true),
        (json!("é".repeat(64)), true),
        (json!("<b>'\"\\ \u{202e}\u{1f6a7}"), true),
        (Value::Null, true),
        (json!("é".repeat(65)), false),
        (json!("\u{85}"), false),
    ];
    for (value, is_one) in rows {
        let body = json!({"label": value});
        let changed = server.call("PATCH", &path).json(&body).send();
        let made = server.post("/v1/runs", &body);
        if is_one {
            assert_eq!((changed.status, made.status), (200, 200), "{body}: {}", changed.text);
            assert_eq!((&changed.json()["label"], &label(&server, &run)), (&value, &value));
            let made = made.run();
            assert_eq!(label(&server, &made), value);
        } else {
            assert_eq!((changed.status, made.status), (422, 422), "{body}: {}", changed.text);
            assert_eq!(
                (changed.fields(), made.fields()),
                (vec!["label".into()], vec!["label".into()])
            );
        }
    }
    let missing = server.call("PATCH", &path).json(&json!({"lable": "x"})).send();
    assert_eq!((missing.status, missing.fields()), (422, vec!["label".to_owned()]));
    let foreign = server.call("PATCH", &path).key(Some(BOB)).json(&json!({"label": "x"})).send();
    assert_eq!(foreign.status, 404);
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
