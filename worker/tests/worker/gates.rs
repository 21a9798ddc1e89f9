//! Gate backends of a worker: the integers equal the CPU's, and errors name missing devices.

use worker::{
    BackendRequest, BackendSelectError, DecodeBackendChoice, DecodeSelection, GateBackend,
    GateChoice, Supervisor,
};

use crate::{
    live::{access_units, together},
    support::{
        alone, annex_b, has_landlock, long_clip, program, run_by, skip, spec, supervisor, with,
    },
};

fn select(
    gate: GateChoice,
    device: Option<&str>,
) -> Result<(Supervisor, DecodeSelection), BackendSelectError> {
    let choice = DecodeBackendChoice::Named(decode::DecodeBackend::Software);
    let device = device.map(str::to_owned);
    let wanted = BackendRequest { choice, device, gate, ..BackendRequest::default() };
    Supervisor::select(&program(), &wanted)
}

#[test]
fn nobody_s_choice_is_the_cpu_where_libav_s_own_decoders_decode() {
    let _alone = alone();
    let (supervisor, found) = select(GateChoice::Auto, None).expect("the CPU measures");
    assert!(found.capabilities.measurer.starts_with("cpu-"), "{}", found.capabilities.measurer);
    assert_eq!((found.gate.backend, found.gate.passed_over.len()), (GateBackend::Cpu, 0));
    assert!(
        !supervisor.has_device() && found.sandbox.is_full() == has_landlock(),
        "{}",
        found.sandbox
    );
}

#[test]
fn a_gate_that_is_asked_for_and_missing_is_an_error_that_names_it() {
    let _alone = alone();
    // No machine has this device, so the case fails even with a driver.
    let error = select(GateChoice::Named(GateBackend::Cuda), Some("4000")).err();
    let Some(BackendSelectError::Gate { backend: GateBackend::Cuda, source }) = error else {
        panic!("{error:?}")
    };
    let (said, words) =
        (source.to_string(), ["libcuda.so.1", "no CUDA device 4000", "finds no device"]);
    assert!(words.iter().any(|words| said.contains(words)), "{said}");
}

/// Returns workers that measure on any Vulkan adapter; skips `test` with a message if there is none.
fn on_an_adapter(test: &str) -> Option<Supervisor> {
    match select(GateChoice::Named(GateBackend::Wgpu), None) {
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
fn a_file_measured_on_an_adapter_says_what_it_says_on_the_cpu() {
    let _alone = alone();
    let Some(on_adapter) = on_an_adapter("a file on an adapter") else { return };
    let run = |supervisor: &Supervisor| {
        let spec = with(spec(&long_clip()), |it| it.max_frames = 400);
        run_by(supervisor, spec).expect("decodes").settled()
    };
    let (mut measured, mut expected) = (run(&on_adapter), run(&supervisor()));
    let by = measured.measured_by.take().expect("told");
    assert!(by.measurer.starts_with("wgpu:") && by.lost.is_none(), "{by:?}");
    assert!(expected.measured_by.take().is_some_and(|by| by.measurer.starts_with("cpu-")));
    assert_eq!(measured.signals.len(), 400);
    assert!(measured == expected, "signals, stills and report are equal");
}

#[test]
fn live_sessions_measured_together_on_an_adapter_say_what_they_say_on_the_cpu() {
    let _alone = alone();
    let Some(on_adapter) = on_an_adapter("live sessions on an adapter") else { return };
    let sources = ["testsrc2", "mandelbrot"].map(|source| access_units(&annex_b(source)));
    let sources = [0, 1, 0, 1, 0, 1].map(|at: usize| &sources[at][..50]);
    let [measured, expected] = [&on_adapter, &supervisor()].map(|by| together(by, &sources));
    assert_eq!((measured.lost, expected.lost), (None, None));
    assert!(measured.closed.values().eq(&[50_u64; 6]));
    assert!(measured.signals == expected.signals && measured.stills == expected.stills);
}
