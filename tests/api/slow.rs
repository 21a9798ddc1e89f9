//! Thousands of slow connections: health answers beside them, and memory stays bounded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    api::abuse::{preface, resident},
    support::{ALICE, Server, Setup, can_open, wait_until},
};

/// Kind of a slow connection.
#[derive(Clone, Copy, Debug)]
enum Slow {
    Head,
    Body,
    Http2,
    Reader,
}

impl Slow {
    const ALL: [Slow; 4] = [Slow::Head, Slow::Body, Slow::Http2, Slow::Reader];

    /// First bytes that it sends; then it drips, but for those that have said all.
    fn opening(self) -> (Vec<u8>, bool) {
        let key = format!("host: a\r\nx-api-key: {ALICE}\r\n");
        match self {
            Slow::Head => (b"GET /v1/health HTTP/1.1\r\nhost: a\r\nx-pad: ".to_vec(), true),
            Slow::Body => {
                let head = "content-type: application/json\r\ncontent-length: 40000\r\n\r\n";
                (format!("POST /v1/runs HTTP/1.1\r\n{key}{head}").into_bytes(), true)
            }
            Slow::Http2 => (preface(), false),
            Slow::Reader => {
                let get = format!("GET /v1/openapi.json HTTP/1.1\r\n{key}\r\n");
                (get.repeat(2).into_bytes(), false)
            }
        }
    }

    async fn run(
        self,
        addr: std::net::SocketAddr,
        connecting: Arc<tokio::sync::Semaphore>,
        ready: Arc<AtomicUsize>,
    ) -> std::io::Result<()> {
        let permit = connecting.acquire_owned().await;
        let socket = tokio::net::TcpSocket::new_v4()?;
        // Answers of the document's size must not fit.
        socket.set_recv_buffer_size(4096)?;
        let mut stream = socket.connect(addr).await?;
        drop(permit);
        let (opening, drips) = self.opening();
        ready.fetch_add(1, Relaxed);
        stream.write_all(&opening).await?;
        if drips {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                stream.write_all(b"a").await?;
            }
        }
        if matches!(self, Slow::Http2) {
            // Takes what comes, and asks for nothing.
            while stream.read(&mut [0; 256]).await? > 0 {}
            return Ok(());
        }
        std::future::pending().await
    }
}

/// Health is asked on connections of its own; gives the sorted times of `count` answers.
fn asked(server: &Server, count: usize) -> Vec<Duration> {
    let ask = |_| {
        let client = reqwest::blocking::Client::builder().pool_max_idle_per_host(0);
        let client = client.timeout(Duration::from_secs(60)).build().expect("a client");
        let started = Instant::now();
        let reply = client.get(format!("http://{}/v1/health", server.addr())).send();
        assert_eq!(reply.expect("an answer").status(), 200);
        started.elapsed()
    };
    let mut times: Vec<Duration> = (0..count).map(ask).collect();
    times.sort();
    times
}

#[test]
fn health_answers_beside_slow_connections() {
    let connections = clips::sized(1200, 5000);
    if !can_open(3 * connections as u64) {
        return;
    }
    for connections_max in [16_384, connections / 5] {
        let setup = Setup::temporary();
        let server = setup.var("SERVICE_MAX_CONNECTIONS", &connections_max.to_string()).start();
        asked(&server, 10);
        let before = resident(&server);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let ready = Arc::new(AtomicUsize::new(0));
        // The listen queue is not what is tested.
        let connecting = Arc::new(tokio::sync::Semaphore::new(64));
        let addr = server.addr().parse().expect("an address");
        for at in 0..connections {
            let slow = Slow::ALL[at % 4];
            let (connecting, ready) = (Arc::clone(&connecting), Arc::clone(&ready));
            runtime.spawn(async move {
                loop {
                    // Closed by the server where it had to make room, or for its silence.
                    drop(slow.run(addr, Arc::clone(&connecting), Arc::clone(&ready)).await);
                    if connections_max < connections {
                        return;
                    }
                }
            });
        }
        wait_until("all are connected", || ready.load(Relaxed) >= connections);
        let open = server.metric("service_connections");
        let times = asked(&server, 200);
        // More may have been accepted since: a connect ends in the listen queue.
        let open = open.max(server.metric("service_connections"));
        let grown = (resident(&server) - before) / open;
        let gave_way = server.metric(r#"service_connections_total{outcome="gave_way"}"#);
        println!(
            "at most {connections_max}: {open} open, {gave_way} gave way, {grown:.0} bytes each; \
             health p50 {:?}, p99 {:?}",
            times[100], times[197]
        );
        assert!(open <= connections_max as f64, "{open}");
        if connections_max < connections {
            assert!(gave_way >= connections as f64 / 5.0, "{gave_way} gave way");
        } else {
            assert!(open >= 0.95 * connections as f64, "{open} are open");
        }
        assert!(grown < 200e3, "{grown} bytes a connection");
        runtime.shutdown_background();
    }
}
