//! Frames, episodes, markers and events as Parquet files, with the columns that docs/PARQUET.md tells of.
//!
//! A file is written row by row in row groups of bounded size, aside, and is given its name once whole. Knows no server,
//! no log and no run.
#![forbid(unsafe_code)]

mod rows;
mod table;

pub use rows::{EPISODES, EVENTS, FRAMES, FrameRow, MARKERS, sides};
pub use table::{Cell, Schema, Table, TableError, Whole};
