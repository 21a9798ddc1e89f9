//! Pictures in dma-bufs: measured where they are, or uploaded where the adapter refuses them.
//!
//! Ignored tests are run in processes of their own, with `shaders/shim` as the Vulkan driver and memfds that play
//! dma-bufs. Needs `g++`, Vulkan's headers and Mesa's driver for CPUs; says so loudly where one is missing.

#[path = "../../tests/support/driver_shim.rs"]
mod driver_shim;
#[path = "../../tests/support/skip.rs"]
mod skip;
#[path = "../../tests/support/vulkan_shim.rs"]
mod vulkan_shim;

use std::{
    fs,
    io::Write,
    os::fd::AsFd,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use gate::{
    MeasureError, Measurer,
    conformance::{Fill, Picture, batches, first_difference},
};
use media::{
    DeviceMemory, DevicePicture, DmaBufPlane, Frame, HostPicture, Pixels, PixelsLost, Plane,
    Sample, Subsampling,
};
use shaders::{AdapterChoice, WgpuMeasurer};

/// `DRM_FORMAT_MOD_LINEAR`.
const LINEAR: u64 = 0;
/// One that the driver knows, of two memory planes: `I915_FORMAT_MOD_Y_TILED_CCS`.
const COMPRESSED: u64 = 1 << 56 | 4;
/// One that it does not know: `I915_FORMAT_MOD_X_TILED`.
const UNKNOWN: u64 = 1 << 56 | 1;

const P010: Sample = Sample::U16 { shift: 8 };

/// A picture in a file that plays a dma-buf, which counts how often it was fetched.
struct There {
    file: fs::File,
    modifier: u64,
    /// Offset and pitch of luma and chroma.
    planes: [(u64, u64); 2],
    host: Frame,
    fetched: Arc<AtomicUsize>,
}

impl DevicePicture for There {
    #[expect(unsafe_code, reason = "names a picture by the file that it is in")]
    fn memory(&self) -> DeviceMemory<'_> {
        DeviceMemory::DmaBuf(self.planes.map(|(offset, pitch)| {
            // SAFETY: the file is written before the picture is made, and never after.
            unsafe { DmaBufPlane::new(self.file.as_fd(), self.modifier, offset, pitch) }
        }))
    }

    fn host(&self) -> Result<&dyn HostPicture, PixelsLost> {
        self.fetched.fetch_add(1, Relaxed);
        self.host.pixels.host()
    }

    fn fetched(&self) -> Result<Arc<dyn HostPicture>, PixelsLost> {
        unreachable!("no measurer keeps it")
    }
}

/// Appends a plane, or two in turn, behind some noise; its offset and pitch.
fn put(bytes: &mut Vec<u8>, plane: Plane<'_>, between: Option<Plane<'_>>) -> (u64, u64) {
    let row_bytes = plane.row(0).len() + between.map_or(0, |_| plane.sample().bytes());
    let pitch = row_bytes.next_multiple_of(64) + 64;
    let offset = bytes.len() + 192;
    bytes.resize(offset + pitch * plane.extent().height as usize, 0x5a);
    for y in 0..plane.extent().height {
        let at = offset + y as usize * pitch;
        let row = plane.row(y);
        bytes[at..][..row.len()].copy_from_slice(row);
        if let Some(other) = between {
            let row = other.row(y);
            bytes[at + plane.sample().bytes()..][..row.len()].copy_from_slice(row);
        }
    }
    (offset as u64, pitch as u64)
}

/// The picture, interleaved, in a file whose bytes are said to be arranged so.
fn arranged(picture: Picture, modifier: u64, fetched: &Arc<AtomicUsize>) -> Frame {
    let host = Picture { interleaved: true, ..picture }.frame().expect("has pixels");
    let mut bytes = Vec::new();
    let planes = {
        let planes = host.pixels.host().expect("in host memory");
        let [u, v] = planes.chroma().expect("has chroma");
        [put(&mut bytes, planes.luma(), None), put(&mut bytes, u, Some(v))]
    };
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::memfd_create("picture", flags).expect("a file"));
    file.write_all(&bytes).expect("room");
    let frame = host.clone();
    let there = There { file, modifier, planes, host, fetched: Arc::clone(fetched) };
    Frame { pixels: Pixels::Device(Arc::new(there)), ..frame }
}

fn there(picture: Picture, fetched: &Arc<AtomicUsize>) -> Frame {
    arranged(picture, LINEAR, fetched)
}

fn open() -> WgpuMeasurer {
    WgpuMeasurer::open(AdapterChoice::Any).expect("an adapter")
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("Linux").count()
}

/// Ways to have the picture of a table in a dma-buf: its own samples, NV12 and P010.
fn ways(picture: Picture) -> Vec<Picture> {
    let mut samples = vec![Sample::U8, P010];
    samples.extend((!samples.contains(&picture.sample)).then_some(picture.sample));
    samples.into_iter().map(|sample| Picture { sample, ..picture }).collect()
}

#[test]
#[ignore = "run with a driver that imports"]
fn the_whole_table_is_measured_where_it_is() {
    let mut measurer = open();
    assert!(measurer.imports());
    let (fetched, mut there_count, mut host_count) = (Arc::default(), 0, 0);
    for batch in batches() {
        let mut frames = Vec::new();
        for picture in batch {
            if picture.subsampling == Subsampling::Yuv420 {
                frames.extend(ways(picture).into_iter().map(|way| there(way, &fetched)));
            }
            frames.extend(picture.frame());
            host_count += 1;
        }
        there_count +=
            frames.iter().filter(|frame| matches!(frame.pixels, Pixels::Device(_))).count();
        let extent = frames.first().map(|frame| frame.extent);
        assert_eq!(first_difference(&mut measurer, &frames), Ok(None), "{extent:?}");
    }
    println!("{there_count} where they were, {host_count} uploaded");
    assert_eq!(measurer.import_refusal(), None);
    assert_eq!(measurer.pictures_imported(), there_count as u64);
    assert_eq!(fetched.load(Relaxed), there_count, "by the reference alone, each once");
    assert!(there_count > 300 && host_count > 500, "{there_count} and {host_count}");
}

#[test]
#[ignore = "run with a driver that imports"]
fn more_than_fit_in_one_dispatch_are_measured_where_they_are() {
    let mut measurer = open();
    let fetched = Arc::default();
    let small = (0..150u32).map(|n| Picture {
        fill: Fill::Random(n.into()),
        ..Picture::new(1 + 37 * n % 203, 1 + 53 * n % 131)
    });
    let large =
        (0..9).map(|n| Picture { fill: Fill::Random(n), sample: P010, ..Picture::new(1920, 1080) });
    let frames: Vec<Frame> = small.chain(large).map(|one| there(one, &fetched)).collect();
    assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
    assert_eq!((measurer.pictures_imported(), fetched.load(Relaxed)), (159, 159));
}

#[test]
#[ignore = "run with a driver that imports"]
fn what_the_adapter_does_not_read_is_uploaded() {
    let picture = Picture::new(333, 217);
    for (modifier, why) in
        [(UNKNOWN, "does not know it"), (COMPRESSED, "more than one memory plane")]
    {
        let mut measurer = open();
        let fetched = Arc::default();
        let alone = [there(picture, &fetched)];
        assert_eq!(first_difference(&mut measurer, &alone), Ok(None));
        assert_eq!((measurer.pictures_imported(), measurer.import_refusal()), (1, None));
        let batch = [
            there(picture, &fetched),
            arranged(picture, modifier, &fetched),
            Picture::new(64, 40).frame().expect("has pixels"),
            there(picture, &fetched),
        ];
        for _ in 0..2 {
            assert_eq!(first_difference(&mut measurer, &batch), Ok(None), "{why}");
            let refusal = measurer.import_refusal().expect("refused");
            assert!(refusal.contains(why), "{refusal}");
        }
        println!("{}", measurer.import_refusal().expect("refused"));
        assert!(!measurer.imports());
        assert_eq!(measurer.pictures_imported(), 1, "none after it");
    }
}

#[test]
#[ignore = "run with a driver that imports"]
fn a_plane_outside_its_memory_is_uploaded() {
    let mut measurer = open();
    let fetched = Arc::default();
    let whole = there(Picture::new(320, 180), &fetched);
    assert_eq!(first_difference(&mut measurer, &[whole]), Ok(None));
    let before = descriptors();
    {
        let host = Picture { interleaved: true, ..Picture::new(320, 180) }.frame().expect("small");
        let file = fs::File::from(
            rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).expect("a file"),
        );
        file.set_len(320 * 200).expect("room");
        let planes = [(0, 320), (320 * 180, 320)];
        let frame = host.clone();
        let short = There { file, modifier: LINEAR, planes, host, fetched };
        let short = Frame { pixels: Pixels::Device(Arc::new(short)), ..frame };
        assert_eq!(first_difference(&mut measurer, &[short]), Ok(None));
    }
    println!("{}", measurer.import_refusal().expect("refused"));
    assert_eq!(measurer.pictures_imported(), 1);
    assert_eq!(descriptors(), before);
}

#[test]
#[ignore = "run with a driver that refuses the sixth import"]
fn what_the_driver_refuses_is_uploaded() {
    let mut measurer = open();
    let fetched = Arc::default();
    let before = descriptors();
    for number in 0..10 {
        let picture = Picture { fill: Fill::Random(number), ..Picture::new(176, 144) };
        assert_eq!(first_difference(&mut measurer, &[there(picture, &fetched)]), Ok(None));
        assert_eq!(measurer.imports(), number < 2, "two imports each, and one");
    }
    println!("{}", measurer.import_refusal().expect("refused"));
    assert_eq!(measurer.pictures_imported(), 2);
    assert_eq!(descriptors(), before);
}

#[test]
#[ignore = "run with a driver that imports"]
fn descriptors_do_not_grow_with_batches() {
    let mut measurer = open();
    let fetched = Arc::default();
    let frames = [P010, Sample::U8]
        .map(|sample| there(Picture { sample, ..Picture::new(176, 144) }, &fetched));
    assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
    let (before, buffers) = (descriptors(), measurer.buffers_made());
    for _ in 0..200 {
        assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
    }
    println!("{before} descriptors");
    assert_eq!((descriptors(), measurer.buffers_made()), (before, buffers));
    assert_eq!(measurer.pictures_imported(), 402);
}

#[test]
#[ignore = "run with a driver that imports"]
fn a_device_that_is_lost_is_an_error() {
    let mut measurer = open();
    let fetched = Arc::default();
    let frames = [there(Picture::new(176, 144), &fetched)];
    assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
    let before = descriptors();
    measurer.destroy();
    let mut measured = Vec::new();
    for _ in 0..3 {
        let error = measurer.measure(&frames, &mut measured).expect_err("the device is gone");
        assert!(matches!(error, MeasureError::DeviceLost { .. }), "{error}");
        assert!(measured.is_empty());
    }
    assert_eq!(descriptors(), before);
    assert_eq!(fetched.load(Relaxed), 1, "by the reference alone");
}

/// Runs the ignored test `name` with the driver that imports.
fn passes(name: &str, settings: &[(&str, &str)]) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = match vulkan_shim::compiled(root, Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(folder) => folder,
        Err(why) => return skip::skip(name, why),
    };
    let manifest = folder.join(vulkan_shim::MANIFEST);
    let program = std::env::current_exe().expect("this test");
    let mut test = Command::new(program);
    test.args(["--exact", name, "--ignored", "--nocapture"]);
    // The second name is the first's newer one.
    test.env("VK_ICD_FILENAMES", &manifest).env("VK_DRIVER_FILES", &manifest);
    test.env("LD_LIBRARY_PATH", folder).envs(settings.iter().copied());
    let output = test.output().expect("this test starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    println!("{said}");
}

#[test]
fn pictures_in_dma_bufs_are_measured_where_they_are() {
    passes("the_whole_table_is_measured_where_it_is", &[]);
}

#[test]
fn batches_of_imports_are_cut() {
    passes("more_than_fit_in_one_dispatch_are_measured_where_they_are", &[]);
}

#[test]
fn unreadable_modifiers_are_no_loss() {
    passes("what_the_adapter_does_not_read_is_uploaded", &[]);
}

#[test]
fn a_picture_that_is_not_all_there_is_no_loss() {
    passes("a_plane_outside_its_memory_is_uploaded", &[]);
}

#[test]
fn a_refusal_of_the_driver_is_no_loss() {
    passes("what_the_driver_refuses_is_uploaded", &[("SHIM_IMPORTS", "5")]);
}

#[test]
fn a_loss_of_the_device_is_an_error_of_imports() {
    passes("a_device_that_is_lost_is_an_error", &[]);
}

#[test]
fn imports_leave_nothing_behind() {
    passes("descriptors_do_not_grow_with_batches", &[]);
}

/// A memfd is no dma-buf to a real driver.
#[test]
fn without_such_a_driver_pictures_are_uploaded() {
    let mut measurer = match WgpuMeasurer::open(AdapterChoice::Any) {
        Ok(measurer) => measurer,
        Err(error) => return skip::skip("upload of what is in dma-bufs", error),
    };
    let fetched = Arc::default();
    let frames = [there(Picture::new(176, 144), &fetched)];
    assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
    println!("{}: {:?}", measurer.adapter(), measurer.import_refusal());
    assert!(!measurer.imports());
    assert_eq!(measurer.pictures_imported(), 0);
}
