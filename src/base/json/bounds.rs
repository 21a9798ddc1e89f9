//! Bounds as types: what a reader enforces, the document states and `/v1/limits` shows is one
//! alias.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::{Declared, Faults, Form, ValueError, digits, integer, text};

/// An integer in `[MIN, MAX]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedInt<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> BoundedInt<MIN, MAX> {
    /// Every value that is accepted.
    pub const RANGE: RangeInclusive<u64> = MIN..=MAX;

    /// Reads one from a body.
    pub fn read(value: &Value) -> Result<Self, ValueError> {
        integer(Self::RANGE)(value).map(BoundedInt)
    }

    /// Reads one from a query.
    pub fn digits(value: &Value) -> Result<u64, ValueError> {
        digits(Self::RANGE)(value)
    }
}

/// A string of `MIN` to `MAX` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedText<const MIN: usize, const MAX: usize>(pub String);

impl<const MIN: usize, const MAX: usize> BoundedText<MIN, MAX> {
    /// Every length that is accepted, in bytes.
    pub const BYTES: RangeInclusive<usize> = MIN..=MAX;

    /// Reads one.
    pub fn read(value: &Value) -> Result<Self, ValueError> {
        text(Self::BYTES)(value).map(|text| BoundedText(text.to_owned()))
    }
}

impl<const MIN: u64, const MAX: u64> Declared for BoundedInt<MIN, MAX> {
    fn take(value: &Value, form: Form<'_>) -> Result<Self, Faults> {
        Ok(match form {
            Form::Query => BoundedInt(Self::digits(value)?),
            _ => Self::read(value)?,
        })
    }
}

impl<const MIN: usize, const MAX: usize> Declared for BoundedText<MIN, MAX> {
    fn take(value: &Value, _: Form<'_>) -> Result<Self, Faults> {
        Ok(Self::read(value)?)
    }
}
