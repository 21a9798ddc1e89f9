//! Failures of requests: their class, and the displayable part of the answer.
//!
//! An S3 answer is XML with a code and a message; only these are used.

use std::{error::Error, iter};

use http::{HeaderMap, StatusCode};
use timeline::{RemoteError, RemoteFault};

/// Maximum bytes of an error's detail.
const DETAIL_BYTES_MAX: usize = 200;

/// Error codes about credentials and permissions.
const DENIALS: [&str; 14] = [
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnauthorizedAccess",
];

/// Failure of one request, carried inside the client's errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Failure {
    pub fault: RemoteFault,
    pub detail: String,
    /// Status of the answer; `None` without an answer.
    pub status: Option<StatusCode>,
    /// Code in the answer.
    pub code: Option<String>,
    /// True for a request to the store, false for one for credentials.
    pub is_signed: bool,
}

impl Failure {
    /// Creates the failure of a request without an answer.
    pub fn lost(fault: RemoteFault, detail: impl Into<String>) -> Failure {
        Failure { fault, detail: detail.into(), status: None, code: None, is_signed: false }
    }

    /// Creates the failure of a request answered with `status` and `body`.
    pub fn refused(
        status: StatusCode,
        headers: &HeaderMap,
        body: &str,
        secrets: &[String],
        is_signed: bool,
    ) -> Failure {
        let is_of_code = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let code = element(body, "Code").filter(|code| code.bytes().all(is_of_code));
        let mut detail = match &code {
            Some(code) => code.clone(),
            None => format!("HTTP {status}"),
        };
        let message = element(body, "Message").map(|text| shown(&text, secrets));
        if let Some(message) = message.filter(|text| code.is_some() && !text.is_empty()) {
            detail = format!("{detail}: {message}");
        }
        // For a bucket in another region, the answer often has nothing but this header.
        let region = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        if let Some(region) =
            region.filter(|_| is_signed && code.as_deref() != Some("AccessDenied"))
        {
            detail = format!("{detail} (AWS_REGION of the bucket: {})", shown(region, secrets));
        }
        let fault = class(status, code.as_deref());
        Failure { fault, detail: cut(&detail), status: Some(status), code, is_signed }
    }

    /// Returns true if a retry may succeed.
    pub fn is_passing(&self) -> bool {
        let code = self.code.as_deref();
        if matches!(code, Some("SlowDown" | "InternalError" | "RequestTimeout")) {
            return true;
        }
        self.status.is_some_and(|status| {
            let refused = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
            refused || status == StatusCode::TOO_MANY_REQUESTS
        })
    }
}

fn class(status: StatusCode, code: Option<&str>) -> RemoteFault {
    match (status, code) {
        (_, Some("NoSuchBucket")) => RemoteFault::NoBucket,
        (_, Some(code)) if DENIALS.contains(&code) => RemoteFault::Denied,
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => RemoteFault::Denied,
        _ => RemoteFault::Failed,
    }
}

/// Returns the text of the first element `name` in `xml`.
pub(crate) fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    // The ampersand comes last: text that it reveals must not be unescaped again.
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let text = plain.iter().fold(text.to_owned(), |text, (name, sign)| text.replace(name, sign));
    Some(text.trim().to_owned())
}

/// Returns the displayable part of `text` in one line: without URL queries, secrets and XML.
pub(crate) fn shown(text: &str, secrets: &[String]) -> String {
    let is_secret = |word: &str| {
        secrets.iter().any(|secret| word.contains(secret.as_str()))
            || word.to_ascii_lowercase().contains("signature=")
            || word.contains(['<', '>'])
            || word.chars().any(char::is_control)
    };
    let plain = |word: &str| {
        let word = match word.split_once('?') {
            Some((place, _)) if place.contains("://") => place.to_owned(),
            _ => word.to_owned(),
        };
        if is_secret(&word) { "...".to_owned() } else { word }
    };
    cut(&text.split_whitespace().map(plain).collect::<Vec<_>>().join(" "))
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(DETAIL_BYTES_MAX)].to_owned()
}

/// Returns the failure of a request inside `error`, if any.
pub(crate) fn within(error: &object_store::Error) -> Option<&Failure> {
    let first: &(dyn Error + 'static) = error;
    iter::successors(Some(first), |&inner| inner.source()).find_map(|inner| inner.downcast_ref())
}

/// Returns true if the object does not exist. For a HEAD request, the bucket may be missing instead.
pub(crate) fn is_missing(error: &object_store::Error) -> bool {
    within(error).is_some_and(|failure| {
        let is_missing = failure.status == Some(StatusCode::NOT_FOUND) && failure.is_signed;
        is_missing && failure.fault != RemoteFault::NoBucket
    })
}

/// Returns true if the store does not support conditional PUT.
pub(crate) fn is_unknown(error: &object_store::Error) -> bool {
    let by_client = matches!(error, object_store::Error::NotImplemented { .. });
    by_client
        || within(error).is_some_and(|Failure { status, code, .. }| {
            *status == Some(StatusCode::NOT_IMPLEMENTED)
                || code.as_deref() == Some("NotImplemented")
        })
}

/// Returns `None` if the object does not exist.
pub(crate) fn present<T>(outcome: object_store::Result<T>) -> Result<Option<T>, RemoteError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(told(&error)),
    }
}

/// Converts `error` for the server.
pub(crate) fn told(error: &object_store::Error) -> RemoteError {
    match within(error) {
        Some(failure) => RemoteError { fault: failure.fault, detail: failure.detail.clone() },
        // No request failed: an answer, or a credentials file, is malformed. Quoted text is cut
        // off, as it may be part of a secret file.
        None => {
            let text = error.to_string();
            failed(&shown(text.split('"').next().unwrap_or_default(), &[]))
        }
    }
}

pub(crate) fn local(detail: &str) -> RemoteError {
    RemoteError { fault: RemoteFault::Local, detail: cut(detail) }
}

/// Creates an error that is no answer of the store.
pub(crate) fn failed(detail: &str) -> RemoteError {
    RemoteError { fault: RemoteFault::Failed, detail: cut(detail) }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use timeline::RemoteFault;

    use super::{Failure, shown};

    fn refused(status: u16, body: &str) -> Failure {
        let status = StatusCode::from_u16(status).expect("a status");
        Failure::refused(status, &HeaderMap::new(), body, &["s3cr3t".to_owned()], true)
    }

    fn xml(code: &str, message: &str) -> String {
        format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>")
    }

    #[test]
    fn an_answer_has_a_class_and_a_short_detail() {
        use RemoteFault::{Denied, Failed, NoBucket};
        for (status, body, fault, detail) in [
            (403, xml("AccessDenied", "Access Denied"), Denied, "AccessDenied: Access Denied"),
            (400, xml("ExpiredToken", "It is old."), Denied, "ExpiredToken: It is old."),
            (400, xml("InvalidToken", ""), Denied, "InvalidToken"),
            (404, xml("NoSuchBucket", "Gone"), NoBucket, "NoSuchBucket: Gone"),
            (503, xml("SlowDown", "Wait &amp; see"), Failed, "SlowDown: Wait & see"),
            (403, String::new(), Denied, "HTTP 403 Forbidden"),
            (502, "<html>nginx</html>".to_owned(), Failed, "HTTP 502 Bad Gateway"),
            (400, xml("<b>x", "y"), Failed, "HTTP 400 Bad Request"),
        ] {
            let failure = refused(status, &body);
            assert_eq!((failure.fault, failure.detail.as_str()), (fault, detail), "{body}");
        }
    }

    #[test]
    fn no_detail_holds_a_secret_a_query_or_xml() {
        let text = "of s3cr3t at\nhttps://a/b?X-Amz-Signature=00 (Signature=11, <StringToSign>)";
        assert_eq!(shown(text, &["s3cr3t".to_owned()]), "of ... at https://a/b ... ...");
        let long = refused(403, &xml("AccessDenied", &"\u{e4}".repeat(500)));
        assert!(long.detail.len() <= 200 && long.detail.len() >= 198, "{}", long.detail);
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let is_passing = |status, code| refused(status, &xml(code, "m")).is_passing();
        assert!(is_passing(503, "SlowDown") && is_passing(200, "InternalError"));
        assert!(is_passing(500, "Other") && is_passing(429, "Other"));
        assert!(!is_passing(403, "AccessDenied") && !is_passing(501, "NotImplemented"));
    }
}
