//! Stills scaled down in a worker: their size, their colours, and bytes that are no still.

use clips::pick_one;
use turbojpeg::{PixelFormat, decompress, read_header};
use worker::Supervisor;

use crate::support::{alone, run, spec, supervisor, with};

fn still() -> Vec<u8> {
    let path = pick_one("bikes.mp4", "surv_car-detection.mp4");
    let heard = run(with(spec(&path), |it| it.max_frames = 1)).expect("a result");
    heard.stills.into_iter().next().expect("a still").1.jpeg
}

/// Returns the mean of each channel.
fn means(jpeg: &[u8]) -> [f64; 3] {
    let image = decompress(jpeg, PixelFormat::RGB).expect("a JPEG");
    let count = (image.width * image.height) as f64;
    [0, 1, 2].map(|channel| {
        let rows = image.pixels.chunks(image.pitch).flat_map(|row| row.chunks(3).take(image.width));
        rows.map(|pixel| f64::from(pixel[channel])).sum::<f64>() / count
    })
}

#[test]
fn a_still_is_scaled_down_and_looks_the_same() {
    let _alone = alone();
    let still = still();
    let whole = Supervisor::still_extent(&still).expect("a size");
    let longer = whole.width.max(whole.height);
    for edge in [32, 100, 333, longer - 1, longer, 4096] {
        let made = supervisor().shrink(still.clone(), edge).expect("a picture");
        let header = read_header(&made).expect("a JPEG");
        assert_eq!(header.width.max(header.height) as u32, edge.min(longer), "{edge}");
        let (of_still, of_made) = (means(&still), means(&made));
        for (still, made) in of_still.iter().zip(of_made) {
            assert!((still - made).abs() < 3.0, "{edge}: {of_still:?} and {of_made:?}");
        }
    }
}

#[test]
fn what_is_no_still_is_an_error_and_not_more() {
    let _alone = alone();
    let still = still();
    let mut cut = still.clone();
    cut.truncate(still.len() / 2);
    let mut noise = still.clone();
    let end = noise.len() - 2;
    noise[end / 2..end].fill(0xff);
    for (name, bytes) in [
        ("nothing", Vec::new()),
        ("text", b"GIF89a".to_vec()),
        ("header", still[..20].to_vec()),
        ("cut", cut),
        ("noise", noise),
    ] {
        let made = supervisor().shrink(bytes, 64);
        assert!(made.is_err(), "{name}");
    }
}
