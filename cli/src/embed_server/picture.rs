//! Converts a JPEG to the square that a model takes. Clients are not trusted: decodes within limits, in safe
//! code. The whole picture is squeezed into the square, so that no part is lost.

use embed::ModelInputImage;
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

/// Longest side of a picture, in pixels.
const SIDE_MAX: usize = 8192;
/// Most pixels: for these a decoder holds 150 MB with a progressive JPEG.
const PIXELS_MAX: usize = 1 << 24;

/// Decodes `jpeg` and scales it to a square of `side` pixels.
pub fn decode(jpeg: &[u8], side: u32) -> Result<ModelInputImage, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("not a readable JPEG: {error}");
    // Strict, as a lenient decoder fills missing parts with grey, which would be embedded too.
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(SIDE_MAX)
        .set_max_height(SIDE_MAX)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(jpeg), options);
    decoder.decode_headers().map_err(|error| wrong(&error))?;
    let info = decoder.info().ok_or_else(|| wrong(&"no size"))?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    if width * height > PIXELS_MAX {
        return Err(format!("a picture of {width}x{height} is too large"));
    }
    let rgb = decoder.decode().map_err(|error| wrong(&error))?;
    if width * height == 0 || rgb.len() != width * height * 3 {
        return Err(wrong(&"its pixels do not fill it"));
    }
    let square = squeeze(&rgb, width, height, side as usize);
    ModelInputImage::new(side, square).map_err(|error| wrong(&error))
}

/// Scales down: each pixel is the mean of the source pixels that it covers, or a copy of one.
fn squeeze(rgb: &[u8], width: usize, height: usize, side: usize) -> Vec<u8> {
    let span = |at: usize, length: usize| {
        let start = at * length / side;
        start..((at + 1) * length / side).max(start + 1)
    };
    let columns: Vec<_> = (0..side).map(|x| span(x, width)).collect();
    let mut square = Vec::with_capacity(side * side * 3);
    for y in 0..side {
        let rows = span(y, height);
        let mut sums = vec![[0_u32; 3]; side];
        for row in rows.clone() {
            let (pixels, _) = rgb[row * width * 3..][..width * 3].as_chunks::<3>();
            for (sum, columns) in sums.iter_mut().zip(&columns) {
                for pixel in &pixels[columns.clone()] {
                    for (sum, sample) in sum.iter_mut().zip(pixel) {
                        *sum += u32::from(*sample);
                    }
                }
            }
        }
        for (sum, columns) in sums.iter().zip(&columns) {
            let count = (rows.len() * columns.len()) as u32;
            square.extend(sum.map(|sum| ((sum + count / 2) / count) as u8));
        }
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOUR: &[u8] = include_bytes!("testdata/colour.jpg");
    const PROGRESSIVE: &[u8] = include_bytes!("testdata/progressive.jpg");
    const GREY: &[u8] = include_bytes!("testdata/grey.jpg");
    const CMYK: &[u8] = include_bytes!("testdata/cmyk.jpg");

    #[test]
    fn every_kind_of_jpeg_becomes_rgb() {
        // 48 x 32, red on the left and blue on the right; each sample within 6.
        let (red, blue) = ([200, 40, 40], [40, 40, 200]);
        let cases = [
            ("colour", COLOUR, red, blue),
            ("progressive", PROGRESSIVE, red, blue),
            ("grey", GREY, [88; 3], [58; 3]),
            ("CMYK", CMYK, red, blue),
        ];
        for (name, jpeg, left, right) in cases {
            let picture = decode(jpeg, 8).unwrap_or_else(|error| panic!("{name}: {error}"));
            let pixel = |x: usize| &picture.rgb()[(3 * 8 + x) * 3..][..3];
            for (got, expected) in pixel(1).iter().chain(pixel(6)).zip([left, right].concat()) {
                assert!(got.abs_diff(expected) <= 6, "{name}: {:?} {:?}", pixel(1), pixel(6));
            }
        }
    }

    #[test]
    fn what_is_cut_foreign_or_too_large_is_refused() {
        let mut large = COLOUR.to_vec();
        let size = large.windows(2).position(|marker| marker == [0xff, 0xc0]).expect("a frame") + 5;
        large[size..size + 4].copy_from_slice(&[0x1f, 0xff, 0x1f, 0xff]);
        assert_eq!(decode(&large, 8), Err("a picture of 8191x8191 is too large".to_owned()));
        let cases: [(&str, &[u8]); 4] = [
            ("nothing", b""),
            ("PNG", b"\x89PNG\r\n\x1a\n"),
            ("a head alone", &COLOUR[..200]),
            ("half of it", &COLOUR[..COLOUR.len() - 40]),
        ];
        for (name, jpeg) in cases {
            let refused = decode(jpeg, 8).expect_err(name);
            assert!(refused.starts_with("not a readable JPEG"), "{name}: {refused}");
        }
    }

    #[test]
    fn broken_bytes_come_to_an_end() {
        for jpeg in [COLOUR, PROGRESSIVE, GREY, CMYK] {
            for at in (0..jpeg.len()).step_by(3) {
                for byte in [0, 0x80, 0xff] {
                    let mut broken = jpeg.to_vec();
                    broken[at] = byte;
                    if let Ok(picture) = decode(&broken, 8) {
                        assert_eq!(picture.rgb().len(), 192, "{at} {byte}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_square_is_the_mean_below_it_or_the_pixel_below_it() {
        let grey = |samples: &[u8]| -> Vec<u8> { samples.iter().flat_map(|s| [*s; 3]).collect() };
        let first = |square: Vec<u8>| -> Vec<u8> { square.chunks(3).map(|p| p[0]).collect() };
        let four = grey(&[0, 10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(first(squeeze(&four, 4, 2, 2)), [5, 25, 45, 65]);
        assert_eq!(first(squeeze(&four, 4, 2, 1)), [35]);
        let one = grey(&[9]);
        assert_eq!(first(squeeze(&one, 1, 1, 2)), [9; 4]);
    }
}
