//! Checks for malformed HTTP/3 requests whose parts parse (RFC 9114 4.1.2).
//!
//! The library itself rejects missing pseudo-headers and upper-case names.

use http::{HeaderMap, Request, header};

/// Faults of requests (RFC 9110 8.6, RFC 9114 4.2 and 4.3.1).
const LENGTH: &str = "content-length is not one number";
const CONNECTION: &str = "connection-specific header field in HTTP/3";
const CREDENTIALS: &str = "credentials in the authority";

const OF_CONNECTIONS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Returns the content-length of a well-formed request; `None` if it states none. Fails with the fault.
pub(super) fn content_length(request: &Request<()>) -> Result<Option<u64>, &'static str> {
    let headers = request.headers();
    let te = headers.get_all(header::TE);
    if OF_CONNECTIONS.iter().any(|name| headers.contains_key(*name))
        || te.iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"trailers"))
    {
        return Err(CONNECTION);
    }
    if request.uri().authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(CREDENTIALS);
    }
    length(headers)
}

fn length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut told = headers.get_all(header::CONTENT_LENGTH).iter();
    let (first, None) = (told.next(), told.next()) else { return Err(LENGTH) };
    let Some(first) = first else { return Ok(None) };
    let digits = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).map(Some).ok_or(LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_requests_are_served() {
        let most = u64::MAX.to_string();
        let rows: [(&[(&str, &str)], _); 17] = [
            (&[], Ok(None)),
            (&[("te", "Trailers"), ("accept", "a")], Ok(None)),
            (&[("content-length", "0")], Ok(Some(0))),
            (&[("content-length", "007")], Ok(Some(7))),
            (&[("content-length", &most)], Ok(Some(u64::MAX))),
            (&[("content-length", "18446744073709551616")], Err(LENGTH)),
            (&[("content-length", "")], Err(LENGTH)),
            (&[("content-length", "abc")], Err(LENGTH)),
            (&[("content-length", "+2")], Err(LENGTH)),
            (&[("content-length", "2, 2")], Err(LENGTH)),
            (&[("content-length", "2"), ("content-length", "2")], Err(LENGTH)),
            (&[("connection", "close")], Err(CONNECTION)),
            (&[("keep-alive", "1")], Err(CONNECTION)),
            (&[("transfer-encoding", "chunked")], Err(CONNECTION)),
            (&[("upgrade", "websocket")], Err(CONNECTION)),
            (&[("te", "gzip")], Err(CONNECTION)),
            (&[("te", "trailers"), ("te", "gzip")], Err(CONNECTION)),
        ];
        for (fields, expected) in rows {
            let request = Request::builder().uri("https://site.example/");
            let request =
                fields.iter().fold(request, |made, (name, value)| made.header(*name, *value));
            let request = request.body(()).expect("a request");
            assert_eq!(content_length(&request), expected, "{fields:?}");
        }
        let request = Request::builder().uri("https://me:pass@site.example/").body(());
        let request = request.expect("a request");
        assert_eq!(content_length(&request), Err(CREDENTIALS));
    }
}
