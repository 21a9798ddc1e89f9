//! Tests that a file's results do not depend on its gate backend, nor on faults of a device.

use gate::MeasureError;

use super::*;
use crate::gate_device::{GateMeasurement, tests::scripted};

const LENGTHS: [&[u64]; 3] = [&[120], &[7, 40, 1, 33], &[16, 16, 16, 16, 16, 16]];

/// Runs jobs on the film, each with a device of its own; returns their reports and the batches.
fn play(
    case: &str,
    device: impl Fn() -> (GateMeasurement, scripted::RecordedBatches),
) -> Vec<(u64, Played)> {
    let mut played = Vec::new();
    for asked in [ASKED, Asked { stills: false, ..ASKED }] {
        for lengths in LENGTHS {
            let (measuring, given) = device();
            let expected = analyse(lengths, asked);
            assert!(analyse_by(lengths, asked, &measuring) == expected, "{lengths:?}, {case}");
            let told = measuring.told();
            played.push((lengths.iter().sum(), Played { told, sizes: given.sizes() }));
        }
    }
    played
}

struct Played {
    told: GateBackendReport,
    sizes: Vec<usize>,
}

#[test]
fn a_device_says_what_the_cpu_says_whenever_it_is_lost() {
    for batches in [0, 1, 3, usize::MAX] {
        let case = format!("lost after {batches}");
        for (frames, Played { told, sizes }) in play(&case, || scripted::lost_after(batches)) {
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

#[test]
fn a_device_that_refuses_a_batch_is_kept_and_the_cpu_measures_it() {
    let backend = "scripted";
    let refusals = [
        MeasureError::NoRoom(backend, "in use".to_owned()),
        MeasureError::BeyondDevice { backend, bytes: 9, bytes_max: 8 },
    ];
    for error in refusals {
        let case = error.to_string();
        for (frames, Played { told, sizes }) in play(&case, || scripted::refusing(error.clone())) {
            assert_eq!(sizes.iter().sum::<usize>() as u64, frames, "{case}: asked every time");
            assert_eq!((told.measurer.as_str(), told.lost), ("scripted:of a test", None));
        }
    }
}

#[test]
fn a_batch_that_a_device_is_late_with_is_counted_and_the_cpu_measures_it() {
    for (_, Played { told, sizes }) in play("late once", scripted::late_once) {
        assert!(told.late > 0, "{told:?}, {sizes:?}");
        assert_eq!((told.measurer.as_str(), told.lost), ("scripted:of a test", None));
    }
}

#[test]
fn a_device_that_hangs_is_given_up_and_the_cpu_goes_on() {
    for batches in [0, 2] {
        let holds = std::cell::RefCell::new(Vec::new());
        let device = || {
            let (measuring, given, hold) = scripted::hanging_after(batches);
            holds.borrow_mut().push(hold);
            (measuring, given)
        };
        for (_, Played { told, sizes }) in play(&format!("hangs after {batches}"), device) {
            // On a slow machine the device may be late before it hangs.
            assert!(sizes.len() <= batches + 1, "not asked again: {sizes:?}");
            assert!(told.measurer.starts_with("cpu-"), "{told:?}");
            assert!(told.lost.is_some_and(|reason| reason.contains("not answered")));
        }
    }
}
