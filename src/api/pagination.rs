//! Pagination: lists are whole, or limited with an opaque cursor and a `Link` to the next page.

use std::fmt::Display;

use super::prelude::*;

pub type PageLimit = BoundedInt<1, 1000>;
pub const NO_CURSOR: &str = "must be one that a Link header gave";

/// Page of a list.
#[derive(Clone, Copy, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Maximum number of items on the page; the list is whole when missing.
    #[param(inline, value_type = Option<PageLimit>)]
    pub limit: Option<usize>,
    /// Start of the page, from the `Link` header of the previous page.
    #[param(value_type = Option<schema_types::Cursor>)]
    pub cursor: Option<Seq>,
}

declared!(PageQuery { limit: optional limit, cursor: optional cursor });

pub fn limit(value: &Value) -> Result<usize, ValueError> {
    PageLimit::digits(value).map(|limit| limit as usize)
}

/// Reads a cursor: a sequence number in decimal digits, opaque to callers.
fn cursor(value: &Value) -> Result<Seq, ValueError> {
    BoundedInt::<0, { u64::MAX }>::digits(value).map(Seq).map_err(|_| NO_CURSOR.into())
}

/// Response header of pages that are not the last.
const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");

/// Adds to `response` the link to the page at `next` and `x-has-more`, if there is a next page.
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

/// Returns the items of a list that is read in slices: `slice` returns the one at a cursor, and the next cursor.
pub fn sliced<T, C>(
    first: C,
    mut slice: impl FnMut(C) -> ApiResult<(Vec<T>, Option<C>)>,
) -> impl Iterator<Item = ApiResult<T>> {
    let (mut next, mut read) = (Some(first), Vec::new().into_iter());
    std::iter::from_fn(move || {
        while read.len() == 0 {
            match slice(next.take()?) {
                Ok((items, rest)) => (next, read) = (rest, items.into_iter()),
                Err(error) => return Some(Err(error)),
            }
        }
        read.next().map(Ok)
    })
}
