//! Tests of the calls that a worker and a program may make.

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
        let mapped =
            unsafe { mmap_anonymous(null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, flags) };
        mapped.map(drop)
    };
    let worker = of_worker(&confinement(false, false)).expect("builds");
    for (name, filter) in [("worker", worker), ("program", program::filter().expect("builds"))] {
        let outcome = under(filter, || (map(MapFlags::SHARED), map(MapFlags::PRIVATE)));
        assert_eq!(outcome, (Err(Errno::PERM), Ok(())), "{name}");
    }
}

/// Runs `attempt` on a thread under a filter; `attempt` must not print anything.
pub(in crate::sandbox) fn under<T: Send>(filter: Filter, attempt: impl FnOnce() -> T + Send) -> T {
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
    for (has_driver, has_program) in [(true, true), (false, true), (true, false), (false, false)] {
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
            (prlimit(whom, Resource::Core, limit).map(drop), sched_setaffinity(whom, &processors))
        })
    };
    assert_eq!(attempt(None), (Ok(()), Ok(())));
    assert_eq!(attempt(Some(own)), (Ok(()), Ok(())));
    assert_eq!(attempt(Some(server)), (Err(Errno::PERM), Err(Errno::PERM)));
}
