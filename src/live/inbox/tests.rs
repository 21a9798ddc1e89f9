//! Worker output, and the part of it that reaches a session's task.

use media::{Extent, Score, Timestamp};

use super::*;

fn signal(frame_index: u64, perceptual_hash: u64) -> Signal {
    let score = Score::ZERO;
    Signal {
        frame_index,
        source_frame_index: None,
        pts_ms: frame_index as i64 * 40,
        perceptual_hash,
        luma_mean: score,
        flicker_score: score,
        ghosting_score: score,
        noise_variance_score: score,
        scene_score: None,
    }
}

/// Sends worker output about a selected frame with this hash.
fn say(inbox: &Inbox, frame_index: u64, hash: u64) {
    say_weighing(inbox, frame_index, hash, 1);
}

/// The same, of a frame whose still has so many bytes.
fn say_weighing(inbox: &Inbox, frame_index: u64, hash: u64, bytes: usize) {
    let pts_ms = frame_index as i64 * 40;
    let (reason, extent) = (Reason::SceneCut, Extent { width: 2, height: 2 });
    inbox.take(SessionEvent::Still(Still {
        frame_index,
        pts_ms,
        reason,
        event_type: EventType::SceneCut,
        confidence: Score::ONE,
        extent,
        jpeg: vec![frame_index as u8; bytes],
    }));
    let pts = Timestamp::from_millis(pts_ms);
    let view = Some(SelectedView::Still);
    let selected = SelectedFrame { frame_index, pts, reason, view, novelty: None };
    inbox.take(SessionEvent::Selected(selected));
    inbox.take(SessionEvent::Signals(vec![signal(frame_index, hash)]));
}

fn heard(queue: &mut Words) -> Vec<(&'static str, u64, bool)> {
    let said = std::iter::from_fn(|| queue.try_recv());
    let told = said.map(|said| match said {
        Said::Still(still) => ("still", still.frame_index, false),
        Said::View(view) => ("view", view.frame_index, view.is_looping),
        Said::Loop(entered) => ("loop", entered.frame_index, true),
        Said::Closed => ("closed", 0, false),
        _ => ("other", 0, false),
    });
    told.collect()
}

#[test]
fn a_view_knows_whether_it_is_of_a_loop() {
    let (inbox, mut queue) = inbox(Arc::new(Metrics::new()), Arc::default(), Arc::default());
    // A frame that is not selected counts, too.
    say(&inbox, 0, 0);
    inbox.take(SessionEvent::Signals(vec![signal(1, 0xffff)]));
    say(&inbox, 2, 0);
    say(&inbox, 3, 0xffff);
    let expected = [
        ("still", 0, false),
        ("view", 0, false),
        ("still", 2, false),
        ("view", 2, false),
        ("still", 3, false),
        ("loop", 3, true),
        ("view", 3, true),
    ];
    assert_eq!(heard(&mut queue), expected);
    assert_eq!(inbox.shared().frames(), 4);
}

#[test]
fn another_place_goes_on_counting_and_the_old_one_is_not_heard() {
    let (first, mut queue) = inbox(Arc::new(Metrics::new()), Arc::default(), Arc::default());
    first.take(SessionEvent::Signals(
        [0, 0xffff].iter().zip(0..).map(|(hash, frame)| signal(frame, *hash)).collect(),
    ));
    say(&first, 2, 0);
    let second = first.renewed();
    first.take(SessionEvent::Closed { frames: 3, decoder: String::new() });
    first.worker_ended(&WorkerError::Ended);
    // The pictures go on, too: these are the last of a loop that began in the first.
    say(&second, 0, 0xffff);
    let expected = [
        ("still", 2, false),
        ("view", 2, false),
        ("still", 3, false),
        ("loop", 3, true),
        ("view", 3, true),
    ];
    assert_eq!(heard(&mut queue), expected);
}

#[test]
fn no_more_bytes_wait_than_may_but_one_picture_always() {
    // Bytes of each still, and how many of ten wait, with their views, which are the stills.
    for (bytes, waiting) in [(WAITING_BYTES * 2, 1), (WAITING_BYTES / 4, 4), (10, 20)] {
        let metrics = Arc::new(Metrics::new());
        let (inbox, mut queue) = inbox(Arc::clone(&metrics), Arc::default(), Arc::default());
        for _ in 0..2 {
            let frames = inbox.shared().frames();
            (0..10).for_each(|at| say_weighing(&inbox, frames + at, 0, bytes));
            assert_eq!(heard(&mut queue).len(), waiting, "{bytes}: and again once they were taken");
        }
        let shed = [Shed::Stills, Shed::Keyframes].map(|shed| metrics.live_shed.of(shed).get());
        assert_eq!(shed.iter().sum::<u64>(), 2 * (20 - waiting as u64), "{bytes}");
    }
}

#[test]
fn a_full_queue_has_room_for_the_end() {
    let metrics = Arc::new(Metrics::new());
    let (inbox, mut queue) = inbox(Arc::clone(&metrics), Arc::default(), Arc::default());
    (0..100).for_each(|frame| say(&inbox, frame, 0));
    inbox.take(SessionEvent::Closed { frames: 100, decoder: String::new() });
    assert_eq!(heard(&mut queue).last().map(|said| said.0), Some("closed"));
    let shed = [Shed::Stills, Shed::Keyframes].map(|shed| metrics.live_shed.of(shed).get());
    assert_eq!(shed.iter().sum::<u64>(), 200 - (WAITING - KEPT_FREE) as u64);
}
