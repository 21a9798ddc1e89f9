//! Processes and threads that a test starts beside itself.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    process::Child,
    sync::atomic::{AtomicU32, Ordering},
};

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
