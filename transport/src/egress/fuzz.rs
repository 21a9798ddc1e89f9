//! Invariants of URLs and of response heads, for arbitrary bytes.
//!
//! Called by fuzzers with generated input, and by tests with a stable compiler.

use http::{Response, StatusCode, Uri};

use super::{RequestUrl, fetch::ResponseHead};

/// Parses `bytes` as lines: a URL, a redirect target, a status, the requested offset, and one line per
/// response header.
///
/// Asserts that a URL does not show its credentials, survives a second parse and yields a request, and that
/// an accepted part begins at the offset, and a whole resource at its first byte: it is skipped up to the
/// offset, or refused as too far from it. Returns the number of URLs and responses accepted.
pub fn answer(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    let Ok(target) = RequestUrl::parse(line()) else { return 0 };
    check(&target);
    let redirect = target.join(line()).ok().inspect(check);
    let status = line().parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
    let from = line().parse().unwrap_or(0);
    let mut response = Response::builder().status(status.unwrap_or(StatusCode::OK));
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        response = response.header(name, value.trim());
    }
    let head = response.body(()).ok();
    let head = head.and_then(|response| ResponseHead::read(&target, &response, from).ok());
    if let Some(head) = &head {
        let is_part = status == Some(StatusCode::PARTIAL_CONTENT);
        match head.skip(&target, from) {
            Ok(skip) => assert_eq!(skip, if is_part { 0 } else { from }, "{head:?}"),
            Err(_) => assert!(!is_part && from > 0, "{head:?}"),
        }
        assert_eq!(head.check_same(&target, head), Ok(()));
    }
    1 + usize::from(redirect.is_some()) + usize::from(head.is_some())
}

fn check(target: &RequestUrl) {
    let bare = RequestUrl::parse(target.url().as_str()).expect("its own text");
    assert_eq!((bare.url(), bare.credentials()), (target.url(), None));
    assert!(!target.host().is_empty() && target.port() > 0, "{target:?}");
    let is_requested = target.url().scheme().starts_with("http");
    assert!(!is_requested || target.path().parse::<Uri>().is_ok(), "{target:?}");
}
