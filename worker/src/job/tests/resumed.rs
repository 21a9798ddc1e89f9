//! Tests of a job that continues another: neither the gate nor the checks notice the seam.

use gate::Gate;

use super::*;
use crate::{WorkerLimits, said::JobCheck};

/// Returns a job's events for these frames of the film; each piece continues the decoder of the last.
fn part(frames: Range<u64>, piece: usize, options: &JobOptions) -> Vec<JobEvent> {
    events_of(options, &GateMeasurement::default(), |job, merger| {
        let mut sink = SegmentSink::new(job);
        for first in frames.clone().step_by(piece) {
            let end = frames.end.min(first + piece as u64);
            fill(&mut sink, first..end, first > frames.start, ASKED.at_ms);
            merger.deliver(sink.end().expect("all there")).expect("delivered");
        }
    })
}

/// Checks a job's events, and passes them to `hearer`.
fn heard(events: Vec<JobEvent>, options: &JobOptions, hearer: &mut Hearer) -> Result<(), String> {
    let mut check = JobCheck::new(options, &WorkerLimits::default());
    for event in events {
        check.look(&event).map_err(|error| format!("{error}: {event:?}"))?;
        hearer.take(event);
    }
    Ok(())
}

#[test]
fn a_job_goes_on_where_another_ended() {
    for (seam, piece) in
        [(1, 1), (2, 240), (17, 1), (29, 1), (30, 7), (31, 1), (120, 240), (239, 1)]
    {
        let views = shown(ChunkBoundary::Frames(64), 4);
        let begin = options(Asked { views, ..ASKED });
        let mut hearer = Hearer::new(&begin);
        heard(part(0..seam, piece, &begin), &begin, &mut hearer).expect("a beginning");
        let last = *hearer.said.signals.last().expect("signals");
        let (gate, begins_at_ms) = (hearer.gate.state(), 0);
        let resume = Resume { last, gate, begins_at_ms, segment: None };
        let rest = JobOptions { resume: Some(resume), ..begin.clone() };
        let events = part(seam..240, piece, &rest);
        let told = heard(events.clone(), &begin, &mut Hearer::new(&begin));
        assert!(told.is_err(), "{seam}: a beginning is told from the rest");
        hearer.restart();
        heard(events, &rest, &mut hearer).expect("the rest");

        let said = hearer.end();
        let indices: Vec<_> = said.signals.iter().map(|signal| signal.frame_index).collect();
        assert_eq!(indices, (0..240).collect::<Vec<_>>(), "{seam}");
        let mut gate = Gate::new(begin.gate);
        let decided = said.signals.iter().filter_map(|signal| {
            let decision = gate.offer(signal);
            decision.selected.then_some((signal.frame_index, decision.reason))
        });
        let kept = said.stills.iter().map(|still| (still.frame_index, still.reason));
        assert_eq!(kept.collect::<Vec<_>>(), decided.collect::<Vec<_>>(), "{seam}");
        let numbers: Vec<_> = said.chunks.iter().map(|(_, chunk)| chunk.index).collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "{seam}");
        let frames: u64 = said.chunks.iter().map(|(_, chunk)| chunk.frames).sum();
        assert_eq!(frames, 240, "{seam}");
    }
}
