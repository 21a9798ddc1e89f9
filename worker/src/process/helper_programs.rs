//! The decoding programs of one worker: starts them, watches their limits, ends them with the worker.
//!
//! A program that cannot be started or takes too much is no error of the job: its pipes close, and the
//! worker's own decoder takes over.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};

use media::Codec;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::WorkerLifetime;
use crate::{
    WorkerError, WorkerLimits, WorkerProgram,
    channel::pair,
    child::{Child, Usage},
    fork_server::Ends,
    launcher::ProgramRequest,
};

/// Programs that one worker may have at a time: one decodes, and some are about to end.
const EXTERNALS_MAX: usize = 4;

/// Capacity of a program's stderr pipe, in bytes; all output about one picture must fit.
const SAID_BYTES: usize = 64 << 10;

pub(super) struct HelperPrograms {
    running: VecDeque<Child>,
    threads: usize,
    memory_bytes: u64,
    cpu_seconds: u64,
    niceness: i32,
}

impl HelperPrograms {
    /// Creates the set of programs, with limits that follow from the worker's.
    pub(super) fn new(limits: &WorkerLimits, life: WorkerLifetime) -> HelperPrograms {
        let (threads, cpu_seconds) = match life {
            WorkerLifetime::Job { threads, cpu_seconds, .. } => (threads, cpu_seconds),
            // Such a worker uses programs only for the test clips at start.
            WorkerLifetime::Open => (1, limits.wall.as_secs() + 1),
        };
        let (running, memory_bytes) = (VecDeque::new(), limits.memory_bytes);
        HelperPrograms { running, threads, memory_bytes, cpu_seconds, niceness: limits.niceness }
    }

    /// Starts a program for `codec`, and returns the peers of its descriptors; reads of its stderr never block.
    /// If that fails, its stderr says why and its output ends at once.
    pub(super) fn start(
        &mut self,
        program: &WorkerProgram,
        codec: Codec,
    ) -> Result<Ends, WorkerError> {
        self.running.retain_mut(|program| !program.has_ended());
        if self.running.len() >= EXTERNALS_MAX {
            self.running.pop_front();
        }
        let (socket, theirs) = pair().map_err(WorkerError::Spawn)?;
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (stderr, says) = pipe_with(flags).map_err(|error| WorkerError::Spawn(error.into()))?;
        let mut reason = File::from(says);
        if let Err(error) = self.add(program, codec, theirs, &reason) {
            // The text fits into a new pipe; otherwise the worker learns only that the program ended.
            write!(reason, "it cannot be started: {error}").ok();
        }
        Ok(Ends { socket, stderr })
    }

    fn add(
        &mut self,
        program: &WorkerProgram,
        codec: Codec,
        socket: OwnedFd,
        says: &File,
    ) -> io::Result<()> {
        // The pipe of a user who has very many may be smaller.
        fcntl_setpipe_size(says, SAID_BYTES)?;
        let HelperPrograms { threads, memory_bytes, cpu_seconds, .. } = *self;
        let errand = ProgramRequest { codec, threads, memory_bytes, cpu_seconds };
        let ends = Ends { socket, stderr: says.try_clone()?.into() };
        let child = program.start_external(&errand, ends)?;
        child.give_way(self.niceness);
        self.running.push_back(child);
        Ok(())
    }

    /// Ends all programs if one has too many threads or all together use too much memory.
    pub(super) fn keep_within(&mut self, memory_bytes: u64, threads: u64) {
        let used: Vec<Usage> = self.running.iter().filter_map(Child::usage).collect();
        let bytes: u64 = used.iter().map(|used| used.memory_bytes).sum();
        if bytes > memory_bytes || used.iter().any(|used| used.threads > threads) {
            self.running.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    fn with(command: &mut Command) -> HelperPrograms {
        let mut externals = HelperPrograms::new(&WorkerLimits::default(), WorkerLifetime::Open);
        let child = Child::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        externals.running.push_back(child.expect("starts"));
        externals
    }

    /// Returns true if all programs are ended within a time that suffices on the busiest machine.
    fn is_ended(externals: &mut HelperPrograms, memory_bytes: u64, threads: u64) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !externals.running.is_empty() && Instant::now() < deadline {
            externals.keep_within(memory_bytes, threads);
            thread::sleep(Duration::from_millis(5));
        }
        externals.running.is_empty()
    }

    #[test]
    fn a_program_that_takes_too_much_is_ended() {
        // Copies zeros through a buffer of 128 MiB until it is killed.
        let copies = || {
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "of=/dev/null", "bs=128M"]);
            command
        };
        assert!(is_ended(&mut with(&mut copies()), 64 << 20, 100), "memory");
        let mut modest = with(Command::new("sleep").arg("600"));
        modest.keep_within(64 << 20, 1);
        assert_eq!(modest.running.len(), 1, "within its bounds");
        modest.keep_within(64 << 20, 0);
        assert!(modest.running.is_empty(), "threads");
    }

    #[test]
    fn one_that_does_not_start_says_why_and_has_ended() {
        use std::io::Read;
        let mut externals = HelperPrograms::new(&WorkerLimits::default(), WorkerLifetime::Open);
        let missing = WorkerProgram::at("/nonexistent/server")
            .with_program("/nonexistent/ffmpeg".into(), vec![Codec::H264]);
        for codec in [Codec::H264, Codec::Vp8] {
            let Ends { socket, stderr } = externals.start(&missing, codec).expect("ends");
            let (mut output, mut words) = (Vec::new(), String::new());
            File::from(socket).read_to_end(&mut output).expect("ended");
            assert!(output.is_empty());
            File::from(stderr).read_to_string(&mut words).expect("ended");
            assert!(words.starts_with("it cannot be started: "), "{codec:?}: {words}");
        }
    }

    #[test]
    fn the_oldest_ends_where_there_are_too_many() {
        let mut externals = with(Command::new("sleep").arg("600"));
        let first = externals.running[0].id();
        for _ in 1..EXTERNALS_MAX {
            let child = Child::spawn(Command::new("sleep").arg("600")).expect("starts");
            externals.running.push_back(child);
        }
        let missing = WorkerProgram::at("/nonexistent/server");
        externals.start(&missing, Codec::H264).map(drop).expect("ends");
        assert_eq!(externals.running.len(), EXTERNALS_MAX - 1);
        assert!(externals.running.iter().all(|program| program.id() != first));
    }
}
