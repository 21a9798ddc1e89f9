//! Workers on devices whose drivers are shims: decoded by NVDEC or VAAPI, measured where the pictures are
//! or by the CPU, in the sandbox that a driver is left. The tests of `device` run in processes of their own.

use std::path::Path;

use worker::GateBackend;

use crate::{
    device_shim::{LONG, PROBED, Vendor, Vendor::Nvidia, Vendor::Va, all, passes},
    skip::skip,
    vulkan_shim,
};

/// Runs a test of `device` with a driver that knows a clip, and those of the probe.
fn on_device(vendor: Vendor, name: &str, settings: &str) {
    if vendor == Nvidia && !GateBackend::Cuda.is_built() {
        println!("SKIPPED {name}: built without cuda-gate");
        return;
    }
    let clips = all(&[&LONG[..1], &PROBED[..]].concat());
    passes(vendor, &format!("devices::device::{name}"), &clips, settings, None);
}

/// The same with libva's driver, and one of Vulkan's that imports what it exports.
fn on_both(name: &str, clip: &str, settings: &str) {
    if !cfg!(feature = "dma-buf") {
        println!("SKIPPED {name}: built without dma-buf");
        return;
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    match vulkan_shim::compiled(root, Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(vulkan) => {
            let clips = all(&[&[clip], &PROBED[..]].concat());
            passes(Va, &format!("devices::device::{name}"), &clips, settings, Some(&vulkan));
        }
        Err(why) => skip(name, why),
    }
}

#[test]
fn what_vaapi_decodes_is_measured_where_it_is() {
    let file = "a_file_that_is_imported_is_that_of_the_cpu";
    // Of 200 frames the stills are fetched, and what a GOP hands over: this clip has one GOP.
    for settings in ["", "SHIM_FETCHES=30", "SHIM_EXPORTS=50", "SHIM_IMPORTS=50"] {
        on_both(file, LONG[2], settings);
    }
    on_both("live_sessions_that_are_imported_are_those_of_the_cpu", LONG[0], "");
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

    fn select(vendor: Vendor, gate: GateChoice) -> (Supervisor, Selection) {
        let wanted = Wanted {
            choice: Choice::Named(vendor.backend()),
            device: vendor.device(),
            gate,
            ..Wanted::default()
        };
        let (supervisor, found) = Supervisor::select(&program(), &wanted).expect("a device");
        println!("{}: {}", found.capabilities.measurer, found.sandbox);
        assert_eq!(found.backend, vendor.backend());
        let measurer = found.capabilities.measurer.as_str();
        match (vendor, gate) {
            (Nvidia, _) => assert_eq!(measurer, "cuda:shim"),
            (Va, GateChoice::Auto) => assert!(measurer.starts_with("cpu-"), "{measurer}"),
            (Va, _) => assert!(measurer.starts_with("wgpu:llvmpipe"), "{measurer}"),
        }
        assert!(found.sandbox.seccomp && found.sandbox.rlimits, "{}", found.sandbox);
        (supervisor, found)
    }

    #[test]
    #[ignore = "needs the shim"]
    fn a_file_of_nvidia_is_that_of_the_cpu() {
        a_file_is_that_of_the_cpu(Nvidia, GateChoice::Auto);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn a_file_of_libva_is_that_of_the_cpu() {
        a_file_is_that_of_the_cpu(Va, GateChoice::Auto);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn live_sessions_of_nvidia_are_those_of_the_cpu() {
        live_sessions_are_those_of_the_cpu(Nvidia, GateChoice::Auto);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn live_sessions_of_libva_are_those_of_the_cpu() {
        live_sessions_are_those_of_the_cpu(Va, GateChoice::Auto);
    }

    const WGPU: GateChoice = GateChoice::Named(GateBackend::Wgpu);

    #[test]
    #[ignore = "needs the shims"]
    fn a_file_that_is_imported_is_that_of_the_cpu() {
        a_file_is_that_of_the_cpu(Va, WGPU);
    }

    #[test]
    #[ignore = "needs the shims"]
    fn live_sessions_that_are_imported_are_those_of_the_cpu() {
        live_sessions_are_those_of_the_cpu(Va, WGPU);
    }

    fn a_file_is_that_of_the_cpu(vendor: Vendor, gate: GateChoice) {
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
        let (on_device, _) = select(vendor, gate);
        fs::write(given("settings"), &settings).expect("ours");
        let (mut there, mut here) = (run(&on_device), run(&Supervisor::new(program())));
        let by = there.measured_by.take().expect("told");
        here.measured_by = None;
        println!("{settings}: {by:?}, {:?}, {} stills", there.done, there.stills.len());
        let (mine, theirs) = (here.done.as_mut(), there.done.as_mut());
        let (mine, theirs) = (mine.expect("done"), theirs.expect("done"));
        let fallback = theirs.fallback.take();
        let decoder = format!("{}:h264", vendor.backend().as_str());
        match settings.as_str() {
            "" | "SHIM_FETCHES=30" | "SHIM_EXPORTS=50" | "SHIM_IMPORTS=50" => {
                assert_eq!((&theirs.decoder, &fallback), (&decoder, &None));
            }
            "SHIM_LAUNCHES=1" | "SHIM_ANSWERED=1" => assert!(by.lost.is_some()),
            _ => assert!(theirs.decoder.contains("software:h264") && fallback.is_some()),
        }
        // Of NVIDIA: the shim is a CPU that does a device's work, and may be too slow.
        let is_slow =
            by.lost.as_ref().is_some_and(|reason| reason.contains("late with 10 batches"));
        let is_kept = settings.is_empty() || !by.measurer.starts_with("cpu-") || vendor == Va;
        assert!(is_slow || by.lost.is_none() == is_kept, "{by:?}");
        theirs.decoder.clone_from(&mine.decoder);
        assert_eq!(there.signals.len() as u64, mine.frames);
        assert!(there == here, "signals, stills and report are equal");
    }

    fn live_sessions_are_those_of_the_cpu(vendor: Vendor, gate: GateChoice) {
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
        let (on_device, _) = select(vendor, gate);
        let (there, here) = (run(&on_device), run(&Supervisor::new(program())));
        assert_eq!(there.2.values().copied().collect::<Vec<_>>(), vec![96; SESSIONS as usize]);
        assert!(there == here, "signals and stills of every session are equal");
    }
}
