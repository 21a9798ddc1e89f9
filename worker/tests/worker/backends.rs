//! Backend selection on a machine that lacks what backends need: errors name it, nothing panics.

use decode::DecodeBackend;
use media::Codec;
use worker::{
    BackendChoice::{self, Auto, Named},
    BackendRequest, BackendSelectError, DecodeSelection, GateBackend, Supervisor,
};

use crate::{
    programs::ffmpeg,
    support::{alone, has_landlock, program},
};

/// Selects backends for the test's own worker.
pub fn select(
    choice: BackendChoice<DecodeBackend>,
    gate: BackendChoice<GateBackend>,
    device: Option<&str>,
) -> Result<(Supervisor, DecodeSelection), BackendSelectError> {
    let (device, ffmpeg) = (device.map(str::to_owned), Some(ffmpeg()));
    let wanted = BackendRequest { choice, device, capabilities: None, ffmpeg, gate };
    Supervisor::select(&program(), &wanted)
}

#[test]
fn software_decodes_a_clip_of_every_codec_and_the_cpu_measures() {
    let _alone = alone();
    let (supervisor, found) =
        select(Named(DecodeBackend::Software), Auto, None).expect("always there");
    assert_eq!((found.backend, found.passed_over.len()), (DecodeBackend::Software, 0));
    assert_eq!((found.gate.backend, found.gate.passed_over.len()), (GateBackend::Cpu, 0));
    assert!(found.capabilities.measurer.starts_with("cpu-"), "{}", found.capabilities.measurer);
    assert!(!supervisor.has_device());
    assert_eq!(found.sandbox.is_full(), has_landlock(), "{}", found.sandbox);
    for codec in Codec::ALL {
        let tried = found.capabilities.codecs.iter().filter(|tried| tried.codec == codec);
        for tried in tried {
            assert_eq!(tried.reason, None, "{tried:?}");
            assert!(tried.decoder.as_deref().is_some_and(|name| name.starts_with("software:")));
        }
    }
}

#[test]
fn a_device_that_is_asked_for_and_missing_is_an_error_that_names_it() {
    let _alone = alone();
    // No machine has these devices, so the cases fail even with a driver.
    let rows: [(DecodeBackend, &str, &[&str]); 6] = [
        (DecodeBackend::Nvdec, "4000", &["libcuda.so.1 cannot be loaded", "no device 4000"]),
        (
            DecodeBackend::Nvdec,
            "card0",
            &["\"card0\" is no device: the number of an NVIDIA device"],
        ),
        (
            DecodeBackend::Vaapi,
            "/dev/dri/none",
            &["cannot be opened: No such file", "/dev/dri/none"],
        ),
        (DecodeBackend::Vaapi, "0", &["\"0\" is no device: the path of a render node"]),
        (DecodeBackend::Vaapi, "/dev/null", &["av_hwdevice_ctx_create failed"]),
        // By then the worker's sandbox allows only devices and their libraries.
        (DecodeBackend::Vaapi, "/etc/passwd", &["cannot be opened: Permission denied"]),
    ];
    for (backend, device, words) in rows {
        let error = select(Named(backend), Named(GateBackend::Cpu), Some(device))
            .expect_err(device)
            .to_string();
        assert!(words.iter().any(|words| error.contains(words)), "{backend:?} {device}: {error}");
    }
}

#[test]
fn a_gate_that_is_asked_for_and_missing_is_an_error_that_names_it() {
    let _alone = alone();
    // No machine has this device, so the case fails even with a driver.
    let software = Named(DecodeBackend::Software);
    let error = select(software, Named(GateBackend::Cuda), Some("4000")).err();
    let Some(BackendSelectError::Gate { backend: GateBackend::Cuda, source }) = error else {
        panic!("{error:?}")
    };
    let (said, words) =
        (source.to_string(), ["libcuda.so.1", "no CUDA device 4000", "finds no device"]);
    assert!(words.iter().any(|words| said.contains(words)), "{said}");
}

#[test]
fn what_nobody_names_goes_over_to_software_and_says_why() {
    let _alone = alone();
    // This path is no render node, which excludes VAAPI, and no NVIDIA device.
    let (_, found) = select(Auto, Named(GateBackend::Cpu), Some("/dev/null")).expect("decodes");
    assert_eq!(found.backend, DecodeBackend::Software);
    let over: Vec<DecodeBackend> = found.passed_over.iter().map(|(backend, _)| *backend).collect();
    assert_eq!(over, [DecodeBackend::Nvdec, DecodeBackend::Vaapi]);
    for (backend, error) in &found.passed_over {
        assert!(!error.to_string().is_empty(), "{backend:?}");
    }
}
