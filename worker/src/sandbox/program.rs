//! Rights of a decoding program: system calls to load libraries, to compute and to use its pipes.
//!
//! The program reads system libraries and itself, and no other file's contents; names and sizes of files are
//! not hidden from it. If the kernel lacks any part, no program is run.

use std::{io, path::PathBuf};

use landlock::{ABI, AccessFs};
use rustix::process::Resource;

use super::{
    MEMORY_SLACK_BYTES, apply_landlock, device_access, follow, privileges,
    seccomp::{ALLOWED, Filter, PRIVATE, THREAD, WORD},
    set_limit,
};

pub(crate) struct ProgramConfinement {
    pub memory_bytes: u64,
    pub cpu_seconds: u64,
    pub parent: u32,
    pub program: PathBuf,
    /// Directories besides the system's in which the loader looks for libraries.
    pub libraries: Vec<String>,
}

/// Most descriptors of a program: its pipes, and the library being loaded.
const DESCRIPTORS_MAX: u64 = 64;

/// System calls beside those of every worker and of loading.
const ALLOWED_PROGRAM: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_set_tid_address,
    libc::SYS_getppid,
];

/// Enters the sandbox; an error names the part that the kernel lacks.
pub(crate) fn become_program(confinement: &ProgramConfinement) -> io::Result<()> {
    let named = |what: &'static str| {
        move |error: io::Error| io::Error::new(error.kind(), format!("no {what}: {error}"))
    };
    follow(confinement.parent).map_err(named("parent death signal"))?;
    privileges::give_up().map_err(named("dropped capabilities"))?;
    let memory = confinement.memory_bytes.saturating_add(MEMORY_SLACK_BYTES);
    for (resource, limit) in [
        (Resource::Data, memory),
        (Resource::Cpu, confinement.cpu_seconds),
        (Resource::Nofile, DESCRIPTORS_MAX),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ] {
        set_limit(resource, limit).map_err(named("limit"))?;
    }
    let (_, closed) = apply_landlock(|ruleset| {
        let program = confinement.program.display().to_string();
        let ruleset = device_access::allow_libraries(ruleset, &confinement.libraries)?;
        device_access::allow_beneath(ruleset, &program, AccessFs::from_read(ABI::V7))
    });
    closed.map_err(named("landlock"))?;
    filter().and_then(Filter::install).map_err(named("seccomp"))
}

pub(super) fn filter() -> io::Result<Filter> {
    let mut filter = Filter::default();
    filter.allow(ALLOWED);
    filter.allow(ALLOWED_PROGRAM);
    filter.allow(device_access::ALLOWED_LOADING);
    filter.allow(device_access::ALLOWED_HERE);
    filter.allow_fcntl()?;
    filter.allow_where(libc::SYS_mmap, &[PRIVATE])?;
    filter.allow_where(libc::SYS_clone, &[THREAD])?;
    filter.allow_where(libc::SYS_prctl, &[(0, WORD, libc::PR_SET_NAME as u64)])?;
    // Reads the own limits only: landlock has no right that covers those of other processes.
    filter.allow_where(libc::SYS_prlimit64, &[(0, WORD, 0), (2, u64::MAX, 0)])?;
    filter.allow_of_itself(&[libc::SYS_tgkill])?;
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use rustix::{
        io::Errno,
        process::{getppid, getrlimit, prlimit, setrlimit},
        thread::{sched_getaffinity, sched_setaffinity},
    };

    use super::*;
    use crate::sandbox::seccomp::tests::under;

    #[test]
    fn a_program_sets_no_limit_and_no_processor_of_anyone() {
        let limit = getrlimit(Resource::Core);
        let processors = sched_getaffinity(None).expect("known");
        let server = getppid().expect("a parent");
        let (read, own, foreign, placed) = under(filter().expect("builds"), || {
            (
                getrlimit(Resource::Core),
                setrlimit(Resource::Core, limit),
                prlimit(Some(server), Resource::Core, limit).map(drop),
                sched_setaffinity(None, &processors),
            )
        });
        assert_eq!(read, limit, "its own is known to it");
        let refused = Err(Errno::PERM);
        assert_eq!((own, foreign, placed), (refused, refused, refused));
    }
}
