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

proptest! {
    #[test]
    fn a_range_is_exactly_the_bytes_it_names(
        first in 0u64..70_000,
        more in 0u64..70_000,
        size in 0u64..70_000,
    ) {
        let last = first + more;
        let specs: [(String, &dyn Fn(u64) -> bool); 3] = [
            (format!("{first}-{last}"), &|at| (first..=last).contains(&at)),
            (format!("{first}-"), &|at| first <= at),
            (format!("-{first}"), &|at| at + first >= size),
        ];
        for (spec, names) in specs {
            let named: Vec<u64> = (0..size).filter(|at| names(*at)).collect();
            let expected = match (named.first(), named.last()) {
                (Some(first), Some(last)) => Part(*first..last + 1),
                _ => Unsatisfiable,
            };
            let found = wanted(&format!("bytes={spec}"), size);
            prop_assert_eq!(found, expected, "{} of {}", spec, size);
        }
    }
}
