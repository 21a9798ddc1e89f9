//! Answers that come bit by bit, and several at once, on HTTP/3.

use std::{net::UdpSocket, time::Duration};

use bytes::{Buf, Bytes};
use quinn::TransportConfig;
use serde_json::json;
use tokio::time::timeout;

use super::client::{Call, SendRequest, Served, Version, exchange, http3, served};
use crate::support::PATIENCE;

async fn create_run(requests: &mut SendRequest) -> String {
    let created = exchange(requests, &Call::json("/v1/runs", "{}")).await.expect("answered");
    created.json()["run_id"].as_str().expect("an id").to_owned()
}

#[test]
fn answers_come_bit_by_bit_and_several_at_once_and_those_that_have_begun_outlive_a_stop() {
    let (_dir, mut served) = served();
    events_arrive_as_they_happen_in_a_stream_and_a_poll(&served);
    many_requests_share_a_connection_and_outlive_a_change_of_address(&served);
    a_stopped_server_finishes_what_it_has_begun(&mut served);
}

fn events_arrive_as_they_happen_in_a_stream_and_a_poll(served: &Served) {
    served.client.runtime.block_on(async {
        let (_quic, mut requests) = served.client.http3().await;
        let run = create_run(&mut requests).await;
        let call = Call::get(&format!("/v1/runs/{run}/events/stream"));
        let mut stream = requests.send_request(call.request(Version::Http3)).await.expect("sent");
        stream.finish().await.expect("sent");
        let response = stream.recv_response().await.expect("answered");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let query = json!({ "run_id": run, "kind": "stop_requested", "wait_ms": 30_000 });
        let mut waiting = requests.clone();
        let poll = tokio::spawn(async move {
            exchange(&mut waiting, &Call::json("/v1/query", &query.to_string())).await
        });
        // A poll that does not wait would be over.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut told = String::new();
        for (action, kind) in [
            (None, "run_created"),
            (Some("keepalive"), "keepalive_refreshed"),
            (Some("stop"), "stop_requested"),
        ] {
            assert!(!poll.is_finished(), "before {kind}");
            if let Some(action) = action {
                let call = Call::json(&format!("/v1/runs/{run}/{action}"), "{}");
                let done = exchange(&mut requests, &call).await.expect("answered");
                assert_eq!(done.status, 200, "{action}");
            }
            while !told.contains(&format!("event: {kind}\n")) {
                let data = timeout(PATIENCE, stream.recv_data()).await.expect(kind);
                let mut data = data.expect("whole").unwrap_or_else(|| panic!("{kind}: {told}"));
                told.push_str(&String::from_utf8_lossy(&data.copy_to_bytes(data.remaining())));
            }
        }
        while stream.recv_data().await.expect("ended, not cut").is_some() {}
        let found = poll.await.expect("no panic").expect("answered").json();
        assert_eq!(found["matches"][0]["kind"], "stop_requested");
    });
}

fn many_requests_share_a_connection_and_outlive_a_change_of_address(served: &Served) {
    served.client.runtime.block_on(async {
        let endpoint = served.client.endpoint(TransportConfig::default());
        let quic = served.client.connect(&endpoint).await;
        let requests = http3(&quic).await;
        for round in 0..2 {
            let asking = (0..200).map(|_| {
                let mut requests: SendRequest = requests.clone();
                tokio::spawn(async move { exchange(&mut requests, &Call::get("/v1/limits")).await })
            });
            for asked in asking.collect::<Vec<_>>() {
                let answer = timeout(PATIENCE, asked).await.expect("in time").expect("no panic");
                assert_eq!(answer.expect("answered").status, 200, "round {round}");
            }
            // From another port, as behind a NAT that forgot the first (RFC 9000 9).
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            endpoint.rebind(socket).expect("a socket");
        }
    });
}

fn a_stopped_server_finishes_what_it_has_begun(served: &mut Served) {
    let Served { client, server, .. } = served;
    client.runtime.block_on(async {
        let (quic, mut requests) = client.http3().await;
        let run = create_run(&mut requests).await;
        let body = Bytes::from(json!({ "run_id": run }).to_string());
        let call = Call::json("/v1/query", "").body(body.clone());
        // Begun, and its body held back until the server has been told to stop.
        let mut stream = requests.send_request(call.request(Version::Http3)).await.expect("sent");
        stream.send_data(body.slice(..5)).await.expect("sent");
        let health = exchange(&mut requests, &Call::get("/v1/health")).await;
        assert_eq!(health.expect("answered").status, 200);
        server.terminate();
        let refused = async {
            while exchange(&mut requests, &Call::get("/v1/health")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, refused).await.expect("GOAWAY");
        stream.send_data(body.slice(5..)).await.expect("sent");
        stream.finish().await.expect("sent");
        let response = timeout(PATIENCE, stream.recv_response()).await.expect("in time");
        assert_eq!(response.expect("answered").status(), 200);
        while stream.recv_data().await.expect("whole").is_some() {}
        timeout(PATIENCE, quic.closed()).await.expect("closed once it is done");
    });
    assert!(server.wait(PATIENCE).success());
}
