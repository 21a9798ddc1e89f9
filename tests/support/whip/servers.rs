//! Debian's coturn and nginx as processes of a test: what stands between publishers and the server.

use std::{
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::support::{Running, eventually, free_address, skip, this_test};

/// A name and a password of the relay.
pub const USER: (&str, &str) = ("publisher", "hush-hush-hush");

/// A server, which ends when dropped.
pub struct Neighbour {
    _server: Running,
    address: SocketAddr,
    _dir: TempDir,
}

/// Path of a program of the system's administrator; `None` where the test is passed over.
pub(super) fn program(name: &str) -> Option<std::path::PathBuf> {
    let found = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let found = found.into_iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    if found.is_none() {
        skip(&this_test(), format!("no {name}"));
    }
    found
}

impl Neighbour {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A TURN server of one [`USER`] that relays between loopback addresses; see [`program`].
    pub fn relay() -> Option<Neighbour> {
        let mut command = Command::new(program("turnserver")?);
        let dir = tempfile::tempdir().expect("a directory");
        // Free for both: it is asked by UDP, and waited for by TCP.
        let (tcp, udp) = eventually("a port that is free for both", || {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            let udp = UdpSocket::bind(tcp.local_addr().ok()?).ok()?;
            Some((tcp, udp))
        });
        let address = tcp.local_addr().expect("bound");
        drop((tcp, udp));
        let path = |name: &str| dir.path().join(name).display().to_string();
        // -n: no file of the system's administrator is read.
        command.args(["-n", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1", "--no-cli"]);
        command.args(["--allow-loopback-peers", "--no-tls", "--no-dtls", "--no-stdout-log"]);
        command.args(["--lt-cred-mech", "--realm=sightline", "--log-file=stdout"]);
        command.arg(format!("--listening-port={}", address.port()));
        command.arg(format!("--user={}:{}", USER.0, USER.1));
        command.arg(format!("--pidfile={}", path("pid"))).arg(format!("--userdb={}", path("db")));
        Some(Neighbour::start(command, address, dir))
    }

    /// An nginx that passes what is beneath `/video/` on to `server`; see [`program`].
    pub fn proxy(server: &str) -> Option<Neighbour> {
        Neighbour::nginx(|address| {
            format!(
                "server {{ listen {address}; location /video/ {{ proxy_pass http://{server}/; \
                 proxy_set_header x-forwarded-prefix /video; }} }}"
            )
        })
    }

    /// An nginx whose `http` block has the text that `text` makes of an address to listen on; see
    /// [`program`].
    pub fn nginx(text: impl FnOnce(&str) -> String) -> Option<Neighbour> {
        let mut command = Command::new(program("nginx")?);
        let dir = tempfile::tempdir().expect("a directory");
        let address = free_address();
        let kept = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/{name};", dir.path().display()));
        let kept = kept.join(" ");
        let text = format!(
            "daemon off; master_process off; pid {}/pid; events {{}}\n\
             http {{ access_log off; {kept}\n{} }}",
            dir.path().display(),
            text(&address.to_string()),
        );
        let config = dir.path().join("nginx.conf");
        std::fs::write(&config, text).expect("written");
        command.arg("-e").arg("stderr").arg("-c").arg(&config).arg("-p").arg(dir.path());
        Some(Neighbour::start(command, address, dir))
    }

    fn start(mut command: Command, address: SocketAddr, dir: TempDir) -> Neighbour {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Running(command.spawn().expect("it starts"));
        eventually("a server that listens", || TcpStream::connect(address).ok());
        Neighbour { _server: server, address, _dir: dir }
    }
}
