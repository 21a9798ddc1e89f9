//! Tests of the reachability of backends.

use std::sync::Arc;

use infer::FailureKind;
use scripted_model::{Step, refusing_url};

use crate::support::{alone, chain, only_failure, request, server};

#[tokio::test]
async fn each_backend_is_probed_once_however_many_ask() {
    let all = || server(Step::chat("a"));
    let (server, broken, hangs) = (all().await, all().await, all().await);
    broken.answer_probes(Step::html(502));
    hangs.answer_probes(Step::hang());
    server.answer_probes(Step::html(404));
    let gone = refusing_url().await.expect("a free port");
    let urls = [server.base_url(), broken.base_url(), gone, hangs.base_url()];
    let chain = Arc::new(chain(&urls.each_ref().map(String::as_str)));
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let chain = Arc::clone(&chain);
            tokio::spawn(async move { chain.probe().await })
        })
        .collect();
    for one in asking {
        let probes = one.await.expect("a probe");
        let read: Vec<_> = probes
            .iter()
            .map(|p| (&*p.name, p.reachable, p.latency.is_some(), p.last_error.clone()))
            .collect();
        assert_eq!(read[0], ("a", true, true, None), "it is there and lists nothing");
        assert_eq!(read[1], ("b", false, false, Some(FailureKind::http(502))));
        assert_eq!(read[2], ("c", false, false, Some(FailureKind::Refused)));
        let late = read[3].3.as_ref().map(FailureKind::class);
        assert_eq!((read[3].1, late), (false, Some("timeout")), "it holds up no other");
    }
    assert_eq!((server.probes(), broken.probes(), hangs.probes()), (1, 1, 1));
    assert_eq!(server.seen().len(), 0, "a probe is no question");
}

#[tokio::test]
async fn a_reachable_backend_tells_how_its_last_request_failed() {
    let (_server, chain) = alone(vec![Step::html(500)], Step::chat("a")).await;
    assert_eq!(only_failure(chain.infer(&request(), &()).await).class(), "http 5xx");
    let probes = chain.probe().await;
    assert_eq!((probes[0].reachable, &probes[0].last_error), (true, &Some(FailureKind::http(500))));
}
