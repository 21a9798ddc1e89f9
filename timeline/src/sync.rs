//! Locks, channels and threads of the log: the standard library's, and in `timeline/schedules`, which builds these sources once
//! more, those of a scheduler that tries one order of steps after the other.

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
