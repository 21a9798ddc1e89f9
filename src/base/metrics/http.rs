//! Request counters by route, method and status, in a table that is filled lazily and read without locks.

use std::sync::OnceLock;

use http::Method;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};

use super::labelled::register;

/// Maximum number of routes with own series, well above the number of routes; others share the last slot.
const ROUTES_MAX: usize = 128;
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// Statuses that the server returns; any other is counted as `other`.
const STATUSES: [u16; 31] = [
    200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 412,
    413, 415, 416, 422, 428, 429, 431, 500, 501, 502, 503, 504,
];
const OTHER: &str = "other";

/// Requests, and the times to the heads of their answers.
pub struct HttpMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    /// Heap-allocated, because a table of all routes is too large for a thread's stack.
    routes: Box<[OnceLock<Route>]>,
}

struct Route {
    template: Box<str>,
    seconds: Histogram,
    /// Counters by method and status; the last row and column hold those in neither list.
    requests: Box<[OnceLock<IntCounter>]>,
}

impl HttpMetrics {
    pub(super) fn new(
        registry: &Registry,
        name: &str,
        help: String,
        buckets: &[f64],
    ) -> HttpMetrics {
        let requests = Opts::new(name, help);
        let requests = IntCounterVec::new(requests, &["route", "method", "status"]);
        let seconds = HistogramOpts::new(
            "service_http_request_duration_seconds",
            "Time from a request's head to the head of its answer.",
        );
        let seconds = HistogramVec::new(seconds.buckets(buckets.to_vec()), &["route"]);
        let valid = "the names of the table are valid";
        let (requests, seconds) = (requests.expect(valid), seconds.expect(valid));
        register(registry, requests.clone());
        register(registry, seconds.clone());
        let routes = unset(ROUTES_MAX);
        HttpMetrics { requests, seconds, routes }
    }

    /// Counts an answer of the route `template`, `seconds` after its request.
    pub fn answered(&self, template: &str, method: &Method, status: u16, seconds: f64) {
        let route = self.route(template);
        route.seconds.observe(seconds);
        let row = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        let column = STATUSES.iter().position(|&known| known == status).unwrap_or(STATUSES.len());
        let counter = route.requests[row * (STATUSES.len() + 1) + column].get_or_init(|| {
            let method = METHODS.get(row).map_or(OTHER, Method::as_str);
            let status = STATUSES.get(column).map_or(OTHER.to_owned(), u16::to_string);
            self.requests.with_label_values(&[&*route.template, method, &*status])
        });
        counter.inc();
    }

    fn route(&self, template: &str) -> &Route {
        let (last, own) = self.routes.split_last().expect("there are routes");
        for slot in own {
            let route = slot.get_or_init(|| self.new_route(template));
            if &*route.template == template {
                return route;
            }
        }
        last.get_or_init(|| self.new_route(OTHER))
    }

    fn new_route(&self, template: &str) -> Route {
        Route {
            template: template.into(),
            seconds: self.seconds.with_label_values(&[template]),
            requests: unset((METHODS.len() + 1) * (STATUSES.len() + 1)),
        }
    }
}

fn unset<T>(count: usize) -> Box<[OnceLock<T>]> {
    std::iter::repeat_with(OnceLock::new).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_statuses_and_too_many_routes_share_a_series() {
        let registry = Registry::new();
        let http = HttpMetrics::new(&registry, "requests", "help".to_owned(), &[1.0]);
        let brew = Method::from_bytes(b"BREW").expect("a token");
        http.answered("/a", &brew, 418, 0.1);
        http.answered("/a", &Method::GET, 200, 0.1);
        for at in 0..2 * ROUTES_MAX {
            http.answered(&format!("/{at}"), &Method::GET, 200, 0.1);
        }
        let count = |labels: [&str; 3]| http.requests.with_label_values(&labels).get();
        assert_eq!(count(["/a", OTHER, OTHER]), 1);
        assert_eq!(count(["/a", "GET", "200"]), 1);
        assert_eq!(count(["/0", "GET", "200"]), 1);
        let shared = 2 * ROUTES_MAX as u64 - (ROUTES_MAX as u64 - 2);
        assert_eq!(count([OTHER, "GET", "200"]), shared);
    }
}
