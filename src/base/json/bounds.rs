//! Bounds as types: what a reader enforces, the document states and `/v1/limits` shows is one
//! alias.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::{Problem, digits, integer, text};

/// An integer in `[MIN, MAX]`.
pub struct Int<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Int<MIN, MAX> {
    /// Every value that is accepted.
    pub const RANGE: RangeInclusive<u64> = MIN..=MAX;

    /// Reads one from a body.
    pub fn read(value: &Value) -> Result<u64, Problem> {
        integer(Self::RANGE)(value)
    }

    /// Reads one from a query.
    pub fn digits(value: &Value) -> Result<u64, Problem> {
        digits(Self::RANGE)(value)
    }
}

/// A string of `MIN` to `MAX` bytes.
pub struct Text<const MIN: usize, const MAX: usize>;

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    /// Every length that is accepted, in bytes.
    pub const BYTES: RangeInclusive<usize> = MIN..=MAX;

    /// Reads one.
    pub fn read(value: &Value) -> Result<&str, Problem> {
        text(Self::BYTES)(value)
    }
}
