//! A child process that is killed and reaped when its handle is dropped.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
};

use rustix::process::{
    Pid, Signal, WaitOptions, getpriority_process, kill_process, setpriority_process, waitpid,
};

/// Handle to a child of this process, forked by this process or adopted.
pub(crate) struct Child {
    pid: Pid,
    /// Exit status, set once the child is reaped: its process id may be reused then.
    ended: Option<ExitStatus>,
    /// Its `/proc/<pid>/status`.
    status: Option<File>,
}

/// Memory and threads of a process, as reported by the kernel.
pub(crate) struct Usage {
    /// Resident or swapped-out bytes.
    pub memory_bytes: u64,
    pub threads: u64,
}

impl Child {
    /// Wraps the child with this process id, which nothing else may reap.
    pub fn of(pid: Pid) -> io::Result<Child> {
        let mut child = Child { pid, ended: None, status: None };
        // An error drops the child, which ends it.
        child.status = Some(File::open(format!("/proc/{}/status", child.id()))?);
        Ok(child)
    }

    pub fn spawn(command: &mut Command) -> io::Result<Child> {
        Child::of(Pid::from_child(&command.spawn()?))
    }

    /// Returns the child's usage; `None` once it has ended.
    pub fn usage(&self) -> Option<Usage> {
        let mut status = self.status.as_ref()?;
        // The user's groups stand before the fields read here, and may be many.
        let mut text = Vec::with_capacity(4096);
        status.rewind().ok()?;
        status.read_to_end(&mut text).ok()?;
        let field = |name: &[u8]| status_field(&text, name).unwrap_or(0);
        let memory_bytes = (field(b"VmRSS:") + field(b"VmSwap:")) << 10;
        Some(Usage { memory_bytes, threads: field(b"Threads:") })
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

impl Drop for Child {
    fn drop(&mut self) {
        // Fails only if there is nothing left to reap.
        self.end().ok();
    }
}

/// Returns the number after `name` in a `/proc/<pid>/status`.
fn status_field(status: &[u8], name: &[u8]) -> Option<u64> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let digits = line.trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}
