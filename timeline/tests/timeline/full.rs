//! Full real disk: a small file system in a separate mount namespace.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use media::ErrorKind;
use tempfile::TempDir;
use timeline::{BlobStore, LogState, Timeline, TimelineOptions};

use crate::{
    compact::purge,
    skip::skip,
    support::{deleted, events, found, run, small},
};

/// Runs in the namespace; its exit status is the result.
#[test]
#[ignore = "the process that the test below starts on a small disk"]
fn child() {
    let dir = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = dir.lines().rev().find(|line| line.contains("sightline-small-disk")).unwrap();
    let dir = PathBuf::from(mount.split(' ').nth(1).unwrap());
    let options = TimelineOptions {
        file_bytes: 1 << 20,
        grow_bytes: 256 << 10,
        spare_bytes: 64 << 10,
        ..small()
    };
    let (log, _) = Timeline::open(&dir.join("log"), options.clone()).unwrap();
    let blobs = BlobStore::open(&dir.join("blobs"), None).unwrap();
    let text = "x".repeat(1000);
    for number in 0..200 {
        log.append_wait(vec![found(number % 7, &text)]).unwrap();
    }
    let before = events(&log).len();
    fill(&dir.join("ballast"));
    let stored = blobs.lease().put(&[7; 100_000]).unwrap_err();
    assert_eq!(stored.kind(), ErrorKind::Exhausted, "{stored}");
    let mut kept = before;
    let refused = loop {
        match log.append_wait(vec![found(1, &text)]) {
            Ok(appended) => kept += appended.len(),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    for number in 0..100 {
        log.append_wait(vec![deleted(number)]).unwrap();
    }
    assert!(log.append_wait(vec![found(1, &text)]).is_err());
    let error = purge(&log, &[2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert_eq!(log.state(), LogState::Writable);
    assert_eq!(events(&log).len(), kept + 100);

    fs::remove_file(dir.join("ballast")).unwrap();
    for _ in 0..300 {
        log.append_wait(vec![found(1, &text)]).unwrap();
    }
    blobs.lease().put(&[7; 100_000]).unwrap();
    purge(&log, &[2]).unwrap();
    let expected = events(&log);
    assert!(expected.iter().all(|event| event.head.run != run(2)));
    drop(log);
    let (log, _) = Timeline::open(&dir.join("log"), options).unwrap();
    assert_eq!(events(&log), expected);
}

/// Writes until nothing more fits.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    for bytes in [64 << 10, 4096, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
}

#[test]
fn a_full_disk_refuses_what_is_new_takes_what_ends_runs_and_recovers() {
    let dir = TempDir::new().unwrap();
    let mount =
        "mount -t tmpfs -o size=8m sightline-small-disk \"$1\" || exit 77; shift; exec \"$@\"";
    let child = ["full::child", "--exact", "--ignored", "--nocapture"];
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", mount, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(child)
        .output();
    let name = "a_full_disk_refuses_what_is_new_takes_what_ends_runs_and_recovers";
    match output {
        Err(error) => skip(name, format!("no unshare: {error}")),
        Ok(output) if matches!(output.status.code(), Some(1 | 77)) => {
            let told = String::from_utf8_lossy(&output.stderr);
            skip(name, format!("no mount namespace here: {told}"));
        }
        Ok(output) => {
            let (out, told) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
            let out = String::from_utf8_lossy(out);
            assert!(output.status.success(), "{out}\n{told}");
            assert!(out.contains("1 passed"), "{out}\n{told}");
        }
    }
}
