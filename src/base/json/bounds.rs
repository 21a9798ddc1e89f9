//! Bounds as types, so that parsing, the OpenAPI document and `/v1/limits` share one alias.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::{Declared, Faults, Form, ValueError, digits, integer, text};

/// An integer in `[MIN, MAX]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedInt<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> BoundedInt<MIN, MAX> {
    /// Accepted values.
    pub const RANGE: RangeInclusive<u64> = MIN..=MAX;

    /// Reads the integer from a body.
    pub fn read(value: &Value) -> Result<Self, ValueError> {
        integer(Self::RANGE)(value).map(BoundedInt)
    }

    /// Reads the integer from a query.
    pub fn digits(value: &Value) -> Result<u64, ValueError> {
        digits(Self::RANGE)(value)
    }
}

/// A string of `MIN` to `MAX` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedText<const MIN: usize, const MAX: usize>(pub String);

impl<const MIN: usize, const MAX: usize> BoundedText<MIN, MAX> {
    /// Accepted lengths in bytes.
    pub const BYTES: RangeInclusive<usize> = MIN..=MAX;

    /// Reads the string.
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
