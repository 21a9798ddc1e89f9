//! Request series by route, method and status; rare methods and statuses share the label `other`.

use http::{Method, StatusCode};

use super::Metrics;

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

impl Metrics {
    /// Counts an answer of the route `template`, `seconds` after its request.
    pub fn answered(&self, template: &str, method: &Method, status: StatusCode, seconds: f64) {
        let method = if METHODS.contains(method) { method.as_str() } else { OTHER };
        let code = if STATUSES.contains(&status.as_u16()) { status.as_str() } else { OTHER };
        self.http_requests.with_label_values(&[template, method, code]).inc();
        self.http_seconds.with_label_values(&[template]).observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_and_statuses_share_a_series() {
        let metrics = Metrics::new();
        let brew = Method::from_bytes(b"BREW").expect("a token");
        metrics.answered("/a", &brew, StatusCode::IM_A_TEAPOT, 0.1);
        metrics.answered("/a", &Method::GET, StatusCode::OK, 0.1);
        let count = |labels: [&str; 3]| metrics.http_requests.with_label_values(&labels).get();
        assert_eq!((count(["/a", OTHER, OTHER]), count(["/a", "GET", "200"])), (1, 1));
        assert_eq!(metrics.http_seconds.with_label_values(&["/a"]).get_sample_count(), 2);
    }
}
