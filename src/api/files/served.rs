//! Answers a request for a file: conditional requests, ranges and the bytes.

use std::{fmt::Write, fs::File, time::SystemTime};

use axum::Extension;

use super::{
    super::conditional::{ResourceVersion, allows_range, caller_is_current},
    body::file_body,
    range::{RangeOutcome, wanted},
};
use crate::api::prelude::*;

/// Only the caller may cache the file, and must revalidate it each time.
const CACHE: HeaderValue = HeaderValue::from_static("private, no-cache");

pub struct Found {
    pub file: File,
    pub size: u64,
    pub version: ResourceVersion,
    /// File name suggested to the caller.
    pub name: String,
    pub kind: &'static str,
}

pub fn answer(found: Found, method: &Method, headers: &HeaderMap) -> ApiResult {
    let Found { file, size, version, name, kind } = found;
    let mut kept = HeaderMap::new();
    let mut keep = |name, value: &str| {
        // Entity tags, dates and numbers of the server are valid header values.
        kept.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
    };
    keep(header::ETAG, &version.etag);
    if let Some(modified) = version.modified {
        keep(header::LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    }
    kept.insert(header::CACHE_CONTROL, CACHE);
    kept.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if caller_is_current(headers, &version)? {
        return Ok((StatusCode::NOT_MODIFIED, kept).into_response());
    }
    // Ranges apply to GET only (RFC 9110 14.2).
    let asked = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let asked = asked.filter(|_| method == Method::GET);
    let asked = asked.filter(|_| allows_range(headers, &version, SystemTime::now()));
    let (status, range) = match asked.map_or(RangeOutcome::Whole, |asked| wanted(asked, size)) {
        RangeOutcome::Whole => (StatusCode::OK, 0..size),
        RangeOutcome::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        RangeOutcome::Unsatisfiable => {
            let text = format!("the file has {size} bytes, and none of them is in this range");
            let size = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, kept, size, text).into_response());
        }
    };
    if status == StatusCode::PARTIAL_CONTENT {
        let shown = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        kept.extend(HeaderValue::from_str(&shown).ok().map(|value| (header::CONTENT_RANGE, value)));
    }
    let about = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, disposition(kind, &name)),
    ];
    let (body, holds) = file_body(file, range);
    Ok((status, kept, about, Extension(holds), body).into_response())
}

/// Returns a `Content-Disposition` (RFC 6266): video inline, else attachment; `filename*` if not plain ASCII.
fn disposition(kind: &str, name: &str) -> String {
    let how = if kind.starts_with("video/") { "inline" } else { "attachment" };
    let is_plain = |found: char| {
        found.is_ascii_graphic() && !matches!(found, '"' | '\\' | '%') || found == ' '
    };
    let plain: String =
        name.chars().map(|found| if is_plain(found) { found } else { '_' }).collect();
    let mut text = format!("{how}; filename=\"{plain}\"");
    if plain != name {
        text.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            let is_attr = byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte);
            let written = if is_attr {
                write!(text, "{}", char::from(byte))
            } else {
                write!(text, "%{byte:02X}")
            };
            written.expect("a string takes everything");
        }
    }
    text
}

/// Headers that ask for a range.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "says what `wanted` and `allows_range` read")]
pub struct FileHeaders {
    /// A range of bytes.
    #[param(rename = "range")]
    range: Option<String>,
    /// Version that the range must be of; otherwise the whole file is sent.
    #[param(rename = "if-range")]
    if_range: Option<String>,
}
