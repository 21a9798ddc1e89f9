//! Embedded files, gzip-compressed: a third of their size or less, and most clients accept gzip.

use std::io::Read as _;

use flate2::read::GzDecoder;

use super::prelude::*;

/// A gzip-compressed file.
pub struct Packed(pub &'static [u8]);

impl Packed {
    pub fn whole(&self) -> Bytes {
        let mut whole = Vec::new();
        GzDecoder::new(self.0).read_to_end(&mut whole).expect("the build has compressed it");
        whole.into()
    }

    /// Answers with the compressed file if the client accepts gzip, else with the result of `whole`.
    pub fn answer(&self, headers: &HeaderMap, whole: impl FnOnce() -> Bytes) -> Response {
        let vary = [(header::VARY, HeaderValue::from_static("accept-encoding"))];
        if !takes_gzip(headers) {
            return (vary, whole()).into_response();
        }
        let coding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
        (vary, coding, self.0).into_response()
    }
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let listed =
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip")
            && !matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}
