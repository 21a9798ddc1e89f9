//! Head of a response: facts about the resource, and their comparison with an earlier response.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::egress::{EgressError, RequestUrl};

/// Most bytes that are discarded to reach a position in a resource without ranges.
pub(super) const FORWARD_MAX: u64 = 32 << 20;

/// Resource as described by one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::egress) struct ResponseHead {
    /// Bytes of the whole resource.
    pub size: Option<u64>,
    ranges: bool,
    /// Position in the resource of the first byte of the body.
    start: u64,
    etag: Option<Box<[u8]>>,
    modified: Option<Box<[u8]>>,
}

/// Longest validator that is remembered, in bytes; a longer one is ignored.
const VALIDATOR_BYTES_MAX: usize = 256;

/// Copies a header value, because the original keeps the whole receive buffer alive.
fn validator<B>(response: &Response<B>, name: HeaderName) -> Option<Box<[u8]>> {
    let value = response.headers().get(name)?.as_bytes();
    (value.len() <= VALIDATOR_BYTES_MAX).then(|| value.into())
}

impl ResponseHead {
    /// Reads the head of a response to a request for the bytes from `from` on.
    pub fn read<B>(
        target: &RequestUrl,
        response: &Response<B>,
        from: u64,
    ) -> Result<ResponseHead, EgressError> {
        let host = || target.host().to_owned();
        let broken = |problem| EgressError::Answer { host: host(), problem };
        let text = |name| response.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        let (size, ranges, start) = match response.status() {
            StatusCode::OK => {
                let size = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
                (size, false, 0)
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = text(header::CONTENT_RANGE).and_then(content_range);
                let (start, size) =
                    range.ok_or_else(|| broken("answered with no part it names"))?;
                if start != from {
                    return Err(broken("answered another part than was asked for"));
                }
                (size, true, start)
            }
            StatusCode::RANGE_NOT_SATISFIABLE if from == 0 => {
                return Err(broken("has no bytes"));
            }
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(EgressError::Auth { host: host(), status });
            }
            status => return Err(EgressError::Status { host: host(), status }),
        };
        if text(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            return Err(broken("compresses the answer, which nobody asked for"));
        }
        let etag = validator(response, header::ETAG);
        let modified = validator(response, header::LAST_MODIFIED);
        Ok(ResponseHead { size, ranges, start, etag, modified })
    }

    /// Returns true if another position can be read, by a range or by skipping in a small resource.
    pub fn is_seekable(&self) -> bool {
        self.ranges || self.size.is_some_and(|size| size <= FORWARD_MAX)
    }

    /// Returns the number of body bytes before byte `from`.
    pub fn skip(&self, target: &RequestUrl, from: u64) -> Result<u64, EgressError> {
        let skip = from - self.start;
        let host = || target.host().to_owned();
        if skip > FORWARD_MAX { Err(EgressError::NoRanges { host: host() }) } else { Ok(skip) }
    }

    /// Returns an error if the response is about another version than `earlier`.
    pub fn check_same(
        &self,
        target: &RequestUrl,
        earlier: &ResponseHead,
    ) -> Result<(), EgressError> {
        let differs = |a: Option<&[u8]>, b| a.is_some_and(|a| Some(a) != b);
        // A server that served ranges and now sends the whole resource reports that `if-range` failed.
        let is_whole = earlier.ranges && !self.ranges;
        let has_changed = is_whole
            || self.size.is_some() && earlier.size.is_some() && self.size != earlier.size
            || differs(earlier.etag.as_deref(), self.etag.as_deref())
            || differs(earlier.modified.as_deref(), self.modified.as_deref());
        let host = || target.host().to_owned();
        if has_changed { Err(EgressError::Changed { host: host() }) } else { Ok(()) }
    }

    /// Returns the ETag if it is strong (RFC 9110 13.1.5 excludes weak ones).
    pub fn strong_etag(&self) -> Option<&[u8]> {
        self.etag.as_deref().filter(|etag| !etag.starts_with(b"W/"))
    }
}

/// Parses `bytes a-b/size` to start and total size; the range must reach the end.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    let (start, end): (u64, u64) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
    let size = match size.trim() {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    let is_whole = size.is_none_or(|size: u64| end.checked_add(1) == Some(size));
    (start <= end && is_whole).then_some((start, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> RequestUrl {
        RequestUrl::parse("https://host.example/a").expect("a URL")
    }

    fn response(status: u16, headers: &[(&str, &str)]) -> Response<()> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).expect("a response")
    }

    #[test]
    fn a_content_range_is_read_whole_or_not_at_all() {
        let rows = [
            ("bytes 0-9/10", Some((0, Some(10)))),
            ("bytes 5-9/*", Some((5, None))),
            ("bytes 5-4/10", None),
            ("bytes 5-8/10", None),
            ("bytes 5-10/10", None),
            ("bytes */10", None),
            ("bytes 0-9", None),
            ("items 0-9/10", None),
            ("bytes -1-9/10", None),
            ("bytes 0-99999999999999999999/*", None),
            ("bytes 0-18446744073709551615/0", None),
        ];
        for (text, expected) in rows {
            assert_eq!(content_range(text), expected, "{text}");
        }
    }

    #[test]
    fn a_head_says_what_the_answer_is() {
        type Row = (u16, &'static [(&'static str, &'static str)], u64, &'static str);
        let rows: &[Row] = &[
            (200, &[("content-length", "10")], 0, ""),
            (206, &[("content-range", "bytes 3-9/10")], 3, ""),
            (206, &[("content-range", "bytes 0-9/10")], 3, "another part"),
            (206, &[], 0, "no part it names"),
            (200, &[("content-encoding", "gzip")], 0, "compresses"),
            (401, &[], 0, "auth: host.example answered 401"),
            (403, &[], 0, "auth: host.example answered 403"),
            (404, &[], 0, "http status: host.example answered 404"),
            (416, &[], 0, "has no bytes"),
            (416, &[], 5, "http status: host.example answered 416"),
            (500, &[], 0, "http status: host.example answered 500"),
            (304, &[], 0, "http status: host.example answered 304"),
        ];
        for (status, headers, from, expected) in rows {
            let found = ResponseHead::read(&target(), &response(*status, headers), *from);
            match found {
                Ok(head) => assert!(expected.is_empty() && head.size == Some(10), "{status}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!expected.is_empty() && said.contains(expected), "{status}: {said}");
                }
            }
        }
    }

    #[test]
    fn another_version_is_told_from_another_part() {
        let head = |headers: &[(&str, &str)], status: u16| {
            let mut headers = headers.to_vec();
            headers.push(("content-range", "bytes 0-9/10"));
            headers.push(("content-length", "10"));
            ResponseHead::read(&target(), &response(status, &headers), 0).expect("a head")
        };
        let first = head(&[("etag", "\"a\""), ("last-modified", "Mon")], 206);
        let rows = [
            (head(&[("etag", "\"a\""), ("last-modified", "Mon")], 206), false),
            (head(&[("etag", "\"b\""), ("last-modified", "Mon")], 206), true),
            (head(&[("etag", "\"a\""), ("last-modified", "Tue")], 206), true),
            (head(&[("last-modified", "Mon")], 206), true),
            (head(&[("etag", "\"a\""), ("last-modified", "Mon")], 200), true),
        ];
        for (next, expected) in rows {
            assert_eq!(next.check_same(&target(), &first).is_err(), expected, "{next:?}");
        }
        let bare = head(&[], 206);
        assert!(head(&[("etag", "\"b\"")], 206).check_same(&target(), &bare).is_ok());
        assert_eq!(first.strong_etag(), Some(&b"\"a\""[..]));
        let long = format!("\"{}\"", "x".repeat(VALIDATOR_BYTES_MAX));
        assert_eq!(head(&[("etag", &long)], 206).strong_etag(), None, "too long to keep");
        assert_eq!(head(&[("etag", "W/\"a\"")], 206).strong_etag(), None);
    }

    #[test]
    fn a_resource_without_ranges_is_read_forward_while_it_is_cheap() {
        let whole = |size: u64| {
            let length = size.to_string();
            ResponseHead::read(&target(), &response(200, &[("content-length", &length)]), 0)
                .expect("a head")
        };
        assert!(whole(FORWARD_MAX).is_seekable() && !whole(FORWARD_MAX + 1).is_seekable());
        assert_eq!(whole(100).skip(&target(), 40), Ok(40));
        assert!(whole(u64::MAX).skip(&target(), FORWARD_MAX + 1).is_err());
    }
}
