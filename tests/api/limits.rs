//! Every bound that the document states, at the bound and one past it, against a live server.
//!
//! Driven by the document: a route that states a bound is tested without a line here, but for
//! a body that it accepts.

use serde_json::{Value, json};

use crate::{
    api::{analyses::frame, routes::book::path},
    support::{Reply, Server, Setup, shared},
};

/// A value for a field, and whether the document says that it is accepted.
struct Case {
    /// Its place in the body as JSON Pointer, or that of a parameter by its name.
    pointer: String,
    value: Value,
    accepted: bool,
}

impl Case {
    /// The field as a complaint names it, such as `frames[0].pts_ms`.
    fn field(&self) -> String {
        self.pointer.trim_start_matches('/').replace("/0", "[0]").replace('/', ".")
    }
}

/// A body that the operation accepts, but for what it names not being there.
fn body(operation: &str, run: &str) -> Value {
    match operation {
        "createRun" => json!({}),
        "updateRun" => json!({"label": "l"}),
        "ingestRun" => json!({"source_uri": "missing.mp4", "gate": {}}),
        "reason" => json!({
            "source_uri": "missing.mp4", "model": "qwen3-vl-4b",
            "crop": {"x": 0.0, "y": 0.0, "width": 1.0, "height": 1.0}, "gate": {},
        }),
        "analyzeRun" => json!({"model": "qwen3-vl-8b", "frames": [frame(0)], "gate": {}}),
        "query" => json!({"run_id": run}),
        "search" | "searchFleet" => json!({"query": "q"}),
        "infer" => question(),
        "inferBatch" => json!({"requests": [question()]}),
        "createWebhook" | "createWebhookOfAll" => {
            json!({"url": "https://127.0.0.1:9/hook", "kinds": ["vlm"]})
        }
        "submitFeedback" => json!({"rating": 5, "category": "c"}),
        other => panic!("{other} takes a body: say here which one it accepts"),
    }
}

fn question() -> Value {
    json!({"model": "qwen3-vl-4b", "prompt": "p"})
}

/// Schema behind references, and beside null.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(target) = schema["$ref"].as_str() {
        let pointer = target.strip_prefix('#').expect("of the same document");
        return resolved(document, document.pointer(pointer).expect("there"));
    }
    let options = schema["oneOf"].as_array().into_iter().flatten();
    let real = options.filter(|option| option["type"] != "null").collect::<Vec<_>>();
    match real[..] {
        [one] => resolved(document, one),
        _ => schema,
    }
}

fn has_type(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::Array(names) => names.iter().any(|found| found == name),
        found => found == name,
    }
}

/// The values at the bounds of `schema` and past them, of the field at `pointer`.
fn values(pointer: &str, schema: &Value) -> Vec<(Value, bool)> {
    let mut values = Vec::new();
    if has_type(schema, "integer") {
        let number =
            |bound: &Value| bound.as_i64().map(i128::from).or(bound.as_u64().map(i128::from));
        let integer = |value: i128| -> Value {
            serde_json::from_str(&value.to_string()).expect("digits are JSON")
        };
        for (bound, past) in [("minimum", -1), ("maximum", 1)] {
            if let Some(bound) = number(&schema[bound]) {
                values.extend([(integer(bound), true), (integer(bound + past), false)]);
            }
        }
        values.extend([json!(1.5), json!("")].map(|value| (value, false)));
    }
    if has_type(schema, "number") {
        for (bound, past) in [("minimum", -0.001), ("maximum", 0.001)] {
            if let Some(bound) = schema[bound].as_f64() {
                values.extend([(json!(bound), true), (json!(bound + past), false)]);
            }
        }
        if let Some(bound) = schema["exclusiveMinimum"].as_f64() {
            values.extend([(json!(bound + 0.001), true), (json!(bound), false)]);
        }
    }
    if has_type(schema, "string") {
        values.extend(texts(pointer, schema));
    }
    let other = if has_type(schema, "object") { json!("text") } else { json!({"an": "object"}) };
    values.push((other, false));
    values
}

/// A text of so many bytes that the field takes but for its length.
fn text(pointer: &str, len: u64) -> Value {
    let start = if pointer == "/url" { "https://127.0.0.1:9/" } else { "" };
    json!(format!("{start}{}", "a".repeat((len as usize).saturating_sub(start.len()))))
}

fn texts(pointer: &str, schema: &Value) -> Vec<(Value, bool)> {
    if let Some(names) = schema["enum"].as_array() {
        let known = names.iter().map(|name| (name.clone(), true));
        return known.chain([(json!("no such name"), false)]).collect();
    }
    let mut values = Vec::new();
    if let Some(min) = schema["minLength"].as_u64().filter(|min| *min > 0) {
        values.extend([(text(pointer, min), true), (json!("a".repeat(min as usize - 1)), false)]);
    }
    if let Some(max) = schema["maxLength"].as_u64() {
        values.extend([(text(pointer, max), true), (text(pointer, max + 1), false)]);
    }
    let nul = json!("\u{0}");
    if schema["pattern"].is_string() && !jsonschema::draft202012::is_valid(schema, &nul) {
        values.push((nul, false));
    }
    values
}

/// Cases for what `schema` says of `example`, which is at `pointer`.
fn cases(document: &Value, schema: &Value, example: &Value, pointer: &str) -> Vec<Case> {
    let schema = resolved(document, schema);
    if let Some(fields) = schema["properties"].as_object() {
        let inner = fields.iter().flat_map(|(name, schema)| {
            cases(document, schema, &example[name], &format!("{pointer}/{name}"))
        });
        return inner.collect();
    }
    let case = |(value, accepted)| Case { pointer: pointer.to_owned(), value, accepted };
    if !has_type(schema, "array") {
        return values(pointer, schema).into_iter().map(case).collect();
    }
    let mut found = Vec::new();
    let is_frame = example[0]["frame_index"].is_u64();
    let item = |at: u64| if is_frame { frame(at) } else { example[0].clone() };
    let of_len = |len: u64| (0..len).map(item).collect::<Value>();
    for (bound, past) in [("minItems", -1), ("maxItems", 1)] {
        if let Some(bound) = schema[bound].as_u64() {
            let past = bound.saturating_add_signed(past);
            found.extend([(of_len(bound), true), (of_len(past), false)].map(case));
        }
    }
    if example[0].is_object() {
        found.extend(cases(document, &schema["items"], &example[0], &format!("{pointer}/0")));
    }
    found
}

/// Returns true if the reply complains of the value of `field`, and not of what it names.
fn is_refused(reply: &Reply, field: &str) -> bool {
    let details = reply.json()["error"]["details"].as_array().cloned().unwrap_or_default();
    details.iter().any(|detail| {
        let message = detail["message"].as_str().unwrap_or_default();
        // A crop also "reaches", by what its fields are together.
        detail["field"] == field && message.starts_with("must")
    })
}

fn check(reply: &Reply, case: &Case, operation: &str) {
    let shown: String = case.value.to_string().chars().take(40).collect();
    let field = case.field();
    let name = format!("{operation} {field} {shown}: {} {}", reply.status, reply.text);
    assert_eq!(is_refused(reply, &field), !case.accepted, "{name}");
    assert!(case.accepted || reply.status == 422, "{name}");
}

fn set(mut body: Value, case: &Case) -> Value {
    // A field of the body that its example leaves out is made.
    if let Some(place) = body.pointer_mut(&case.pointer) {
        *place = case.value.clone();
        return body;
    }
    let (parent, name) = case.pointer.rsplit_once('/').expect("a pointer");
    body.pointer_mut(parent).expect("an object")[name] = case.value.clone();
    body
}

fn check_body(
    server: &Server,
    document: &Value,
    (method, operation): (&str, &Value),
    path: &str,
    run: &str,
) -> usize {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if schema.is_null() {
        return 0;
    }
    let name = operation["operationId"].as_str().expect("a name");
    let base = body(name, run);
    let cases = cases(document, schema, &base, "");
    for case in &cases {
        let call = server.call(method, path).json(&set(base.clone(), case));
        check(&call.send(), case, name);
    }
    cases.len()
}

fn check_parameters(
    server: &Server,
    document: &Value,
    (method, operation): (&str, &Value),
    path: &str,
) -> usize {
    let name = operation["operationId"].as_str().expect("a name");
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    // An event stream that is accepted does not end.
    let is_stream = operation["responses"]["200"]["content"]["text/event-stream"].is_object();
    let mut count = 0;
    for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
        let field = parameter["name"].as_str().expect("a name");
        let schema = resolved(document, &parameter["schema"]);
        let pointer = format!("/{field}");
        for (value, accepted) in values(&pointer, schema) {
            if accepted && is_stream {
                continue;
            }
            let text = match &value {
                Value::String(text) => text.replace('\u{0}', "%00").replace(' ', "+"),
                Value::Object(_) if has_type(schema, "string") => continue,
                Value::Object(_) => "an-object".to_owned(),
                other => other.to_string(),
            };
            let case = Case { pointer: pointer.clone(), value, accepted };
            let reply = server.call(method, &format!("{path}?{field}={text}")).send();
            check(&reply, &case, name);
            count += 1;
        }
    }
    count
}

#[test]
fn every_bound_of_the_document_holds_at_the_bound_and_not_past_it() {
    let setup = Setup::temporary().own_root();
    let server = setup.var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8").start();
    let document = server.get("/v1/openapi.json").json();
    let mut count = 0;
    let paths = document["paths"].as_object().expect("an object").iter();
    // WHIP names no fields: it refuses in plain text, which `whip.rs` looks at.
    for (template, item) in paths.filter(|(path, _)| !path.starts_with("/v1/stream/whip")) {
        for (method, operation) in item.as_object().expect("an object") {
            // A run of its own: some of what is tested ends or deletes it.
            let run = server.create_run();
            let path = path(template, &run);
            let of = (&*method.to_ascii_uppercase(), operation);
            count += check_body(&server, &document, of, &path, &run);
            count += check_parameters(&server, &document, of, &path);
        }
    }
    assert!(count > 150, "{count} cases: the document states more bounds than that");
    println!("{count} values at bounds and past them");
}

#[test]
fn the_limits_route_and_the_document_say_the_same() {
    let server = shared();
    let document = server.get("/v1/openapi.json").json();
    let limits = server.get("/v1/limits").json()["limits"].clone();
    let mut compared = 0;
    for (name, limit) in limits.as_object().expect("an object") {
        let Some((route, field)) = name.split_once('.') else { continue };
        let path = match route {
            "ingest" | "analyze" | "reason" => format!("/v1/runs/{{id}}/{route}"),
            "search" | "query" | "infer" => format!("/v1/{route}"),
            "batch" => "/v1/infer/batch".to_owned(),
            _ => continue,
        };
        let body = &document["paths"][&path]["post"]["requestBody"];
        let schema = &body["content"]["application/json"]["schema"];
        let schema = resolved(&document, &resolved(&document, schema)["properties"][field]);
        let kinds = [("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")];
        let stated = kinds.map(|(min, max)| (schema[min].as_f64(), schema[max].as_f64()));
        let shown = (limit["min"].as_f64(), limit["max"].as_f64());
        assert!(stated.contains(&shown), "{name}: {shown:?} and {stated:?}");
        compared += 1;
    }
    assert!(compared >= 10, "{compared} limits were compared");
    // What the document does not state as a bound; the others are in it as it is committed.
    for (name, field, value) in [
        ("file_jobs_waiting", "max", 64.0),
        ("request_idle", "max", 30.0),
        ("event_payload", "max", 1_048_576.0),
        ("header_block", "max", 65_536.0),
        ("ingest.max_frames", "default", 512.0),
        ("search.limit", "default", 50.0),
        ("reason.chunk_size", "default", 30.0),
    ] {
        assert_eq!(limits[name][field].as_f64(), Some(value), "{name}");
    }
    assert_eq!(limits["principal_requests"]["max"], Value::Null, "0 is no limit");
}

/// Bytes and not characters are counted.
#[test]
fn a_prompt_is_bounded_in_bytes() {
    let server = shared();
    let asked = |prompt: String| {
        let reply = server.post("/v1/infer", &json!({"model": "qwen3-vl-4b", "prompt": prompt}));
        (reply.status, reply.fields(), reply.text)
    };
    // Without a backend what is accepted fails later.
    let (status, _, text) = asked("\u{e9}".repeat(16_384));
    assert!(status == 500 && text.contains("no inference backend is configured"), "{text}");
    let (status, fields, text) = asked("\u{e9}".repeat(16_384) + "x");
    assert_eq!((status, fields), (422, vec!["prompt".to_owned()]), "{text}");
}
