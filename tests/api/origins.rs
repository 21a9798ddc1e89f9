//! Origin of markers: where a model spoke, the gate's own are recorded beside its types.

use scripted_model::Step;
use serde_json::{Value, json};

use crate::{
    api::reason::{finding, reason},
    support::{Server, Setup, model::Model},
};

fn markers(server: &Server, run: &str, query: &str) -> Vec<Value> {
    let reply = server.get(&format!("/v1/runs/{run}/markers?{query}")).assert_ok();
    reply.json()["markers"].as_array().expect("an array").clone()
}

/// Fields of markers without those that differ from run to run.
fn outline(markers: &[Value]) -> Vec<Value> {
    let names = ["event_type", "status", "start_frame", "end_frame", "confidence", "origin"];
    let of = |marker: &Value| names.iter().map(|name| marker[*name].clone()).collect::<Value>();
    markers.iter().map(of).collect()
}

#[test]
fn the_gates_own_markers_are_recorded_beside_a_models() {
    let model = Model::start(|_| Step::chat(&finding("van waits", 0.875)));
    let server = model.behind(Setup::temporary().clips()).start();

    let plain = server.create_run();
    reason(&server, &plain, &json!({"semantic_inference": false})).assert_ok();
    let own = markers(&server, &plain, "");
    assert!(own.len() > 1 && own.iter().all(|marker| marker["origin"] == "gate"), "{own:?}");
    assert_eq!(own, markers(&server, &plain, "origin=gate"));
    assert_eq!(markers(&server, &plain, "origin=model"), Vec::<Value>::new());

    let run = server.create_run();
    let reply = reason(&server, &run, &json!({})).assert_ok();
    let derived = markers(&server, &run, "");
    assert_eq!(Some(&derived), reply.json()["markers"].as_array());
    assert_eq!(derived, markers(&server, &run, "origin=model"));
    let found: Vec<_> = derived.iter().map(|marker| &marker["event_type"]).collect();
    assert_eq!(found, ["van_waits"]);
    let gates = markers(&server, &run, "origin=gate");
    assert_eq!(outline(&gates), outline(&own));
    assert!(gates.iter().all(|marker| marker["beside"] == true), "{gates:?}");
    assert_eq!(markers(&server, &run, "origin=all").len(), derived.len() + gates.len());
    let told = &server.payloads(&run, "analysis_generated")[0]["markers"];
    assert_eq!(told, &json!(derived.len()), "what is beside the analysis is not counted");

    server.get(&format!("/v1/runs/{run}/markers?origin=models")).assert_invalid("origin", "models");
}
