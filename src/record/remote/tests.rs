//! Tests of playlist detection in bodies that arrive piece by piece.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::egress::{EgressConfig, NetworkAllowlist};

use super::*;
use crate::runs::job_queue::JobQueue;

/// Starts a host that sends a body in separate pieces; returns its port.
async fn host(pieces: &'static [&'static [u8]]) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client");
        socket.set_nodelay(true).expect("a socket");
        let read = socket.read(&mut [0; 4096]).await.expect("a request");
        assert!(read > 0);
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("sent");
        for piece in pieces {
            tokio::time::sleep(Duration::from_millis(30)).await;
            socket.write_all(piece).await.expect("sent");
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_playlist_is_one_however_its_bytes_come() {
    let networks = NetworkAllowlist(vec!["127.0.0.0/8".parse().expect("a network")]);
    let config = EgressConfig { networks, insecure_http: true, ..EgressConfig::default() };
    let egress = EgressClient::new(&config).expect("a way out");
    let config =
        RemoteConfig { hls: false, plain_http: false, plain_rtsp: false, bytes_max: 1 << 20 };
    let sources = RemoteSources { egress, config };
    let alice = crate::base::keys::Principal::named("alice");
    let place = JobQueue::new(1, 1).enter(&alice).await.expect("free");
    let rows: [(&[&[u8]], bool); 5] = [
        (&[b"#EXTM3U\n"], true),
        (&[b"#", b"EXT", b"M3U\n"], true),
        (&[b"\xef", b"\xbb\xbf#EXT", b"M3", b"U\n"], true),
        (&[b"#EXT", b"M3"], false),
        (&[b"G", b"IF89a is none"], false),
    ];
    for (pieces, expected) in rows {
        let url = format!("http://127.0.0.1:{}/a", host(pieces).await);
        let source = RemoteSource::Url(RequestUrl::parse(&url).expect("a URL"));
        let (sources, runtime) = (sources.clone(), Handle::current());
        let wall = source.limits(false).wall;
        let lender = place.lender();
        let opened = tokio::task::spawn_blocking(move || {
            let cancel = CancellationToken::new();
            let (is_endless, cancel) = (false, &cancel);
            let errand = Errand { is_endless, wall, lender, cancel, runtime: &runtime };
            let opened = sources.open(&source, errand);
            let (JobInput::Remote(mut remote), _feed) = opened.expect("prepared") else {
                panic!("not a URL");
            };
            let resource = remote.resources.open(&url, 0).map_err(|refusal| refusal.0)?;
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut std::fs::File::from(resource.bytes), &mut bytes)
                .expect("a pipe");
            Ok::<_, String>(bytes)
        });
        match opened.await.expect("no panic") {
            Ok(bytes) => assert!(!expected && bytes == pieces.concat(), "{pieces:?}"),
            Err(told) => assert!(expected && told.contains("HLS playlists"), "{told}"),
        }
    }
}
