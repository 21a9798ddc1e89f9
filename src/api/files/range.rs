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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{RangeOutcome::*, *};

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        let cases = [
            ("bytes=0-0", Part(0..1)),
            ("bytes=0-499", Part(0..500)),
            ("bytes=500-999", Part(500..1000)),
            ("bytes=500-", Part(500..1000)),
            ("bytes=-500", Part(500..1000)),
            ("bytes=-5000", Part(0..1000)),
            ("bytes=999-5000", Part(999..1000)),
            ("BYTES=0-1", Part(0..2)),
            ("bytes= 0-1 ,", Part(0..2)),
            ("bytes=,,1-1", Part(1..2)),
            ("bytes=0-99999999999999999999", Part(0..1000)),
            ("bytes=1000-", Unsatisfiable),
            ("bytes=1000-1000", Unsatisfiable),
            ("bytes=99999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=0-0,5-6", Whole),
            ("bytes=2-1", Whole),
            ("bytes=-", Whole),
            ("bytes=", Whole),
            ("bytes", Whole),
            ("", Whole),
            ("items=0-1", Whole),
            ("bytes =0-1", Whole),
            ("bytes=0 - 1", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=0x1-2", Whole),
            ("bytes=--1", Whole),
            ("bytes=1-2-3", Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(wanted(header, 1000), expected, "{header}");
        }
        assert_eq!(wanted("bytes=0-", 0), Unsatisfiable, "an empty file has no range");
        assert_eq!(wanted("bytes=-5", 0), Unsatisfiable, "an empty file has no range");
    }

    /// A range-spec of the grammar of RFC 9110 14.1.1.
    #[derive(Clone, Debug)]
    enum Spec {
        Between(u64, u64),
        From(u64),
        Suffix(u64),
    }

    impl Spec {
        fn text(&self) -> String {
            match self {
                Spec::Between(first, last) => format!("{first}-{last}"),
                Spec::From(first) => format!("{first}-"),
                Spec::Suffix(count) => format!("-{count}"),
            }
        }

        /// Returns true if the range covers the byte `at` of a file of `size` bytes.
        fn names(&self, at: u64, size: u64) -> bool {
            match self {
                Spec::Between(first, last) => (first..=last).contains(&&at),
                Spec::From(first) => *first <= at,
                Spec::Suffix(count) => at + count >= size,
            }
        }
    }

    fn spec() -> impl Strategy<Value = Spec> {
        let number = || (0u64..70_000).boxed();
        prop_oneof![
            (number(), number()).prop_map(|(first, more)| Spec::Between(first, first + more)),
            number().prop_map(Spec::From),
            number().prop_map(Spec::Suffix),
        ]
    }

    proptest! {
        #[test]
        fn a_range_is_exactly_the_bytes_it_names(spec in spec(), size in 0u64..70_000) {
            let named: Vec<u64> = (0..size).filter(|at| spec.names(*at, size)).collect();
            let expected = match (named.first(), named.last()) {
                (Some(first), Some(last)) => Part(*first..last + 1),
                _ => Unsatisfiable,
            };
            prop_assert_eq!(wanted(&format!("bytes={}", spec.text()), size), expected);
        }

        #[test]
        fn whatever_is_asked_lies_in_the_file(header in "\\PC{0,40}", tail in "[-0-9, ]{0,20}", size: u64) {
            for text in [header, format!("bytes={tail}")] {
                if let Part(range) = wanted(&text, size) {
                    prop_assert!(range.start < range.end && range.end <= size, "{text}: {range:?}");
                }
            }
        }
    }
}
