//! Jobs on clips: a worker's result equals the in-process one, for any number of threads.

use std::{fs::File, io::BufReader, path::Path, sync::Mutex};

use clips::{pick, pick_one};
use decode::Sampling;
use media::{FrameRate, Signal};
use worker::{CancelToken, JobOptions, JobSpec, LiveEnd, Resume, analyze};

use crate::support::{Heard, alone, long_clip, options, rendered, run, spec, supervisor, with};

pub fn in_process(path: &Path, options: &JobOptions) -> Heard {
    let heard = Mutex::new(Heard::default());
    let input = BufReader::new(File::open(path).expect("the file opens"));
    let take = |event| heard.lock().expect("no panic").take(event);
    let report = analyze(input, options, &take).expect("a result");
    let mut heard = heard.into_inner().expect("no panic");
    heard.done = Some(report);
    heard.settled()
}

#[test]
fn a_worker_gives_what_the_process_itself_gives() {
    let _alone = alone();
    for path in pick(
        &["bikes.mp4", "carphone_pristine.mp4", "hevc.mp4", "water.webm"],
        &["film_nasa.mp4", "nature_water.webm", "phone_adx-topshots.mp4", "talk_friday.mp4"],
    ) {
        let name = path.display();
        let expected = in_process(&path, &JobOptions { threads: 1, ..options() });
        let heard = run(spec(&path)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(heard.progress > 0, "{name}");
        assert!(heard.settled() == expected, "{name}");
        assert!(!expected.stills.is_empty(), "{name}");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let _alone = alone();
    for path in pick(
        &["bikes.mp4", "motion.mp4", "street.mp4"],
        &["surv_car-detection.mp4", "nature_flower.mp4", "anim_bbb-480p-30s.mp4"],
    ) {
        let name = path.display();
        let with = |threads| in_process(&path, &JobOptions { threads, ..options() });
        let one = with(1);
        let frames = one.done.as_ref().map(|report| report.frames);
        assert_eq!(frames, Some(one.signals.len() as u64), "{name}");
        for threads in [2, 4] {
            assert!(with(threads) == one, "{name} on {threads} threads");
        }
    }
}

#[test]
fn a_machine_of_many_cores_may_ask_for_all_of_them() {
    let _alone = alone();
    // 60 GOPs, enough for every thread to have one.
    let path = long_clip();
    let two = run(spec(&path)).expect("on two threads");
    let many = run(with(spec(&path), |it| it.threads = 200)).expect("on as many as there may be");
    assert!(many.settled() == two.settled());
}

#[test]
fn stills_of_a_turned_clip_stand_upright() {
    let _alone = alone();
    let path = pick_one("rotated.mp4", "anim_mb-rotate-bbb.mp4");
    let heard = in_process(&path, &JobOptions { max_frames: 5, ..options() });
    let stream = heard.opened.expect("opened");
    assert_ne!(stream.rotation.degrees(), 0);
    assert_eq!(heard.stills[0].1.extent, stream.extent.rotated(stream.rotation));
}

#[test]
fn a_job_numbers_and_times_on_from_an_earlier_one() {
    let _alone = alone();
    let path = rendered("resumed.mp4", "testsrc2=s=320x240:r=25:d=4", "-bf 2");
    let begin = run(with(spec(&path), |it| it.max_frames = 60)).expect("a beginning");
    let last = *begin.signals.last().expect("signals");
    assert_eq!((last.frame_index, last.pts_ms), (59, 2360));
    let whole = run(spec(&path)).expect("a result");
    let second = FrameRate::new(1, 1).expect("positive");
    type Row = (&'static str, Sampling, u64, u64, fn(u64) -> i64, LiveEnd);
    let rows: [Row; 3] = [
        ("to its end", Sampling::Every, 1000, 160, |at| 10_000 + 40 * at as i64, LiveEnd::Over),
        ("to the limit", Sampling::Every, 70, 70, |at| 10_000 + 40 * at as i64, LiveEnd::Enough),
        ("few", Sampling::Fixed(second), 1000, 64, |at| 10_000 + 1000 * at as i64, LiveEnd::Over),
    ];
    for (name, sampling, max_frames, frames, at_ms, end) in rows {
        let (gate, begins_at_ms) = (Default::default(), 10_000);
        let resume = Some(Resume { last, gate, begins_at_ms, segment: None });
        let mut heard = Heard::default();
        let job = JobOptions { sampling, max_frames, resume, ..options() };
        let job = JobSpec { options: job, ..spec(&path) };
        let outcome =
            supervisor().run_job(job, &CancelToken::new(), &mut |event| heard.take(event));
        assert_eq!(LiveEnd::of(&outcome, max_frames), end, "{name}");
        let found: Vec<_> =
            heard.signals.iter().map(|signal| (signal.frame_index, signal.pts_ms)).collect();
        let expected: Vec<_> =
            (60..frames).zip(0..).map(|(index, at)| (index, at_ms(at))).collect();
        assert_eq!(found, expected, "{name}");
        let report = outcome.expect("a report");
        assert_eq!(report.frames, frames, "{name}");
        assert_eq!(heard.signals[0].source_frame_index, Some(60), "{name}");
        let mut pictures = heard.signals.iter().zip(&whole.signals);
        let is_same = |(found, whole): (&Signal, &Signal)| {
            found.perceptual_hash == whole.perceptual_hash && found.luma_mean == whole.luma_mean
        };
        assert!(sampling != Sampling::Every || pictures.all(is_same), "{name}");
    }
}
