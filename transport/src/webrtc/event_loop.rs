//! Endpoint thread: waits for the socket, a command or a timer, and runs the sessions.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    command_queue::CommandQueue, session_table::SessionTable, socket::UdpEndpointSocket,
    stats::DropReason,
};

/// Socket reads between two checks of commands and timers: 512 buffers, as many full-sized packets as a
/// kernel buffer of 4 MiB holds.
const READS_MAX: usize = 16;
/// Shortest time between two rounds. A wake-up costs more than a packet, so that many sessions share a round;
/// a lone packet does not wait, since the previous round is long past.
const ROUND: Duration = Duration::from_micros(500);
/// Longest sleep without a timer; commands and the end of the endpoint wake the thread.
const IDLE: Duration = Duration::from_secs(60);
/// Consecutive rounds that may fail to read the socket; an error of one peer's path occurs once.
const FAILURES_MAX: u32 = 8;
/// Delay after more failures, so that a broken socket does not occupy a core.
const BROKEN: Duration = Duration::from_millis(100);

pub(super) struct EndpointThread {
    pub(super) socket: UdpEndpointSocket,
    pub(super) shared: Arc<CommandQueue>,
    pub(super) sessions: SessionTable,
}

impl EndpointThread {
    pub(super) fn run(mut self) {
        if catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            tracing::error!("the WebRTC receiver panicked: every session of it ends");
        }
        // After a panic, too: no further offer may be answered, as the thread would never run its session.
        self.shared.end();
        self.sessions.end(Instant::now());
        self.send();
    }

    fn serve(&mut self) {
        let (mut round, mut failures) = (Instant::now(), 0);
        while !self.shared.ended.load(Relaxed) {
            std::thread::sleep(ROUND.saturating_sub(round.elapsed()));
            self.wait();
            round = Instant::now();
            self.sessions.handle_command(Instant::now());
            failures = match self.receive() {
                Ok(()) => 0,
                Err(error) => {
                    tracing::error!(%error, "could not read the WebRTC socket");
                    failures + 1
                }
            };
            if failures > FAILURES_MAX {
                std::thread::sleep(BROKEN);
            }
            self.sessions.flush_session(Instant::now());
            self.send();
        }
    }

    fn wait(&self) {
        let until = self.sessions.deadline();
        let now = Instant::now();
        let wait = until.map_or(IDLE, |until| until.saturating_duration_since(now).min(IDLE));
        // A minute at most, which always fits.
        let wait = Timespec::try_from(wait).ok();
        let mut ready = [
            PollFd::new(&self.socket.socket, PollFlags::IN),
            PollFd::new(&self.shared.waker, PollFlags::IN),
        ];
        match poll(&mut ready, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return,
            Err(error) => {
                tracing::error!(%error, "could not wait for the WebRTC socket");
                std::thread::sleep(BROKEN);
            }
        }
        if !ready[1].revents().is_empty() {
            // Reading resets the counter; a later wake-up starts the next round.
            let mut counter = [0u8; 8];
            if let Err(error) = rustix::io::read(&self.shared.waker, &mut counter)
                && error != rustix::io::Errno::AGAIN
            {
                tracing::error!(%error, "could not reset the waker of the WebRTC receiver");
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let EndpointThread { socket, sessions, .. } = self;
        for _ in 0..READS_MAX {
            let now = Instant::now();
            let filled = socket.receive(|datagram, pair| sessions.datagram(datagram, pair, now))?;
            if filled == 0 {
                break;
            }
            sessions.flush_session(now);
        }
        Ok(())
    }

    fn send(&mut self) {
        let EndpointThread { socket, shared, sessions } = self;
        sessions.send(|pair, datagram| {
            // The send queue is full or the route is gone; the peer repeats its request.
            if let Err(error) = socket.send(pair, datagram) {
                tracing::trace!(%error, "a reply is not sent");
                shared.counts.refuse(DropReason::ReplyUnsent);
            }
        });
    }
}
