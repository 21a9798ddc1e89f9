//! Tests of what is remembered between downloads, and of idle connections.

use super::*;
use crate::egress::{EgressConfig, NetworkAllowlist};

fn fetcher(time: Duration) -> Fetcher {
    let networks = NetworkAllowlist(vec!["127.0.0.0/8".parse().expect("a network")]);
    let config = EgressConfig { networks, insecure_http: true, ..EgressConfig::default() };
    let egress = EgressClient::new(&config).expect("a way out");
    Fetcher::new(egress, DownloadBudget::new(u64::MAX, u64::MAX, time))
}

fn target(text: &str) -> RequestUrl {
    RequestUrl::parse(text).expect("a URL")
}

fn head() -> ResponseHead {
    let response = Response::builder().header("etag", "\"a\"").body(()).expect("one");
    ResponseHead::read(&target("https://host/"), &response, 0).expect("a head")
}

#[test]
fn what_is_remembered_has_a_bound_and_the_last_stays() {
    let mut fetcher = fetcher(Duration::from_secs(60));
    for at in 0..10 * KNOWN_MAX {
        let (asked, found) = (format!("https://host/{at}"), format!("https://cdn/{at}"));
        fetcher.remember(&target(&asked), &target(&found), head());
        fetcher.remember(&target("https://host/often"), &target("https://host/often"), head());
    }
    assert_eq!(fetcher.known.len(), KNOWN_MAX);
    let url = |text: &str| target(text).url().clone();
    let last = format!("https://host/{}", 10 * KNOWN_MAX - 1);
    let rows = [("https://host/often", true), (&last, true), ("https://host/0", false)];
    for (text, expected) in rows {
        assert_eq!(fetcher.known(&url(text)).is_some(), expected, "{text}");
    }
    fetcher.forget(&url("https://host/often"));
    assert_eq!(fetcher.known.len(), KNOWN_MAX - 1);
}

#[test]
fn a_host_has_one_pair_of_credentials_and_few_hosts_have() {
    let mut fetcher = fetcher(Duration::from_secs(60));
    let mut learn = |text: String| fetcher.learn(&target(&text));
    (0..100).for_each(|at| learn(format!("https://a:{at}@host/{at}")));
    (0..100).for_each(|at| learn(format!("https://b:c@host{}/", at % CREDENTIALS_MAX)));
    learn("https://a:last@host/x".to_owned());
    assert_eq!(fetcher.credentials.len(), CREDENTIALS_MAX);
    let sent = |text: &str| {
        let request = fetcher.request(&target(text), 0, None);
        request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes().to_owned())
    };
    let expected = target("https://a:last@h/").credentials().expect("there").basic();
    assert_eq!(sent("https://host/other").as_deref(), Some(expected.as_bytes()));
    assert_eq!(sent("https://elsewhere/"), None);
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Starts a server that answers two requests on each of two connections, the second request with `second`;
/// returns its port.
async fn server(second: &'static [u8]) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        for answers in [[ANSWER, second], [ANSWER, ANSWER]] {
            let (mut socket, _) = listener.accept().await.expect("a client");
            let mut request = [0; 4096];
            for answer in answers {
                if socket.read(&mut request).await.is_ok_and(|read| read > 0) {
                    socket.write_all(answer).await.expect("sent");
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn no_connection_is_used_past_the_end_of_the_budget() {
    let time = Duration::from_secs(2);
    let mut fetcher = fetcher(time);
    let target = target(&format!("http://127.0.0.1:{}/a", server(ANSWER).await));
    let mut first = fetcher.get(&target, 0).await.expect("an answer");
    while first.body.next().await.expect("bytes").is_some() {}
    tokio::time::sleep_until(fetcher.budget.end()).await;
    let second = fetcher.get(&target, 0).await.expect_err("too late");
    assert_eq!(second, EgressError::Timeout { wait: TimeoutPhase::Total, after: time });
}

#[tokio::test]
async fn a_request_is_sent_again_only_if_the_idle_connection_was_closed() {
    for (case, second, requests) in [("closed", &b""[..], 3), ("no HTTP", b"nonsense\r\n\r\n", 2)] {
        let mut fetcher = fetcher(Duration::from_secs(60));
        let target = target(&format!("http://127.0.0.1:{}/a", server(second).await));
        let mut first = fetcher.get(&target, 0).await.expect("an answer");
        while first.body.next().await.expect("bytes").is_some() {}
        let found = fetcher.get(&target, 0).await;
        assert_eq!(found.is_ok(), requests == 3, "{case}: {found:?}");
        assert_eq!(fetcher.budget.fetches.load(Relaxed), requests, "{case}");
    }
}
