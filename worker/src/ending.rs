//! Ends of a live source, told apart by what may be done about them.

use decode::FileReport;
use media::ErrorKind;

use crate::{JobFault, WorkerError};

/// End of a job on a live source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveEnd {
    /// As many frames came as were wanted.
    Enough,
    /// The source said that nothing follows.
    Over,
    /// The connection ended, or nothing came for too long: another may go on.
    Lost,
    /// The source was asked and said no: once it has been open, it may say yes later.
    Refused,
    /// The media is at fault, or did away with the worker.
    Damaged,
    /// A limit of the worker's resources was met.
    Limit,
    /// The caller wanted no more.
    Stopped,
    /// Something is wrong here, not with the source.
    Failed,
}

impl LiveEnd {
    /// Returns the end of a job on which at most `max_frames` frames were wanted.
    pub fn of(outcome: &Result<FileReport, WorkerError>, max_frames: u64) -> LiveEnd {
        match outcome {
            Ok(report) if report.frames >= max_frames => LiveEnd::Enough,
            Ok(report) if report.truncated => LiveEnd::Lost,
            Ok(_) => LiveEnd::Over,
            Err(error) => LiveEnd::of_error(error),
        }
    }

    fn of_error(error: &WorkerError) -> LiveEnd {
        match error {
            WorkerError::Fault(JobFault::Source { is_refused: true, .. })
            | WorkerError::Refused(_) => LiveEnd::Refused,
            WorkerError::Fault(JobFault::Over) => LiveEnd::Over,
            WorkerError::Fault(JobFault::Source { .. })
            | WorkerError::FirstFrameTimeout { .. }
            | WorkerError::Stalled { .. } => LiveEnd::Lost,
            WorkerError::MemoryLimit { .. }
            | WorkerError::ThreadLimit { .. }
            | WorkerError::WallClock { .. }
            | WorkerError::OutputBudget { .. } => LiveEnd::Limit,
            error => match error.kind() {
                ErrorKind::Cancelled => LiveEnd::Stopped,
                ErrorKind::InvalidInput | ErrorKind::DataLoss | ErrorKind::Unsupported => {
                    LiveEnd::Damaged
                }
                _ => LiveEnd::Failed,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use decode::DecodeError;

    use super::*;
    use crate::ResourceError;

    #[test]
    fn ends_are_told_apart() {
        let report = |frames, truncated| FileReport {
            decoder: String::new(),
            fallback: None,
            frames,
            source_frames: frames,
            source_rate: None,
            truncated,
            more_frames: false,
            damaged_packets: 0,
            first_extent: None,
        };
        let source =
            |is_refused| Err(JobFault::Source { is_refused, message: String::new() }.into());
        let after = Duration::from_secs(1);
        let exited = WorkerError::Exited { code: 1, stderr: String::new() };
        for (outcome, expected) in [
            (Ok(report(9, false)), LiveEnd::Enough),
            (Ok(report(9, true)), LiveEnd::Enough),
            (Ok(report(8, true)), LiveEnd::Lost),
            (Ok(report(8, false)), LiveEnd::Over),
            (Err(JobFault::Over.into()), LiveEnd::Over),
            (source(false), LiveEnd::Lost),
            (source(true), LiveEnd::Refused),
            (Err(WorkerError::Refused(ResourceError(String::new()))), LiveEnd::Refused),
            (Err(WorkerError::Stalled { after }), LiveEnd::Lost),
            (Err(WorkerError::OutputBudget { limit_bytes: 1 }), LiveEnd::Limit),
            (Err(JobFault::Decode(DecodeError::Empty).into()), LiveEnd::Damaged),
            (Err(exited), LiveEnd::Damaged),
            (Err(WorkerError::Cancelled), LiveEnd::Stopped),
            (Err(JobFault::Stopped.into()), LiveEnd::Stopped),
            (Err(WorkerError::Ended), LiveEnd::Failed),
            (Err(WorkerError::Listener), LiveEnd::Failed),
        ] {
            assert_eq!(LiveEnd::of(&outcome, 9), expected, "{outcome:?}");
        }
    }
}
