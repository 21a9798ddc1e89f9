//! A kernel without landlock, for one thread and all that it starts.

use std::{collections::BTreeMap, thread};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// `landlock_create_ruleset`, on every machine.
const LANDLOCK_CREATE_RULESET: i64 = 444;
/// Error number of a system call that the kernel lacks.
const ENOSYS: u32 = 38;

/// Acts on a thread to which, with all that it starts, the kernel has no landlock.
pub fn without_landlock<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let (missing, others) = (SeccompAction::Errno(ENOSYS), SeccompAction::Allow);
    let rules = BTreeMap::from([(LANDLOCK_CREATE_RULESET, Vec::new())]);
    let arch = std::env::consts::ARCH.try_into().expect("a known machine");
    let filter = SeccompFilter::new(rules, others, missing, arch).expect("a filter");
    let filter: BpfProgram = filter.try_into().expect("compiles");
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("no-landlock".to_owned());
        let acting = thread.spawn_scoped(scope, || {
            seccompiler::apply_filter(&filter).expect("a kernel with seccomp");
            act()
        });
        acting.expect("a thread").join().expect("no panic")
    })
}
