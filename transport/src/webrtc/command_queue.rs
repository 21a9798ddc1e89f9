//! State that a port's handles and thread share: commands, a wake-up, and flags of their ends.
//!
//! Commands wait in a bounded queue; the closing of a session finds room in a full one. Promises that
//! nothing is left for a thread that has looked for the last time.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::Notify;

use super::{
    SessionHandler,
    sdp_answer::{IceCredentials, NegotiatedMedia},
    stats::{EndpointCounters, SharedSessionStats},
};

/// Commands that wait for the thread, the closing of sessions not counted: far more than HTTP
/// requests can make between two of its rounds.
const COMMANDS_MAX: usize = 4096;

/// Request of a handle to the port's thread.
pub(super) enum EndpointCommand {
    /// Serve a new session.
    Open(Box<NewSession>),
    /// Take new ICE credentials.
    Restart { id: u64, local: IceCredentials },
    /// Ask the peer for a keyframe.
    Keyframe(u64),
    /// End a session from this side.
    Close(u64),
    /// Panic, as nothing that is known makes the thread do.
    #[cfg(test)]
    Fail,
}

/// A session that the thread does not know yet.
pub(super) struct NewSession {
    pub(super) id: u64,
    pub(super) negotiated: NegotiatedMedia,
    pub(super) local: IceCredentials,
    pub(super) sink: Box<dyn SessionHandler>,
    pub(super) state: Arc<SharedSessionStats>,
}

/// State that handles and the thread share.
pub(super) struct CommandQueue {
    commands: Mutex<VecDeque<EndpointCommand>>,
    /// There are commands: a look that takes no lock.
    has_commands: AtomicBool,
    wake: OwnedFd,
    /// The last handle of the port is gone, or its thread is.
    pub(super) ended: AtomicBool,
    /// The thread is gone, and its socket with it.
    is_gone: AtomicBool,
    gone: Notify,
    pub(super) counts: EndpointCounters,
}

/// Says that the thread is gone, whatever ended it, when it is dropped on it as the last.
pub(super) struct ThreadExitGuard(pub(super) Arc<CommandQueue>);

impl Drop for ThreadExitGuard {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Release);
        self.0.gone.notify_waiters();
    }
}

impl CommandQueue {
    /// Nothing to do yet.
    pub(super) fn new() -> io::Result<CommandQueue> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(CommandQueue {
            commands: Mutex::default(),
            has_commands: AtomicBool::new(false),
            wake: eventfd(0, flags)?,
            ended: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            gone: Notify::new(),
            counts: EndpointCounters::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<EndpointCommand>> {
        // Nothing panics while it holds the lock; were it poisoned, the queue would still be whole.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a command and wakes the thread; `false` when too many wait, or none is obeyed any more.
    pub(super) fn send(&self, command: EndpointCommand) -> bool {
        let closes = matches!(command, EndpointCommand::Close(_));
        let mut queue = self.queue();
        // Under the lock, so that nothing is left for a thread that has looked for the last time.
        if self.ended.load(Relaxed) || (!closes && queue.len() >= COMMANDS_MAX) {
            return false;
        }
        queue.push_back(command);
        self.has_commands.store(true, Release);
        drop(queue);
        self.wake();
        true
    }

    /// Has the thread look.
    pub(super) fn wake(&self) {
        // A counter that is full wakes just as well.
        if let Err(error) = rustix::io::write(&self.wake, &1u64.to_ne_bytes())
            && error != rustix::io::Errno::AGAIN
        {
            tracing::error!(%error, "could not wake the WebRTC receiver");
        }
    }

    /// No command is taken from now on.
    pub(super) fn end(&self) {
        let queue = self.queue();
        self.ended.store(true, Relaxed);
        drop(queue);
    }

    /// Waits until the thread is gone.
    pub(super) async fn gone(&self) {
        loop {
            let gone = self.gone.notified();
            if self.is_gone.load(Acquire) {
                return;
            }
            gone.await;
        }
    }

    /// Returns true where commands wait.
    pub(super) fn has_commands(&self) -> bool {
        self.has_commands.load(Acquire)
    }

    /// Everything that was left, oldest first.
    pub(super) fn take(&self) -> VecDeque<EndpointCommand> {
        let mut queue = self.queue();
        self.has_commands.store(false, Release);
        std::mem::take(&mut *queue)
    }

    /// Returns the descriptor that the thread polls to be woken.
    pub(super) fn waker(&self) -> &OwnedFd {
        &self.wake
    }
}
