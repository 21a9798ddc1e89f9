//! Bounds as types: what a reader enforces, the document states and `/v1/limits` shows is one
//! alias.

use std::ops::RangeInclusive;

use deserr::{Deserr, IntoValue, ValuePointerRef};
use serde_json::Value;

use super::{Faults, Problem, digits, integer, leaf, text};

/// An integer in `[MIN, MAX]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int<const MIN: u64, const MAX: u64>(pub u64);

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MIN: usize, const MAX: usize>(pub String);

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    /// Every length that is accepted, in bytes.
    pub const BYTES: RangeInclusive<usize> = MIN..=MAX;

    /// Reads one.
    pub fn read(value: &Value) -> Result<&str, Problem> {
        text(Self::BYTES)(value)
    }
}

impl<const MIN: u64, const MAX: u64> Deserr<Faults> for Int<MIN, MAX> {
    fn deserialize_from_value<V: IntoValue>(
        value: deserr::Value<V>,
        at: ValuePointerRef<'_>,
    ) -> Result<Self, Faults> {
        leaf(value, at, Self::read).map(Int)
    }
}

impl<const MIN: usize, const MAX: usize> Deserr<Faults> for Text<MIN, MAX> {
    fn deserialize_from_value<V: IntoValue>(
        value: deserr::Value<V>,
        at: ValuePointerRef<'_>,
    ) -> Result<Self, Faults> {
        leaf(value, at, |value| Self::read(value).map(str::to_owned)).map(Text)
    }
}
