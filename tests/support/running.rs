//! Processes and threads that a test starts beside itself.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    process::Child,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{skip, this_test};

/// A process that is killed when dropped; it may have ended before.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs `work` on a thread of this name; the end of the test's process ends it.
pub fn on_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("a thread");
}

/// Returns true if this process and the server may each have so many descriptors open; see [`skip`].
pub fn can_open(count: u64) -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let is_enough = raised.is_ok() && maximum.is_none_or(|most| most >= count);
    if !is_enough {
        skip(&this_test(), format!("{count} descriptors are needed: {raised:?}, {maximum:?}"));
    }
    is_enough
}

/// An address of this machine with a port that is free for TCP and UDP, and that the system gives nobody who asks for
/// any port: it stays free until it is used.
pub fn free_address() -> SocketAddr {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 64 + GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (number % 20_000) as u16;
        let anywhere = (Ipv4Addr::UNSPECIFIED, port);
        if TcpListener::bind(anywhere).is_ok() && UdpSocket::bind(anywhere).is_ok() {
            return (Ipv4Addr::LOCALHOST, port).into();
        }
    }
}
