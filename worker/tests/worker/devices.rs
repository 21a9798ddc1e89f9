//! Workers on devices whose drivers are shims: decoded by NVDEC or VAAPI, measured where the pictures are
//! or by the CPU, in the sandbox that a driver is left. The tests of `device` run in processes of their own.

use worker::GateBackend;

use crate::device_shim::{LONG, PROBED, Vendor, Vendor::Nvidia, Vendor::Va, all, passes};

/// Runs a test of `device` with a driver that knows a clip, and those of the probe.
fn on_device(vendor: Vendor, name: &str, settings: &str) {
    if vendor == Nvidia && !GateBackend::Cuda.is_built() {
        println!("SKIPPED {name}: built without cuda-gate");
        return;
    }
    let clips = all(&[&LONG[..1], &PROBED[..]].concat());
    passes(vendor, &format!("devices::device::{name}"), &clips, settings);
}

#[test]
fn a_file_says_what_it_says_on_the_cpu() {
    on_device(Nvidia, "a_file_of_nvidia_is_that_of_the_cpu", "");
    on_device(Va, "a_file_of_libva_is_that_of_the_cpu", "");
}

#[test]
fn live_sessions_say_what_they_say_on_the_cpu() {
    on_device(Nvidia, "live_sessions_of_nvidia_are_those_of_the_cpu", "");
    on_device(Va, "live_sessions_of_libva_are_those_of_the_cpu", "");
}

#[test]
fn a_device_that_is_lost_or_opens_no_more_costs_nothing() {
    // That a copy within the device can fail says that there are some: pictures stay.
    let of_decoding = ["SHIM_DECODES=40", "SHIM_COPIES=9", "SHIM_FETCHES=9"];
    // The first launch is that of opening.
    let of_measuring = ["SHIM_LAUNCHES=1", "SHIM_ANSWERED=1", "SHIM_DEVICES=0"];
    for settings in [of_decoding, of_measuring].concat() {
        on_device(Nvidia, "a_file_of_nvidia_is_that_of_the_cpu", settings);
    }
    for settings in ["SHIM_DECODES=40", "SHIM_FETCHES=9", "SHIM_DEVICES=0"] {
        on_device(Va, "a_file_of_libva_is_that_of_the_cpu", settings);
    }
}

/// What a driver that knows the clips must show.
mod device {
    use std::{fs, io::Cursor};

    use decode::Demuxer;
    use worker::{CancelToken, Choice, GateChoice, Limits, Selection, Supervisor, Wanted};

    use super::*;
    use crate::{
        device_shim::{brought, given},
        live::{Listener, Said, push, with_stills},
        support::{Heard, program, spec},
    };

    fn select(vendor: Vendor) -> (Supervisor, Selection) {
        let wanted = Wanted {
            choice: Choice::Named(vendor.backend()),
            device: vendor.device(),
            gate: GateChoice::Auto,
            ..Wanted::default()
        };
        let (supervisor, found) = Supervisor::select(&program(), &wanted).expect("a device");
        println!("{}: {}", found.capabilities.measurer, found.sandbox);
        assert_eq!(found.backend, vendor.backend());
        match vendor {
            Nvidia => assert_eq!(found.capabilities.measurer, "cuda:shim"),
            Va => assert!(found.capabilities.measurer.starts_with("cpu-")),
        }
        assert!(found.sandbox.seccomp && found.sandbox.rlimits, "{}", found.sandbox);
        (supervisor, found)
    }

    #[test]
    #[ignore = "needs the shim"]
    fn a_file_of_nvidia_is_that_of_the_cpu() {
        a_file_is_that_of_the_cpu(Nvidia);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn a_file_of_libva_is_that_of_the_cpu() {
        a_file_is_that_of_the_cpu(Va);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn live_sessions_of_nvidia_are_those_of_the_cpu() {
        live_sessions_are_those_of_the_cpu(Nvidia);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn live_sessions_of_libva_are_those_of_the_cpu() {
        live_sessions_are_those_of_the_cpu(Va);
    }

    fn a_file_is_that_of_the_cpu(vendor: Vendor) {
        let run = |supervisor: &Supervisor| {
            let mut heard = Heard::default();
            supervisor
                .run_job(spec(&given("clip")), &CancelToken::new(), &mut |event| heard.take(event))
                .expect("decodes");
            heard.settled()
        };
        // The probe finds a device that is sound; the job's worker reads the settings anew.
        let settings = fs::read_to_string(given("settings")).expect("there");
        fs::write(given("settings"), "").expect("ours");
        let (on_device, _) = select(vendor);
        fs::write(given("settings"), &settings).expect("ours");
        let (mut there, mut here) = (run(&on_device), run(&Supervisor::new(program())));
        let by = there.measured_by.take().expect("told");
        here.measured_by = None;
        println!("{settings}: {by:?}, {:?}", there.done);
        let (mine, theirs) = (here.done.as_mut(), there.done.as_mut());
        let (mine, theirs) = (mine.expect("done"), theirs.expect("done"));
        let fallback = theirs.fallback.take();
        let decoder = format!("{}:h264", vendor.backend().as_str());
        match settings.as_str() {
            "" => assert_eq!((&theirs.decoder, &fallback), (&decoder, &None)),
            "SHIM_LAUNCHES=1" | "SHIM_ANSWERED=1" => assert!(by.lost.is_some()),
            _ => assert!(theirs.decoder.contains("software:h264") && fallback.is_some()),
        }
        // Of NVIDIA: the shim is a CPU that does a device's work, and may be too slow.
        let is_slow =
            by.lost.as_ref().is_some_and(|reason| reason.contains("late with 10 batches"));
        let is_kept = settings.is_empty() || !by.measurer.starts_with("cpu-") || vendor == Va;
        assert!(is_slow || by.lost.is_none() == is_kept, "{by:?}");
        theirs.decoder.clone_from(&mine.decoder);
        assert_eq!(there.signals.len(), 96);
        assert!(there == here, "signals, stills and report are equal");
    }

    fn live_sessions_are_those_of_the_cpu(vendor: Vendor) {
        const SESSIONS: u32 = 4;
        let input = Cursor::new(brought(LONG[0]));
        let demuxer = Demuxer::open(Box::new(input), decode::Limits::default()).expect("a clip");
        let coded: Vec<_> = demuxer.into_coded_pictures().collect();
        let run = |supervisor: &Supervisor| {
            let listener = Listener::default();
            let told = listener.clone();
            let limits = Limits { stall: std::time::Duration::from_secs(60), ..Limits::default() };
            let live =
                supervisor.start_live(limits, move |event| told.take(event)).expect("starts");
            (0..SESSIONS).for_each(|session| live.open(session, with_stills()).expect("open"));
            for coded in &coded {
                (0..SESSIONS).for_each(|session| push(&live, session, &coded.access_unit));
            }
            (0..SESSIONS).for_each(|session| live.close(session).expect("close"));
            let said = listener.wait("all closed", |said| said.closed.len() == SESSIONS as usize);
            let Said { signals, stills, closed, lost, .. } = &*said;
            // The shim is a CPU that does a device's work: it may be too slow for live sessions.
            let is_late = |reason: &String| reason.contains("late with 10 batches");
            assert!(lost.as_ref().is_none_or(is_late), "{lost:?}");
            println!("lost: {lost:?}");
            (signals.clone(), stills.clone(), closed.clone())
        };
        let (on_device, _) = select(vendor);
        let (there, here) = (run(&on_device), run(&Supervisor::new(program())));
        assert_eq!(there.2.values().copied().collect::<Vec<_>>(), vec![96; SESSIONS as usize]);
        assert!(there == here, "signals and stills of every session are equal");
    }
}
