//! Console: pages and assets embedded at build time; served without a key, as they hold no data.

use axum::{Router, extract::Path, response::Html, routing::get};

use super::{embedded::Packed, prelude::*};

/// Files of the built console by path, sorted; `x.gz` is `x` compressed. Empty if the console was not built.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// Paths of the console's views, each with its page. Pages read their own address and load assets by
/// relative paths, so they work behind any path prefix.
const VIEWS: [(&str, &str); 8] = [
    ("/", "index.html"),
    ("/runs", "index.html"),
    ("/live", "index.html"),
    ("/search", "index.html"),
    ("/machine", "index.html"),
    ("/settings", "index.html"),
    ("/runs/{id}", "nested.html"),
    ("/live/{id}", "nested.html"),
];

/// Page of a build without the console.
const WITHOUT: &str = include_str!("console/without.html");

/// Content security policy: scripts and styles of the console only, no markup or script from strings.
const POLICY: &str = include_str!("../../console/csp.txt");

/// Cache control of assets, whose names contain the hash of their content.
const FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

pub fn routes() -> Router<Arc<App>> {
    let views = VIEWS.iter().fold(Router::new(), |views, (address, name)| {
        views.route(address, get(async move || page(name)))
    });
    views.route("/assets/{name}", get(asset))
}

fn page(name: &str) -> Response {
    let built = find(name).and_then(|bytes| str::from_utf8(bytes).ok());
    let headers = [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY.trim_ascii())),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Html(built.unwrap_or(WITHOUT))).into_response()
}

/// Answers with an asset, compressed if the client accepts gzip.
async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let path = format!("assets/{name}");
    let common = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type(&name))),
        (header::CACHE_CONTROL, FOR_GOOD),
    ];
    match (find(&format!("{path}.gz")), find(&path)) {
        (Some(packed), _) => {
            let packed = Packed(packed);
            (common, packed.answer(&headers, || packed.whole())).into_response()
        }
        (None, Some(bytes)) => (common, bytes).into_response(),
        (None, None) => {
            ApiError::Plain(StatusCode::NOT_FOUND, "no such asset".to_owned()).into_response()
        }
    }
}

fn find(path: &str) -> Option<&'static [u8]> {
    let at = FILES.binary_search_by_key(&path, |(name, _)| name).ok()?;
    Some(FILES[at].1)
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "woff2" => "font/woff2",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        _ => "application/octet-stream",
    }
}
