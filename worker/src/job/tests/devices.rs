//! What a file says does not depend on what measures it, nor on when a device is lost.

use super::*;
use crate::measuring::scripted;

#[test]
fn a_device_says_what_the_cpu_says_whenever_it_is_lost() {
    let lengths: [&[u64]; 3] = [&[120], &[7, 40, 1, 33], &[16, 16, 16, 16, 16, 16]];
    for asked in [ASKED, Asked { stills: false, ..ASKED }] {
        for lengths in lengths {
            let expected = analyse(lengths, asked);
            let frames: u64 = lengths.iter().sum();
            for batches in [0, 1, 3, usize::MAX] {
                let case = format!("{lengths:?}, lost after {batches}");
                let (measuring, given) = scripted::lost_after(batches);
                assert!(analyse_by(lengths, asked, &measuring) == expected, "{case}");
                let (sizes, told) = (given.sizes(), measuring.told());
                if batches == usize::MAX {
                    assert_eq!(sizes.iter().sum::<usize>() as u64, frames, "{case}");
                    assert!(sizes.iter().all(|size| *size <= 8) && sizes[0] > 1, "{sizes:?}");
                    assert_eq!((told.measurer.as_str(), told.lost), ("scripted:of a test", None));
                } else {
                    assert_eq!(sizes.len(), batches + 1, "{case}: not asked again");
                    assert!(told.measurer.starts_with("cpu-"), "{case}: {told:?}");
                    assert!(told.lost.is_some_and(|reason| reason.contains("unplugged")));
                }
            }
        }
    }
}
