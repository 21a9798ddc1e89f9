//! Requests of many tests about runs, as Alice.

use serde_json::{Value, json};

use super::{Reply, Server, eventually};

impl Server {
    pub fn post_run(&self, run: &str, what: &str, body: &Value) -> Reply {
        self.post(&format!("/v1/runs/{run}/{what}"), body)
    }

    /// A `POST` to a run whose answer does not wait for the job that it starts.
    #[track_caller]
    pub fn start_job(&self, run: &str, what: &str, body: &Value) -> Reply {
        let call = self.call("POST", &format!("/v1/runs/{run}/{what}"));
        call.header("prefer", "respond-async").json(body).send().assert_status(202)
    }

    /// A new run that has ingested what `body` names.
    #[track_caller]
    pub fn ingested(&self, body: &Value) -> String {
        let run = self.create_run();
        self.post_run(&run, "ingest", body).assert_ok();
        run
    }

    /// Waits for an event of this kind; returns the payload of the last.
    #[track_caller]
    pub fn wait_for_event(&self, run: &str, kind: &str) -> Value {
        eventually(kind, || self.payloads(run, kind).pop())
    }

    pub fn create_keyed(&self, key: &str) -> Reply {
        self.call("POST", "/v1/runs").header("idempotency-key", key).json(&json!({})).send()
    }

    pub fn record(&self, run: &str) -> Value {
        self.get(&format!("/v1/runs/{run}")).json()
    }

    pub fn still_paths(&self, run: &str) -> Vec<String> {
        let listed = self.get(&format!("/v1/runs/{run}/keyframes")).json();
        let path = |still: &Value| still["image_ref"].as_str().expect("a path").to_owned();
        listed["keyframes"].as_array().expect("an array").iter().map(path).collect()
    }

    /// The pages of a list from `path` on; `between` runs after each.
    #[track_caller]
    pub fn pages(&self, path: &str, mut between: impl FnMut()) -> Vec<Reply> {
        let (mut pages, mut next) = (Vec::new(), Some(path.to_owned()));
        while let Some(path) = next.take() {
            assert!(pages.len() < 500, "no end of {path}");
            let page = self.get(&path).assert_ok();
            between();
            next = page.next_page();
            pages.push(page);
        }
        pages
    }

    /// The value of a series as `/v1/metrics` writes its name and labels.
    #[track_caller]
    pub fn metric(&self, series: &str) -> f64 {
        let text = self.get("/v1/metrics").text;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no series {series}")).parse().expect("a number")
    }
}
