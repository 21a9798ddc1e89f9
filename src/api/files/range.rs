//! Evaluates a `Range` header (RFC 9110 14.1.2, 14.2).
//!
//! A single range is served. A set of ranges is answered with the whole file, which RFC 9110 14.2
//! allows, so overlapping ranges cannot cause extra work.

use std::ops::Range;

/// Bytes to send for a `Range` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The whole file: no range, several, or an invalid one.
    Whole,
    /// These bytes, at least one.
    Part(Range<u64>),
    /// The range contains no byte of the file.
    Unsatisfiable,
}

/// Evaluates `header` for a file of `size` bytes.
pub fn wanted(header: &str, size: u64) -> RangeOutcome {
    let Some((unit, set)) = header.split_once('=') else { return RangeOutcome::Whole };
    if !unit.eq_ignore_ascii_case("bytes") {
        return RangeOutcome::Whole;
    }
    // The list rule allows empty elements (RFC 9110 5.6.1.2).
    let mut specs = set.split(',').map(|spec| spec.trim_matches([' ', '\t']));
    let mut specs = specs.by_ref().filter(|spec| !spec.is_empty());
    let (Some(spec), None) = (specs.next(), specs.next()) else { return RangeOutcome::Whole };
    one(spec, size).unwrap_or(RangeOutcome::Whole)
}

/// Evaluates one range; `None` if it is invalid.
fn one(spec: &str, size: u64) -> Option<RangeOutcome> {
    let (first, last) = spec.split_once('-')?;
    let range = match (position(first)?, position(last)?) {
        (None, None) => return None,
        (None, Some(suffix)) => size.saturating_sub(suffix)..size,
        (Some(first), None) => first..size,
        (Some(first), Some(last)) if first <= last => first..size.min(last.saturating_add(1)),
        (Some(_), Some(_)) => return None,
    };
    Some(if range.start < range.end {
        RangeOutcome::Part(range)
    } else {
        RangeOutcome::Unsatisfiable
    })
}

/// Parses digits, clamped to `u64::MAX`; `Some(None)` if empty, `None` if not digits.
fn position(text: &str) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Some(text.parse().unwrap_or(u64::MAX)))
}
