//! A server process of the demo: started with default settings, awaited, stopped, never left behind.

use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use worker::{CancelToken, SandboxPolicy};

use crate::{
    client::{ApiClient, ServerArgs},
    environment,
    error::CliError,
    trust::CaArgs,
};

const START: Duration = Duration::from_secs(20);
/// Longer than the server's own drain limit of 10 s.
const STOP: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Handle to a running server; dropping it kills the process.
pub struct Server {
    child: Child,
    args: ServerArgs,
    log: PathBuf,
}

impl Server {
    /// Starts `binary` with its data and log under `out`, and waits until it is ready.
    pub fn start(
        binary: &Path,
        out: &Path,
        video: &Path,
        sandbox: SandboxPolicy,
        cancel: &CancelToken,
    ) -> Result<Server, CliError> {
        let log = out.join("server.log");
        // Appended to: a second demo in the folder takes nothing from the log of the first, which may still run.
        let log_file = File::options().create(true).append(true).open(&log);
        let log_file = log_file.map_err(|source| CliError::Write { path: log.clone(), source })?;
        let both =
            log_file.try_clone().map_err(|source| CliError::Write { path: log.clone(), source })?;
        let root = video.parent().unwrap_or(Path::new("/"));
        if root.to_string_lossy().contains(',') {
            let problem =
                "the video's folder has a comma in its name, which separates ingest roots";
            return Err(CliError::Usage(format!("{problem}: {}", root.display())));
        }
        let (address, key) = (free_address()?, random_key()?);
        let child = Command::new(binary)
            .env_clear()
            .envs(environment::for_a_server())
            .env("SERVICE_BIND_ADDR", &address)
            .env("SERVICE_API_KEYS", &key)
            .env("SERVICE_DATA_DIR", out.join("data"))
            .env("SERVICE_INGEST_FILE_ROOTS", root)
            .env(environment::SANDBOX, sandbox.as_str())
            .stdin(Stdio::null())
            .stdout(log_file)
            .stderr(both)
            .spawn()
            .map_err(|source| CliError::Read { path: binary.to_owned(), source })?;
        let server = format!("http://{address}");
        let args = ServerArgs { server, key: Some(key), tenant: None, trust: CaArgs::default() };
        let mut server = Server { child, args, log };
        server.wait_until_ready(cancel)?;
        Ok(server)
    }

    /// Returns the base URL.
    pub fn address(&self) -> &str {
        &self.args.server
    }

    /// Returns a client with this server's key.
    pub fn client(&self) -> Result<ApiClient, CliError> {
        ApiClient::new(&self.args)
    }

    /// Returns the console's address for `run`. The fragment, which browsers never send, carries the key.
    pub fn console(&self, run: &str) -> String {
        format!(
            "{}/runs/{run}#key={}",
            self.args.server,
            self.args.key.as_deref().unwrap_or_default()
        )
    }

    /// Waits until `cancel` is cancelled; fails if the server fails first.
    pub fn wait(&mut self, cancel: &CancelToken) -> Result<(), CliError> {
        // The terminal sends Ctrl-C to the server as well, which then ends by itself.
        while !cancel.is_cancelled() && !self.has_ended()? {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Asks the server to drain and exit, and checks its exit status.
    pub fn stop(mut self) -> Result<(), CliError> {
        // The process id of a server that has ended may be another process's by now.
        if self.has_ended()? {
            return Ok(());
        }
        let pid = Pid::from_child(&self.child);
        if let Err(error) = kill_process(pid, Signal::TERM) {
            return Err(self.failed(format!("cannot be stopped: {error}")));
        }
        let asked = Instant::now();
        while asked.elapsed() < STOP {
            if self.has_ended()? {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(self.failed(format!("did not end within {} s", STOP.as_secs())))
    }

    /// Returns true if the process has ended well; fails if it has ended otherwise.
    fn has_ended(&mut self) -> Result<bool, CliError> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                Err(self.failed(format!("ended with {status}")))
            }
            Ok(status) => Ok(status.is_some()),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn wait_until_ready(&mut self, cancel: &CancelToken) -> Result<(), CliError> {
        let client = self.client()?;
        let started = Instant::now();
        loop {
            if cancel.is_cancelled() {
                return Err(CliError::Interrupted);
            }
            match client.get::<Value>("v1/ready", &[]) {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > START => {
                    let problem = format!("is not ready after {} s ({error})", START.as_secs());
                    return Err(self.failed(problem));
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failed(format!("ended with {status} before it was ready")));
            }
        }
    }

    fn failed(&self, problem: String) -> CliError {
        CliError::Check(format!("the server {problem}; its log: {}", self.log.display()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns a free loopback address; another process could still take the port before the server does.
fn free_address() -> Result<String, CliError> {
    let failed = |error: std::io::Error| CliError::Unreachable {
        server: "127.0.0.1".to_owned(),
        reason: error.to_string(),
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.to_string())
}

fn random_key() -> Result<String, CliError> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)
        .map_err(|error| CliError::Check(format!("no random bytes for a key: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
