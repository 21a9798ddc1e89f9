//! Processes and threads that a test starts beside itself.

use std::{
    net::{SocketAddr, TcpListener},
    process::Child,
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

/// An address of this machine that nobody listens on yet.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}
