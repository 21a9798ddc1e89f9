//! Request checks while keys are off. Anyone who reaches the port may act, including web pages shown by a
//! browser on this machine. A page that maps its own name to this host (DNS rebinding) sends that name as
//! `Host`; other pages can send only what a form can, without a CORS preflight.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;

use super::{Settings, prelude::*};

const HEALTH: &str = "/v1/health";

/// Headers that make a browser send a preflight for another site.
const ASKED_ABOUT: [HeaderName; 3] = [
    HeaderName::from_static("x-requested-with"),
    HeaderName::from_static("x-api-key"),
    header::AUTHORIZATION,
];

/// Content types that a form can send without a preflight.
const OF_FORMS: [&str; 3] =
    ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

const NOT_LOCAL: &str = "keys are off (SERVICE_REQUIRE_API_KEY=false), so only localhost, \
    127.0.0.1, [::1] and the address of SERVICE_BIND_ADDR are answered: use one of these in the \
    URL, or set SERVICE_API_KEYS and turn keys on";
const OF_A_FORM: &str = "keys are off (SERVICE_REQUIRE_API_KEY=false), so a POST needs what no page \
    of another site can send: a content-type such as application/json, or for uploads and POSTs \
    without a body the header x-requested-with with any value";

/// Refuses requests that a page of another site may have sent.
pub fn check(settings: &Settings, request: &Request) -> ApiResult<()> {
    if settings.keys.is_some() || request.uri().path() == HEALTH {
        return Ok(());
    }
    let headers = request.headers();
    let named =
        headers.get_all(header::HOST).iter().map(|host| Authority::try_from(host.as_bytes()));
    let mut named = named.chain(request.uri().authority().cloned().map(Ok));
    let is_ours = |host: Result<Authority, _>| {
        host.is_ok_and(|host| is_local(host.host(), settings.bind_addr))
    };
    if !named.all(is_ours) {
        return Err(ApiError::Plain(StatusCode::MISDIRECTED_REQUEST, NOT_LOCAL.to_owned()));
    }
    // Other methods that change state need a preflight.
    if request.method() == Method::POST && is_of_a_form(headers) {
        return Err(ApiError::Plain(StatusCode::FORBIDDEN, OF_A_FORM.to_owned()));
    }
    Ok(())
}

/// Returns true if `host` is this machine regardless of DNS, or the address that the operator has bound;
/// if every address is bound, any IP address.
fn is_local(host: &str, bind: SocketAddr) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(ip) => {
            let (ip, bound) = (ip.to_canonical(), bind.ip().to_canonical());
            ip.is_loopback() || bound.is_unspecified() || ip == bound
        }
        Err(_) => {
            let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// Returns true if a page of another site can send a POST with these headers without a preflight.
fn is_of_a_form(headers: &HeaderMap) -> bool {
    if ASKED_ABOUT.iter().any(|name| headers.contains_key(name)) {
        return false;
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter().peekable();
    let is_form = |value: &http::HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        OF_FORMS.iter().any(|form| essence.eq_ignore_ascii_case(form))
    };
    types.peek().is_none() || types.any(is_form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_answers_for_are_local() {
        let loopback: SocketAddr = ([127, 0, 0, 1], 8080).into();
        let lan: SocketAddr = ([192, 168, 1, 5], 8080).into();
        let all: SocketAddr = ([0; 8], 8080).into();
        for (host, of_loopback, of_lan, of_all) in [
            ("localhost", true, true, true),
            ("LOCALHOST.", true, true, true),
            ("a.localhost", true, true, true),
            ("127.0.0.1", true, true, true),
            ("127.9.9.9", true, true, true),
            ("[::1]", true, true, true),
            ("[::ffff:127.0.0.1]", true, true, true),
            ("192.168.1.5", false, true, true),
            ("192.168.1.6", false, false, true),
            ("0.0.0.0", false, false, true),
            ("evil.example", false, false, false),
            ("localhost.evil.example", false, false, false),
            ("127.0.0.1.evil.example", false, false, false),
            ("2130706433", false, false, false),
            ("", false, false, false),
        ] {
            let found = [loopback, lan, all].map(|bind| is_local(host, bind));
            assert_eq!(found, [of_loopback, of_lan, of_all], "{host}");
        }
    }
}
