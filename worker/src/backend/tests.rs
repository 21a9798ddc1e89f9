//! Tests of the backends that are tried, selected and passed over.

use super::*;

fn tried(codec: Codec, bits: u8, decoder: &str, reason: Option<&str>) -> CodecProbeResult {
    let (decoder, reason) = (Some(decoder.to_owned()), reason.map(str::to_owned));
    CodecProbeResult { codec, bits, decoder, reason }
}

#[test]
fn a_device_is_asked_for_what_it_decoded_alone() {
    let nvdec = |tried: &[CodecProbeResult]| decoded_by(DecodeBackend::Nvdec, tried);
    let all = [
        tried(Codec::H264, 8, "nvdec:h264", None),
        tried(Codec::H265, 8, "nvdec:hevc+software:hevc", Some("unplugged")),
        tried(Codec::H265, 10, "nvdec:hevc", None),
        tried(Codec::Vp9, 8, "nvdec:vp9", None),
        tried(Codec::Vp9, 10, "software:vp9", Some("not on this device")),
        tried(Codec::Av1, 8, "software:libdav1d", Some("other pictures")),
        tried(Codec::Mpeg4, 8, "software:mpeg4", None),
    ];
    assert_eq!(nvdec(&all), Ok(vec![Codec::H264, Codec::Vp9]));
    let error = nvdec(&all[5..]).expect_err("nothing of it");
    assert_eq!(error.to_string(), "it failed to decode every probe clip: other pictures");
    assert!(nvdec(&[]).is_err());
}

fn found() -> Found {
    let codecs = vec![tried(Codec::H264, 8, "software:h264", None)];
    let report = SandboxReport {
        landlock_abi: 7,
        seccomp: true,
        rlimits: true,
        missing: Vec::new(),
        refused: 0,
    };
    let capabilities = Capabilities { codecs, measurer: "cpu".to_owned() };
    (Supervisor::new(WorkerProgram::at("/none")), capabilities, report)
}

#[test]
fn what_nobody_names_is_tried_in_turn_and_a_name_is_binding() {
    use DecodeBackend::{Nvdec, Software, Vaapi};
    /// Choice, backends that decode, backend selected, and backends passed over.
    type Case = (
        BackendChoice<DecodeBackend>,
        &'static [DecodeBackend],
        Option<DecodeBackend>,
        &'static [DecodeBackend],
    );
    let rows: [Case; 6] = [
        (BackendChoice::Auto, &[Nvdec, Vaapi, Software], Some(Nvdec), &[]),
        (BackendChoice::Auto, &[Vaapi, Software], Some(Vaapi), &[Nvdec]),
        (BackendChoice::Auto, &[Software], Some(Software), &[Nvdec, Vaapi]),
        (BackendChoice::Auto, &[], None, &[]),
        (BackendChoice::Named(Nvdec), &[Vaapi, Software], None, &[]),
        (BackendChoice::Named(Software), &[Nvdec, Vaapi, Software], Some(Software), &[]),
    ];
    for (choice, there, expected, passed_over) in rows {
        let wanted = BackendRequest { choice, ..BackendRequest::default() };
        let selected = first_that_decodes(&wanted.candidates(), |backend| {
            if there.contains(&backend) { Ok(found()) } else { Err(WorkerError::Ended) }
        });
        let selected = selected.ok().map(|(_, selection)| selection);
        let case = format!("{choice:?} of {there:?}");
        assert_eq!(selected.as_ref().map(|found| found.backend), expected, "{case}");
        if let Some(found) = selected {
            let names: Vec<DecodeBackend> = found.passed_over.iter().map(|over| over.0).collect();
            assert_eq!(names, passed_over, "{case}");
        }
    }
}

#[test]
fn a_device_measures_unnamed_only_beside_one_that_decodes() {
    use DecodeBackend::{FfmpegCli, Nvdec, Software, Vaapi};
    use GateBackend::{Cpu, Cuda, Wgpu};
    /// Decoding backend, backends that would measure, backend selected, and backends passed over.
    type Case = (DecodeBackend, &'static [GateBackend], GateBackend, &'static [GateBackend]);
    let rows: [Case; 7] = [
        (Software, &[Cuda, Wgpu], Cpu, &[]),
        (FfmpegCli, &[Cuda, Wgpu], Cpu, &[]),
        (Nvdec, &[Cuda, Wgpu], Cuda, &[]),
        (Nvdec, &[Wgpu], Wgpu, &[Cuda]),
        (Nvdec, &[], Cpu, &[Cuda, Wgpu]),
        (Vaapi, &[Cuda, Wgpu], Wgpu, &[]),
        (Vaapi, &[Cuda], Cpu, &[Wgpu]),
    ];
    let decodes = |backend, passed_over| {
        let (supervisor, capabilities, sandbox) = found();
        let gate = GateSelection { backend: Cpu, passed_over: Vec::new() };
        (supervisor, DecodeSelection { backend, capabilities, sandbox, passed_over, gate })
    };
    for (decoder, there, expected, passed_over) in rows {
        let plain = decodes(decoder, vec![(Nvdec, WorkerError::Ended)]);
        let (_, kept) = beside(plain, |with, gate| {
            assert_eq!(with, decoder);
            let found = there.contains(&gate).then(|| decodes(with, Vec::new()));
            found.ok_or(WorkerError::Ended)
        });
        let over: Vec<GateBackend> = kept.gate.passed_over.iter().map(|over| over.0).collect();
        let case = format!("{decoder:?} and {there:?}");
        assert_eq!((kept.gate.backend, &over[..]), (expected, passed_over), "{case}");
        assert_eq!((kept.backend, kept.passed_over.len()), (decoder, 1), "{case}");
    }
}

#[test]
fn only_a_name_takes_an_adapter_that_is_a_cpu() {
    let named = BackendChoice::Named(GateBackend::Wgpu);
    for (gate, is_named) in [(BackendChoice::Auto, false), (named, true)] {
        let wanted =
            BackendRequest { gate, device: Some("3".to_owned()), ..BackendRequest::default() };
        let device = wanted.gate_device(GateBackend::Wgpu);
        assert_eq!((device.number, device.is_named), (3, is_named), "{gate:?}");
        assert_eq!(wanted.names_device(), is_named, "{gate:?}");
    }
}

/// Tries a worker whose gate device opens alone, but not beside a decoding device.
fn crowded(decoder: DecodeBackend, gate: Option<GateDevice>) -> Result<Found, WorkerError> {
    let (mut supervisor, capabilities, sandbox) = found();
    if decoder != DecodeBackend::Software {
        let spec = BackendRequest::default().spec(decoder);
        supervisor.program = supervisor.program.with_device(spec, vec![Codec::H264]);
    }
    if let Some(gate) = gate {
        if decoder == DecodeBackend::Nvdec && !gate.was_there {
            return Err(JobFault::Gate(BackendError::unavailable("no memory left")).into());
        }
        supervisor.program = supervisor.program.with_gate(gate);
    }
    Ok((supervisor, capabilities, sandbox))
}

#[test]
fn a_gate_that_opens_only_without_the_decoder_is_not_selected_beside_it() {
    use DecodeBackend::Nvdec;
    use GateBackend::{Cpu, Cuda, Wgpu};
    let select = |choice, gate| {
        select_by(
            &BackendRequest { choice, gate, ..BackendRequest::default() },
            |_| Ok(()),
            crowded,
        )
    };
    let named = BackendChoice::Named(Cuda);
    let error = select(BackendChoice::Named(Nvdec), named).expect_err("a name is binding");
    assert!(matches!(error, BackendSelectError::Gate { backend: Cuda, .. }), "{error:?}");

    let (supervisor, found) =
        select(BackendChoice::Auto, BackendChoice::Auto).expect("the CPU measures");
    let over: Vec<GateBackend> = found.gate.passed_over.iter().map(|over| over.0).collect();
    assert_eq!((found.backend, found.gate.backend, over), (Nvdec, Cpu, vec![Cuda, Wgpu]));
    assert_eq!(supervisor.program.gate, None);
    let device = supervisor.program.device.expect("a device");
    assert!(device.was_there, "what was selected may be lost later");

    let (supervisor, found) = select(BackendChoice::Auto, named).expect("another decoder");
    assert_eq!((found.passed_over[0].0, found.gate.backend), (Nvdec, Cuda));
    let gate = supervisor.program.gate.expect("a device");
    assert!(gate.was_there, "what was selected may be lost later");
}
