//! Locks, channels and threads of the log: the standard library's, or in `timeline/schedules`, which builds
//! these sources again, those of a scheduler that explores orders of steps.

#[cfg(schedules)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc},
    thread,
};
#[cfg(not(schedules))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc},
    thread,
};
