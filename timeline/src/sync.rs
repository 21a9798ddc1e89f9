//! Locks, channels and threads of the log: the standard library's, or in `timeline/schedules`, which builds
//! these sources again, those of a scheduler that explores orders of steps.

#[cfg(schedules)]
pub(crate) use self::explored::*;
#[cfg(not(schedules))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc},
    thread,
};

/// loom's, with two calls that it lacks.
#[cfg(schedules)]
mod explored {
    use std::sync::LockResult;

    pub(crate) use loom::{
        sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
        thread,
    };

    #[derive(Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn wait_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<MutexGuard<'a, T>> {
            while condition(&mut guard) {
                guard = self.0.wait(guard)?;
            }
            Ok(guard)
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub(crate) mod mpsc {
        use loom::sync::mpsc::{Receiver, Sender, channel};

        /// Makes a channel for a sender that never has to wait for room.
        pub(crate) fn sync_channel<T>(_bound: usize) -> (Sender<T>, Receiver<T>) {
            channel()
        }
    }
}
