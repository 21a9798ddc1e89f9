//! What a decoding program keeps: system calls to load its libraries, to think and to use its two ends.

use std::{collections::BTreeMap, io, path::PathBuf};

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope};
use rustix::process::Resource;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompRule,
};

use super::{ALLOWED, MEMORY_SLACK_BYTES, device, follow, install, set_limit};

/// What a process gives up before it becomes a decoding program.
pub(crate) struct ProgramConfinement {
    pub memory_bytes: u64,
    pub parent: u32,
    pub program: PathBuf,
    /// Directories besides the system's in which the loader looks for libraries.
    pub libraries: Vec<PathBuf>,
}

/// Descriptors of a program: its two ends, and the library that is being loaded.
const DESCRIPTORS_MAX: u64 = 64;

/// System calls beside those of a worker with a device, whose files a program cannot reach.
const ALLOWED_PROGRAM: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_set_tid_address,
    libc::SYS_prctl,
    libc::SYS_getppid,
    libc::SYS_tgkill,
];

/// Gives everything else up. A program that the kernel cannot confine is not run.
pub(crate) fn become_program(confinement: &ProgramConfinement) -> io::Result<()> {
    follow(confinement.parent)?;
    let memory = confinement.memory_bytes.saturating_add(MEMORY_SLACK_BYTES);
    for (resource, limit) in [
        (Resource::Data, memory),
        (Resource::Nofile, DESCRIPTORS_MAX),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ] {
        set_limit(resource, limit)?;
    }
    restrict_paths(confinement)?;
    filter_system_calls()
}

fn restrict_paths(confinement: &ProgramConfinement) -> io::Result<()> {
    let own: Vec<String> =
        confinement.libraries.iter().map(|path| path.display().to_string()).collect();
    Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V7))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(ABI::V7)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(ABI::V7)))
        .and_then(Ruleset::create)
        .and_then(|ruleset| device::allow_libraries(ruleset, &own))
        .and_then(|ruleset| {
            let program = confinement.program.display().to_string();
            device::allow_beneath(ruleset, &program, AccessFs::from_read(ABI::V7))
        })
        .and_then(|ruleset| ruleset.restrict_self())
        .map(drop)
        .map_err(io::Error::other)
}

fn filter_system_calls() -> io::Result<()> {
    let all = ALLOWED.iter().chain(device::ALLOWED).chain(device::ALLOWED_HERE);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        all.chain(ALLOWED_PROGRAM).map(|call| (*call, Vec::new())).collect();
    // Threads, never processes.
    let thread = libc::CLONE_THREAD as u64;
    let condition = SeccompCondition::new(0, Dword, SeccompCmpOp::MaskedEq(thread), thread)
        .map_err(io::Error::other)?;
    let rule = SeccompRule::new(vec![condition]).map_err(io::Error::other)?;
    rules.insert(libc::SYS_clone, vec![rule]);
    rules.insert(libc::SYS_clone3, Vec::new());
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    install(clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    install(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}
