//! The thread of a worker that measures pictures of all sessions on the device.
//!
//! Whoever decodes hands frames over and goes on; what was measured goes back to those threads. Where
//! the device is behind, or lost, frames are given back and the CPU measures them with the same
//! integers: nobody waits for the device but with frames that it has.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
    thread,
    time::{Duration, Instant},
};

use gate::{Measurements, Measurer};
use media::Frame;

use super::{
    batches::{Batches, Rule},
    pool::{Mourner, Slot, Task, Work},
};
use crate::{Fault, SessionEvent, measuring::Measuring};

/// A frame of every second of sessions of a full worker; a device's buffers hold as many.
const RULE: Rule = Rule {
    pictures: 64,
    // A sixth of the time between pictures of a common camera, and of what a live session takes.
    age: Duration::from_millis(5),
    // Three times what the sessions of a full worker have under way: a bound that only a fault meets.
    waiting: 192,
};

/// What a unit decoded to, on its way to its decisions.
pub(super) struct Decoded {
    pub number: u32,
    pub slot: Slot,
    pub frames: Vec<Frame>,
    /// What is to be said before what follows from the frames.
    pub events: Vec<SessionEvent>,
    /// The session has no more.
    pub is_last: bool,
}

/// Hears why the device was given up.
pub(super) type OnLoss = Box<dyn FnOnce(String) + Send>;

/// The way to the thread.
#[derive(Clone)]
pub(super) struct DeviceLane(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    measuring: Measuring,
}

struct State {
    batches: Batches<Decoded>,
    is_closed: bool,
}

impl DeviceLane {
    /// Starts the thread; what it measures goes to `done`.
    pub fn start(
        measuring: Measuring,
        done: SyncSender<Work>,
        on_loss: OnLoss,
    ) -> io::Result<DeviceLane> {
        let state = State { batches: Batches::new(RULE), is_closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new(), measuring });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("gate-device".to_owned())
            .spawn(move || measure_off(&of_thread, &done, on_loss))?;
        Ok(DeviceLane(shared))
    }

    /// Hands frames over, or gives them back where the device does not take them now.
    pub fn offer(&self, decoded: Decoded) -> Result<(), Decoded> {
        if !self.0.measuring.is_on_device() {
            return Err(decoded);
        }
        let pictures = decoded.frames.len();
        self.0.state().batches.push(decoded, pictures, Instant::now())?;
        self.0.wake.notify_one();
        Ok(())
    }

    /// Ends the thread; what waits is of no interest any more.
    pub fn close(&self) {
        self.0.state().is_closed = true;
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch when it is due; `None` once nobody offers any more.
    fn next(&self) -> Option<Vec<Decoded>> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            let now = Instant::now();
            if let Some(batch) = state.batches.take(now) {
                return Some(batch);
            }
            let wait = state.batches.due().map(|due| due.saturating_duration_since(now));
            state = match wait {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let waited = self.wake.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn measure_off(shared: &Shared, done: &SyncSender<Work>, on_loss: OnLoss) {
    let _mourner = Mourner;
    let mut measurer = shared.measuring.measurer();
    let mut on_loss = Some(on_loss);
    while let Some(batch) = shared.next() {
        for (decoded, measured) in measure(measurer.as_mut(), batch) {
            let Decoded { number, slot, frames, events, is_last } = decoded;
            let task = Task::Measured { frames, measured, events, is_last };
            if done.send(Work { number, slot, task }).is_err() {
                return;
            }
        }
        if let Some(reason) = shared.measuring.lost()
            && let Some(on_loss) = on_loss.take()
        {
            on_loss(reason);
        }
    }
}

/// What a unit's frames measure, or why they cannot be measured.
type Measured = Result<Vec<Measurements>, Fault>;

/// Measures all of a batch at once; a frame that cannot be measured fails its own session alone.
fn measure(measurer: &mut dyn Measurer, batch: Vec<Decoded>) -> Vec<(Decoded, Measured)> {
    let mut batch = batch;
    let counts: Vec<usize> = batch.iter().map(|decoded| decoded.frames.len()).collect();
    let all: Vec<Frame> = batch.iter().flat_map(|decoded| decoded.frames.iter().cloned()).collect();
    let mut measured = Vec::with_capacity(all.len());
    if measurer.measure(&all, &mut measured).is_err() {
        return batch.into_iter().map(|decoded| alone(measurer, decoded)).collect();
    }
    let mut rest = measured.into_iter();
    let own = counts.into_iter().map(|count| Ok(rest.by_ref().take(count).collect()));
    batch.drain(..).zip(own.collect::<Vec<_>>()).collect()
}

fn alone(measurer: &mut dyn Measurer, decoded: Decoded) -> (Decoded, Measured) {
    let mut measured = Vec::with_capacity(decoded.frames.len());
    let outcome = measurer.measure(&decoded.frames, &mut measured);
    (decoded, outcome.map(|()| measured).map_err(Fault::from))
}
