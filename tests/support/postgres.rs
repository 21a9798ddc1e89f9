//! A real PostgreSQL cluster of the test's own, and a proxy that fails in front of it.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{free_address, on_thread};

/// Password of the cluster's one user: must show up nowhere.
const PASSWORD: &str = "hush-hush-hush";
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster in a temporary directory on a free port.
pub struct Postgres {
    dir: TempDir,
    programs: PathBuf,
    port: u16,
    child: Option<Child>,
    is_encrypted: bool,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Postgres {
    pub fn stopped() -> Postgres {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_address().port();
        let cluster =
            Postgres { dir, programs: programs(), port, child: None, is_encrypted: false };
        std::fs::write(cluster.dir.path().join("password"), PASSWORD).expect("written");
        cluster.give_away();
        let password = cluster.dir.path().join("password").display().to_string();
        let mut command = cluster.command("initdb");
        command.arg("-D").arg(cluster.data());
        command.args(["-U", "sightline", "-A", "scram-sha-256", "--pwfile", &password]);
        command.args(["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        succeeded(command.output().expect("initdb starts"));
        cluster
    }

    pub fn start() -> Postgres {
        let mut cluster = Postgres::stopped();
        cluster.run();
        cluster
    }

    /// A cluster that runs and offers TLS, with a certificate of its own for 127.0.0.1.
    pub fn start_with_tls() -> Postgres {
        let mut cluster = Postgres::stopped();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("one");
        let key = cluster.dir.path().join("server.key");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, private).expect("set");
        std::fs::write(cluster.certificate(), made.cert.pem()).expect("written");
        cluster.give_away();
        cluster.is_encrypted = true;
        cluster.run();
        cluster
    }

    pub fn certificate(&self) -> PathBuf {
        self.dir.path().join("server.crt")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The directory becomes the property of the user that the cluster runs as.
    fn give_away(&self) {
        if rustix::process::geteuid().is_root() {
            let chown =
                Command::new("chown").args(["-R", "postgres:"]).arg(self.dir.path()).output();
            succeeded(chown.expect("chown starts"));
        }
    }

    /// One of PostgreSQL's programs, which refuse to run as root.
    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
            command.arg(path);
            command
        } else {
            Command::new(path)
        };
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts it, again after a [`Postgres::kill`], and waits until it answers.
    pub fn run(&mut self) {
        let started = Instant::now();
        // What a killed cluster leaves running holds its shared memory for a moment.
        while !self.try_run() {
            assert!(started.elapsed() < PATIENCE, "the cluster does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn try_run(&mut self) -> bool {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        command.args(["-c", "shared_buffers=16MB", "-c", "max_connections=40"]);
        if self.is_encrypted {
            let at = |name, file: &str| format!("{name}={}", self.dir.path().join(file).display());
            let (certificate, key) =
                (at("ssl_cert_file", "server.crt"), at("ssl_key_file", "server.key"));
            command.args(["-c", "ssl=on", "-c", &certificate, "-c", &key]);
        }
        let mut child = command.stderr(Stdio::null()).spawn().expect("postgres starts");
        loop {
            let ready = Command::new(self.programs.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status();
            if ready.is_ok_and(|status| status.success()) {
                self.child = Some(child);
                return true;
            }
            if child.try_wait().expect("waited for").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("waited for");
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// URL for `SERVICE_DB_URL`.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// Output of psql for `sql`, columns divided by `|`.
    pub fn sql(&self, sql: &str) -> String {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, &self.url()]);
        succeeded(command.env_clear().output().expect("psql starts")).trim().to_owned()
    }

    /// Waits until psql prints `expected` for `sql`, for as long as what it prints changes.
    pub fn wait_for(&self, sql: &str, expected: &str) {
        let (mut last, mut changed) = (self.sql(sql), Instant::now());
        while last != expected {
            assert!(changed.elapsed() < PATIENCE, "{sql}: {last}, expected {expected}");
            std::thread::sleep(Duration::from_millis(50));
            let found = self.sql(sql);
            if found != last {
                (last, changed) = (found, Instant::now());
            }
        }
    }
}

/// The database behind `port`.
pub fn url(port: u16) -> String {
    format!("postgres://sightline:{PASSWORD}@127.0.0.1:{port}/postgres")
}

/// Folder of the newest version's programs on Debian.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").map(|found| {
        found.flatten().map(|entry| entry.path().join("bin")).filter(|bin| bin.exists()).max()
    });
    versions.ok().flatten().expect("PostgreSQL is installed: run deploy/setup.sh")
}

fn succeeded(output: Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Behaviour of a [`Proxy`] towards the bytes that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Weather {
    Fair,
    /// Carries them a fifth of a second late.
    Slow,
    /// Keeps them, and every connection open.
    Hanging,
    /// Carries what is asked and keeps the answers.
    Mute,
    Cut,
}

/// Stands before what listens on a port, and fails on command.
pub struct Proxy {
    port: u16,
    weather: Arc<AtomicU8>,
}

impl Proxy {
    /// A proxy for `target` in fair weather; it lasts as long as the test's process.
    pub fn start(target: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let weather = Arc::new(AtomicU8::new(Weather::Fair as u8));
        let shared = Arc::clone(&weather);
        on_thread("proxy", move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let copies = (near.try_clone().expect("cloned"), far.try_clone().expect("cloned"));
                let (up, down) = (Arc::clone(&shared), Arc::clone(&shared));
                on_thread("proxy", move || carry(near, far, &up, &[Weather::Hanging]));
                let kept = &[Weather::Hanging, Weather::Mute];
                on_thread("proxy", move || carry(copies.1, copies.0, &down, kept));
            }
        });
        Proxy { port, weather }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes what it does, with connections that stand too.
    pub fn set(&self, weather: Weather) {
        self.weather.store(weather as u8, Ordering::SeqCst);
    }
}

/// Carries bytes one way; keeps them in the weathers `kept`.
fn carry(mut from: TcpStream, mut to: TcpStream, weather: &AtomicU8, kept: &[Weather]) {
    const TICK: Duration = Duration::from_millis(20);
    let is = |wanted: Weather| weather.load(Ordering::SeqCst) == wanted as u8;
    from.set_read_timeout(Some(TICK)).expect("set");
    let mut buffer = [0; 16 << 10];
    loop {
        let read = from.read(&mut buffer);
        while kept.iter().any(|weather| is(*weather)) {
            std::thread::sleep(TICK);
        }
        if is(Weather::Slow) {
            std::thread::sleep(10 * TICK);
        }
        let carried = match read {
            Ok(0) => break,
            Ok(count) if !is(Weather::Cut) => to.write_all(&buffer[..count]).is_ok(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => !is(Weather::Cut),
            _ => false,
        };
        if !carried {
            break;
        }
    }
    // The other side may be closed already.
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}

/// Fails when the password is in a file beneath `dir`.
pub fn assert_kept_secret(dir: &Path) {
    let found = Command::new("grep").args(["-r", "-l", PASSWORD]).arg(dir).output();
    let found = found.expect("grep starts");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the password is written down");
}
