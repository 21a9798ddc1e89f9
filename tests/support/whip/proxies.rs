//! Debian's HAProxy and nginx before three servers, with the configurations of `deploy/proxy`.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::servers::program;
use crate::support::{ALICE, eventually, free_address};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// HAProxy, with the agent that tells it the load of nodes.
    HaProxy,
    /// nginx, which learns from refusals.
    Nginx,
}

/// A proxy and what runs beside it; both end when dropped.
pub struct Proxy {
    kind: Kind,
    children: Vec<Child>,
    address: SocketAddr,
    config: PathBuf,
    text: String,
    dir: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Its workers end with it; it may have ended already.
            kill_process(Pid::from_child(child), Signal::TERM).ok();
            child.wait().ok();
        }
    }
}

/// A file of `deploy/proxy` with each of `for_this_machine` in it replaced.
fn configuration(name: &str, for_this_machine: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/proxy").join(name);
    let text = fs::read_to_string(path).expect("in the repository");
    for_this_machine.iter().fold(text, |text, (there, here)| {
        assert!(text.contains(there), "{name} has no {there}");
        text.replace(there, here)
    })
}

impl Proxy {
    /// One before the nodes 0001, 0002 and 0003 at these addresses; `None` where the test is passed over.
    pub fn start(kind: Kind, nodes: &[String; 3]) -> Option<Proxy> {
        let dir = tempfile::tempdir().expect("a directory");
        let (address, agent) = (free_address(), free_address());
        let path = |name: &str| dir.path().join(name).display().to_string();
        let there = ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"];
        let mut here: Vec<(&str, &str)> =
            there.into_iter().zip(nodes.iter().map(String::as_str)).collect();
        let config = dir.path().join("proxy.conf");
        let listens = address.to_string();
        let (text, mut command) = match kind {
            Kind::HaProxy => {
                let mut command = Command::new(program("haproxy")?);
                let (port, admin) = (format!("agent-port {}", agent.port()), path("admin"));
                here.push((":443 ssl crt /etc/ssl/video.example.pem alpn h2,http/1.1", &listens));
                here.push(("agent-port 9101", &port));
                here.push(("/run/haproxy/admin.sock", &admin));
                command.arg("-db").arg("-f").arg(&config);
                (configuration("haproxy.cfg", &here), command)
            }
            Kind::Nginx => {
                let mut command = Command::new(program("nginx")?);
                let listen = format!("listen {listens};");
                here.push(("listen 443 ssl http2;", &listen));
                here.push(("    ssl_certificate /etc/ssl/video.example.pem;\n", ""));
                here.push(("    ssl_certificate_key /etc/ssl/video.example.key;\n", ""));
                let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
                let temporary = temporary.map(|name| format!("{name}_temp_path {};", path(name)));
                let text = format!(
                    "daemon off; worker_processes 1; pid {}; events {{}}\nhttp {{ access_log off; {}\n{} }}",
                    path("pid"),
                    temporary.join(" "),
                    configuration("nginx.conf", &here)
                );
                command.args(["-e", "stderr", "-p"]).arg(dir.path()).arg("-c").arg(&config);
                (text, command)
            }
        };
        fs::write(&config, &text).expect("written");
        let mut proxy = Proxy { kind, children: Vec::new(), address, config, text, dir };
        if kind == Kind::HaProxy {
            let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/proxy/agent");
            proxy.children.push(begin(Command::new(program).arg(agent.port().to_string())));
            eventually("an agent that listens", || TcpStream::connect(agent).ok());
        }
        proxy.children.push(begin(&mut command));
        eventually("a proxy that listens", || TcpStream::connect(address).ok());
        Some(proxy)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives the node at `address`, of this tag, nothing new, or new work again.
    pub fn drain(&self, (tag, address): (&str, &str), is_drained: bool) {
        match self.kind {
            Kind::HaProxy => {
                let state = if is_drained { "drain" } else { "ready" };
                let mut admin = UnixStream::connect(self.dir.path().join("admin")).expect("there");
                writeln!(admin, "set server new/{tag} state {state}").expect("sent");
                let mut said = String::new();
                admin.read_to_string(&mut said).expect("an answer");
                assert_eq!(said.trim(), "");
            }
            Kind::Nginx => {
                let (there, here) =
                    (format!("{address} max_fails"), format!("{address} down max_fails"));
                let text =
                    if is_drained { self.text.replace(&there, &here) } else { self.text.clone() };
                fs::write(&self.config, text).expect("written");
                let master = self.children.last().expect("nginx");
                kill_process(Pid::from_child(master), Signal::HUP).expect("signalled");
            }
        }
    }
}

fn begin(command: &mut Command) -> Child {
    command.env("SIGHTLINE_API_KEY", ALICE);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}
