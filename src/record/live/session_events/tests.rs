//! Tests of worker output: the part that reaches a session's task, and the part that is recorded.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use media::Score;

use super::*;
use crate::record::recorder::tests::recorder_of;

fn signal(frame_index: u64, perceptual_hash: u64) -> Signal {
    Signal { perceptual_hash, ..Signal::plain(frame_index, frame_index as i64 * 40) }
}

fn say(inbox: &SessionOutputSender, frame_index: u64, hash: u64) {
    say_weighing(inbox, frame_index, hash, 1);
}

/// Sends worker output of a selected frame, with a still of so many bytes.
fn say_weighing(inbox: &SessionOutputSender, frame_index: u64, hash: u64, bytes: usize) {
    let record = shown(frame_index, hash, bytes);
    inbox.take(WorkerSessionEvent::Frames(vec![record])).expect("it is selected");
}

/// Frame that is a scene cut, with its picture.
fn shown(frame_index: u64, hash: u64, bytes: usize) -> FrameRecord {
    let signal = Signal { scene_score: Some(Score::ONE), ..signal(frame_index, hash) };
    let jpeg = vec![frame_index as u8; bytes];
    let still = Some(EncodedImage { extent: Dimensions { width: 2, height: 2 }, jpeg });
    let pictures = Made { still, view: Some(FrameView::Still), ..Made::default() };
    FrameRecord { signal, pts: None, pictures }
}

fn recorded(metrics: &Arc<Metrics>) -> (SessionOutputSender, Heard) {
    let (inbox, queue) = inbox(Arc::clone(metrics), Arc::default());
    inbox.shared().record_by(recorder_of(None));
    (inbox, queue)
}

/// Takes the pending batch; returns its rows, stills and number of events.
fn batch(inbox: &SessionOutputSender) -> (Vec<u64>, Vec<u64>, usize) {
    let batch = inbox.shared().recorder().expect("set").take();
    let rows = batch.signals.iter().map(|signal| signal.frame_index).collect();
    let stills = batch.stills.iter().map(|still| still.frame_index).collect();
    (rows, stills, batch.events.len())
}

fn heard(queue: &mut Heard) -> Vec<(&'static str, u64, bool)> {
    let mut context = Context::from_waker(Waker::noop());
    let said = std::iter::from_fn(|| match pin!(queue.recv()).poll(&mut context) {
        Poll::Ready(said) => said,
        Poll::Pending => None,
    });
    let told = said.map(|said| match said {
        SessionOutput::View(view) => ("view", view.frame_index, view.is_looping),
        SessionOutput::Closed(_) => ("closed", 0, false),
        SessionOutput::Behind => ("behind", 0, false),
        _ => ("other", 0, false),
    });
    told.collect()
}

#[test]
fn a_view_knows_whether_it_is_of_a_loop() {
    let (inbox, mut queue) = recorded(&Arc::new(Metrics::new()));
    [0, 0xffff, 0, 0xffff].iter().zip(0..).for_each(|(hash, frame)| say(&inbox, frame, *hash));
    let expected = [("view", 0, false), ("view", 1, false), ("view", 2, false), ("view", 3, true)];
    assert_eq!(heard(&mut queue), expected);
    assert_eq!(batch(&inbox), (vec![0, 1, 2, 3], vec![0, 1, 2, 3], 1), "one loop is told");
    assert_eq!(inbox.shared().frames(), 4);
}

#[test]
fn another_place_goes_on_counting_and_the_old_one_is_not_heard() {
    let (first, mut queue) = recorded(&Arc::new(Metrics::new()));
    say(&first, 0, 0);
    let (second, resume) = first.renewed();
    assert_eq!(resume.map(|(last, _)| last.frame_index), Some(0));
    first.take(WorkerSessionEvent::Closed { frames: 1, decoder: String::new() }).expect("heard");
    first.worker_ended(&WorkerError::Ended);
    say(&first, 1, 1);
    say(&second, 1, 1);
    assert_eq!(heard(&mut queue), [("view", 0, false), ("view", 1, false)]);
    assert_eq!(batch(&second), (vec![0, 1], vec![0, 1], 0));
}

#[test]
fn load_sheds_pictures_and_never_a_signal() {
    // Bytes of each still, and how many stills and views of ten frames fit.
    for (bytes, waiting) in [(WAITING_BYTES * 2, 1), (WAITING_BYTES / 4, 4), (10, 10)] {
        let metrics = Arc::new(Metrics::new());
        let (inbox, mut queue) = recorded(&metrics);
        for round in 0..2 {
            let frames = inbox.shared().frames();
            (0..10).for_each(|at| say_weighing(&inbox, frames + at, 0, bytes));
            let views = heard(&mut queue).len();
            let (rows, stills, _) = batch(&inbox);
            assert_eq!((views, stills.len()), (waiting, waiting), "{bytes}, round {round}");
            assert_eq!(rows, (frames..frames + 10).collect::<Vec<_>>(), "{bytes}");
        }
        let shed = [ShedReason::Stills, ShedReason::Keyframes]
            .map(|shed| metrics.live_shed.of(shed).get());
        assert_eq!(shed, [2 * (10 - waiting as u64); 2], "{bytes}");
    }
}

#[test]
fn a_full_queue_has_room_for_the_end() {
    let metrics = Arc::new(Metrics::new());
    let (inbox, mut queue) = recorded(&metrics);
    (0..100).for_each(|frame| say(&inbox, frame, 0));
    inbox.take(WorkerSessionEvent::Closed { frames: 100, decoder: String::new() }).expect("heard");
    assert_eq!(heard(&mut queue).last().map(|said| said.0), Some("closed"));
    let shed = metrics.live_shed.of(ShedReason::Keyframes).get();
    assert_eq!(shed, 100 - (WAITING - KEPT_FREE) as u64);
}

#[test]
fn a_log_that_is_too_slow_ends_the_session() {
    let (inbox, mut queue) = recorded(&Arc::new(Metrics::new()));
    let of = |signal| FrameRecord { signal, pts: None, pictures: Made::default() };
    let records = (0..=SIGNALS_MAX as u64).map(|frame| of(signal(frame, 0))).collect();
    inbox.take(WorkerSessionEvent::Frames(records)).expect("heard");
    assert_eq!(heard(&mut queue), [("behind", 0, false)]);
}

#[test]
fn pictures_that_nobody_wanted_are_violations_and_go_no_further() {
    let still = shown(1, 0, 1);
    let picture = still.pictures.still.clone();
    let plain = |pictures| FrameRecord {
        signal: signal(1, 0),
        pts: Some(Timestamp::from_millis(40)),
        pictures,
    };
    let own = picture.clone().map(FrameView::Own);
    let clip =
        ClipSpec { target_fps: 1, length_ms: 60_000, delay_ms: 0, pictures: 1, max_edge: 64 };
    let rows = [
        ("a frame without", None, plain(Made::default()), true),
        ("a still", None, plain(Made { still: picture.clone(), ..Made::default() }), false),
        ("a view", None, plain(Made { view: own, ..Made::default() }), false),
        ("a clip's", None, plain(Made { clip: picture.clone(), ..Made::default() }), false),
        (
            "a clip's again",
            Some(clip),
            plain(Made { clip: picture.clone(), ..Made::default() }),
            false,
        ),
    ];
    for (name, clips, record, is_right) in rows {
        let (inbox, mut queue) = recorded(&Arc::new(Metrics::new()));
        inbox.cut_clips(clips);
        let first = Made { clip: picture.clone().filter(|_| clips.is_some()), ..Made::default() };
        let first = FrameRecord {
            signal: signal(0, 0),
            pts: Some(Timestamp::from_millis(0)),
            pictures: first,
        };
        let told = inbox.take(WorkerSessionEvent::Frames(vec![first, record]));
        assert_eq!(told.is_ok(), is_right, "{name}");
        assert!(heard(&mut queue).is_empty(), "{name}");
    }
}
