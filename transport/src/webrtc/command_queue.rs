//! State shared by the endpoint's handles and its thread: commands, a wake-up, and end flags.
//!
//! Commands wait in a bounded queue; closing a session always fits. Promises that no command is left for a
//! thread that has read the queue for the last time.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::event::{EventfdFlags, eventfd};
use tokio_util::sync::CancellationToken;

use super::{
    SessionHandler,
    sdp_answer::{IceCredentials, NegotiatedMedia},
    stats::{EndpointStats, SharedSessionStats},
};

/// Most commands waiting, closings of sessions excluded; far more than HTTP requests can make between two
/// rounds of the thread.
const COMMANDS_MAX: usize = 4096;

/// Request of a handle to the endpoint's thread.
pub(super) enum EndpointCommand {
    /// Opens a new session.
    Open(Box<NewSession>),
    /// Sets new ICE credentials.
    Restart { id: u64, local: IceCredentials },
    /// Asks the peer for a keyframe.
    Keyframe(u64),
    /// Ends a session from this side.
    Close(u64),
    /// Panics, for tests; no other input makes the thread panic.
    #[cfg(test)]
    Fail,
}

pub(super) struct NewSession {
    pub(super) id: u64,
    pub(super) negotiated: NegotiatedMedia,
    pub(super) local: IceCredentials,
    pub(super) sink: Box<dyn SessionHandler>,
    pub(super) state: Arc<SharedSessionStats>,
}

/// State shared by handles and the thread.
pub(super) struct CommandQueue {
    commands: Mutex<VecDeque<EndpointCommand>>,
    /// Event descriptor that wakes the thread.
    pub(super) waker: OwnedFd,
    /// True once the last handle or the thread is gone.
    pub(super) ended: AtomicBool,
    /// Cancelled once the thread and its socket are gone.
    pub(super) gone: CancellationToken,
    pub(super) counts: EndpointStats,
}

impl CommandQueue {
    pub(super) fn new() -> io::Result<CommandQueue> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(CommandQueue {
            commands: Mutex::default(),
            waker: eventfd(0, flags)?,
            ended: AtomicBool::new(false),
            gone: CancellationToken::new(),
            counts: EndpointStats::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<EndpointCommand>> {
        // Nothing panics while holding the lock; even if poisoned, the queue would be consistent.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command and wakes the thread; `false` if too many wait or the endpoint has ended.
    pub(super) fn send(&self, command: EndpointCommand) -> bool {
        let closes = matches!(command, EndpointCommand::Close(_));
        let mut queue = self.queue();
        // Checked under the lock, so that no command is left after the thread's last read.
        if self.ended.load(Relaxed) || (!closes && queue.len() >= COMMANDS_MAX) {
            return false;
        }
        queue.push_back(command);
        drop(queue);
        self.wake();
        true
    }

    fn wake(&self) {
        // A full event counter wakes the thread just as well.
        if let Err(error) = rustix::io::write(&self.waker, &1u64.to_ne_bytes())
            && error != rustix::io::Errno::AGAIN
        {
            tracing::error!(%error, "could not wake the WebRTC receiver");
        }
    }

    /// Rejects all further commands and wakes the thread, which ends.
    pub(super) fn end(&self) {
        let queue = self.queue();
        self.ended.store(true, Relaxed);
        drop(queue);
        self.wake();
    }

    pub(super) fn has_commands(&self) -> bool {
        !self.queue().is_empty()
    }

    /// Takes all commands, the oldest first.
    pub(super) fn take(&self) -> VecDeque<EndpointCommand> {
        std::mem::take(&mut *self.queue())
    }
}
