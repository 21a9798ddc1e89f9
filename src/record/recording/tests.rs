//! Tests of writing a recording to a disk that fails.

use bytes::Bytes;
use gate::SelectionReason;
use media::{EventType, RequestId};

use super::*;
use crate::{base::metrics::Metrics, runs::registry::tests::samples};

const REQUEST: RequestId = RequestId::from_bytes([7; 8]);

fn still(frame_index: u64, jpeg: &'static [u8]) -> Kept {
    let (event_type, reason) = (EventType::SceneCut, SelectionReason::SceneCut);
    Kept { frame_index, pts_ms: 0, event_type, reason, jpeg: Bytes::from_static(jpeg) }
}

#[test]
fn a_still_that_the_disk_refuses_is_not_charged() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name);
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let registry = samples::registry(dir.path(), 5);
    let run = registry.create(samples::origin("alice"), None, REQUEST);
    let run = runtime.block_on(run).expect("created");
    let stores = JobStorage {
        blobs: BlobStore::open(&place("blobs"), None).expect("opened"),
        columns: OpenColumns::open(&place("open-columns")).expect("opened"),
        reserve: Arc::new(DiskReserve::new(place(""), 0)),
        still_seconds: Metrics::new().still_seconds.clone(),
    };
    // A file where the folder of the second still would be.
    let elsewhere = BlobStore::open(&place("elsewhere"), None).expect("opened");
    let refused = elsewhere.lease().put(b"refused").expect("stored");
    let path = stores.blobs.path(&refused);
    std::fs::write(path.parent().expect("a folder"), "").expect("written");
    let log = RunLog {
        registry: Arc::clone(&registry),
        run: Arc::clone(&run),
        runtime: runtime.handle().clone(),
        patience: LOG_WAIT,
    };
    let decoded = samples::decoded(REQUEST, Signals::Inline(Vec::new()));
    let head = Head { received: None, decoded, analysis: None, index_name: None };
    let job = JobId::from_bytes([1; 16]);
    let mut recording = Recording::begin(log, stores, job, head).expect("begun");
    let stills = vec![still(0, b"kept"), still(1, b"refused")];
    let written = recording.write(Batch { stills, ..Batch::default() });
    assert!(matches!(written, Err(RecordError::Store(_))), "{written:?}");
    let (quota, owner) = (&registry.quota, &run.origin().principal);
    let before = quota.used(owner);
    run.release_stills(u64::MAX, quota);
    assert_eq!(before - quota.used(owner), b"kept".len() as u64);
}
