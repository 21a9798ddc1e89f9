//! Rights of a worker that decodes or measures with a device: its driver's libraries and files.
//!
//! A driver loads libraries, opens its device again for every decoder and controls it by `ioctl`. So such a
//! worker reads system libraries and hardware descriptions, accesses the device and names its threads; it
//! opens no other file, writes none, has no network and starts no process.

use std::path::Path;

use landlock::{
    ABI, AccessFs, BitFlags, PathBeneath, PathFd, RulesetCreated, RulesetCreatedAttr, RulesetError,
};

const LIBRARIES: [&str; 10] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/nix/store",
    "/etc/ld.so.cache",
];

/// Further folders of drivers, and system files that drivers read.
const OF_DRIVERS: [&str; 11] = [
    "/usr/local",
    "/run/opengl-driver",
    "/usr/share/libdrm",
    "/usr/share/drirc.d",
    // Lists of Vulkan drivers.
    "/usr/share/vulkan",
    "/etc/vulkan",
    // Lists of EGL drivers, by which NVIDIA's Vulkan starts without a display.
    "/usr/share/glvnd",
    "/etc/glvnd",
    "/usr/share/nvidia",
    "/proc",
    "/sys",
];

/// Device files of graphics cards.
const DEVICES: [&str; 9] = [
    "/dev/dri",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
    "/dev/nvidia-caps",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
];

/// The process's own threads, which NVIDIA's driver names: without that `cuInit` fails. Write access here
/// includes the process's memory, which adds nothing, as code may be mapped beside a driver.
const OWN_THREADS: &str = "/proc/self/task";

const NVIDIA_DEVICES_MAX: u32 = 32;

/// System calls by which a driver or a program loads its libraries and starts.
pub(super) const ALLOWED_LOADING: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_mprotect,
    libc::SYS_ppoll,
    libc::SYS_dup,
    libc::SYS_uname,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_clock_getres,
];

/// Further system calls of a driver.
pub(super) const ALLOWED: &[i64] = &[
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_mmap,
    libc::SYS_mlock,
    libc::SYS_mincore,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
];

/// Further system calls, allowed only on the own process, as the server's has the same user.
pub(super) const ALLOWED_OF_ITSELF: &[i64] = &[libc::SYS_prlimit64, libc::SYS_sched_setaffinity];

/// Old system calls of x86-64, which other architectures never had.
#[cfg(target_arch = "x86_64")]
pub(super) const ALLOWED_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const ALLOWED_HERE: &[i64] = &[];

/// Adds the system's libraries and `libraries` to a ruleset that allows nothing.
pub(super) fn allow_libraries(
    ruleset: RulesetCreated,
    libraries: &[String],
) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::from_read(ABI::V7);
    let own = libraries.iter().map(String::as_str);
    let mut paths = LIBRARIES.into_iter().chain(own);
    paths.try_fold(ruleset, |ruleset, path| allow_beneath(ruleset, path, read))
}

/// Adds the driver's and devices' paths to a ruleset that allows nothing; missing paths are skipped.
pub(super) fn allow(
    ruleset: RulesetCreated,
    libraries: &[String],
) -> Result<RulesetCreated, RulesetError> {
    let talk = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let numbered: Vec<String> =
        (0..NVIDIA_DEVICES_MAX).map(|number| format!("/dev/nvidia{number}")).collect();
    let devices = DEVICES.into_iter().chain(numbered.iter().map(String::as_str));
    let read = AccessFs::from_read(ABI::V7);
    let of_drivers = OF_DRIVERS.into_iter().map(|path| (path, read));
    let name = AccessFs::WriteFile | AccessFs::Truncate;
    let mut rules = of_drivers.chain(devices.map(|path| (path, talk))).chain([(OWN_THREADS, name)]);
    let ruleset = allow_libraries(ruleset, libraries)?;
    rules.try_fold(ruleset, |ruleset, (path, access)| allow_beneath(ruleset, path, access))
}

pub(super) fn allow_beneath(
    ruleset: RulesetCreated,
    path: &str,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // A path that cannot be opened now stays inaccessible.
    let Ok(opened) = PathFd::new(path) else { return Ok(ruleset) };
    // Rights of directories are invalid for a file.
    let rights =
        if Path::new(path).is_dir() { access } else { access & AccessFs::from_file(ABI::V7) };
    ruleset.add_rule(PathBeneath::new(opened, rights))
}
