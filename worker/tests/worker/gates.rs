//! Gate backends of a worker: the integers equal the CPU's, and errors name missing devices.

use gate::GateConfig;
use media::Codec;
use worker::{
    BackendRequest, BackendSelectError, DecodeBackendChoice, DecodeSelection, GateBackend,
    GateChoice, SessionSpec, Supervisor, WorkerLimits,
};

use crate::{
    live::{Listener, Said, access_units, push},
    support::{alone, annex_b, has_landlock, long_clip, program, run_by, skip, spec, with},
};

fn select(
    gate: GateChoice,
    device: Option<&str>,
) -> Result<(Supervisor, DecodeSelection), BackendSelectError> {
    let choice = DecodeBackendChoice::Named(decode::DecodeBackend::Software);
    let device = device.map(str::to_owned);
    Supervisor::select(
        &program(),
        &BackendRequest { choice, device, capabilities: None, ffmpeg: None, gate },
    )
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
    let (mut measured, mut expected) = (run(&on_adapter), run(&Supervisor::new(program())));
    let by = measured.measured_by.take().expect("told");
    assert!(by.measurer.starts_with("wgpu:") && by.lost.is_none(), "{by:?}");
    assert!(expected.measured_by.take().is_some_and(|by| by.measurer.starts_with("cpu-")));
    assert_eq!(measured.signals.len(), 400);
    assert!(measured == expected, "signals, stills and report are equal");
}

#[test]
fn live_sessions_measured_together_on_an_adapter_say_what_they_say_on_the_cpu() {
    const SESSIONS: u32 = 6;
    let _alone = alone();
    let Some(on_adapter) = on_an_adapter("live sessions on an adapter") else { return };
    let sources = ["testsrc2", "mandelbrot"].map(|source| access_units(&annex_b(source)));
    let run = |supervisor: &Supervisor| {
        let listener = Listener::default();
        let told = listener.clone();
        let limits =
            WorkerLimits { stall: std::time::Duration::from_secs(60), ..WorkerLimits::default() };
        let live = supervisor.start_live(limits, move |event| told.take(event)).expect("starts");
        let stills = SessionSpec::new(Codec::H264, GateConfig::default());
        for session in 0..SESSIONS {
            live.open(session, SessionSpec { stills: true, ..stills.clone() }).expect("open");
        }
        for at in 0..50 {
            for session in 0..SESSIONS {
                let units = &sources[session as usize % 2];
                push(&live, session, &units[at]);
            }
        }
        (0..SESSIONS).for_each(|session| live.close(session).expect("close"));
        let said = listener.wait("all closed", |said| said.closed.len() == SESSIONS as usize);
        let Said { signals, stills, closed, lost, .. } = &*said;
        assert_eq!(*lost, None);
        (signals.clone(), stills.clone(), closed.clone())
    };
    let (measured, expected) = (run(&on_adapter), run(&Supervisor::new(program())));
    assert_eq!(measured.2.values().copied().collect::<Vec<_>>(), vec![50; SESSIONS as usize]);
    assert!(measured == expected, "signals and stills of every session are equal");
}
