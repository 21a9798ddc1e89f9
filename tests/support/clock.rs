//! A clock of the system's that a test sets for a server: `clock_shim.c`, and the file that it reads.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Setup, disk_shim, skip, this_test};

/// The date of the servers that have it.
pub struct Clock {
    shim: PathBuf,
    path: PathBuf,
    file: File,
}

impl Clock {
    /// A clock that goes right, kept below `dir`; `None` where the test is passed over.
    pub fn new(dir: &Path) -> Option<Clock> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/clock_shim.c");
        let shim = disk_shim::compiled(&source, dir);
        let shim = shim.map_err(|why| skip(&this_test(), why)).ok()?;
        let path = dir.join("clock-offset");
        let file = File::create(&path).expect("a file");
        let clock = Clock { shim, path, file };
        clock.shift(0);
        Some(clock)
    }

    pub fn of(&self, setup: Setup) -> Setup {
        let setup = setup.var("LD_PRELOAD", &self.shim.display().to_string());
        setup.var("CLOCK_OFFSET", &self.path.display().to_string())
    }

    /// Sets it so many seconds ahead of the system's.
    pub fn shift(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).expect("written");
    }

    /// Sets it to so many seconds after 1970.
    pub fn set(&self, epoch_seconds: i64) {
        self.shift(epoch_seconds - epoch_now());
    }
}

/// Seconds after 1970 by the system's clock.
pub fn epoch_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}
