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

pub(super) fn of_worker(confinement: &SandboxLimits) -> io::Result<Filter> {
    let mut filter = Filter::default();
    filter.allow(ALLOWED);
    if confinement.has_driver() {
        filter.allow(device_access::ALLOWED);
        filter.allow(device_access::ALLOWED_LOADING);
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
pub(super) mod tests;
