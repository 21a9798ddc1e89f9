//! Gate backends of a worker: the integers equal the CPU's.

use decode::DecodeBackend;
use worker::{BackendChoice::Named, GateBackend, Supervisor};

use crate::{
    backends::select,
    live::{access_units, together},
    support::{alone, annex_b, skip, supervisor},
};

/// Returns workers that measure on any Vulkan adapter; skips `test` with a message if there is none.
pub fn on_an_adapter(test: &str, decode: DecodeBackend) -> Option<Supervisor> {
    match select(Named(decode), Named(GateBackend::Wgpu), None) {
        Ok((supervisor, found)) => {
            assert_eq!(found.gate.backend, GateBackend::Wgpu);
            let measurer = found.capabilities.measurer;
            assert!(measurer.starts_with("wgpu:"), "{measurer}");
            println!("{test}: {measurer}, sandbox {}", found.sandbox);
            Some(supervisor)
        }
        Err(error) if error.to_string().contains("no Vulkan adapter") => {
            skip(test, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn live_sessions_measured_together_on_an_adapter_say_what_they_say_on_the_cpu() {
    let _alone = alone();
    let test = "live sessions on an adapter";
    let Some(on_adapter) = on_an_adapter(test, DecodeBackend::Software) else { return };
    let sources = ["testsrc2", "mandelbrot"].map(|source| access_units(&annex_b(source)));
    let sources = [0, 1, 0, 1, 0, 1].map(|at: usize| &sources[at][..50]);
    let [measured, expected] = [&on_adapter, &supervisor()].map(|by| together(by, &sources));
    assert_eq!((measured.lost, expected.lost), (None, None));
    assert!(measured.closed.values().eq(&[50_u64; 6]));
    assert!(measured.signals == expected.signals && measured.stills == expected.stills);
}
