//! A child process, killed and reaped when it is dropped.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus};

use rustix::process::{
    Pid, Signal, WaitOptions, getpriority_process, kill_process, setpriority_process, waitpid,
};

/// A child of this process, whoever started it.
pub(crate) struct Child {
    pid: Pid,
    /// Set once it is reaped: its number may be another's then.
    ended: Option<ExitStatus>,
}

impl Child {
    /// The child with this number, which nobody else reaps.
    pub fn of(pid: Pid) -> Child {
        Child { pid, ended: None }
    }

    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Lowers the priority of its first thread, and so of those that this one starts.
    pub fn give_way(&self, niceness: i32) {
        // Where whoever confines the server refuses it, the work is done all the same.
        let lowered = getpriority_process(None)
            .and_then(|own| setpriority_process(Some(self.pid), (own + niceness).min(19)));
        lowered.ok();
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.reap(WaitOptions::NOHANG), Ok(Some(_)))
    }

    /// Kills it where it has not ended, and returns its status.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        if self.ended.is_none() {
            // Its number is no other's before it is reaped; to fail here is to have ended.
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
        // It fails only where there is nothing left to reap.
        self.end().ok();
    }
}
