//! One server for the tests of a process that change no setting, with keys of its own for each.

use std::{
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{ALICE, BOB, Server, Setup, listen};

/// Most guests of the server in one process.
const GUESTS_MAX: usize = 256;

/// A guest of the server that the tests of this process share: one that reads beneath [`super::clips`], with default
/// settings. [`ALICE`] and [`BOB`] are principals of this guest's own, who see nothing of the others'.
pub fn shared() -> Server {
    static ADDR: OnceLock<String> = OnceLock::new();
    static GUESTS: AtomicUsize = AtomicUsize::new(0);
    let guest = GUESTS.fetch_add(1, Ordering::Relaxed);
    assert!(guest < GUESTS_MAX, "more guests than keys");
    let addr = ADDR.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory").keep();
        let key = |at: usize| format!("alice-{at}:{ALICE}-{at},bob-{at}:{BOB}-{at}");
        let keys: Vec<String> = (0..GUESTS_MAX).map(key).collect();
        let setup =
            Setup::new(&dir).root(&clips::folder()).var("SERVICE_API_KEYS", &keys.join(","));
        let setup = setup.var("SERVICE_DECODE_BACKEND", "auto");
        let server = setup.command();
        let mut command = Command::new("sh");
        // The pipe to it closes with this process, however that ends.
        command.args(["-c", "\"$1\" & read -r _; kill -9 $!; wait; rm -rf \"$2\"", "sh"]);
        command.arg(server.get_program()).arg(&dir).env_clear();
        command.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let started = listen(command.stdin(Stdio::piped()).stderr(Stdio::null()));
        let (server, addr) = started.expect("the server listens");
        std::mem::forget(server);
        addr
    });
    Server::new(None, Some(guest), addr)
}
