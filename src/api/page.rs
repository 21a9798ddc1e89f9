//! Lists that can grow: a limit, an opaque cursor, and a `Link` to the next page.

use std::fmt::Display;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Uri, header};
use media::Seq;

use crate::json::{Fields, digits};

/// What a query asks of a list.
#[derive(Clone, Copy, Debug)]
pub struct Paging {
    /// Most items.
    pub limit: usize,
    /// Where the page starts; the first page when `None`.
    pub cursor: Option<Seq>,
}

/// Reads `limit`.
pub fn limit(fields: &mut Fields<'_>) -> usize {
    fields.optional("limit", digits(1..=1000)).unwrap_or(100) as usize
}

/// Reads `limit` and `cursor`.
pub fn paging(fields: &mut Fields<'_>) -> Paging {
    Paging {
        limit: limit(fields),
        cursor: fields.optional("cursor", digits(0..=u64::MAX)).map(Seq),
    }
}

/// Adds the link to the page at `next`, where there is one.
pub fn linked(response: impl IntoResponse, uri: &Uri, next: Option<impl Display>) -> Response {
    let mut response = response.into_response();
    let Some(next) = next else { return response };
    let kept = uri.query().into_iter().flat_map(|query| query.split('&'));
    let kept = kept.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("cursor"));
    let query: String = kept.map(|pair| format!("{pair}&")).collect();
    let link = format!("<{}?{query}cursor={next}>; rel=\"next\"", uri.path());
    match HeaderValue::from_str(&link) {
        Ok(link) => drop(response.headers_mut().insert(header::LINK, link)),
        Err(error) => tracing::error!(%error, "a request target does not fit a header"),
    }
    response
}
