//! Documented answers of each route, and those of them that have been seen.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{Reply, Server};

/// The path of an operation, with ids of the right form.
pub fn path(template: &str, run: &str) -> String {
    let hash = "ab".repeat(32);
    let webhook = format!("wh-{}", "0".repeat(32));
    let job = format!("job-{}", "0".repeat(32));
    let path = template.replace("{id}", run).replace("{sha256}", &hash).replace("{job_id}", &job);
    let path = path.replace("{frame_index}", "0");
    path.replace("{name}", "missing.mp4").replace("{webhook_id}", &webhook)
}

/// The codes that the contract gives a status.
fn codes(status: u16) -> &'static [&'static str] {
    match status {
        400 | 422 => &["validation_error"],
        401 => &["unauthorized"],
        403 => &["cors_forbidden"],
        404 => &["not_found"],
        409 => &["conflict"],
        429 => &["rate_limited"],
        500 => &["internal_error"],
        503 => &["unavailable", "metrics_unavailable"],
        status => panic!("{status} has no code"),
    }
}

/// The document, and the statuses that its operations have been seen to answer with.
pub struct Book {
    /// By method and path template.
    operations: BTreeMap<(String, String), Value>,
    responses: Value,
    seen: BTreeSet<(String, u16)>,
}

impl Book {
    /// Reads the document of `server`.
    pub fn new(server: &Server) -> Book {
        let document = server.get("/v1/openapi.json").json();
        let mut operations = BTreeMap::new();
        for (path, item) in document["paths"].as_object().expect("an object") {
            for (method, operation) in item.as_object().expect("an object") {
                operations.insert((method.to_ascii_uppercase(), path.clone()), operation.clone());
            }
        }
        let responses = document["components"]["responses"].clone();
        Book { operations, responses, seen: BTreeSet::new() }
    }

    /// Every method and path template.
    pub fn operations(&self) -> Vec<(String, String)> {
        self.operations.keys().cloned().collect()
    }

    /// Returns true if the document gives the operation this status.
    pub fn documents(&self, method: &str, template: &str, status: u16) -> bool {
        let operation = &self.operations[&(method.to_owned(), template.to_owned())];
        operation["responses"][status.to_string()].is_object()
    }

    /// Notes an answer, which must be one that the document has, with the headers it names.
    pub fn note(&mut self, method: &str, path: &str, reply: &Reply) {
        let template = self.template(method, path);
        let operation = &self.operations[&(method.to_owned(), template.clone())];
        let name = operation["operationId"].as_str().expect("a name").to_owned();
        let mut response = &operation["responses"][reply.status.to_string()];
        assert!(response.is_object(), "{name} does not document {}: {}", reply.status, reply.text);
        // What has another body than the envelope is described by its route.
        let is_envelope = response["$ref"].is_string();
        if let Some(target) = response["$ref"].as_str() {
            response = &self.responses[target.rsplit('/').next().expect("a name")];
        }
        if let Some(contents) = response["content"].as_object() {
            let found = reply.header("content-type");
            let found = found.split(';').next().unwrap_or_default();
            let known = contents
                .keys()
                .any(|known| known == found || matches!(&**known, "image/jpeg" | "*/*"));
            assert!(known, "{name} {}: {found}", reply.status);
            if is_envelope && contents.contains_key("application/json") {
                let (json, codes) = (reply.json(), codes(reply.status));
                assert!(codes.contains(&&*reply.code()), "{name} {}: {}", reply.status, reply.text);
                assert_eq!(json["error"]["request_id"], reply.header("x-request-id"), "{name}");
                assert!(json["error"]["message"].is_string(), "{name}: {}", reply.text);
                assert!(json["error"]["details"].is_array(), "{name}: {}", reply.text);
            }
        }
        let headers = response["headers"].as_object().into_iter().flatten();
        for (header, _) in headers.filter(|(header, _)| *header != "link") {
            assert!(!reply.header(header).is_empty(), "{name} {} has no {header}", reply.status);
        }
        self.seen.insert((name, reply.status));
    }

    /// Asks `server`, with a JSON body unless that is null, and notes the answer, which must have this status.
    #[track_caller]
    pub fn ask(
        &mut self,
        server: &Server,
        (method, path): (&str, &str),
        body: &Value,
        status: u16,
    ) -> Reply {
        let call = server.call(method, path);
        let reply = if body.is_null() { call.send() } else { call.json(body).send() };
        assert_eq!(reply.status, status, "{method} {path} {body}: {}", reply.text);
        self.note(method, path, &reply);
        reply
    }

    /// The template that fits best: with the fewest parts left open.
    fn template(&self, method: &str, path: &str) -> String {
        let path = path.split('?').next().unwrap_or_default();
        let fits = |template: &str| {
            let (parts, wanted): (Vec<_>, Vec<_>) =
                (path.split('/').collect(), template.split('/').collect());
            parts.len() == wanted.len()
                && wanted
                    .iter()
                    .zip(&parts)
                    .all(|(want, part)| want.starts_with('{') || want == part)
        };
        let found =
            self.operations.keys().filter(|(known, template)| known == method && fits(template));
        let best = found.min_by_key(|(_, template)| template.matches('{').count());
        best.unwrap_or_else(|| panic!("the document has no {method} {path}")).1.clone()
    }

    /// Documented answers that were not seen, but for those that are shown elsewhere.
    pub fn missing(&self, shown_elsewhere: impl Fn(&str, u16) -> bool) -> Vec<String> {
        let mut missing = Vec::new();
        for operation in self.operations.values() {
            let name = operation["operationId"].as_str().expect("a name");
            for status in operation["responses"].as_object().expect("an object").keys() {
                let status = status.parse().expect("a status");
                if !self.seen.contains(&(name.to_owned(), status)) && !shown_elsewhere(name, status)
                {
                    missing.push(format!("{name} {status}"));
                }
            }
        }
        missing
    }
}
