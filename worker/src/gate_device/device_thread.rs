//! The one thread that uses a device, and the handle by which other threads send it batches.
//!
//! Promises that no caller waits for the device longer than its timeout: a caller that times out still has
//! its frames, and the late result is dropped. A hanging device blocks only this thread and one batch.

use std::{
    io, mem,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Instant,
};

use gate::{FrameMeasurements, MeasureBackend, MeasureError};
use media::Frame;

use super::{
    Opened,
    device_timeouts::{DeviceTimeouts, DeviceWatchdog},
};

/// Queue of batches: one for each thread of a file job. All live sessions together have one.
const WAITING_MAX: usize = crate::JOB_THREADS_MAX;

/// Handle to the device's thread, usable from any thread.
pub(super) struct DeviceThread {
    asks: SyncSender<Ask>,
    fate: Arc<Fate>,
    /// Label in reports: the backend's name and the device's.
    pub label: String,
    /// Number of the NVIDIA device whose memory the backend reads pictures from.
    pub nvidia: Option<u32>,
    /// Batches that callers took back because the device was late, and those of them that were reported.
    late: AtomicU32,
    late_told: AtomicU32,
    is_loss_told: AtomicBool,
}

struct Fate {
    backend: &'static str,
    watch: Mutex<DeviceWatchdog>,
    /// Reason of the loss, which is final.
    lost: OnceLock<MeasureError>,
}

struct Ask {
    frames: Arc<Waiting>,
    /// Time until which the caller waits.
    until: Instant,
    answer: SyncSender<Answer>,
}

/// Frames of a batch, until the device takes them or the caller times out.
struct Waiting(Mutex<Vec<Frame>>);

impl Waiting {
    fn take(&self) -> Vec<Frame> {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Answer = Result<Vec<FrameMeasurements>, MeasureError>;

impl DeviceThread {
    pub fn open(opened: Opened) -> io::Result<DeviceThread> {
        let Opened { measurer, name, patience, nvidia } = opened;
        let fate = Fate::of(measurer.name(), patience);
        let label = format!("{}:{name}", fate.backend);
        let (asks, asked) = sync_channel(WAITING_MAX);
        let told = Arc::clone(&fate);
        thread::Builder::new()
            .name("gate-device".to_owned())
            .spawn(move || answer_all(measurer, &asked, &told))?;
        Ok(DeviceThread::new(asks, fate, label, nvidia))
    }

    /// Returns a handle to a device that has vanished.
    pub fn closed(backend: &'static str, reason: String) -> DeviceThread {
        let fate = Fate::of(backend, DeviceTimeouts::GPU);
        fate.lose(reason);
        DeviceThread::new(sync_channel(0).0, fate, backend.to_owned(), None)
    }

    fn new(
        asks: SyncSender<Ask>,
        fate: Arc<Fate>,
        label: String,
        nvidia: Option<u32>,
    ) -> DeviceThread {
        let (late, late_told) = (AtomicU32::new(0), AtomicU32::new(0));
        let is_loss_told = AtomicBool::new(false);
        DeviceThread { asks, fate, label, nvidia, late, late_told, is_loss_told }
    }

    pub fn backend(&self) -> &'static str {
        self.fate.backend
    }

    /// Has the device measure a batch, and waits for the result up to the timeout.
    pub fn measure(&self, frames: &[Frame]) -> Answer {
        let answer = self.ask(frames);
        if matches!(answer, Err(MeasureError::Late(..))) {
            self.late.fetch_add(1, Relaxed);
        }
        answer
    }

    fn ask(&self, frames: &[Frame]) -> Answer {
        self.fate.check_available()?;
        let patience = self.fate.watch().patience();
        let (answer, answered) = sync_channel(1);
        let until = Instant::now() + patience.late;
        let waiting = Arc::new(Waiting(Mutex::new(frames.to_vec())));
        let ask = Ask { frames: Arc::clone(&waiting), until, answer };
        let ended = || self.fate.lose("its thread has ended".to_owned());
        match self.asks.try_send(ask) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(self.fate.late(patience)),
            Err(TrySendError::Disconnected(_)) => return Err(ended()),
        }
        match answered.recv_timeout(patience.late) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                drop(waiting.take());
                self.fate.check_available()?;
                Err(self.fate.late(patience))
            }
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }

    /// Returns true if the device is neither lost nor late.
    pub fn takes(&self) -> bool {
        self.fate.check_available().is_ok()
    }

    pub fn late(&self) -> u32 {
        self.late.load(Relaxed)
    }

    pub fn take_late(&self) -> u32 {
        let late = self.late();
        late.saturating_sub(self.late_told.fetch_max(late, Relaxed))
    }

    pub fn lost(&self) -> Option<&MeasureError> {
        self.fate.lost.get()
    }

    pub fn take_loss(&self) -> Option<&MeasureError> {
        self.lost().filter(|_| !self.is_loss_told.swap(true, Relaxed))
    }
}

impl Fate {
    fn of(backend: &'static str, patience: DeviceTimeouts) -> Arc<Fate> {
        let watch = Mutex::new(DeviceWatchdog::new(patience));
        Arc::new(Fate { backend, watch, lost: OnceLock::new() })
    }

    fn watch(&self) -> MutexGuard<'_, DeviceWatchdog> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the device may be used now; marks it lost if its watchdog says so.
    fn check_available(&self) -> Result<(), MeasureError> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        let now = Instant::now();
        let watch = self.watch();
        let (verdict, is_behind) = (watch.verdict(now), watch.is_behind(now));
        let patience = watch.patience();
        drop(watch);
        match verdict {
            Some(reason) => Err(self.lose(reason)),
            None if is_behind => Err(self.late(patience)),
            None => Ok(()),
        }
    }

    /// Marks the device lost and returns the error; only the first reason is kept.
    fn lose(&self, reason: String) -> MeasureError {
        let backend = self.backend;
        self.lost.get_or_init(|| MeasureError::DeviceLost(backend, reason)).clone()
    }

    fn late(&self, patience: DeviceTimeouts) -> MeasureError {
        let after_ms = u64::try_from(patience.late.as_millis()).unwrap_or(u64::MAX);
        MeasureError::Late(self.backend, after_ms)
    }
}

/// Main loop of the thread: ends when the last handle is dropped or the device is lost.
fn answer_all(mut device: Box<dyn MeasureBackend>, asked: &Receiver<Ask>, fate: &Fate) {
    while let Ok(Ask { frames, until, answer }) = asked.recv() {
        let now = Instant::now();
        if now >= until {
            // The caller has timed out, or is about to.
            let patience = fate.watch().patience();
            answer.send(Err(fate.late(patience))).ok();
            continue;
        }
        let frames = frames.take();
        fate.watch().begin(now);
        let mut measured = Vec::with_capacity(frames.len());
        let outcome = device.measure(&frames, &mut measured);
        fate.watch().end(Instant::now());
        drop(frames);
        let ended = outcome.as_ref().err().filter(|error| error.ends_device());
        if let Some(error) = ended {
            fate.lost.get_or_init(|| error.clone());
        }
        // The caller may have timed out.
        answer.send(outcome.map(|()| measured)).ok();
        if fate.lost.get().is_some() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, time::Duration};

    use gate::conformance::{Fill, TestPicture};
    use media::Pixels;

    use super::*;

    /// Device that hangs until the other end of the channel is dropped.
    struct Hung(Receiver<()>);

    impl MeasureBackend for Hung {
        fn name(&self) -> &'static str {
            "hung"
        }

        fn measure(
            &mut self,
            _: &[Frame],
            _: &mut Vec<FrameMeasurements>,
        ) -> Result<(), MeasureError> {
            self.0.recv().ok();
            Ok(())
        }
    }

    #[test]
    fn a_device_that_hangs_keeps_one_batch_and_not_those_that_waited() {
        let (_hold, held) = sync_channel(0);
        let patience =
            DeviceTimeouts { late: Duration::from_millis(500), gone: Duration::from_secs(3600) };
        let (measurer, name) = (Box::new(Hung(held)), "of a test".to_owned());
        let opened = Opened { measurer, name, patience, nvidia: None };
        let desk = DeviceThread::open(opened).expect("a thread");
        let picture = TestPicture { fill: Fill::Ramp, ..TestPicture::new(32, 16) };
        let frames: [Frame; 4] = std::array::from_fn(|_| picture.frame());
        let together = Barrier::new(frames.len());
        thread::scope(|scope| {
            for frame in &frames {
                scope.spawn(|| {
                    together.wait();
                    let answer = desk.measure(std::slice::from_ref(frame));
                    assert!(matches!(answer, Err(MeasureError::Late(..))), "{answer:?}");
                });
            }
        });
        let is_kept = |frame: &&Frame| {
            let Pixels::Host(pixels) = &frame.pixels else { return false };
            Arc::strong_count(pixels) > 1
        };
        let kept = frames.iter().filter(is_kept).count();
        assert!(kept <= 1, "{kept} batches");
        assert_eq!(desk.late() as usize, frames.len(), "each is counted");
    }
}
