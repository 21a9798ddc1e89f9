//! Sample runs and events, for tests of the layers above.

use std::{os::unix::fs::FileExt, path::Path, sync::Arc, time::Duration};

use media::{RequestId, WallTime};
use timeline::{FramesDecoded, SamplingPolicy, Signals, Timeline, TimelineOptions};

use crate::{
    base::keys::Principal,
    runs::registry::{RunLimits, RunOrigin, RunRegistry},
};

/// Registry on a log in `dir`, with this maximum of active runs.
pub fn registry(dir: &Path, active: usize) -> Arc<RunRegistry> {
    let (timeline, _) = Timeline::open(dir, TimelineOptions::default()).expect("opens");
    let limits = RunLimits { active, ttl: Duration::from_secs(3600), tag: None };
    let now = WallTime { epoch_ms: 0 };
    RunRegistry::open(timeline, limits, Arc::default(), now, &Default::default()).expect("rebuilt")
}

/// Damages the first record with `text` of the log in `dir`.
pub fn damage(dir: &Path, text: &str) {
    let journal = dir.join("journal/00000000000000000001.journal");
    let bytes = std::fs::read(&journal).expect("readable");
    let at = bytes.windows(text.len()).position(|some| some == text.as_bytes()).expect("a record");
    let journal = std::fs::File::options().write(true).open(journal).expect("opens");
    journal.write_all_at(&[bytes[at] ^ 1], at as u64).expect("written");
}

/// Origin of a run that the API creates for `owner`.
pub fn origin(owner: &str) -> RunOrigin {
    RunOrigin {
        principal: Principal::named(owner),
        tenant: None,
        mode: "balanced".to_owned(),
        model: None,
        session: None,
    }
}

/// Event of a recorded file.
pub fn decoded(request_id: RequestId, signals: Signals) -> FramesDecoded {
    let (uri, stream) = ("a.mp4".to_owned(), "main".parse().expect("an id"));
    FramesDecoded {
        decoded_frames: signals.count(),
        width: 16,
        height: 16,
        pixel_format: "yuv420p".to_owned(),
        signals,
        ..FramesDecoded::new(request_id, uri, stream, SamplingPolicy::SourceFpsAdaptive)
    }
}
