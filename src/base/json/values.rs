//! Readers of single JSON values, and bounds as types, which the OpenAPI document and `/v1/limits` share.

use std::{ops::RangeInclusive, str::FromStr};

use media::{ParseError, Score};
use serde_json::Value;

use super::{Declared, Faults, Form, ValueError};

/// Reads a JSON integer of 64 bits, signed.
pub fn signed(value: &Value) -> Result<i64, ValueError> {
    value.as_i64().ok_or_else(|| "must be a 64-bit integer".into())
}

/// Reads a number in `range`.
pub fn number(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Result<f64, ValueError> {
    move |value| {
        value.as_f64().filter(|found| range.contains(found)).ok_or_else(|| {
            format!("must be a number in [{}, {}]", range.start(), range.end()).into()
        })
    }
}

/// Reads a number in [0, 1].
pub fn score(value: &Value) -> Result<Score, ValueError> {
    let found = value.as_f64().and_then(|found| Score::from_f64(found).ok());
    found.ok_or_else(|| "must be a number in [0, 1]".into())
}

/// Rejects a string of white space only; passes other values to `read`.
pub fn said<'a, T>(
    read: impl FnOnce(&'a Value) -> Result<T, ValueError>,
) -> impl FnOnce(&'a Value) -> Result<T, ValueError> {
    |value| match value.as_str() {
        Some(text) if !text.is_empty() && text.trim().is_empty() => {
            Err("must hold more than white space".into())
        }
        _ => read(value),
    }
}

/// Reads a string that parses as `T`.
pub fn parsed<T: FromStr<Err = ParseError>>(value: &Value) -> Result<T, ValueError> {
    let found = value.as_str().ok_or(ValueError::from("must be a string"))?;
    found.parse().map_err(|error: ParseError| error.problem.into())
}

/// Reads one of `names` by means of `read`.
pub fn name<T>(
    names: impl AsRef<[&'static str]>,
    read: impl Fn(&str) -> Option<T>,
) -> impl Fn(&Value) -> Result<T, ValueError> {
    move |value| {
        let read = value.as_str().and_then(&read);
        read.ok_or_else(|| format!("must be one of {}", names.as_ref().join(", ")).into())
    }
}

/// An integer in `[MIN, MAX]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedInt<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> BoundedInt<MIN, MAX> {
    /// Accepted values.
    pub const RANGE: RangeInclusive<u64> = MIN..=MAX;

    /// Reads the integer from a body.
    pub fn read(value: &Value) -> Result<Self, ValueError> {
        Self::within(value.as_u64())
    }

    /// Reads the integer from a string of digits, as in a query.
    pub fn digits(value: &Value) -> Result<u64, ValueError> {
        let text = value.as_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        Self::within(text.and_then(|text| text.parse().ok())).map(|BoundedInt(found)| found)
    }

    fn within(found: Option<u64>) -> Result<Self, ValueError> {
        let found = found.filter(|found| Self::RANGE.contains(found)).map(BoundedInt);
        found.ok_or_else(|| format!("must be an integer in [{MIN}, {MAX}]").into())
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
        match value.as_str() {
            Some(found) if Self::BYTES.contains(&found.len()) => Ok(BoundedText(found.to_owned())),
            _ => Err(format!("must be a string of {MIN} to {MAX} bytes").into()),
        }
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
