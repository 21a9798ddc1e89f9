//! A host of the test's own that serves media over TLS, well or badly.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::aws_lc_rs};
use serde_json::Value;
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use super::on_thread;

/// Longest body of a request that is read.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Instant,
    /// Path and query.
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    /// A header, or nothing.
    pub fn header(&self, name: &str) -> &str {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn from(&self) -> Option<usize> {
        self.header("range").strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// Sink of an answer, byte by byte.
pub trait Answer: Write {
    /// Sends a head with `status` and further header lines.
    fn head(&mut self, status: &str, lines: &[&str]) -> io::Result<()> {
        write!(self, "HTTP/1.1 {status}\r\n")?;
        lines.iter().try_for_each(|line| write!(self, "{line}\r\n"))?;
        write!(self, "\r\n")?;
        self.flush()
    }

    /// Sends `bytes`, or the part that was asked for.
    fn ranged(&mut self, asked: &Asked, bytes: &[u8], lines: &[&str]) -> io::Result<()> {
        let from = asked.from().unwrap_or(0);
        let rest = bytes.get(from..).filter(|rest| !rest.is_empty());
        let Some(rest) = rest else { return self.status("416 Range Not Satisfiable") };
        let (length, last) = (format!("content-length: {}", rest.len()), bytes.len() - 1);
        let range = format!("content-range: bytes {from}-{last}/{}", bytes.len());
        self.head("206 Partial Content", &[&[length.as_str(), range.as_str()], lines].concat())?;
        self.write_all(rest)
    }

    /// Sends `bytes`, whatever was asked for.
    fn whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.head("200 OK", &[&format!("content-length: {}", bytes.len())])?;
        self.write_all(bytes)
    }

    fn status(&mut self, status: &str) -> io::Result<()> {
        self.head(status, &["content-length: 0"])
    }

    /// Sends the reader elsewhere.
    fn redirect(&mut self, location: &str) -> io::Result<()> {
        self.head("302 Found", &["content-length: 0", &format!("location: {location}")])
    }
}

impl<W: Write + ?Sized> Answer for W {}

type Handler = dyn Fn(&Asked, &mut dyn Write) -> io::Result<()> + Send + Sync;

/// A host that listens until the test ends.
pub struct Host {
    addr: SocketAddr,
    scheme: &'static str,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
}

/// The certificate of every host of a test, and its private key.
pub struct Certificate {
    dir: TempDir,
    config: Arc<ServerConfig>,
    forwarded: Arc<AtomicUsize>,
}

impl Certificate {
    /// A certificate for the names of this machine and those of a domain.
    pub fn new() -> Certificate {
        let names = ["localhost", "127.0.0.1", "*.example.com"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("trusted.pem"), made.cert.pem()).expect("written");
        let key = made.signing_key.serialize_der().try_into().expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                let chain = vec![made.cert.der().clone()];
                config.with_no_client_auth().with_single_cert(chain, key)
            })
            .expect("a TLS server");
        Certificate { dir, config: Arc::new(config), forwarded: Arc::default() }
    }

    /// Path of its PEM, for a client to trust.
    pub fn path(&self) -> String {
        self.dir.path().join("trusted.pem").display().to_string()
    }

    /// Connections through [`Certificate::before`] so far.
    pub fn connections(&self) -> usize {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// A port that speaks TLS before the one of this machine that does not.
    pub fn before(&self, port: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a socket");
        let tls = TlsAcceptor::from(Arc::clone(&self.config));
        let forwarded = Arc::clone(&self.forwarded);
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            while let Ok((outside, _)) = listener.accept().await {
                let tls = tls.clone();
                forwarded.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut inside = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
                    let mut outside = tls.accept(outside).await?;
                    tokio::io::copy_bidirectional(&mut outside, &mut inside).await
                });
            }
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_io().build().expect("a runtime");
        on_thread("tls", move || runtime.block_on(serve));
        own
    }
}

impl Host {
    /// A host that answers every request over TLS with `handler`; an error cuts the connection.
    pub fn start(
        certificate: &Certificate,
        handler: impl Fn(&Asked, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Host {
        Host::listen(Some(Arc::clone(&certificate.config)), Arc::new(handler))
    }

    /// The same without TLS.
    pub fn start_plain(
        handler: impl Fn(&Asked, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Host {
        Host::listen(None, Arc::new(handler))
    }

    fn listen(tls: Option<Arc<ServerConfig>>, handler: Arc<Handler>) -> Host {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        on_thread("host", move || {
            for stream in listener.incoming().map_while(Result::ok) {
                accepted.fetch_add(1, Ordering::Relaxed);
                let (tls, handler, log) = (tls.clone(), Arc::clone(&handler), Arc::clone(&log));
                on_thread("host-connection", move || {
                    // A reader that goes away is how many a test ends.
                    serve_connection(stream, tls, &*handler, &log).ok();
                });
            }
        });
        Host { addr, scheme, asked, connections }
    }

    /// The URL of `path` by the name of this machine.
    pub fn url(&self, path: &str) -> String {
        format!("{}://localhost:{}{path}", self.scheme, self.port())
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }
}

trait Duplex: Read + Write {}

impl<T: Read + Write> Duplex for T {}

fn serve_connection(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    handler: &Handler,
    log: &Mutex<Vec<Asked>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    let mut stream: Box<dyn Duplex> = match tls {
        Some(config) => {
            let connection = ServerConnection::new(config).map_err(io::Error::other)?;
            Box::new(StreamOwned::new(connection, stream))
        }
        None => Box::new(stream),
    };
    while let Some(asked) = read_request(&mut stream)? {
        log.lock().expect("no panic").push(asked.clone());
        handler(&asked, &mut stream)?;
        stream.flush()?;
    }
    Ok(())
}

fn read_request(stream: &mut dyn Duplex) -> io::Result<Option<Asked>> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        if !byte[0].is_ascii() || text.is_empty() && !byte[0].is_ascii_uppercase() {
            return Err(io::Error::other("not HTTP"));
        }
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let header = |line: &str| {
        line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
    };
    let (path, headers) = (path.to_owned(), lines.filter_map(header).collect());
    let mut asked = Asked { at: Instant::now(), path, headers, body: Vec::new() };
    let length: usize = asked.header("content-length").parse().unwrap_or(0);
    asked.body = vec![0; length.min(BODY_BYTES_MAX)];
    stream.read_exact(&mut asked.body)?;
    Ok(Some(asked))
}
