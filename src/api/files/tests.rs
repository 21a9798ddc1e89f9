//! Tests of ranges. Not in their module, which `tests/fuzz/range.rs` has again.

use proptest::prelude::*;

use super::range::{RangeOutcome::*, wanted};

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
