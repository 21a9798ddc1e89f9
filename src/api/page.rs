//! Lists that can grow: whole, or by a limit and an opaque cursor with a `Link` to the next page.

use std::fmt::Display;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Uri, header};
use media::Seq;
use serde_json::Value;
use utoipa::IntoParams;

use super::openapi::terms;
use crate::base::json::{Fields, Int, Problem};

/// Items a page of a list.
pub type PageLimit = Int<1, 1000>;
/// Fault of a cursor that no list gave.
pub const NO_CURSOR: &str = "must be one that a Link header gave";

/// Page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "says what `paging` reads")]
pub struct PageQuery {
    /// Most items of the page; the list is whole when missing.
    #[param(inline)]
    limit: Option<PageLimit>,
    /// Start of the page, as the `Link` header of the page before says.
    cursor: Option<terms::Cursor>,
}

/// Page that a query asks for.
#[derive(Clone, Copy, Debug)]
pub struct Paging {
    /// Most items; all of them when `None`.
    pub limit: Option<usize>,
    /// Start of the page; the first page when `None`.
    pub cursor: Option<Seq>,
}

/// Reads `limit`.
pub fn limit(fields: &mut Fields<'_>) -> Option<usize> {
    fields.optional("limit", PageLimit::digits).map(|limit| limit as usize)
}

/// Reads `limit` and `cursor`.
pub fn paging(fields: &mut Fields<'_>) -> Paging {
    Paging { limit: limit(fields), cursor: fields.optional("cursor", cursor).map(Seq) }
}

/// Reads a cursor: a seq in decimal digits, opaque to callers.
fn cursor(value: &Value) -> Result<u64, Problem> {
    Int::<0, { u64::MAX }>::digits(value).map_err(|_| NO_CURSOR.into())
}

/// Says that a page is not the last.
const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");

/// Adds the link to the page at `next`, where there is one, and that there is more.
pub fn linked(response: impl IntoResponse, uri: &Uri, next: Option<impl Display>) -> Response {
    let mut response = response.into_response();
    let Some(next) = next else { return response };
    let kept = uri.query().into_iter().flat_map(|query| query.split('&'));
    let kept = kept.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("cursor"));
    let query: String = kept.map(|pair| format!("{pair}&")).collect();
    let link = format!("<{}?{query}cursor={next}>; rel=\"next\"", uri.path());
    match HeaderValue::from_str(&link) {
        Ok(link) => {
            let told = [(header::LINK, link), (HAS_MORE, HeaderValue::from_static("true"))];
            response.headers_mut().extend(told);
        }
        Err(error) => tracing::error!(%error, "a request target does not fit a header"),
    }
    response
}
