//! Tests on a device. Ignored: `make test-gpu` and the tests of `shim` run them by name.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use gate::{
    MeasureBackend, MeasureError,
    conformance::{Fill, TestPicture, check, check_batch, first_difference, frames},
};
use kernels::CudaBackend;
use media::{
    DeviceFrameBuffer, DeviceMemoryLost, DeviceSurface, Frame, HostFrameBuffer, Pixels,
    SampleFormat,
};

use crate::{any::check_any_batches, real::real_frames};

pub fn open() -> CudaBackend {
    CudaBackend::open(0).expect("a device")
}

#[test]
#[ignore = "needs CUDA"]
fn the_whole_table_is_measured_as_the_reference_does() {
    let mut measurer = open();
    let pictures = check(&mut measurer).expect("conforms");
    println!("{pictures} pictures on {}", measurer.device());
    assert!(pictures > 500, "{pictures} pictures");
}

#[test]
#[ignore = "needs CUDA"]
fn frames_of_real_clips_are_measured_alike() {
    let frames = real_frames();
    assert_eq!(first_difference(&mut open(), &frames), Ok(None));
}

#[test]
#[ignore = "needs CUDA"]
fn any_batch_is_measured_as_the_reference_does() {
    check_any_batches(open(), 64);
}

/// Returns a picture in a hardware decoder's layout: both planes in one allocation, rows `pitch` bytes apart.
fn semi_planar(picture: TestPicture, pitch: usize) -> (Vec<u8>, u64) {
    let frame = picture.frame();
    let host = frame.pixels.host().expect("in host memory");
    let (luma, [u, v]) = (host.luma(), host.chroma().expect("has chroma"));
    let rows = luma.extent().height as usize;
    let mut bytes = vec![0x5a; pitch * (rows + u.extent().height as usize)];
    for y in 0..luma.extent().height {
        let row = luma.row(y);
        bytes[y as usize * pitch..][..row.len()].copy_from_slice(row);
    }
    for y in 0..u.extent().height {
        let at = (rows + y as usize) * pitch;
        let (first, second) = (u.row(y), v.row(y));
        bytes[at..][..first.len()].copy_from_slice(first);
        bytes[at + picture.sample.bytes()..][..second.len()].copy_from_slice(second);
    }
    (bytes, (rows * pitch) as u64)
}

/// Picture in device memory that counts its downloads.
struct There {
    surface: DeviceSurface,
    host: Frame,
    fetched: Arc<AtomicUsize>,
    _memory: CudaSlice<u8>,
}

impl DeviceFrameBuffer for There {
    fn surface(&self) -> DeviceSurface {
        self.surface
    }

    fn host(&self) -> Result<&Arc<dyn HostFrameBuffer>, DeviceMemoryLost> {
        self.fetched.fetch_add(1, Relaxed);
        self.host.pixels.host()
    }
}

/// Makes a picture in the memory of the first device, labelled as device `device`.
#[expect(unsafe_code, reason = "names a picture by its address")]
fn there(
    picture: TestPicture,
    (pitch, device): (usize, u32),
    stream: &Arc<CudaStream>,
    fetched: &Arc<AtomicUsize>,
) -> Frame {
    let (bytes, chroma) = semi_planar(picture, pitch);
    let memory = stream.clone_htod(&bytes).expect("room");
    let luma = memory.device_ptr(stream).0;
    // SAFETY: the picture holds the memory, and the copy above was queued on the default stream.
    let surface = unsafe { DeviceSurface::new(device, luma, luma + chroma, pitch as u32) };
    let host = picture.frame();
    let frame = host.clone();
    let there = There { surface, host, fetched: Arc::clone(fetched), _memory: memory };
    Frame { pixels: Pixels::Device(Arc::new(there)), ..frame }
}

#[test]
#[ignore = "needs CUDA"]
fn pictures_in_device_memory_are_measured_where_they_are() {
    let p010 = SampleFormat::U16 { shift: 8 };
    let semi = |width, height, sample, fill| TestPicture {
        sample,
        interleaved: true,
        fill,
        ..TestPicture::new(width, height)
    };
    // Picture, its pitch and device number, and whether it is measured in place.
    let cases = [
        (semi(1920, 1080, SampleFormat::U8, Fill::Random(3)), (2048, 0), true),
        (semi(1919, 1079, SampleFormat::U8, Fill::Ramp), (2048, 0), true),
        (semi(1280, 720, p010, Fill::Random(5)), (3072, 0), true),
        (semi(50, 31, SampleFormat::U8, Fill::Checker), (50, 0), false),
        (semi(50, 31, SampleFormat::U8, Fill::Checker), (256, 7), false),
        (semi(50, 31, SampleFormat::U8, Fill::Random(9)), (256, 0), true),
        (semi(1, 1, p010, Fill::Flat(255)), (512, 0), true),
    ];
    let stream = CudaContext::new(0).expect("a device").default_stream();
    let mut measurer = open();
    for among in [false, true] {
        let fetched = Arc::default();
        let mut batch = Vec::new();
        for (picture, place, _) in cases {
            batch.push(there(picture, place, &stream, &fetched));
            batch.extend(among.then(|| picture.frame()));
        }
        assert_eq!(first_difference(&mut measurer, &batch), Ok(None), "among others: {among}");
        // The reference downloads each picture once; the device only those that it does not read, up to three
        // times: when checked, counted and packed.
        let not_there = cases.iter().filter(|(.., is_there)| !is_there).count();
        let (least, most) = (cases.len() + not_there, cases.len() + 3 * not_there);
        let fetched = fetched.load(Relaxed);
        assert!((least..=most).contains(&fetched), "among others: {among}, {fetched} fetched");
    }
}

#[test]
#[ignore = "needs CUDA"]
fn a_picture_that_is_too_large_leaves_the_measurer_sound() {
    let mut measurer = open();
    let mut measured = Vec::new();
    let small = TestPicture::new(40, 30);
    let refused = measurer.measure(&frames(&[small, TestPicture::new(8193, 2)]), &mut measured);
    assert_eq!(refused, Err(MeasureError::TooLarge { width: 8193, height: 2 }));
    assert!(measured.is_empty());
    assert_eq!(check_batch(&mut measurer, &[small]), Ok(()));
}

#[test]
#[ignore = "says what opening the first device says"]
fn opening() {
    match CudaBackend::open(0) {
        Ok(measurer) => println!("opened {}", measurer.device()),
        Err(error) => println!("{:?}: {error}", error.kind()),
    }
}
