//! A device for tests: the reference's integers, until its script says otherwise.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use gate::{FrameMeasurements, MeasureBackend, MeasureError, ReferenceBackend};
use media::Frame;

use super::{DeviceTimeouts, GateMeasurement};

/// Sizes of the batches that a device was given, the one it failed at included.
#[derive(Clone, Default)]
pub(crate) struct RecordedBatches(Arc<Mutex<Vec<usize>>>);

impl RecordedBatches {
    pub fn sizes(&self) -> Vec<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Keeps a device that hangs where it hangs, until dropped.
pub(crate) struct HangGuard(#[expect(dead_code, reason = "its end is what counts")] SyncSender<()>);

/// Outcome of a device's batch, by the number of those before.
type Script = Box<dyn FnMut(usize) -> Result<(), MeasureError> + Send>;

struct Scripted {
    given: RecordedBatches,
    script: Script,
}

/// Never late, however slow the machine.
const PATIENT: DeviceTimeouts =
    DeviceTimeouts { late: Duration::from_secs(3600), gone: Duration::from_secs(3600) };

/// A device that is lost after so many batches.
pub(crate) fn lost_after(batches: usize) -> (GateMeasurement, RecordedBatches) {
    let lost = move |batch| if batch < batches { Ok(()) } else { Err(unplugged()) };
    scripted(Box::new(lost), PATIENT)
}

/// A device that refuses every third batch with `error`, and is sound.
pub(crate) fn refusing(error: MeasureError) -> (GateMeasurement, RecordedBatches) {
    let refuses = move |batch| if batch % 3 == 1 { Err(error.clone()) } else { Ok(()) };
    scripted(Box::new(refuses), PATIENT)
}

/// A device that is late with its second batch, and is sound.
pub(crate) fn late_once() -> (GateMeasurement, RecordedBatches) {
    // Other batches are in time on all but the slowest machine.
    let late = Duration::from_millis(200);
    let slow = move |batch| {
        if batch == 1 {
            thread::sleep(5 * late);
        }
        Ok(())
    };
    scripted(Box::new(slow), DeviceTimeouts { late, ..PATIENT })
}

/// A device that says nothing more after so many batches, for as long as it is held.
pub(crate) fn hanging_after(batches: usize) -> (GateMeasurement, RecordedBatches, HangGuard) {
    let (hold, held): (SyncSender<()>, Receiver<()>) = sync_channel(0);
    let hangs = move |batch| {
        if batch >= batches {
            // Fails when it is let go.
            held.recv().ok();
        }
        Ok(())
    };
    let short = Duration::from_millis(20);
    let (measuring, given) = scripted(Box::new(hangs), DeviceTimeouts { late: short, gone: short });
    (measuring, given, HangGuard(hold))
}

fn unplugged() -> MeasureError {
    MeasureError::DeviceLost { backend: "scripted", reason: "unplugged".to_owned() }
}

fn scripted(script: Script, patience: DeviceTimeouts) -> (GateMeasurement, RecordedBatches) {
    let given = RecordedBatches::default();
    let device = Box::new(Scripted { given: given.clone(), script });
    (GateMeasurement::on(device, "of a test", patience).expect("a thread"), given)
}

impl MeasureBackend for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        if frames.is_empty() {
            return Ok(());
        }
        let batch = {
            let mut given = self.given.0.lock().unwrap_or_else(PoisonError::into_inner);
            given.push(frames.len());
            given.len() - 1
        };
        (self.script)(batch)?;
        ReferenceBackend.measure(frames, out)
    }
}
