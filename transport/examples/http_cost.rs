//! Compares the cost of HTTP/3 and of HTTP/2 with TLS, on one server process, in alternating pairs.
//!
//! Usage: http_cost SERVER [PAIRS [DATAGRAM_BYTES [lossy]]] measures small JSON with 32 requests at once, a
//! 200 MB upload and a 100 MB download; with `lossy`, 32 picture-sized files at once over the path of
//! `benches/lossy.py`. The client uses the same libraries; its datagrams have up to 1472 bytes, as in
//! browsers, or DATAGRAM_BYTES.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use tokio::net::TcpStream;

const KEY: &str = "key-of-the-bench";
const AT_ONCE: usize = 32;
const SMALL_FOR: Duration = Duration::from_secs(3);
const UPLOAD: usize = 200_000_000;
const DOWNLOAD: usize = 100_000_000;
const PICTURE: usize = 69_000;
/// Largest datagram that Ethernet carries and browsers accept.
const DATAGRAM_BYTES: u16 = 1472;
/// Buffer of the client's UDP socket, in bytes, as large as the server's; the default of 208 KB overflows.
const SOCKET_BYTES: usize = 4 << 20;
/// Flow-control window of a stream, in bytes; a connection has twice as much.
const WINDOW: u32 = 8 << 20;
/// Addresses on which the server listens and at which the client reaches it: directly, and over a lossy path.
const NEAR: [&str; 2] = ["127.0.0.1", "127.0.0.1"];
const LOSSY: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const MB_PER_MIB: f64 = 1.048_576;
/// Clock ticks per second in the system's process times.
const TICKS: f64 = 100.0;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Server {
    child: Child,
    tcp: SocketAddr,
    udp: SocketAddr,
    tls: ClientConfig,
    datagram_bytes: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Server {
    fn start(program: &Path, datagram_bytes: u16, is_lossy: bool) -> Result<Server, Failure> {
        let dir = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
        fs::write(&chain, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        let [own, far] = if is_lossy { LOSSY } else { NEAR };
        let mut child = Command::new(program)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("SERVICE_API_KEYS", format!("bench:{KEY}"))
            .env("SERVICE_RATE_LIMIT_GLOBAL_RPS", "0")
            .env("SERVICE_RATE_LIMIT_TENANT_RPS", "0")
            .env("SERVICE_DATA_DIR", dir.path().join("data"))
            .env("SERVICE_BIND_ADDR", format!("{own}:0"))
            .env("SERVICE_H3_BIND_ADDR", format!("{own}:0"))
            .env("SERVICE_TRANSPORT", "h3")
            .env("SERVICE_TLS_CERT_PATH", &chain)
            .env("SERVICE_TLS_KEY_PATH", &key)
            .env("RUST_LOG", "info")
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut find = |what: &str| -> Result<SocketAddr, Failure> {
            for line in lines.by_ref() {
                if let Some((_, addr)) = line?.split_once(what) {
                    let addr: SocketAddr = addr.parse()?;
                    return Ok((far.parse::<IpAddr>()?, addr.port()).into());
                }
            }
            Err("the server ended".into())
        };
        let (udp, tcp) = (find("listening for HTTP/3 addr=")?, find("listening addr=")?);
        std::thread::Builder::new().name("output".into()).spawn(move || lines.count())?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
        let tls = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        let tls = tls.with_no_client_auth();
        Ok(Server { child, tcp, udp, tls, datagram_bytes, _dir: dir })
    }

    /// Returns the CPU time that the process has used, in seconds.
    fn cpu(&self) -> Result<f64, Failure> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, rest) = stat.rsplit_once(") ").ok_or("no such format")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / TICKS)
    }

    fn tls(&self, protocol: &[u8]) -> ClientConfig {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls
    }

    async fn http2(&self) -> Result<Client, Failure> {
        let stream = TcpStream::connect(self.tcp).await?;
        stream.set_nodelay(true)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(self.tls(b"h2")));
        let stream = connector.connect("localhost".try_into()?, stream).await?;
        let (requests, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Client::Http2(requests))
    }

    async fn http3(&self) -> Result<Client, Failure> {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(WINDOW.into()).receive_window((2 * WINDOW).into());
        let mut config =
            quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(self.tls(b"h3"))?));
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
        let mut sizes = quinn::EndpointConfig::default();
        sizes.max_udp_payload_size(self.datagram_bytes)?;
        let mut datagrams = quinn::MtuDiscoveryConfig::default();
        datagrams.upper_bound(self.datagram_bytes);
        transport.mtu_discovery_config(Some(datagrams));
        config.transport_config(Arc::new(transport));
        let runtime = Arc::new(quinn::TokioRuntime);
        let mut endpoint = quinn::Endpoint::new(sizes, None, socket, runtime)?;
        endpoint.set_default_client_config(config);
        let quic = endpoint.connect(self.udp, "localhost")?.await?;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic)).await?;
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Client::Http3(requests))
    }
}

#[derive(Clone)]
enum Client {
    Http2(http2::SendRequest<Full<Bytes>>),
    Http3(h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>),
}

impl Client {
    /// Sends a request and returns the successful response with its number of bytes.
    async fn ask(
        &mut self,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<Response<usize>, Failure> {
        let request = request.header("x-api-key", KEY);
        let response = match self {
            Client::Http2(requests) => {
                let mut response = requests.send_request(request.body(Full::new(body))?).await?;
                let mut bytes = 0;
                while let Some(frame) = response.frame().await {
                    bytes += frame?.data_ref().map_or(0, Bytes::len);
                }
                response.map(|_| bytes)
            }
            Client::Http3(requests) => {
                let mut stream = requests.send_request(request.body(())?).await?;
                if !body.is_empty() {
                    stream.send_data(body).await?;
                }
                stream.finish().await?;
                let response = stream.recv_response().await?;
                let mut bytes = 0;
                while let Some(data) = stream.recv_data().await? {
                    bytes += data.remaining();
                }
                response.map(|()| bytes)
            }
        };
        let status = response.status();
        // The upload is no video, which the server detects only after receiving all of it.
        let is_answered = status.is_success() || status == StatusCode::UNPROCESSABLE_ENTITY;
        if is_answered { Ok(response) } else { Err(format!("answered {status}").into()) }
    }
}

fn to(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("https://localhost{path}"))
}

/// Returns a form with `content` as its file.
fn form(content: &[u8]) -> Bytes {
    let part = "content-disposition: form-data; name=\"file\"; filename=\"large.mp4\"";
    [format!("--x\r\n{part}\r\n\r\n").as_bytes(), content, b"\r\n--x--\r\n"].concat().into()
}

/// Uploads a form and returns the response.
async fn send(client: &Client, form: &Bytes) -> Result<Response<usize>, Failure> {
    let request = to("POST", "/v1/upload").header("content-length", form.len());
    let request = request.header("content-type", "multipart/form-data; boundary=x");
    client.clone().ask(request, form.clone()).await
}

/// Stores a file of `bytes`: a clip and free space (ISO 14496-12 8.1.2); returns its path on the server.
async fn keep(server: &Server, bytes: usize) -> Result<String, Failure> {
    let line =
        "-f lavfi -i color=gray:s=64x64:r=25:d=1 -pix_fmt yuv420p -c:v libx264 -preset ultrafast";
    let mut clip = fs::read(clips::rendered("free_space.mp4", line))?;
    let free = u32::try_from(bytes - clip.len())?;
    clip.extend([&free.to_be_bytes()[..], b"free"].concat());
    clip.resize(bytes, 0);
    let kept = send(&server.http2().await?, &form(&clip)).await?;
    let location = kept.headers().get(header::LOCATION).ok_or("the clip was not kept")?;
    Ok(location.to_str()?.to_owned())
}

/// Asks for `path` with several requests at once, and again until `time` has passed; returns the number of
/// answers.
async fn at_once(client: &Client, path: &str, time: Duration) -> Result<f64, Failure> {
    let started = Instant::now();
    let asking = (0..AT_ONCE).map(|_| {
        let (mut client, path) = (client.clone(), path.to_owned());
        tokio::spawn(async move {
            let mut answers = 0;
            loop {
                client.ask(to("GET", &path), Bytes::new()).await?;
                answers += 1;
                if started.elapsed() >= time {
                    return Ok::<usize, Failure>(answers);
                }
            }
        })
    });
    let mut answers = 0;
    for asking in asking.collect::<Vec<_>>() {
        answers += asking.await??;
    }
    Ok(answers as f64)
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

enum Task {
    Small,
    Upload(Bytes),
    /// Downloads the file at a path.
    Download(String),
    /// Asks for a file at a path by the first requests of a connection.
    Pictures(String),
}

/// Performs a task once; returns the number of requests, MB or pictures.
async fn perform(client: &Client, task: &Task) -> Result<f64, Failure> {
    match task {
        Task::Small => at_once(client, "/v1/runs", SMALL_FOR).await,
        Task::Upload(form) => send(client, form).await.map(|_| UPLOAD as f64 / 1e6),
        Task::Download(path) => {
            let response = client.clone().ask(to("GET", path), Bytes::new()).await?;
            Ok(*response.body() as f64 / 1e6)
        }
        Task::Pictures(path) => at_once(client, path, Duration::ZERO).await,
    }
}

/// Prints both results, their ratio and the server's CPU time.
async fn compare(server: &Server, task: Task, pairs: usize) -> Result<(), Failure> {
    let (mut figures, mut cpu) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        for version in [pair % 2, 1 - pair % 2] {
            let client = if version == 0 { server.http2().await? } else { server.http3().await? };
            let (before, started) = (server.cpu()?, Instant::now());
            let amount = perform(&client, &task).await?;
            figures[version].push(amount / started.elapsed().as_secs_f64());
            cpu[version].push((server.cpu()? - before) / amount);
        }
        let [Some(two), Some(three)] = [figures[0].last(), figures[1].last()] else { continue };
        ratios.push(three / two);
    }
    let (name, unit, of_cpu, scale) = match task {
        Task::Small => ("small JSON, 32 at once", "requests/s", "us a request", 1e6),
        Task::Upload(_) => ("upload of 200 MB", "MB/s", "ms a MiB", 1e3 * MB_PER_MIB),
        Task::Download(_) => ("download of 100 MB", "MB/s", "ms a MiB", 1e3 * MB_PER_MIB),
        Task::Pictures(_) => ("32 pictures at once", "pictures/s", "ms a picture", 1e3),
    };
    let [two, three] = figures.each_mut().map(|figures| median(figures));
    let [cpu_two, cpu_three] = cpu.each_mut().map(|cpu| median(cpu) * scale);
    let ratio = median(&mut ratios);
    println!(
        "| {name} | {two:.1} {unit} | {three:.1} {unit} | {ratio:.2} | {cpu_two:.2} | \
         {cpu_three:.2} {of_cpu} |"
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let program =
        arguments.next().ok_or("usage: http_cost SERVER [PAIRS [DATAGRAM_BYTES [lossy]]]")?;
    let pairs = arguments.next().map_or(Ok(5), |pairs| pairs.parse())?;
    let datagram_bytes = arguments.next().map_or(Ok(DATAGRAM_BYTES), |bytes| bytes.parse())?;
    let is_lossy = arguments.next().is_some();
    let server = Server::start(Path::new(&program), datagram_bytes, is_lossy)?;
    println!("| What | HTTP/2 | HTTP/3 | ratio | CPU on 2 | on 3 |\n|---|---|---|---|---|---|");
    if is_lossy {
        return compare(&server, Task::Pictures(keep(&server, PICTURE).await?), pairs).await;
    }
    // The bytes begin like a video; the server rejects them after receiving all.
    let start = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom";
    let upload = form(&[&start[..], &vec![7; UPLOAD]].concat());
    let path = keep(&server, DOWNLOAD).await?;
    for task in [Task::Small, Task::Upload(upload), Task::Download(path)] {
        compare(&server, task, pairs).await?;
    }
    Ok(())
}
