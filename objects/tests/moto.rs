//! Tests against another S3 server: moto from PyPI, which checks keys and policies as AWS does.
#![allow(missing_docs)]

#[path = "../../tests/support/python.rs"]
mod python;
#[path = "../../tests/support/skip.rs"]
mod skip;
mod support;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use objects::{Objects, PART_BYTES};
use support::{Size as _, World, content, upload, whole};
use timeline::RemoteFault;

/// Running server, and the key of a user who may write to the bucket `footage`, but not below `read-only`.
struct Moto {
    child: Child,
    url: String,
    key: String,
    secret: String,
}

impl Moto {
    fn start(test: &str) -> Option<Moto> {
        if !skip::is_long(test) {
            return None;
        }
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/moto");
        let bin = python::installed(test, &scripts.join("requirements.txt"))?;
        let mut child = Command::new(bin.join("python"))
            .args(["-B".as_ref(), scripts.join("serve.py").as_os_str()])
            // The server ends when its standard input closes.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python starts");
        let (mut line, stdout) = (String::new(), child.stdout.take().expect("piped"));
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut word = || words.next().expect("a URL, a key and a secret");
        Some(Moto { child, url: word(), key: word(), secret: word() })
    }

    fn client(&self, world: &World, place: &str, secret: &str) -> Objects {
        let variables = [("AWS_ACCESS_KEY_ID", &*self.key), ("AWS_SECRET_ACCESS_KEY", secret)];
        world.client_of(place, &self.url, "srv-1", &variables)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // The server may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn another_store_keeps_files_and_tells_faults_as_the_first_does() {
    const TEST: &str = "another_store_keeps_files_and_tells_faults_as_the_first_does";
    let Some(moto) = Moto::start(TEST) else { return };
    let world = World::new();
    let folder = moto.client(&world, "s3://footage/cameras", &moto.secret).folder("stills");
    for (seed, length) in [(1, 0), (2, 50_000), (3, 2 * PART_BYTES as usize + 1)] {
        let file = world.file(seed, length);
        assert_eq!(folder.size(&file.0), Ok(None));
        upload(&*folder, &file).expect("stored");
        assert_eq!(folder.size(&file.0), Ok(Some(length as u64)));
        let read = whole(&*folder, &file.0).expect("there").expect("read");
        assert!(read == content(seed, length), "{length} bytes");
        // Many of the keys do not exist.
        let mut hashes: Vec<_> = (100..1200).map(|seed| world.file(seed, 8).0).collect();
        hashes.push(file.0);
        folder.remove(&hashes).expect("removed");
        assert_eq!(folder.size(&file.0), Ok(None));
    }
    let file = world.file(4, 1000);
    for (place, secret, expected) in [
        ("s3://footage/cameras", "another-secret", RemoteFault::Denied),
        ("s3://footage/read-only", &*moto.secret, RemoteFault::Denied),
        ("s3://gone/cameras", &*moto.secret, RemoteFault::NoBucket),
    ] {
        let folder = moto.client(&world, place, secret).folder("stills");
        assert_eq!(upload(&*folder, &file).expect_err("a fault").fault, expected, "{place}");
    }
}
