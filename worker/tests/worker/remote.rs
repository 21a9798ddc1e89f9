//! Remote files through the control socket: the result equals that of the same file on disk.

use std::{fs, path::Path};

use clips::pick;
use decode::DecodeError;
use worker::{CancelToken, JobFault, JobInput, JobSpec, RemoteMedia, WorkerError};

use crate::{
    shelf::Shelf,
    support::{Heard, alone, long_clip, rendered, run, spec, supervisor},
};

fn shelf_with(path: &Path) -> Shelf {
    let shelf = Shelf::new();
    shelf.put("clip", fs::read(path).expect("readable"));
    shelf
}

#[test]
fn a_remote_file_gives_what_it_gives_on_disk() {
    let _alone = alone();
    let mut clips = vec![
        long_clip(),
        rendered("short.ts", "testsrc2=s=320x240:r=25:d=4", ""),
        rendered("short.mkv", "testsrc2=s=320x240:r=25:d=4", ""),
    ];
    clips.extend(pick(
        &["bigbuckbunny.mp4", "hevc.mp4", "water.webm"],
        &["nature_water.webm", "phone_adx-topshots.mp4"],
    ));
    for path in clips {
        let expected = run(spec(&path)).expect("a result").settled();
        let shelf = shelf_with(&path);
        let found = shelf.run("clip").expect("a result").settled();
        assert!(found == expected, "{}: {:?}", path.display(), shelf.asked());
        assert!(shelf.asked().len() <= 8, "{}: {:?}", path.display(), shelf.asked());
    }
}

#[test]
fn a_server_without_byte_ranges_is_asked_again_a_few_times() {
    let _alone = alone();
    // The first file has its index at the end.
    for path in [long_clip(), rendered("short.ts", "testsrc2=s=320x240:r=25:d=4", "")] {
        let expected = run(spec(&path)).expect("a result").settled();
        let mut shelf = shelf_with(&path);
        shelf.ranges = false;
        let found = shelf.run("clip").expect("a result").settled();
        assert!(found == expected, "{}", path.display());
        assert!(shelf.asked().len() <= 4, "{:?}", shelf.asked());
    }
}

#[test]
fn a_stream_of_unknown_length_is_read_in_one_go() {
    let _alone = alone();
    let path = rendered("short.ts", "testsrc2=s=320x240:r=25:d=4", "");
    let expected = run(spec(&path)).expect("a result").settled();
    let mut shelf = shelf_with(&path);
    (shelf.sized, shelf.ranges) = (false, false);
    let found = shelf.run("clip").expect("a result").settled();
    assert!(found.signals == expected.signals && found.stills == expected.stills);
    assert_eq!(shelf.asked(), ["clip@0"]);
}

#[test]
fn bytes_that_end_early_are_truncation() {
    let _alone = alone();
    let path = rendered("short.mkv", "testsrc2=s=320x240:r=25:d=4", "");
    let len = fs::read(&path).expect("readable").len();
    let mut shelf = shelf_with(&path);
    shelf.cut = Some(len / 2);
    let found = shelf.run("clip").expect("what there is");
    let report = found.done.expect("a report");
    assert!(report.truncated && (10..95).contains(&report.frames), "{report:?}");
}

#[test]
fn what_is_no_media_is_refused_as_a_file_would_be() {
    let _alone = alone();
    let shelf = Shelf::new();
    shelf.put("text", "no media at all, in a few words");
    shelf.put("nothing", "");
    shelf.put("playlist", "#EXTM3U\nclip\n");
    let error = shelf.run("text").expect_err("text").to_string();
    assert_eq!(error, "unsupported container: not recognised as media");
    let error = shelf.run("nothing").expect_err("nothing").to_string();
    assert_eq!(error, "the file is empty");
    let mut unfollowed = shelf.spec("playlist");
    unfollowed.input = JobInput::Remote(RemoteMedia {
        url: "https://media.test/playlist".to_owned(),
        resources: Box::new(shelf.clone()),
        playlists: false,
        is_endless: false,
    });
    let error = run(unfollowed).expect_err("not followed");
    let refused = DecodeError::NestedResource { name: "m3u".to_owned() };
    assert!(
        matches!(&error, WorkerError::Fault(JobFault::Decode(found)) if *found == refused),
        "{error}"
    );
}

#[test]
fn a_job_that_waits_for_the_network_can_be_cancelled() {
    let _alone = alone();
    /// A resource that never delivers a byte.
    struct Silence(Vec<std::io::PipeWriter>, CancelToken);
    impl worker::ResourceOpener for Silence {
        fn open(&mut self, url: &str, _: u64) -> Result<worker::Resource, worker::ResourceError> {
            let (read, write) = std::io::pipe().expect("a pipe");
            self.0.push(write);
            self.1.cancel();
            let (url, size) = (url.to_owned(), Some(1000));
            Ok(worker::Resource { bytes: read.into(), url, size, seekable: true })
        }
    }
    let cancel = CancelToken::new();
    let input = JobInput::Remote(RemoteMedia {
        url: "https://media.test/".to_owned(),
        resources: Box::new(Silence(Vec::new(), cancel.clone())),
        playlists: true,
        is_endless: false,
    });
    let spec = JobSpec { input, ..Shelf::new().spec("") };
    let mut heard = Heard::default();
    let outcome = supervisor().run_job(spec, &cancel, &mut |event| heard.take(event));
    assert!(matches!(outcome, Err(WorkerError::Cancelled)), "{outcome:?}");
}
