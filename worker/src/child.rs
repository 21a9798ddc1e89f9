//! A child process that is killed and reaped when its handle is dropped.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus};

use rustix::process::{
    Pid, Signal, WaitOptions, getpriority_process, kill_process, setpriority_process, waitpid,
};

/// Handle to a child of this process, forked by this process or adopted.
pub(crate) struct Child {
    pid: Pid,
    /// Exit status, set once the child is reaped: its process id may be reused then.
    ended: Option<ExitStatus>,
}

impl Child {
    /// Wraps the child with this process id, which nothing else may reap.
    pub fn of(pid: Pid) -> Child {
        Child { pid, ended: None }
    }

    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Lowers the priority of the child's first thread, which the threads that it starts inherit.
    pub fn give_way(&self, niceness: i32) {
        // If the system refuses this, the child runs at normal priority.
        let lowered = getpriority_process(None)
            .and_then(|own| setpriority_process(Some(self.pid), (own + niceness).min(19)));
        lowered.ok();
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.reap(WaitOptions::NOHANG), Ok(Some(_)))
    }

    /// Kills the child if it has not ended, reaps it and returns its status.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        if self.ended.is_none() {
            // The process id is not reused before the reaping; kill fails only for a child that has ended.
            kill_process(self.pid, Signal::KILL).ok();
        }
        self.reap(WaitOptions::empty())?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn reap(&mut self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            let ended = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), options))?;
            self.ended = ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        }
        Ok(self.ended)
    }
}

impl From<std::process::Child> for Child {
    fn from(child: std::process::Child) -> Child {
        Child::of(Pid::from_child(&child))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Fails only if there is nothing left to reap.
        self.end().ok();
    }
}
