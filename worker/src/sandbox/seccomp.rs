//! Allow-list of system calls: all others fail with EPERM.
//!
//! A refused call does not kill the process: libav, its codecs and glibc probe optional calls, and an upgrade
//! that probes one more would then end every job. A call that fails gives an intruder nothing.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::{SOCKET_NUMBER, SandboxLimits, device_access};

/// System calls whose arguments need no check.
///
/// libav, its codecs and malloc need memory, threads and time; the worker reads its descriptors. No call that
/// names a path, a process or an address is in this list.
pub(super) const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Condition on an argument: its number, a mask, and its value under the mask.
pub(super) type ArgCondition = (u8, u64, u64);

/// Mask of an argument that the kernel takes as 32 bits.
pub(super) const WORD: u64 = u32::MAX as u64;

/// Creates a thread, never a process.
pub(super) const THREAD: ArgCondition = (0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64);

/// Memory is not executable: no code is loaded or made once the filter is in force.
const NO_CODE: ArgCondition = (2, libc::PROT_EXEC as u64, 0);

/// Mapping is private. Shared memory can be kept without being mapped, and then counts against no limit of
/// the process (madvise(2), `MADV_DONTNEED`).
pub(super) const PRIVATE: ArgCondition = (3, libc::MAP_SHARED as u64, 0);

/// System calls allowed only with a certain argument.
const ALLOWED_WHERE: &[(i64, ArgCondition)] = &[
    // The control socket is descriptor 0, stderr is 2; no other descriptor is written.
    (libc::SYS_recvmsg, (0, WORD, 0)),
    (libc::SYS_sendto, (0, WORD, 0)),
    // A connection that the server has made for the job. It reaches no other peer: `sendto` with an address
    // needs an unconnected socket, which a worker never has.
    (libc::SYS_sendto, (0, WORD, SOCKET_NUMBER as u64)),
    (libc::SYS_write, (0, WORD, 2)),
    (libc::SYS_writev, (0, WORD, 2)),
    (libc::SYS_clone, THREAD),
    (libc::SYS_mprotect, NO_CODE),
    (libc::SYS_prctl, (0, WORD, libc::PR_SET_NAME as u64)),
];

/// A count of eight bytes, which a driver writes to an eventfd(2) to wake its own threads; without it, NVDEC
/// took some 5 ms a picture. The rule also allows such writes to the device and to sockets, which `sendto`
/// reaches anyway.
const EVENT: ArgCondition = (2, u64::MAX, 8);

/// `fcntl` commands that make the kernel signal another process of the same user, such as the server:
/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX` (fcntl(2)). landlock prevents such signals only from Linux 6.12
/// on.
const OWNING_FCNTL: &[u64] = &[8, 10, 15];
/// `ioctl` commands with the same effect: `FIOSETOWN` and `SIOCSPGRP`.
const OWNING_IOCTL: &[u64] = &[0x8901, 0x8902];

/// Builds the filter of a worker.
pub(super) fn of_worker(confinement: &SandboxLimits) -> io::Result<Filter> {
    let mut filter = Filter::default();
    filter.allow(ALLOWED);
    if confinement.has_driver() {
        filter.allow(device_access::ALLOWED);
        filter.allow(device_access::ALLOWED_HERE);
        filter.allow_owning_nothing(libc::SYS_ioctl, OWNING_IOCTL)?;
        filter.allow_fcntl()?;
        filter.allow_of_itself(device_access::ALLOWED_OF_ITSELF)?;
        filter.allow_where(libc::SYS_write, &[EVENT])?;
    }
    if !confinement.program.is_empty() {
        // Each program has a socket, whose number is arbitrary beside a driver's descriptors. Without an
        // address `sendto` reaches only its peer.
        filter.allow(&[libc::SYS_shutdown]);
        filter.allow_where(libc::SYS_sendto, &[(4, u64::MAX, 0)])?;
    }
    for &(call, must) in ALLOWED_WHERE {
        filter.allow_where(call, &[must])?;
    }
    filter.allow_where(libc::SYS_mmap, &[NO_CODE, PRIVATE])?;
    // abort() signals its own thread.
    filter.allow_of_itself(&[libc::SYS_tgkill])?;
    Ok(filter)
}

/// Allow-list of system calls; empty at first.
#[derive(Default)]
pub(super) struct Filter(BTreeMap<i64, Vec<SeccompRule>>);

impl Filter {
    /// Allows calls with any arguments. Panics if a call is allowed under conditions, which would be lost.
    pub(super) fn allow(&mut self, calls: &[i64]) {
        for call in calls {
            let rules = self.0.entry(*call).or_default();
            assert!(rules.is_empty(), "call {call} is allowed under conditions");
        }
    }

    /// Allows a call if all conditions hold; adds to earlier rules of the call.
    pub(super) fn allow_where(&mut self, call: i64, musts: &[ArgCondition]) -> io::Result<()> {
        if self.0.get(&call).is_some_and(Vec::is_empty) {
            // The call is allowed with any arguments.
            return Ok(());
        }
        let condition = |&(argument, mask, value): &ArgCondition| {
            let length = if mask > WORD { Qword } else { Dword };
            SeccompCondition::new(argument, length, SeccompCmpOp::MaskedEq(mask), value)
        };
        let conditions: Result<Vec<_>, _> = musts.iter().map(condition).collect();
        let rule = conditions.and_then(SeccompRule::new).map_err(io::Error::other)?;
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }

    /// Allows `fcntl` with every command but those that set the receiver of signals.
    pub(super) fn allow_fcntl(&mut self) -> io::Result<()> {
        self.allow_owning_nothing(libc::SYS_fcntl, OWNING_FCNTL)
    }

    /// Allows a call with any second argument, its command, that is not in `refused`. Takes these from a call
    /// that is allowed with any arguments.
    fn allow_owning_nothing(&mut self, call: i64, refused: &[u64]) -> io::Result<()> {
        let other = |&command: &u64| SeccompCondition::new(1, Dword, SeccompCmpOp::Ne, command);
        let conditions: Result<Vec<_>, _> = refused.iter().map(other).collect();
        let rule = conditions.and_then(SeccompRule::new).map_err(io::Error::other)?;
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }

    /// Allows calls whose first argument is a process, for the own process.
    pub(super) fn allow_of_itself(&mut self, calls: &[i64]) -> io::Result<()> {
        for &call in calls {
            self.allow_where(call, &[(0, WORD, 0)])?;
            self.allow_where(call, &[(0, WORD, u64::from(std::process::id()))])?;
        }
        Ok(())
    }

    /// Applies the filter to all threads of the process, irrevocably.
    pub(super) fn install(self) -> io::Result<()> {
        self.compiled()?.iter().try_for_each(|program| {
            seccompiler::apply_filter_all_threads(program).map_err(io::Error::other)
        })
    }

    /// Returns the filters in order of installation: the last one allows no further filter.
    fn compiled(mut self) -> io::Result<[BpfProgram; 2]> {
        self.allow(&[libc::SYS_clone3]);
        // clone3 hides its flags behind a pointer. glibc falls back to clone on ENOSYS and on nothing
        // else; of two filters the stricter answer counts.
        let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        Ok([
            compile(clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?,
            compile(self.0, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?,
        ])
    }
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

#[cfg(test)]
pub(super) mod tests {
    use std::{io::Read, os::unix::net::UnixStream, ptr::null_mut, thread};

    use decode::{DecodeBackend, HwDeviceSpec};
    use media::Codec;
    use rustix::{
        io::Errno,
        mm::{MapFlags, ProtFlags, mmap_anonymous},
        net::{SendFlags, Shutdown, send, shutdown},
        process::{Pid, Resource, getppid, getrlimit, prlimit},
        thread::{sched_getaffinity, sched_setaffinity},
    };

    use super::*;
    use crate::sandbox::{RequestedDevice, program};

    #[test]
    #[expect(unsafe_code, reason = "mapping is")]
    fn memory_that_no_limit_counts_is_refused() {
        let map = |flags| {
            // SAFETY: the kernel chooses an unused address.
            let mapped = unsafe {
                mmap_anonymous(null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, flags)
            };
            mapped.map(drop)
        };
        let worker = of_worker(&confinement(false, false)).expect("builds");
        for (name, filter) in [("worker", worker), ("program", program::filter().expect("builds"))]
        {
            let outcome = under(filter, || (map(MapFlags::SHARED), map(MapFlags::PRIVATE)));
            assert_eq!(outcome, (Err(Errno::PERM), Ok(())), "{name}");
        }
    }

    /// Runs `attempt` on a thread under a filter; `attempt` must not print anything.
    pub(in crate::sandbox) fn under<T: Send>(
        filter: Filter,
        attempt: impl FnOnce() -> T + Send,
    ) -> T {
        let programs = filter.compiled().expect("compiles");
        thread::scope(|scope| {
            let confined =
                thread::Builder::new().name("confined".to_owned()).spawn_scoped(scope, || {
                    for program in &programs {
                        seccompiler::apply_filter(program).expect("a kernel with seccomp");
                    }
                    attempt()
                });
            confined.expect("a thread").join().expect("no panic")
        })
    }

    pub(in crate::sandbox) fn confinement(has_driver: bool, has_program: bool) -> SandboxLimits {
        let spec = HwDeviceSpec { backend: DecodeBackend::Nvdec, device: None, capabilities: None };
        SandboxLimits {
            memory_bytes: 1 << 30,
            cpu_seconds: None,
            parent: 1,
            device: has_driver.then_some(RequestedDevice {
                spec,
                codecs: Vec::new(),
                was_there: false,
            }),
            program: if has_program { vec![Codec::H264] } else { Vec::new() },
            gate: None,
            libraries: Vec::new(),
        }
    }

    #[test]
    #[should_panic(expected = "under conditions")]
    fn a_call_under_conditions_is_not_allowed_with_any_arguments() {
        let mut filter = Filter::default();
        filter.allow_where(libc::SYS_mmap, &[PRIVATE]).expect("a rule");
        filter.allow(&[libc::SYS_mmap]);
    }

    #[test]
    fn a_program_is_spoken_to_over_a_socket_of_any_number() {
        for (has_driver, has_program) in
            [(true, true), (false, true), (true, false), (false, false)]
        {
            let (ours, mut theirs) = UnixStream::pair().expect("a pair");
            // Descriptors that a driver has opened before.
            let opened: Vec<UnixStream> =
                (0..20).map(|_| ours.try_clone().expect("a descriptor")).collect();
            let end = opened.last().expect("twenty");
            let filter = of_worker(&confinement(has_driver, has_program)).expect("builds");
            let (sent, ended) = under(filter, || {
                (send(end, b"picture", SendFlags::NOSIGNAL), shutdown(end, Shutdown::Write))
            });
            let case = format!("driver {has_driver}, program {has_program}");
            if has_program {
                assert_eq!((sent, ended), (Ok(7), Ok(())), "{case}");
                let mut told = String::new();
                theirs.read_to_string(&mut told).expect("ended");
                assert_eq!(told, "picture", "{case}");
            } else {
                assert_eq!((sent, ended), (Err(Errno::PERM), Err(Errno::PERM)), "{case}");
            }
        }
    }

    #[test]
    fn a_driver_wakes_its_threads_by_counts_alone() {
        for (has_driver, outcome) in [(true, Ok(8)), (false, Err(Errno::PERM))] {
            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            let filter = of_worker(&confinement(has_driver, false)).expect("builds");
            let write = |bytes: &[u8]| rustix::io::write(&ours, bytes);
            let written = under(filter, || (write(&[1; 8]), write(&[1; 7]), write(&[1; 9])));
            let refused = Err(Errno::PERM);
            assert_eq!(written, (outcome, refused, refused), "driver {has_driver}");
        }
    }

    #[test]
    fn a_driver_sets_limits_and_processors_of_its_own_process_alone() {
        let limit = getrlimit(Resource::Core);
        let processors = sched_getaffinity(None).expect("known");
        let (server, own) = (getppid().expect("a parent"), rustix::process::getpid());
        let attempt = |whom: Option<Pid>| {
            let filter = of_worker(&confinement(true, false)).expect("builds");
            under(filter, || {
                (
                    prlimit(whom, Resource::Core, limit).map(drop),
                    sched_setaffinity(whom, &processors),
                )
            })
        };
        assert_eq!(attempt(None), (Ok(()), Ok(())));
        assert_eq!(attempt(Some(own)), (Ok(()), Ok(())));
        assert_eq!(attempt(Some(server)), (Err(Errno::PERM), Err(Errno::PERM)));
    }
}
