//! Signals are local, and decisions a function of signals alone.

use clips::sized;
use gate::{
    AHEAD, BACK, CpuBackend, FrameMeasurements, FrameMeta, Gate, GateConfig, MeasureBackend, Past,
    SignalWindow,
    conformance::{Fill, TestPicture},
};
use media::{Dimensions, Signal};
use proptest::prelude::*;

/// Frame of a synthetic video.
#[derive(Clone, Copy, Debug)]
struct Shown {
    fill: Fill,
    /// Milliseconds since the previous frame.
    gap: i64,
    /// Left side of a dark object, in cells.
    left: usize,
}

fn any_video() -> impl Strategy<Value = Vec<Shown>> {
    let fill = prop_oneof![
        4 => Just(Fill::Ramp),
        1 => (0u64..4).prop_map(Fill::Random),
        1 => (0u8..=255).prop_map(Fill::Flat),
        1 => Just(Fill::Checker),
    ];
    let hold = prop_oneof![3 => Just(1usize), 1 => 1usize..12];
    let gap = prop_oneof![9 => 10i64..60, 1 => 100i64..2000];
    prop::collection::vec((fill, hold, gap, 0usize..60), 1..60).prop_map(|shots| {
        let frames = shots
            .into_iter()
            .flat_map(|(fill, hold, gap, left)| vec![Shown { fill, gap, left }; hold]);
        frames.collect()
    })
}

fn measure(video: &[Shown]) -> Vec<(FrameMeta, FrameMeasurements)> {
    let mut measured = Vec::new();
    let mut pts_ms = 0;
    let frames: Vec<_> = video
        .iter()
        .map(|shown| TestPicture { fill: shown.fill, ..TestPicture::new(67, 43) }.frame())
        .collect();
    CpuBackend::new().measure(&frames, &mut measured).expect("measurable");
    for (shown, measured) in video.iter().zip(&mut measured) {
        for row in 10..18 {
            let dark = row * 64 + shown.left..row * 64 + (shown.left + 6).min(64);
            measured.luma_cells[dark.clone()].fill(0);
            measured.luma_squares[dark].fill(0);
        }
    }
    let stamp = |(index, shown): (usize, &Shown)| {
        pts_ms += shown.gap;
        let frame_index = index as u64;
        FrameMeta { frame_index, source_frame_index: 2 * frame_index, pts_ms }
    };
    video.iter().enumerate().map(stamp).zip(measured).collect()
}

fn signals(frames: &[(FrameMeta, FrameMeasurements)], lookahead: usize) -> Vec<Signal> {
    let mut window = SignalWindow::new(lookahead);
    with_pasts(&mut window, frames).into_iter().map(|(signal, _)| signal).collect()
}

fn with_pasts(
    window: &mut SignalWindow,
    frames: &[(FrameMeta, FrameMeasurements)],
) -> Vec<(Signal, Past)> {
    let mut signals = Vec::new();
    push_all(window, frames, &mut signals);
    window.flush();
    poll_all(window, &mut signals);
    signals
}

fn push_all(
    window: &mut SignalWindow,
    frames: &[(FrameMeta, FrameMeasurements)],
    signals: &mut Vec<(Signal, Past)>,
) {
    for (stamp, measurements) in frames {
        window.push(*stamp, measurements);
        poll_all(window, signals);
    }
}

fn poll_all(window: &mut SignalWindow, signals: &mut Vec<(Signal, Past)>) {
    while let Some(signal) = window.poll() {
        signals.push((signal, window.past_of(&signal)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: sized(60, 480), ..ProptestConfig::default() })]

    #[test]
    fn a_window_started_anywhere_says_what_it_knows(
        video in any_video(),
        start in 0usize..120,
        before in 0usize..120,
    ) {
        let frames = measure(&video);
        let whole = signals(&frames, AHEAD);
        prop_assert_eq!(whole.len(), frames.len());
        let start = start.min(frames.len());
        let mut window = SignalWindow::new(AHEAD);
        with_pasts(&mut window, &frames[..before.min(frames.len())]);
        window.restart();
        for (at, (signal, past)) in (start..).zip(with_pasts(&mut window, &frames[start..])) {
            let but_for_activity = Signal { activity: whole[at].activity, ..signal };
            match past {
                Past::Unknown => {}
                Past::ActivityUnknown => prop_assert_eq!(but_for_activity, whole[at]),
                Past::ActivityAsBefore => {
                    prop_assert_eq!(but_for_activity, whole[at]);
                    prop_assert_eq!(whole[at].activity, whole[at - 1].activity);
                }
                Past::Known => prop_assert_eq!(signal, whole[at]),
            }
        }
    }

    #[test]
    fn a_window_that_is_given_known_signals_goes_on_as_if_it_made_them(
        video in any_video(),
        start in 0usize..120,
        known in BACK..120,
        without_activity in 0usize..60,
    ) {
        let frames = measure(&video);
        let whole = signals(&frames, AHEAD);
        let start = start.min(frames.len());
        // Too few frames at the end count as none.
        let end = if start + known > frames.len() { start } else { start + known };
        let mut window = SignalWindow::new(AHEAD);
        let mut told = Vec::new();
        push_all(&mut window, &frames[..start], &mut told);
        if start < end {
            let (stamps, measurements): (Vec<_>, Vec<_>) = frames[start..end].iter().cloned().unzip();
            let known = whole[start..end].iter().enumerate().map(|(place, signal)| {
                let activity = signal.activity.filter(|_| place >= without_activity);
                Signal { activity, ..*signal }
            });
            window.push_known(known, &stamps, &measurements);
        }
        push_all(&mut window, &frames[end..], &mut told);
        window.flush();
        poll_all(&mut window, &mut told);
        let told: Vec<Signal> = told.into_iter().map(|(signal, _)| signal).collect();
        prop_assert_eq!(told, whole);
    }

    #[test]
    fn a_window_ended_anywhere_agrees_up_to_its_reach(video in any_video(), end in 0usize..150) {
        let frames = measure(&video);
        let whole = signals(&frames, AHEAD);
        let end = end.min(frames.len());
        let part = signals(&frames[..end], AHEAD);
        let agreed = if end == frames.len() { end } else { end.saturating_sub(AHEAD) };
        prop_assert_eq!(&part[..agreed], &whole[..agreed]);
    }

    #[test]
    fn decisions_repeat_from_the_signals_alone(video in any_video(), lookahead in 0usize..4) {
        let signals = signals(&measure(&video), lookahead);
        let decide = || {
            let mut gate = Gate::new(GateConfig::default());
            signals.iter().map(|signal| gate.offer(signal)).collect::<Vec<_>>()
        };
        prop_assert_eq!(decide(), decide());
    }

    #[test]
    fn no_sums_whatever_panic(
        sums in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 12),
        sides in prop::collection::vec((1u32..9000, 1u32..9000), 12),
        gaps in prop::collection::vec(any::<i64>(), 12),
    ) {
        let mut window = SignalWindow::new(AHEAD);
        for (((luma, squares, chroma), (width, height)), pts_ms) in sums.into_iter().zip(sides).zip(gaps) {
            let extent = Dimensions { width, height };
            let mut measurements = FrameMeasurements::zeroed(extent, (width % 3 > 0).then_some(extent));
            measurements.luma_cells.fill(luma);
            measurements.luma_squares.fill(squares);
            measurements.luma_cells[0] = squares;
            measurements.chroma_cells[1].fill(chroma);
            window.push(FrameMeta { frame_index: 0, source_frame_index: 0, pts_ms }, &measurements);
        }
        window.flush();
        prop_assert_eq!(std::iter::from_fn(|| window.poll()).count(), 12);
    }
}
