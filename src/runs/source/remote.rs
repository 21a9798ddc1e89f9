//! Source URLs, and their display without credentials or query values, which are often secrets.

use transport::egress::{EgressError, RequestUrl};

use super::SourceError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteSource {
    /// File or playlist over HTTP.
    Url(RequestUrl),
    Rtsp(RequestUrl),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteConfig {
    pub hls: bool,
    pub plain_http: bool,
    pub plain_rtsp: bool,
    /// Maximum bytes that one job fetches.
    pub bytes_max: u64,
}

/// Kind of a run's source by its URI.
pub fn kind(source_uri: &str) -> &'static str {
    match scheme(source_uri).as_deref() {
        Some("http" | "https") => "url",
        Some("rtsp" | "rtsps") => "rtsp",
        _ => "file",
    }
}

/// Parses `uri` as a remote source that the operator allows; `None` if it names a file.
pub fn read(uri: &str, config: &RemoteConfig) -> Result<Option<RemoteSource>, SourceError> {
    let not_enabled = |scheme: &str, setting| {
        SourceError::Remote(EgressError::NotEnabled { scheme: scheme.to_owned(), setting })
    };
    let target = || {
        // The URL parser drops control characters: the fetched URL would differ from the displayed one.
        if uri.chars().any(char::is_control) {
            return Err(SourceError::Remote(EgressError::Malformed(
                "it holds a control character",
            )));
        }
        RequestUrl::parse(uri).map_err(SourceError::Remote)
    };
    // A URL that ends as a playlist is refused without a request.
    let web = || match target()? {
        target if !config.hls && is_called_playlist(target.url().path()) => {
            Err(not_enabled("HLS", "SERVICE_ALLOW_REMOTE_HLS"))
        }
        target => Ok(RemoteSource::Url(target)),
    };
    match scheme(uri).as_deref() {
        Some("http") if !config.plain_http => {
            Err(not_enabled("http", "SERVICE_ALLOW_INSECURE_HTTP"))
        }
        Some("rtsp") if !config.plain_rtsp => {
            Err(not_enabled("rtsp", "SERVICE_ALLOW_UNENCRYPTED_RTSP"))
        }
        Some("http" | "https") => web().map(Some),
        Some("rtsp" | "rtsps") => target().map(RemoteSource::Rtsp).map(Some),
        Some("file") | None => Ok(None),
        Some(other) => Err(SourceError::Remote(EgressError::Scheme(other.to_owned()))),
    }
}

/// Returns `uri` for events, records and answers, without secrets.
pub fn shown(uri: &str, source: &RemoteSource) -> String {
    let (RemoteSource::Url(target) | RemoteSource::Rtsp(target)) = source;
    if target.credentials().is_none() && !uri.contains(['?', '#']) {
        return uri.to_owned();
    }
    let url = target.url().as_str();
    let shown = match url.split_once('?') {
        Some((place, query)) => format!("{place}?{}", masked(query)),
        None => url.to_owned(),
    };
    match target.credentials() {
        Some(_) => shown.replacen("://", "://***@", 1),
        None => shown,
    }
}

/// Query with the names of its parameters and masked values.
fn masked(query: &str) -> String {
    let mask = |part: &str| match part.split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None if part.is_empty() => String::new(),
        // A value without a name.
        None => MASK.to_owned(),
    };
    query.split('&').map(mask).collect::<Vec<_>>().join("&")
}

const MASK: &str = "***";

/// Returns true if the path ends as those of HLS playlists do (RFC 8216 4).
fn is_called_playlist(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    matches!(ending.as_deref(), Some("m3u8" | "m3u"))
}

/// Scheme of a URL, in lower case.
fn scheme(uri: &str) -> Option<String> {
    let (scheme, _) = uri.split_once("://")?;
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme =
        scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(rest);
    is_scheme.then(|| scheme.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(opened: &[&str]) -> RemoteConfig {
        RemoteConfig {
            hls: opened.contains(&"SERVICE_ALLOW_REMOTE_HLS"),
            plain_http: opened.contains(&"SERVICE_ALLOW_INSECURE_HTTP"),
            plain_rtsp: opened.contains(&"SERVICE_ALLOW_UNENCRYPTED_RTSP"),
            bytes_max: 1,
        }
    }

    #[test]
    fn toggles_open_their_scheme_and_no_other() {
        let rows = [
            ("https://host/a", None),
            ("rtsps://host/a", None),
            ("HTTPS://host/a", None),
            ("http://host/a", Some("SERVICE_ALLOW_INSECURE_HTTP")),
            ("rtsp://host/a", Some("SERVICE_ALLOW_UNENCRYPTED_RTSP")),
            ("https://host/live/a.M3U8?b=c", Some("SERVICE_ALLOW_REMOTE_HLS")),
            ("https://host/a.m3u", Some("SERVICE_ALLOW_REMOTE_HLS")),
            ("https://host/a.m3u8/a.ts", None),
            ("https://host/m3u8", None),
        ];
        for (uri, setting) in rows {
            let closed = read(uri, &config(&[]));
            match setting {
                None => assert!(closed.expect(uri).is_some(), "{uri}"),
                Some(setting) => {
                    let error = closed.expect_err(uri).to_string();
                    assert!(error.contains(&format!("{setting}=true")), "{uri}: {error}");
                    assert!(read(uri, &config(&[setting])).expect(uri).is_some());
                }
            }
        }
        for uri in ["a.mp4", "/a.mp4", "file:///a.mp4", "https:/host/a", " https://host/a"] {
            assert_eq!(read(uri, &config(&[])).expect(uri), None, "{uri}");
        }
        let refused = ["ftp://host/a", "gopher://host/", "concat://a", "https://", "https://:80/"];
        for uri in refused.into_iter().chain(["https://ho\nst/a", "rtsps://host/a\t"]) {
            assert!(read(uri, &config(&[])).is_err(), "{uri}");
        }
    }

    #[test]
    fn what_is_shown_has_no_credentials_and_no_values() {
        let rows = [
            ("HTTPS://host/a//b%2f", "HTTPS://host/a//b%2f"),
            ("https://host/a?b=c", "https://host/a?b=***"),
            ("https://host/a?b=c&d=e=f&secret&=x&", "https://host/a?b=***&d=***&***&=***&"),
            ("https://host/a?", "https://host/a?"),
            ("https://host/a#token=c", "https://host/a"),
            ("https://host/a?b=c#d", "https://host/a?b=***"),
            ("rtsps://host/live?user=admin&password=p", "rtsps://host/live?user=***&password=***"),
            ("https://user:pass@host/a?b=c", "https://***@host/a?b=***"),
            ("https://user@host", "https://***@host/"),
            ("https://:pass@host/", "https://***@host/"),
            ("rtsps://a:b@host/live", "rtsps://***@host/live"),
            ("https:\\\\user:pass@host/", "https:\\\\user:pass@host/"),
        ];
        for (uri, expected) in rows {
            let Some(source) = read(uri, &config(&[])).expect(uri) else {
                assert_eq!(kind(uri), "file", "{uri}");
                continue;
            };
            assert_eq!(shown(uri, &source), expected, "{uri}");
        }
    }
}
