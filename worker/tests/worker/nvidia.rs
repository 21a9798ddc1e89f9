//! Workers on an NVIDIA device whose driver is a shim: frames are decoded by NVDEC and measured in device
//! memory, in the sandbox for drivers. The tests of `device` run in processes of their own.

use crate::nvdec_shim::{LONG, PROBED, all, passes};

/// Runs a test of `device` with a driver that has the results of a clip and of the probe's clips.
fn on_device(name: &str, settings: &str) {
    passes(&format!("nvidia::device::{name}"), &all(&[&LONG[..1], &PROBED[..]].concat()), settings);
}

#[test]
fn a_file_says_what_it_says_on_the_cpu() {
    on_device("a_file_is_that_of_the_cpu", "");
}

#[test]
fn live_sessions_say_what_they_say_on_the_cpu() {
    on_device("live_sessions_are_those_of_the_cpu", "");
}

#[test]
fn a_device_that_is_lost_or_opens_no_more_costs_nothing() {
    // The setting that fails copies within the device proves that pictures stay there.
    let of_decoding = ["SHIM_DECODES=40", "SHIM_COPIES=9", "SHIM_FETCHES=9"];
    // The first launch belongs to opening the device.
    let of_measuring = ["SHIM_LAUNCHES=1", "SHIM_ANSWERED=1", "SHIM_DEVICES=0"];
    for settings in [of_decoding, of_measuring].concat() {
        on_device("a_file_is_that_of_the_cpu", settings);
    }
}

/// Tests on a driver that has the results of the clips.
mod device {
    use std::{fs, io::Cursor};

    use decode::{DecodeBackend, Demuxer};
    use worker::{
        BackendChoice::{Auto, Named},
        DecodeSelection, GateBackend, Supervisor,
    };

    use crate::{
        backends,
        live::together,
        nvdec_shim::{LONG, brought, given},
        support::{run_by, spec, supervisor},
    };

    fn select() -> (Supervisor, DecodeSelection) {
        let nvdec = Named(DecodeBackend::Nvdec);
        let (supervisor, found) = backends::select(nvdec, Auto, None).expect("a device");
        println!("{}: {}", found.capabilities.measurer, found.sandbox);
        assert_eq!((found.backend, found.gate.backend), (DecodeBackend::Nvdec, GateBackend::Cuda));
        assert_eq!(found.capabilities.measurer, "cuda:shim");
        assert!(found.sandbox.seccomp && found.sandbox.rlimits, "{}", found.sandbox);
        (supervisor, found)
    }

    /// Returns true if the shim, a CPU that does a device's work, was too slow on a busy machine.
    fn is_slow(reason: &str) -> bool {
        ["late with 10 batches", "has not answered for"].iter().any(|slow| reason.contains(slow))
    }

    #[test]
    #[ignore = "needs the shim"]
    fn a_file_is_that_of_the_cpu() {
        let run = |supervisor: &Supervisor| {
            run_by(supervisor, spec(&given("clip"))).expect("decodes").settled()
        };
        // The selection finds a sound device; the job's worker reads the settings again.
        let settings = fs::read_to_string(given("settings")).expect("there");
        fs::write(given("settings"), "").expect("ours");
        let (on_device, _) = select();
        fs::write(given("settings"), &settings).expect("ours");
        let (mut there, mut here) = (run(&on_device), run(&supervisor()));
        let by = there.measured_by.take().expect("told");
        here.measured_by = None;
        println!("{settings}: {by:?}, {:?}", there.done);
        let (mine, theirs) = (here.done.as_mut(), there.done.as_mut());
        let (mine, theirs) = (mine.expect("done"), theirs.expect("done"));
        let fallback = theirs.fallback.take();
        match settings.as_str() {
            "" => assert_eq!((theirs.decoder.as_str(), &fallback), ("nvdec:h264", &None)),
            "SHIM_LAUNCHES=1" | "SHIM_ANSWERED=1" => assert!(by.lost.is_some()),
            _ => assert!(theirs.decoder.contains("software:h264") && fallback.is_some()),
        }
        let is_kept = settings.is_empty() || by.measurer.starts_with("cuda:");
        let is_too_slow = by.lost.as_deref().is_some_and(is_slow);
        assert!(is_too_slow || by.lost.is_none() == is_kept, "{by:?}");
        theirs.decoder.clone_from(&mine.decoder);
        assert_eq!(there.signals.len(), 96);
        assert!(there == here, "signals, stills and report are equal");
    }

    #[test]
    #[ignore = "needs the shim"]
    fn live_sessions_are_those_of_the_cpu() {
        let input = Cursor::new(brought(LONG[0]));
        let demuxer =
            Demuxer::open(Box::new(input), decode::DemuxLimits::default()).expect("a clip");
        let units: Vec<_> = demuxer.into_coded_pictures().map(|it| it.access_unit).collect();
        let (on_device, _) = select();
        let [there, here] = [&on_device, &supervisor()].map(|by| together(by, &[&units[..]; 4]));
        println!("lost: {:?}", there.lost);
        assert!(there.lost.as_deref().is_none_or(is_slow) && here.lost.is_none());
        assert!(there.closed.values().eq(&[96_u64; 4]));
        assert!(there.signals == here.signals && there.stills == here.stills);
    }
}
