//! Backends of a machine that lacks what others need: each gap is named, nothing panics.

use decode::Backend;
use media::Codec;
use worker::{BackendRequest, Choice, GateBackend, GateChoice, SelectError, Supervisor};

use crate::support::{alone, has_landlock, program};

fn select(choice: Choice, device: Option<&str>) -> Result<worker::Selection, SelectError> {
    let device = device.map(str::to_owned);
    let gate = GateChoice::Named(GateBackend::Cpu);
    let wanted = BackendRequest { choice, device, capabilities: None, ffmpeg: None, gate };
    Supervisor::select(&program(), &wanted).map(|(_, selection)| selection)
}

#[test]
fn software_decodes_a_clip_of_every_codec() {
    let _alone = alone();
    let found = select(Choice::Named(Backend::Software), None).expect("always there");
    assert_eq!((found.backend, found.passed_over.len()), (Backend::Software, 0));
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
    // The device is one that no machine has, so that those with a driver fail too.
    let rows: [(Backend, &str, &[&str]); 6] = [
        (Backend::Nvdec, "4000", &["libcuda.so.1 cannot be loaded", "no device 4000"]),
        (Backend::Nvdec, "card0", &["\"card0\" is no device: the number of an NVIDIA device"]),
        (Backend::Vaapi, "/dev/dri/none", &["cannot be opened: No such file", "/dev/dri/none"]),
        (Backend::Vaapi, "0", &["\"0\" is no device: the path of a render node"]),
        (Backend::Vaapi, "/dev/null", &["av_hwdevice_ctx_create failed"]),
        // By then the worker may open nothing but devices and their libraries.
        (Backend::Vaapi, "/etc/passwd", &["cannot be opened: Permission denied"]),
    ];
    for (backend, device, words) in rows {
        let error = select(Choice::Named(backend), Some(device)).expect_err(device).to_string();
        assert!(words.iter().any(|words| error.contains(words)), "{backend:?} {device}: {error}");
    }
}

#[test]
fn what_nobody_names_goes_over_to_software_and_says_why() {
    let _alone = alone();
    // A render node of no use rules VAAPI out, and is no NVIDIA device.
    let found = select(Choice::Auto, Some("/dev/null")).expect("decodes");
    assert_eq!(found.backend, Backend::Software);
    let over: Vec<Backend> = found.passed_over.iter().map(|(backend, _)| *backend).collect();
    assert_eq!(over, [Backend::Nvdec, Backend::Vaapi]);
    for (backend, error) in &found.passed_over {
        assert!(!error.to_string().is_empty(), "{backend:?}");
    }
}
