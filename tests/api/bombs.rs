//! Bodies that are small to send and could be dear to read: each is refused by a 4xx for a bounded share of the server's own
//! processor time and memory, and health answers beside it.

use serde_json::{Value, json};

use crate::{
    api::abuse::resident,
    support::{Server, Setup, model::Model},
};

/// Processor time of an answer, in ticks of 10 ms, of a build without optimisation; the densest body of 2 MiB takes a tenth.
const TICKS_MAX: u64 = 400;
/// Memory that stays with the allocator afterwards: a body takes many times its bytes for the moment of its reading.
const KEPT_BYTES_MAX: f64 = 192e6;
/// Just under the longest body that is read.
const BYTES: usize = (2 << 20) - 4096;

/// Ticks that the server has run for.
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    [11, 12].map(|at: usize| fields[at].parse::<u64>().expect("a number")).iter().sum()
}

/// Values that stand where something else is expected.
fn values() -> Vec<(&'static str, String)> {
    let many = |one: &str| vec![one; BYTES / (one.len() + 1)].join(",");
    let keys =
        |count: usize| (0..count).map(|at| format!("\"{at:x}\":0")).collect::<Vec<_>>().join(",");
    let deep = |levels: usize, open: &str, close: &str| {
        format!("{}0{}", open.repeat(levels), close.repeat(levels))
    };
    vec![
        ("deep arrays", deep(BYTES / 2, "[", "]")),
        ("deep objects", deep(BYTES / 6, "{\"a\":", "}")),
        ("as deep as is read", format!("[{}]", vec![deep(100, "[", "]"); BYTES / 210].join(","))),
        ("numbers", format!("[{}]", many("0"))),
        ("empty objects", format!("[{}]", many("{}"))),
        ("empty arrays", format!("[{}]", many("[]"))),
        ("floats", format!("[{}]", many("2.2250738585072011e-308"))),
        ("large exponents", format!("[{}]", many("9e-99999"))),
        ("a number too large", "9e99999".to_owned()),
        ("a long number", "7".repeat(BYTES)),
        ("a long fraction", format!("0.{}", "3".repeat(BYTES))),
        ("a long exponent", format!("1e{}", "0".repeat(BYTES))),
        ("keys", format!("{{{}}}", keys(BYTES / 12))),
        ("a key that comes twice at last", format!("{{{},\"0\":0}}", keys(BYTES / 13))),
        ("a key again and again", format!("{{{}}}", many("\"a\":0"))),
        ("a long key", format!("{{\"{}\":0}}", "k".repeat(BYTES))),
        ("a long text", format!("\"{}\"", "t".repeat(BYTES))),
        ("escapes", format!("\"{}\"", "\\u0041".repeat(BYTES / 6))),
        ("pairs of surrogates", format!("\"{}\"", "\\ud834\\udd1e".repeat(BYTES / 12))),
        ("half pairs", format!("\"{}\"", "\\ud834".repeat(BYTES / 6))),
        ("escaped zeros", format!("\"{}\"", "\\u0000".repeat(BYTES / 6))),
    ]
}

/// Schemas that would be dear to read or to hold an answer against, beside those that `infer` refuses by name in its own tests.
fn schemas() -> [(&'static str, Value); 4] {
    let again = |inner: Value, _: i32| json!({"unevaluatedProperties": inner});
    [
        (
            "two ways down",
            json!({"anyOf": [{"items": {"$ref": "#"}}, {"contains": {"$ref": "#"}}]}),
        ),
        (
            "names of names",
            json!({"additionalProperties": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}),
        ),
        ("a huge enum", json!({"enum": (0..20_000).collect::<Vec<_>>()})),
        ("unevaluated again and again", (0..20).fold(json!({"pattern": "a"}), again)),
    ]
}

/// Sends a body and looks at what it costs.
fn check(server: &Server, name: &str, path: &str, body: String) {
    let before = ticks(server);
    let call = server.call("POST", path).header("content-type", "application/json");
    let (reply, beside) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| server.get("/v1/health").status);
        (call.body(body).send(), beside.join().expect("no panic"))
    });
    let spent = ticks(server) - before;
    let is_clear =
        (400..500).contains(&reply.status) && !reply.text.is_empty() && reply.text.len() < 16 << 10;
    assert!(is_clear, "{name} to {path}: {} {}", reply.status, reply.text);
    assert_eq!(beside, 200, "{name} to {path}");
    assert!(spent <= TICKS_MAX, "{name} to {path} took {spent} ticks");
}

#[test]
fn a_body_that_explodes_is_refused_for_what_it_is_and_costs_little() {
    let model = Model::start(|_| panic!("nothing is asked"));
    let server = model.behind(Setup::temporary()).start();
    let run = server.create_run();
    let (before, first) = (resident(&server), ticks(&server));
    for (name, value) in values() {
        check(&server, name, "/v1/query", value.clone());
        check(&server, name, &format!("/v1/runs/{run}/analyze"), format!("{{\"frames\":{value}}}"));
        check(&server, name, "/v1/infer", format!("{{\"model\":\"m\",\"output_schema\":{value}}}"));
    }
    for (name, schema) in schemas() {
        let asked = json!({"model": "qwen3-vl-8b", "prompt": "p", "output_schema": schema});
        check(&server, name, "/v1/infer", asked.to_string());
        let batch = json!({"requests": vec![asked; 8]});
        check(&server, name, "/v1/infer/batch", batch.to_string());
    }
    let kept = resident(&server) - before;
    assert!(kept < KEPT_BYTES_MAX, "{kept} bytes are kept");
    eprintln!("{} ticks in all, {kept} bytes kept", ticks(&server) - first);
}
