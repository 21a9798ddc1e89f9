//! Conditional requests for stored resources (RFC 9110 13): entity tags first, then dates.

use std::time::SystemTime;

use super::prelude::*;

/// Validators of one version of a stored resource (RFC 9110 8.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceVersion {
    /// Entity tag, strong, with quotes.
    pub etag: String,
    /// Time of the last change in whole seconds, if known.
    pub modified: Option<SystemTime>,
}

/// Conditional headers that [`caller_is_current`] reads.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "says what `caller_is_current` reads")]
pub struct Preconditions {
    /// Entity tags that the resource must match; otherwise 412.
    #[param(rename = "if-match")]
    if_match: Option<String>,
    /// Answers 412 if the resource has changed since this date; ignored beside `if-match`.
    #[param(rename = "if-unmodified-since")]
    if_unmodified_since: Option<String>,
    /// Entity tags that the caller has; if one matches, 304.
    #[param(rename = "if-none-match")]
    if_none_match: Option<String>,
    /// Answers 304 if the resource has not changed since this date; ignored beside `if-none-match`.
    #[param(rename = "if-modified-since")]
    if_modified_since: Option<String>,
}

/// Evaluates the preconditions in the order of RFC 9110 13.2.2. Returns true if the caller has this version
/// (304); fails if it requires another one (412).
pub fn caller_is_current(headers: &HeaderMap, version: &ResourceVersion) -> ApiResult<bool> {
    let failed = || {
        let text = "precondition failed: the condition does not match the current state".to_owned();
        Err(ApiError::Plain(StatusCode::PRECONDITION_FAILED, text))
    };
    let changed_since = |name| Some(version.modified? > date(text(headers, name)?)?);
    if headers.contains_key(header::IF_MATCH) {
        if !is_listed(headers, header::IF_MATCH, |tag| tag == version.etag) {
            return failed();
        }
    } else if changed_since(header::IF_UNMODIFIED_SINCE) == Some(true) {
        return failed();
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        let weakly = |tag: &str| tag.trim_start_matches("W/") == version.etag;
        return Ok(is_listed(headers, header::IF_NONE_MATCH, weakly));
    }
    Ok(changed_since(header::IF_MODIFIED_SINCE) == Some(false))
}

/// Returns true if RFC 9110 13.1.5 allows a range: no `If-Range`, or one that matches this version.
///
/// A date is a strong validator only if it is at least a second before the answer.
pub fn allows_range(headers: &HeaderMap, version: &ResourceVersion, now: SystemTime) -> bool {
    if !headers.contains_key(header::IF_RANGE) {
        return true;
    }
    let Some(condition) = text(headers, header::IF_RANGE) else { return false };
    if condition.starts_with('"') || condition.starts_with("W/") {
        return condition == version.etag;
    }
    let (Some(modified), Some(date)) = (version.modified, date(condition)) else { return false };
    date == modified && now.duration_since(modified).is_ok_and(|age| age.as_secs() >= 1)
}

fn date(text: &str) -> Option<SystemTime> {
    // An unparsable date is ignored (RFC 9110 13.1.3, 13.1.4).
    httpdate::parse_http_date(text).ok()
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    // A value that is not text is ignored, too.
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn is_listed(headers: &HeaderMap, name: HeaderName, is_this: impl Fn(&str) -> bool) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|text| text.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || is_this(tag))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use http::HeaderValue;

    use super::*;

    /// Outcomes of [`caller_is_current`] without the text of its error.
    const SEND: Option<bool> = Some(false);
    const NOT_MODIFIED: Option<bool> = Some(true);
    const FAILED: Option<bool> = None;

    const OLDER: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
    const THEN: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
    const NEWER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";

    fn version() -> ResourceVersion {
        let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        ResourceVersion { etag: "\"a\"".to_owned(), modified: Some(modified) }
    }

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs =
            pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn tags_go_before_dates_and_matches_before_modifications() {
        use header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        type Headers<'a> = &'a [(HeaderName, &'static str)];
        let cases: [(Headers<'_>, Option<bool>); 16] = [
            (&[], SEND),
            (&[(IF_MATCH, "\"a\"")], SEND),
            (&[(IF_MATCH, "*")], SEND),
            (&[(IF_MATCH, "\"b\", \"a\"")], SEND),
            (&[(IF_MATCH, "W/\"a\"")], FAILED),
            (&[(IF_MATCH, "\"b\"")], FAILED),
            (&[(IF_MATCH, "\"a\""), (IF_UNMODIFIED_SINCE, OLDER)], SEND),
            (&[(IF_UNMODIFIED_SINCE, OLDER)], FAILED),
            (&[(IF_UNMODIFIED_SINCE, THEN)], SEND),
            (&[(IF_NONE_MATCH, "\"b\", W/\"a\"")], NOT_MODIFIED),
            (&[(IF_NONE_MATCH, "*")], NOT_MODIFIED),
            (&[(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, NEWER)], SEND),
            (&[(IF_MODIFIED_SINCE, OLDER)], SEND),
            (&[(IF_MODIFIED_SINCE, THEN)], NOT_MODIFIED),
            (&[(IF_MODIFIED_SINCE, "yesterday")], SEND),
            (&[(IF_MATCH, "\"b\""), (IF_NONE_MATCH, "\"a\"")], FAILED),
        ];
        for (pairs, expected) in cases {
            assert_eq!(caller_is_current(&headers(pairs), &version()).ok(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_range_is_for_the_version_it_was_made_for() {
        let modified = version().modified.expect("given");
        let cases = [
            (None, 9, true),
            (Some("\"a\""), 9, true),
            (Some("\"b\""), 9, false),
            (Some("W/\"a\""), 9, false),
            (Some(THEN), 9, true),
            (Some(THEN), 0, false),
            (Some(OLDER), 9, false),
            (Some(NEWER), 9, false),
            (Some("yesterday"), 9, false),
        ];
        for (condition, age_s, expected) in cases {
            let pairs: Vec<_> =
                condition.map(|text| (header::IF_RANGE, text)).into_iter().collect();
            let now = modified + Duration::from_secs(age_s);
            let found = allows_range(&headers(&pairs), &version(), now);
            assert_eq!(found, expected, "{condition:?} after {age_s} s");
        }
    }
}
