//! Pictures in dma-bufs, imported: on lavapipe behind a driver that is a shim, with files for dma-bufs.
//!
//! The loader finds drivers when a process starts to use Vulkan, so each test runs one of `device` in a
//! process of its own. Needs `g++` and Vulkan's headers; says so loudly where they are missing.
#![cfg(feature = "dma-buf")]

#[path = "../../tests/support/driver_shim.rs"]
mod driver_shim;
#[path = "../../tests/support/skip.rs"]
mod skip;
#[path = "../../tests/support/vulkan_shim.rs"]
mod vulkan_shim;

use std::{
    fs::File,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use gate::conformance::{Fill, Picture, batches, first_difference};
use media::{
    DeviceMemory, DevicePicture, DmaBufPlane, Frame, HostPicture, Pixels, PixelsLost, Sample,
    Subsampling,
};
use shaders::{AdapterChoice, WgpuMeasurer};

/// Runs the ignored test `name` with the shim as Vulkan's only driver; says loudly why it does not.
fn passes(name: &str, settings: &[(&str, &str)]) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = match vulkan_shim::compiled(root, Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(folder) => folder,
        Err(why) => return skip::skip(name, why),
    };
    let program = std::env::current_exe().expect("this test");
    let mut test = Command::new(program);
    test.args(["--exact", name, "--ignored", "--nocapture"]);
    test.env("VK_ICD_FILENAMES", folder.join(vulkan_shim::MANIFEST));
    test.env("LD_LIBRARY_PATH", folder).envs(settings.iter().copied());
    let output = test.output().expect("this test starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{settings:?}: {said}{errors}");
    println!("{said}");
}

#[test]
fn imported_pictures_are_measured_as_the_reference_does() {
    passes("device::the_table_is_measured_where_it_is", &[]);
}

#[test]
fn a_refused_import_is_sent_up() {
    passes("device::what_is_refused_is_sent_up", &[]);
    passes("device::later_refusals_are_sent_up", &[("SHIM_IMPORTS", "5")]);
}

#[test]
fn imports_leave_nothing_behind() {
    passes("device::batches_leave_no_descriptor", &[]);
}

#[test]
fn an_adapter_without_the_extensions_imports_nothing() {
    match WgpuMeasurer::open(AdapterChoice::Named("llvmpipe")) {
        Ok(measurer) => println!("{} imports: {}", measurer.adapter(), measurer.imports()),
        Err(error) => skip::skip("an adapter that imports nothing", error),
    }
}

/// A picture in a file that counts how often it was fetched.
struct There {
    file: File,
    modifier: u64,
    /// Offset and pitch.
    planes: [(u64, u64); 2],
    host: Frame,
    fetched: Arc<AtomicUsize>,
}

impl DevicePicture for There {
    #[expect(unsafe_code, reason = "says what is in a file")]
    fn memory(&self) -> DeviceMemory<'_> {
        DeviceMemory::DmaBuf(self.planes.map(|(offset, pitch)| {
            // SAFETY: `there` wrote both planes so, and nothing writes later.
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

/// The picture in a file: planes that do not begin at its start, in rows that are longer than they need.
fn there(picture: Picture, modifier: u64, fetched: &Arc<AtomicUsize>) -> Option<Frame> {
    let host = picture.frame()?;
    let frame = host.clone();
    let bytes = picture.sample.bytes();
    let pitch = (picture.width as usize + 1) * bytes + 192;
    let luma_at = 4096;
    let chroma_at = luma_at + pitch * (picture.height as usize + 3);
    let pixels = host.pixels.host().expect("in host memory");
    let (luma, [u, v]) = (pixels.luma(), pixels.chroma().expect("4:2:0"));
    let mut memory = vec![0x5a; chroma_at + pitch * u.extent().height as usize];
    for y in 0..luma.extent().height {
        let row = luma.row(y);
        memory[luma_at + pitch * y as usize..][..row.len()].copy_from_slice(row);
    }
    for y in 0..u.extent().height {
        // The samples of U, and whatever lies between them; then those of V, with the same between.
        for (start, row) in [(0, u.row(y)), (bytes, v.row(y))] {
            let at = chroma_at + pitch * y as usize + start;
            memory[at..][..row.len()].copy_from_slice(row);
        }
    }
    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(&memory, 0).expect("written");
    let planes = [luma_at, chroma_at].map(|at| (at as u64, pitch as u64));
    let there = There { file, modifier, planes, host, fetched: Arc::clone(fetched) };
    Some(Frame { pixels: Pixels::Device(Arc::new(there)), ..frame })
}

/// NV12 or P010, as decoders give it.
fn semi(width: u32, height: u32, sample: Sample, fill: Fill) -> Picture {
    Picture { sample, interleaved: true, fill, ..Picture::new(width, height) }
}

/// What a driver that imports must show.
mod device {
    use super::*;

    const P010: Sample = Sample::U16 { shift: 8 };

    fn open() -> WgpuMeasurer {
        let measurer = WgpuMeasurer::open(AdapterChoice::Any).expect("an adapter");
        assert!(measurer.imports(), "{}", measurer.adapter());
        measurer
    }

    /// Every picture of the table that a decoder can leave in a dma-buf.
    fn table() -> Vec<Vec<Picture>> {
        let fits = |picture: &Picture| {
            picture.interleaved
                && picture.subsampling == Subsampling::Yuv420
                && !matches!(picture.sample, Sample::U16 { shift: 9.. })
        };
        let of_table = batches().map(|batch| batch.into_iter().filter(fits).collect::<Vec<_>>());
        let sides = [(1, 1), (2, 1), (97, 55), (1919, 1079), (1920, 1080), (4096, 2304)];
        let own = sides.into_iter().flat_map(|(width, height)| {
            [Sample::U8, P010].map(|sample| semi(width, height, sample, Fill::Random(7)))
        });
        of_table.chain([own.collect()]).filter(|batch| !batch.is_empty()).collect()
    }

    #[test]
    #[ignore = "needs the shim"]
    fn the_table_is_measured_where_it_is() {
        let mut measurer = open();
        let (mut pictures, mut fetched_before) = (0, 0);
        for batch in table() {
            for among in [false, true] {
                let fetched = Arc::default();
                let mut frames = Vec::new();
                for picture in &batch {
                    frames.extend(there(*picture, 0, &fetched));
                    frames.extend(picture.frame().filter(|_| among));
                }
                let in_dma_bufs = frames.iter().filter(|f| matches!(f.pixels, Pixels::Device(_)));
                pictures += in_dma_bufs.count();
                assert_eq!(first_difference(&mut measurer, &frames), Ok(None), "{batch:?}");
                fetched_before += fetched.load(Relaxed);
            }
        }
        println!("{pictures} pictures");
        assert_eq!(measurer.import_refusal(), None);
        assert_eq!(measurer.imported(), pictures as u64);
        assert_eq!(fetched_before, pictures, "each by the reference alone");
        assert!(pictures > 100, "{pictures}");
    }

    #[test]
    #[ignore = "needs the shim"]
    fn what_is_refused_is_sent_up() {
        const TILES: u64 = 1 << 56 | 2;
        let mut measurer = open();
        let fetched = Arc::default();
        let pictures = [semi(64, 48, Sample::U8, Fill::Ramp), semi(50, 30, P010, Fill::Random(1))];
        let frames = pictures
            .iter()
            .zip([0, TILES])
            .filter_map(|(p, modifier)| there(*p, modifier, &fetched));
        let frames: Vec<Frame> = frames.collect();
        assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
        let refusal = measurer.import_refusal().expect("tiles are not read").to_owned();
        assert!(refusal.contains("0x100000000000002"), "{refusal}");
        assert!(!measurer.imports());
        assert_eq!(first_difference(&mut measurer, &frames), Ok(None), "and later ones");
        assert_eq!(measurer.imported(), 0);
    }

    #[test]
    #[ignore = "needs the shim, which refuses the sixth"]
    fn later_refusals_are_sent_up() {
        let mut measurer = open();
        let fetched = Arc::default();
        for round in 0..4 {
            let frame = there(semi(64, 48, Sample::U8, Fill::Random(round)), 0, &fetched);
            assert_eq!(first_difference(&mut measurer, &[frame.expect("small")]), Ok(None));
        }
        assert_eq!(measurer.imported(), 2);
        println!("{:?}", measurer.import_refusal());
        assert!(measurer.import_refusal().is_some());
    }

    #[test]
    #[ignore = "needs the shim"]
    fn batches_leave_no_descriptor() {
        let open_ones = || std::fs::read_dir("/proc/self/fd").expect("there").count();
        let mut measurer = open();
        let mut before = 0;
        for round in 0..200 {
            let fetched = Arc::default();
            let batch =
                [semi(64, 48, Sample::U8, Fill::Random(round)), semi(50, 30, P010, Fill::Ramp)];
            let frames: Vec<Frame> = batch.iter().filter_map(|p| there(*p, 0, &fetched)).collect();
            assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
            drop(frames);
            if round == 20 {
                before = open_ones();
            }
        }
        assert_eq!(measurer.imported(), 400);
        assert!(open_ones() <= before + 4, "{} descriptors, {before} before", open_ones());
    }
}
