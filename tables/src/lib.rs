//! Frames, episodes, markers and events as Parquet files, with the columns that docs/PARQUET.md describes.
//!
//! Writes each file under a temporary name, in row groups of bounded size, and renames it when complete.
//! Knows no server, no log and no run.
#![forbid(unsafe_code)]

mod rows;
mod table;

pub use rows::{EPISODES, EVENTS, FRAMES, FrameRow, MARKERS, sides};
pub use table::{Cell, Schema, Table, TableError, Whole};
