//! Outcomes of jobs on live sources, grouped by the reaction that they need.

use decode::FileReport;
use media::ErrorKind;

use crate::{JobFault, WorkerError};

/// End of a job on a live source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveEnd {
    /// The job read as many frames as it should.
    Enough,
    /// The source announced its end.
    Over,
    /// The connection or the worker ended, or the source fell silent; a new one may go on.
    Lost,
    /// The source refused the request; if it has been open before, a retry may succeed.
    Refused,
    /// The media is damaged or unsupported, or crashed the worker.
    Damaged,
    /// A limit of the worker's resources was reached.
    Limit,
    /// The caller cancelled the job.
    Stopped,
    /// The failure is the server's own, not the source's.
    Failed,
}

impl LiveEnd {
    /// Classifies the outcome of a job that should read at most `max_frames` frames.
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
            | WorkerError::KilledOutside
            | WorkerError::FirstFrameTimeout(_)
            | WorkerError::Stalled(_) => LiveEnd::Lost,
            WorkerError::MemoryLimit { .. }
            | WorkerError::ThreadLimit(_)
            | WorkerError::WallClock(_)
            | WorkerError::ProcessorTime
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
            frames,
            source_frames: frames,
            truncated,
            ..FileReport::default()
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
            (Err(WorkerError::Stalled(after)), LiveEnd::Lost),
            (Err(WorkerError::KilledOutside), LiveEnd::Lost),
            (Err(WorkerError::ProcessorTime), LiveEnd::Limit),
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
