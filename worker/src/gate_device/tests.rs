//! A scripted device, and a test of a device that is not there.

pub(crate) mod scripted;

use super::*;

/// No machine has a device of this number.
#[test]
fn a_device_that_is_there_no_more_is_replaced_by_the_cpu() {
    let device = |was_there| GateDevice {
        backend: GateBackend::Cuda,
        number: 4000,
        is_named: true,
        was_there,
    };
    assert!(GateMeasurement::open(Some(&device(false))).is_err(), "at the start that is an error");
    let measuring = GateMeasurement::open(Some(&device(true))).unwrap_or_default();
    let lost = measuring.told().lost.unwrap_or_default();
    assert!(lost.starts_with("cuda lost its device: "), "{lost}");
    assert_eq!(measuring.name(), CpuBackend::new().name());
    assert_eq!(measuring.gathered_max(), 1);
    let mut measured = Vec::new();
    assert_eq!(measuring.measurer().measure(&[], &mut measured), Ok(()));
}
