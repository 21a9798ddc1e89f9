//! Result of a job's decoding, and the events that close its recording.

use decode::{FileReport, StreamInfo};
use media::{FrameRate, JobId, WallTime};
use timeline::{AnalysisGenerated, Event, FramesDecoded, IngestReceived, IngestStarted};

use super::{IngestError, IngestJob, IngestResult};
use crate::record::recording::{Head, RunLog, Sealed};

/// Decoded source whose frames are recorded; the closing events are not.
pub(super) struct DecodedSource {
    pub ingest: IngestJob,
    pub stream: StreamInfo,
    pub report: FileReport,
    pub sealed: Sealed,
    /// Analysis of the recording's own markers, and their number.
    pub analysis: Option<(AnalysisGenerated, u64)>,
    pub reason: Option<String>,
    /// Error of an early end, unless the time limit ended it.
    pub cut: Option<IngestError>,
}

pub(super) struct FailedJob {
    pub error: IngestError,
    /// True if the source was opened as supported media.
    pub is_opened: bool,
}

impl IngestJob {
    /// Returns the event of the source, without the number of frames.
    pub(super) fn received(&self, sample_fps: Option<FrameRate>) -> IngestReceived {
        IngestReceived {
            request_id: self.request_id,
            ingest: self.echo.clone(),
            decoded_frames: None,
            source_uri: Some(self.source_uri.clone()),
            sampling_policy: Some(self.policy),
            sample_fps,
        }
    }

    /// Returns the event of the frames, as far as known once `stream` is opened.
    pub(super) fn opened(&self, stream: &StreamInfo) -> FramesDecoded {
        let (uri, stream_id) = (self.source_uri.clone(), self.stream_id.clone());
        FramesDecoded {
            source_fps: stream.source_rate,
            sample_fps: self.rate.or_else(|| stream.source_rate.map(clamped)),
            width: stream.extent.width,
            height: stream.extent.height,
            pixel_format: stream.pixel_format.clone(),
            gate: Some(self.gate),
            zones: self.zones.clone(),
            wall_start_ms: Some(stream.wall_start.filter(is_dated)),
            ..FramesDecoded::new(self.request_id, uri, stream_id, self.policy)
        }
    }

    /// Records on the timeline, before decoding, that the job was accepted.
    pub(super) fn accept(&self, job: Option<JobId>, log: &RunLog) -> Result<(), IngestError> {
        let (request_id, ingest) = (self.request_id, self.echo.clone());
        let job_id = job.ok_or(IngestError::Lost)?;
        let started = IngestStarted { request_id, job_id, ingest };
        log.commit(vec![Event::IngestStarted(started)])?;
        log.run.set_source(Some(&self.source_uri));
        log.run.set_model(self.model.as_ref());
        Ok(())
    }
}

impl DecodedSource {
    fn source_fps(&self) -> Option<FrameRate> {
        self.report.source_rate.or(self.stream.source_rate)
    }

    pub fn sample_fps(&self) -> Option<FrameRate> {
        self.ingest.rate.or_else(|| self.source_fps().map(clamped))
    }

    /// Appends the events that close the recording, then `tail`, then `last`, which ends the run;
    /// returns false if `last` was left out because the run had ended.
    pub fn record(
        self,
        tail: Vec<Event>,
        last: Option<Event>,
    ) -> Result<(IngestResult, bool), IngestError> {
        let (source_fps, sample_fps) = (self.source_fps(), self.sample_fps());
        let DecodedSource { ingest, stream, report, sealed, .. } = self;
        let extent = report.first_extent.unwrap_or(stream.extent);
        let decoded = FramesDecoded {
            source_fps,
            sample_fps,
            width: extent.width,
            height: extent.height,
            decoder: Some(report.decoder.clone()).filter(|decoder| !decoder.is_empty()),
            decoder_fallback: report.fallback,
            truncated: report.truncated,
            reason: self.reason,
            ..ingest.opened(&stream)
        };
        let received = Some(ingest.received(sample_fps));
        let (analysis, markers) = self.analysis.unzip();
        let head = Head { received, decoded, analysis, index_name: None };
        let (frames, is_damaged) = (sealed.frames, sealed.is_damaged);
        let events = sealed.events(head, markers.unwrap_or(0)).chain(tail);
        let is_whole = sealed.close(events, last)?;
        let ingested = IngestResult {
            decoded_frames: frames,
            source_fps,
            sample_fps,
            width: extent.width,
            height: extent.height,
            rotation: stream.rotation,
            decoder: report.decoder,
            truncated: report.truncated || is_damaged,
            more_frames: report.more_frames,
        };
        Ok((ingested, is_whole))
    }
}

/// Returns false for dates of containers without a clock, which give the epoch, and beyond year 9999.
fn is_dated(at: &WallTime) -> bool {
    const YEAR_10000: i64 = 253_402_300_800_000;
    (1..YEAR_10000).contains(&at.epoch_ms)
}

/// Returns the nearest rate that the API can express.
fn clamped(rate: FrameRate) -> FrameRate {
    let below = |a: FrameRate, b: FrameRate| {
        u64::from(a.num()) * u64::from(b.den()) < u64::from(b.num()) * u64::from(a.den())
    };
    if below(rate, FrameRate::SLOWEST) {
        FrameRate::SLOWEST
    } else if below(FrameRate::FASTEST, rate) {
        FrameRate::FASTEST
    } else {
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_rate_stays_within_the_contract() {
        let cases = [
            ((1, 10), (1, 5)),
            ((1, 5), (1, 5)),
            ((30_000, 1001), (30_000, 1001)),
            ((240, 1), (120, 1)),
        ];
        for ((num, den), (to_num, to_den)) in cases {
            let found = clamped(FrameRate::new(num, den).expect("positive"));
            assert_eq!((found.num(), found.den()), (to_num, to_den), "{num}/{den}");
        }
    }
}
