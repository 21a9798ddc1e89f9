//! NVDEC and VAAPI through libav, on drivers that are shims: they know what the clips decode to.
//!
//! Everything of ours and of libav (and libva itself) runs as it does on a device: opening, surfaces, copies
//! within the device and out of it, and loss. What decodes is the shim's table. The tests of `device` run in
//! processes of their own, with the shim as their driver.

use std::{fs, io::Cursor, os::unix::fs::FileExt, slice::from_ref};

use decode::{Decoders, Demuxer, FileOptions, FileReport, Limits};
use media::Frame;

use crate::{
    device_shim::{
        self, LONG, PROBED, Shown, Vendor, Vendor::Nvidia, Vendor::Va, all, frames, given, shown,
    },
    support::{every, run},
};

fn passes(vendor: Vendor, name: &str, clips: &[Vec<u8>], settings: &str) {
    device_shim::passes(vendor, name, clips, settings, None);
}

fn all_shown(frames: &[(u64, Frame)]) -> Vec<Shown> {
    frames.iter().map(shown).collect()
}

/// A clip of odd sides, whose chroma has a row and a column for half of one of luma.
fn odd() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("odd.webm");
    let path = path.to_str().expect("a plain name");
    let source = "testsrc2=size=97x55:rate=10:duration=2";
    let arguments = ["-v", "error", "-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p"];
    let coding = ["-c:v", "libvpx-vp9", "-auto-alt-ref", "0", "-lag-in-frames", "0", path];
    run("ffmpeg", &[&arguments[..], &coding[..]].concat());
    fs::read(path).expect("written")
}

#[test]
fn the_probe_is_decoded_picture_for_picture() {
    passes(Nvidia, "devices::device::nvdec_decodes_every_codec", &all(&PROBED), "");
    passes(Va, "devices::device::vaapi_decodes_every_codec", &all(&PROBED), "");
}

#[test]
fn pictures_that_stay_and_pictures_that_are_fetched_are_those_of_software() {
    for clip in all(&LONG).into_iter().chain([odd()]) {
        passes(Nvidia, "devices::device::nvdec_gives_the_frames_of_software", from_ref(&clip), "");
        passes(Va, "devices::device::vaapi_gives_the_frames_of_software", &[clip], "");
    }
}

#[test]
fn pictures_of_libva_can_be_read_where_they_are() {
    for clip in all(&LONG[..2]).into_iter().chain([odd()]) {
        for settings in ["", "SHIM_EXPORTS=5"] {
            let name = "devices::device::what_vaapi_exports_is_the_picture";
            passes(Va, name, from_ref(&clip), settings);
        }
    }
}

#[test]
fn a_device_that_is_lost_costs_no_frame() {
    let of_decoding = ["SHIM_DECODES=0", "SHIM_DECODES=1", "SHIM_DECODES=29"];
    for settings in [&of_decoding[..], &["SHIM_FETCHES=0", "SHIM_FETCHES=31"]].concat() {
        let clip = all(&LONG[..1]);
        passes(Nvidia, "devices::device::a_loss_of_nvdec_costs_no_frame", &clip, settings);
        passes(Va, "devices::device::a_loss_of_vaapi_costs_no_frame", &clip, settings);
    }
}

#[test]
fn a_live_stream_goes_on_after_a_loss() {
    for settings in ["", "SHIM_DECODES=17", "SHIM_FETCHES=21"] {
        let clip = all(&LONG[..1]);
        passes(Nvidia, "devices::device::live_nvdec_shows_nothing_wrong", &clip, settings);
        passes(Va, "devices::device::live_vaapi_shows_nothing_wrong", &clip, settings);
    }
}

#[test]
fn a_driver_that_opens_nothing_is_told() {
    let said = "devices::device::no_device_of_libva_opens";
    passes(Va, said, &all(&PROBED[..1]), "SHIM_DEVICES=0");
}

/// What a driver that knows the clips must show.
mod device {
    use decode::{
        BackendError, Device, DeviceSpec, LiveOptions, Sampling, open_decoder_by, try_clips,
    };
    use gate::{CpuMeasurer, Measurer};
    use kernels::CudaMeasurer;
    use media::{Codec, DeviceMemory, DmaBufPlane, Extent, Pixels, Rate};

    use super::*;

    fn open(vendor: Vendor) -> Result<Device, BackendError> {
        let (backend, device) = (vendor.backend(), vendor.device());
        Device::open(&DeviceSpec { backend, device, capabilities: None })
    }

    fn device(vendor: Vendor) -> Device {
        open(vendor).expect("a device")
    }

    fn read(name: &str) -> Vec<u8> {
        fs::read(given(name)).expect("there")
    }

    fn codecs() -> Vec<Codec> {
        vec![Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1]
    }

    fn fetching(vendor: Vendor) -> Decoders {
        Decoders::with_device(device(vendor), codecs())
    }

    /// What leaves pictures on the device, where the device can.
    fn keeping(vendor: Vendor) -> Decoders {
        Decoders::with_device(device(vendor).keeping_pictures_on(0), codecs())
    }

    #[test]
    #[ignore = "needs the shim"]
    fn nvdec_decodes_every_codec() {
        every_codec_is_decoded(Nvidia);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn vaapi_decodes_every_codec() {
        every_codec_is_decoded(Va);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn nvdec_gives_the_frames_of_software() {
        // First: libav sets the flags of the context that both share.
        let _device = device(Nvidia);
        let gate = CudaMeasurer::open(0).expect("the same device measures");
        frames_are_those_of_software(Nvidia, Some(gate));
    }

    #[test]
    #[ignore = "needs the shim"]
    fn vaapi_gives_the_frames_of_software() {
        frames_are_those_of_software(Va, None);
    }

    /// What another driver reads of a plane.
    fn read_plane(plane: &DmaBufPlane<'_>, extent: Extent, sample_bytes: usize) -> Vec<u16> {
        let file = fs::File::from(plane.fd().try_clone_to_owned().expect("a descriptor"));
        let mut row = vec![0; extent.width as usize * sample_bytes];
        let mut samples = Vec::new();
        for y in 0..u64::from(extent.height) {
            file.read_exact_at(&mut row, plane.offset() + y * plane.pitch()).expect("its row");
            samples.extend(row.chunks_exact(sample_bytes).map(|sample| match sample {
                [low, high] => u16::from_le_bytes([*low, *high]),
                one => u16::from(one[0]) << 8,
            }));
        }
        samples
    }

    #[test]
    #[ignore = "needs the shim"]
    fn what_vaapi_exports_is_the_picture() {
        let bytes = read("clip");
        let (_, ours) = frames(&Decoders::software(), &bytes, &every(1));
        let decoders = Decoders::with_device(device(Va).exporting_pictures(), codecs());
        let (report, theirs) = frames(&decoders, &bytes, &every(1));
        drop(decoders);
        let mut exported = 0;
        for (frame, expected) in theirs.iter().zip(&ours) {
            // Each holds a surface of which a decoder has so many.
            if let Pixels::Device(picture) = &frame.1.pixels {
                let DeviceMemory::DmaBuf([luma, chroma]) = picture.memory() else {
                    panic!("no dma-buf")
                };
                let (extent, layout) = (frame.1.extent, frame.1.layout);
                let halved = layout.subsampling.chroma_extent(extent).expect("4:2:0");
                let pairs = Extent { width: 2 * halved.width, ..halved };
                let bytes = layout.sample.bytes();
                let pairs = read_plane(&chroma, pairs, bytes);
                let every_other = |start| pairs[start..].iter().step_by(2).copied().collect();
                let read = [read_plane(&luma, extent, bytes), every_other(0), every_other(1)];
                assert!(read == shown(expected).3, "frame {}", frame.0);
                assert_eq!(luma.modifier(), 0);
                exported += 1;
            }
        }
        println!("{}: {exported} of {} exported", report.decoder, theirs.len());
        let limit = if given_settings().is_empty() { 12 } else { 5 };
        assert_eq!((exported, report.fallback), (limit, None));
        assert!(all_shown(&theirs) == all_shown(&ours), "fetched, they are the same");
    }

    fn given_settings() -> String {
        String::from_utf8(read("settings")).expect("text")
    }

    #[test]
    #[ignore = "needs the shim, which loses its device"]
    fn a_loss_of_nvdec_costs_no_frame() {
        a_loss_costs_no_frame(Nvidia);
    }

    #[test]
    #[ignore = "needs the shim, which loses its device"]
    fn a_loss_of_vaapi_costs_no_frame() {
        a_loss_costs_no_frame(Va);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn live_nvdec_shows_nothing_wrong() {
        a_live_stream_shows_nothing_wrong(Nvidia);
    }

    #[test]
    #[ignore = "needs the shim"]
    fn live_vaapi_shows_nothing_wrong() {
        a_live_stream_shows_nothing_wrong(Va);
    }

    #[test]
    #[ignore = "needs the shim, which has no device"]
    fn no_device_of_libva_opens() {
        let refused = open(Va).map(drop).expect_err("there is none").to_string();
        assert!(refused.contains("av_hwdevice_ctx_create"), "{refused}");
    }

    fn every_codec_is_decoded(vendor: Vendor) {
        for (name, decoders) in [("fetching", fetching(vendor)), ("keeping", keeping(vendor))] {
            for tried in try_clips(&decoders) {
                println!("{name}: {tried:?}");
                let decoder = tried.decoder.unwrap_or_default();
                // The shim has no pictures that are not shown when they are decoded: it decodes AV1
                // wrongly, as a device might that the probe is there to find.
                let is_right = codecs().contains(&tried.codec) && tried.codec != Codec::Av1;
                let asked = vendor.backend().as_str();
                assert_eq!(decoder.starts_with(asked), is_right, "{name}: {decoder}");
                let reason = tried.reason.unwrap_or_default();
                let is_found = reason.starts_with(&format!("{asked}:av1 gives other pictures"));
                assert_eq!(is_found, tried.codec == Codec::Av1, "{name}: {decoder}: {reason}");
            }
        }
    }

    fn frames_are_those_of_software(vendor: Vendor, mut gate: Option<CudaMeasurer>) {
        let slow = Sampling::Fixed(Rate::new(5, 1).expect("positive"));
        let bytes = &read("clip");
        for (threads, sampling) in [(1, Sampling::Every), (4, Sampling::Every), (2, slow)] {
            let options = FileOptions { sampling, ..every(threads) };
            let (expected, ours) = frames(&Decoders::software(), bytes, &options);
            for (name, decoders) in [("fetching", fetching(vendor)), ("keeping", keeping(vendor))] {
                let case = format!("{name}, {options:?}");
                let (report, theirs) = frames(&decoders, bytes, &options);
                assert!(
                    report.decoder.starts_with(vendor.backend().as_str()),
                    "{case}: {report:?}"
                );
                let decoder = report.decoder.clone();
                assert_eq!(report, FileReport { decoder, ..expected.clone() }, "{case}");
                assert!(all_shown(&theirs) == all_shown(&ours), "{case}");
                let is_kept = |(_, frame): &(u64, Frame)| matches!(frame.pixels, Pixels::Device(_));
                let keeps = name == "keeping" && vendor == Nvidia;
                assert!(theirs.iter().all(|one| is_kept(one) == keeps), "{case}");
                // The decoder is gone, its pictures are not.
                drop(decoders);
                let Some(gate) = &mut gate else { continue };
                // A few: the shim is slow.
                let only = |frames: &[(u64, Frame)]| -> Vec<Frame> {
                    frames.iter().step_by(11).map(|(_, frame)| frame.clone()).collect()
                };
                let (mut there, mut here) = (Vec::new(), Vec::new());
                gate.measure(&only(&theirs), &mut there).expect("measured");
                CpuMeasurer::new().measure(&only(&ours), &mut here).expect("measured");
                assert!(there == here, "{case}: other integers");
            }
        }
    }

    fn a_loss_costs_no_frame(vendor: Vendor) {
        let bytes = read("clip");
        let (_, ours) = frames(&Decoders::software(), &bytes, &every(2));
        let (report, theirs) = frames(&keeping(vendor), &bytes, &every(2));
        assert!(all_shown(&theirs) == all_shown(&ours), "{report:?}");
        let reason = report.fallback.expect("it was lost");
        println!("{}: {reason}", report.decoder);
        assert!(report.decoder.contains("software:h264"), "{}", report.decoder);
    }

    fn a_live_stream_shows_nothing_wrong(vendor: Vendor) {
        let bytes = read("clip");
        let (_, ours) = frames(&Decoders::software(), &bytes, &every(1));
        let input = Cursor::new(bytes.clone());
        let demuxer = Demuxer::open(Box::new(input), Limits::default()).expect("recognised");
        let opened = open_decoder_by(&keeping(vendor), Codec::H264, LiveOptions::default());
        let mut decoder = opened.expect("opens");
        let (mut seen, mut damaged) = (0, 0);
        let mut look = |decoder: &mut Box<dyn decode::Decoder>| {
            while let Ok(Some(frame)) = decoder.poll() {
                let same = ours.iter().find(|(_, ours)| ours.pts == frame.pts).expect("its time");
                // What is lost is not shown; what is shown is right.
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
        let asked = vendor.backend().as_str();
        if !read("settings").is_empty() {
            assert_eq!(decoder.name(), format!("{asked}:h264+software:h264"));
            assert!(damaged > 0 && seen > ours.len() / 2 && seen < ours.len());
        } else {
            let name = format!("{asked}:h264");
            assert_eq!((decoder.name(), damaged, seen), (name.as_str(), 0, ours.len()));
        }
    }
}
