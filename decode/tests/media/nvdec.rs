//! NVDEC through libav on a shim driver, which knows the decoded pictures of the clips.
//!
//! All code of ours and of libav runs as on a device: opening, surfaces, copies within the device and out of
//! it, and loss. Only the decoding is a table of the shim. The tests of `device` run in separate processes
//! with the shim as their driver.

use std::{fs, io::Cursor};

use clips::rendered;
use decode::{DecoderChain, DemuxLimits, Demuxer, FileOptions, FileReport};
use media::Frame;

use crate::{
    nvdec_shim::{LONG, PROBED, Shown, all, frames, given, passes, shown},
    support::every,
};

fn all_shown(frames: &[(u64, Frame)]) -> Vec<Shown> {
    frames.iter().map(shown).collect()
}

/// Returns a clip with odd sides, whose last chroma row and column cover half as much luma.
fn odd() -> Vec<u8> {
    let source = "-f lavfi -i testsrc2=size=97x55:rate=10:duration=2 -pix_fmt yuv420p";
    let coding = "-c:v libvpx-vp9 -auto-alt-ref 0 -lag-in-frames 0";
    fs::read(rendered("odd.webm", &format!("{source} {coding}"))).expect("made")
}

#[test]
fn the_probe_is_decoded_picture_for_picture() {
    passes("nvdec::device::every_codec_is_decoded", &all(&PROBED), "");
}

#[test]
fn pictures_that_stay_and_pictures_that_are_fetched_are_those_of_software() {
    for clip in all(&LONG).into_iter().chain([odd()]) {
        passes("nvdec::device::frames_are_those_of_software", &[clip], "");
    }
}

#[test]
fn a_device_that_is_lost_costs_no_frame() {
    let name = "nvdec::device::a_loss_costs_no_frame";
    for settings in ["SHIM_DECODES=0", "SHIM_DECODES=1", "SHIM_DECODES=29", "SHIM_FETCHES=0"] {
        passes(name, &all(&LONG[..1]), settings);
    }
    passes(name, &all(&LONG[..1]), "SHIM_FETCHES=31");
}

#[test]
fn a_live_stream_goes_on_after_a_loss() {
    for settings in ["", "SHIM_DECODES=17", "SHIM_FETCHES=21"] {
        passes("nvdec::device::a_live_stream_shows_nothing_wrong", &all(&LONG[..1]), settings);
    }
}

/// Tests on a driver that knows the clips.
mod device {
    use decode::{DecodeBackend, HwDevice, HwDeviceSpec, LiveDecoder, Sampling, try_clips};
    use gate::{CpuBackend, MeasureBackend};
    use kernels::CudaBackend;
    use media::{Codec, FrameRate, Pixels};

    use super::*;

    fn device() -> HwDevice {
        let spec = HwDeviceSpec { backend: DecodeBackend::Nvdec, device: None, capabilities: None };
        HwDevice::open(&spec).expect("a device")
    }

    fn codecs() -> Vec<Codec> {
        vec![Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1]
    }

    fn fetching() -> DecoderChain {
        DecoderChain::with_device(device(), codecs())
    }

    fn keeping() -> DecoderChain {
        DecoderChain::with_device(device().keeping_pictures_on(0), codecs())
    }

    fn read(name: &str) -> Vec<u8> {
        fs::read(given(name)).expect("there")
    }

    #[test]
    #[ignore = "needs the shim"]
    fn every_codec_is_decoded() {
        for (name, decoders) in [("fetching", fetching()), ("keeping", keeping())] {
            for tried in try_clips(&decoders) {
                println!("{name}: {tried:?}");
                let decoder = tried.decoder.unwrap_or_default();
                // The shim has only pictures that are shown when decoded, so it decodes AV1 wrongly, like a
                // faulty device that the probe must find.
                let is_right = codecs().contains(&tried.codec) && tried.codec != Codec::Av1;
                assert_eq!(decoder.starts_with("nvdec:"), is_right, "{name}: {decoder}");
                let reason = tried.reason.unwrap_or_default();
                let is_found = reason.starts_with("nvdec:av1 gives other pictures");
                assert_eq!(is_found, tried.codec == Codec::Av1, "{name}: {decoder}: {reason}");
            }
        }
    }

    #[test]
    #[ignore = "needs the shim"]
    fn frames_are_those_of_software() {
        // Opened first: libav sets the flags of the shared context.
        let _device = device();
        let mut gate = CudaBackend::open(0).expect("the same device measures");
        let slow = Sampling::Fixed(FrameRate::new(5, 1).expect("positive"));
        let bytes = &read("clip");
        for (threads, sampling) in [(1, Sampling::Every), (4, Sampling::Every), (2, slow)] {
            let options = FileOptions { sampling, ..every(threads) };
            let (expected, ours) = frames(&DecoderChain::software(), bytes, &options);
            for (name, decoders) in [("fetching", fetching()), ("keeping", keeping())] {
                let case = format!("{name}, {options:?}");
                let (report, theirs) = frames(&decoders, bytes, &options);
                assert!(report.decoder.starts_with("nvdec:"), "{case}: {report:?}");
                let decoder = report.decoder.clone();
                assert_eq!(report, FileReport { decoder, ..expected.clone() }, "{case}");
                assert!(all_shown(&theirs) == all_shown(&ours), "{case}");
                let is_kept = |(_, frame): &(u64, Frame)| matches!(frame.pixels, Pixels::Device(_));
                assert!(theirs.iter().all(|one| is_kept(one) == (name == "keeping")), "{case}");
                // The decoder is dropped, its pictures are not.
                drop(decoders);
                // Only a few: the shim is slow.
                let only = |frames: &[(u64, Frame)]| -> Vec<Frame> {
                    frames.iter().step_by(11).map(|(_, frame)| frame.clone()).collect()
                };
                let (mut there, mut here) = (Vec::new(), Vec::new());
                gate.measure(&only(&theirs), &mut there).expect("measured");
                CpuBackend::new().measure(&only(&ours), &mut here).expect("measured");
                assert!(there == here, "{case}: other integers");
            }
        }
    }

    #[test]
    #[ignore = "needs the shim, which loses its device"]
    fn a_loss_costs_no_frame() {
        let bytes = read("clip");
        let (_, ours) = frames(&DecoderChain::software(), &bytes, &every(2));
        let (report, theirs) = frames(&keeping(), &bytes, &every(2));
        assert!(all_shown(&theirs) == all_shown(&ours), "{report:?}");
        let reason = report.fallback.expect("it was lost");
        println!("{}: {reason}", report.decoder);
        assert!(report.decoder.contains("software:h264"), "{}", report.decoder);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn a_live_stream_shows_nothing_wrong() {
        let bytes = read("clip");
        let (_, ours) = frames(&DecoderChain::software(), &bytes, &every(1));
        let input = Cursor::new(bytes.clone());
        let demuxer = Demuxer::open(Box::new(input), DemuxLimits::default()).expect("recognised");
        let opened = LiveDecoder::open(&keeping(), Codec::H264, DemuxLimits::default());
        let mut decoder = opened.expect("opens");
        let (mut seen, mut damaged) = (0, 0);
        let mut look = |decoder: &mut LiveDecoder| {
            while let Some(frame) = decoder.poll() {
                let same = ours.iter().find(|(_, ours)| ours.pts == frame.pts).expect("its time");
                // Lost pictures are not shown; all that are shown are right.
                if frame.pixels.host().is_ok() {
                    let (.., theirs) = shown(&(0, frame));
                    assert!(theirs == shown(same).3);
                    seen += 1;
                }
            }
        };
        for coded in demuxer.into_coded_pictures() {
            damaged += usize::from(decoder.push(&coded.access_unit).is_err());
            look(&mut decoder);
        }
        decoder.flush().expect("at its end");
        look(&mut decoder);
        println!("{}: {seen} of {} shown, {damaged} errors", decoder.name(), ours.len());
        if !read("settings").is_empty() {
            assert_eq!(decoder.name(), "nvdec:h264+software:h264");
            assert!(damaged > 0 && seen > ours.len() / 2 && seen < ours.len());
        } else {
            assert_eq!((decoder.name(), damaged, seen), ("nvdec:h264", 0, ours.len()));
        }
    }
}
