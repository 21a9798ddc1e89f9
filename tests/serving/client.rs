//! A server with TLS and HTTP/3, and a client that asks it in any version.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::{TransportConfig, crypto::rustls::QuicClientConfig};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{ALICE, PATIENCE, Server, Setup};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http1,
    Http2,
    Http3,
}

impl Version {
    pub const ALL: [Version; 3] = [Version::Http1, Version::Http2, Version::Http3];
}

/// A self-signed certificate for `localhost`, in files.
pub struct Pair {
    pub chain: PathBuf,
    pub key: PathBuf,
    pub der: CertificateDer<'static>,
    pub signing_key: rcgen::KeyPair,
}

impl Pair {
    pub fn new(dir: &Path) -> Pair {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let pair = Pair {
            chain: dir.join("chain.pem"),
            key: dir.join("key.pem"),
            der: made.cert.der().clone(),
            signing_key: made.signing_key,
        };
        replace(&pair.chain, &made.cert.pem());
        replace(&pair.key, &pair.signing_key.serialize_pem());
        pair
    }
}

/// As tools replace certificates: there is never half a file.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, path).expect("renamed");
}

/// A server that speaks all versions with one certificate.
pub struct Served {
    pub server: Server,
    pub pair: Pair,
    pub client: Client,
}

impl Served {
    pub fn start(dir: &Path, setup: Setup) -> Served {
        let pair = Pair::new(dir);
        let path = |path: &Path| path.display().to_string();
        let server = setup
            .var("SERVICE_TRANSPORT", "h3")
            .var("SERVICE_H3_BIND_ADDR", "127.0.0.1:0")
            .var("SERVICE_TLS_CERT_PATH", &path(&pair.chain))
            .var("SERVICE_TLS_KEY_PATH", &path(&pair.key))
            .start();
        let tcp: SocketAddr = server.addr().parse().expect("an address");
        let mut client = Client::new(tcp, &pair.der);
        let told = client.ask(Version::Http1, &Call::get("/v1/health")).header("alt-svc");
        let port = told.strip_prefix("h3=\":").and_then(|rest| rest.split_once("\"; ma="));
        let (port, _) = port.unwrap_or_else(|| panic!("no port: {told}"));
        client.udp.set_port(port.parse().expect("a port"));
        Served { server, pair, client }
    }
}

#[derive(Clone, Debug)]
pub struct Call {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

impl Call {
    pub fn new(method: &'static str, path: &str) -> Call {
        let headers = vec![("x-api-key", ALICE.to_owned())];
        Call { method, path: path.to_owned(), headers, body: Bytes::new() }
    }

    pub fn get(path: &str) -> Call {
        Call::new("GET", path)
    }

    pub fn json(path: &str, body: &str) -> Call {
        Call::new("POST", path).header("content-type", "application/json").body(body.to_owned())
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Call {
        self.headers.retain(|(known, _)| *known != name);
        if !value.is_empty() {
            self.headers.push((name, value.to_owned()));
        }
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self
    }

    /// With `host` where the version has it in a header, else in the target.
    pub fn request(&self, version: Version) -> Request<()> {
        let target = match version {
            Version::Http1 => self.path.clone(),
            _ => format!("https://localhost{}", self.path),
        };
        let mut request = Request::builder().method(self.method).uri(target);
        if version == Version::Http1 {
            request = request.header("host", "localhost");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if !self.body.is_empty() {
            request = request.header("content-length", self.body.len());
        }
        request.body(()).expect("a request")
    }
}

/// A server with a directory of its own, as it is without settings.
pub fn served() -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().expect("a directory");
    let served = Served::start(dir.path(), Setup::new(dir.path()));
    (dir, served)
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> String {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII")).to_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Asks in any version, on a connection for each request.
pub struct Client {
    pub tcp: SocketAddr,
    pub udp: SocketAddr,
    pub runtime: Runtime,
    roots: RootCertStore,
}

pub type SendRequest = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

impl Client {
    pub fn new(tcp: SocketAddr, trusted: &CertificateDer<'static>) -> Client {
        let runtime = Runtime::new().expect("a runtime");
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).expect("a root");
        Client { tcp, udp: tcp, runtime, roots }
    }

    /// TLS that trusts one certificate and speaks `protocol`.
    pub fn tls(&self, protocol: &[u8]) -> ClientConfig {
        let builder = ClientConfig::builder().with_root_certificates(self.roots.clone());
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config
    }

    pub fn ask(&self, version: Version, call: &Call) -> Answer {
        let answer = async {
            match version {
                Version::Http1 => self.http1(call).await,
                Version::Http2 => self.http2(call).await,
                Version::Http3 => {
                    let (_quic, mut requests) = self.http3().await;
                    exchange(&mut requests, call).await.expect("an answer")
                }
            }
        };
        let answer = async { tokio::time::timeout(PATIENCE, answer).await };
        self.runtime.block_on(answer).unwrap_or_else(|_| panic!("{version:?}: {call:?}"))
    }

    pub async fn dial(&self, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.tcp).await?;
        let connector = TlsConnector::from(Arc::new(self.tls(protocol)));
        connector.connect("localhost".try_into().expect("a name"), stream).await
    }

    async fn http1(&self, call: &Call) -> Answer {
        let io = TokioIo::new(self.dial(b"http/1.1").await.expect("TLS"));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.expect("HTTP/1.1");
        let driving = tokio::spawn(connection);
        let request = call.request(Version::Http1).map(|()| Full::new(call.body.clone()));
        let answer = collect(sender.send_request(request).await.expect("an answer")).await;
        driving.abort();
        answer
    }

    async fn http2(&self, call: &Call) -> Answer {
        let io = TokioIo::new(self.dial(b"h2").await.expect("TLS"));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.expect("HTTP/2");
        let driving = tokio::spawn(connection);
        let request = call.request(Version::Http2).map(|()| Full::new(call.body.clone()));
        let answer = collect(sender.send_request(request).await.expect("an answer")).await;
        driving.abort();
        answer
    }

    /// A port that connects as `transport` says.
    pub fn endpoint(&self, transport: TransportConfig) -> quinn::Endpoint {
        let crypto = QuicClientConfig::try_from(self.tls(b"h3")).expect("TLS 1.3");
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
        endpoint.set_default_client_config(config);
        endpoint
    }

    /// A QUIC connection from `endpoint`, that says nothing yet.
    pub async fn connect(&self, endpoint: &quinn::Endpoint) -> quinn::Connection {
        let connecting = endpoint.connect(self.udp, "localhost").expect("a name");
        tokio::time::timeout(PATIENCE, connecting).await.expect("in time").expect("a handshake")
    }

    /// A QUIC connection that says nothing yet.
    pub async fn quic(&self) -> quinn::Connection {
        self.connect(&self.endpoint(TransportConfig::default())).await
    }

    pub async fn http3(&self) -> (quinn::Connection, SendRequest) {
        let quic = self.quic().await;
        let requests = http3(&quic).await;
        (quic, requests)
    }
}

/// Speaks HTTP/3 on `quic`, until nothing is asked with the answer any more.
pub async fn http3(quic: &quinn::Connection) -> SendRequest {
    let made = h3::client::new(h3_quinn::Connection::new(quic.clone())).await;
    let (mut driver, requests) = made.expect("HTTP/3");
    tokio::spawn(async move { driver.wait_idle().await });
    requests
}

async fn collect(response: http::Response<hyper::body::Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes().to_vec();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

pub async fn exchange(
    requests: &mut SendRequest,
    call: &Call,
) -> Result<Answer, h3::error::StreamError> {
    let mut stream = requests.send_request(call.request(Version::Http3)).await?;
    // A server that wants no more of the body says so, and answers all the same.
    if call.body.is_empty() || stream.send_data(call.body.clone()).await.is_ok() {
        stream.finish().await.ok();
    }
    let response = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(data) = stream.recv_data().await? {
        body.extend_from_slice(data.chunk());
    }
    let (parts, ()) = response.into_parts();
    Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
}
