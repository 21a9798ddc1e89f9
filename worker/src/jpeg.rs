//! Checks of JPEGs from a worker: each must be one baseline JPEG of the announced size, with nothing before,
//! between or after its segments.
//!
//! Walks the segments and decodes nothing. So all that is stored, served and passed on has the shape that our
//! encoder writes, whatever a hostile file made the worker do.

use media::Dimensions;

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const SOF0: u8 = 0xc0;
const DHT: u8 = 0xc4;
const DQT: u8 = 0xdb;
const DRI: u8 = 0xdd;
const APP0: u8 = 0xe0;

/// Returns true if `bytes` are a baseline JPEG of `extent`: 8 bits, one or three components, one scan.
pub(crate) fn is_baseline(bytes: &[u8], extent: Dimensions) -> bool {
    header(bytes, extent).is_some_and(ends_with_its_scan)
}

/// Returns the size in pixels of a baseline JPEG from its header.
pub(crate) fn extent_of(bytes: &[u8]) -> Option<Dimensions> {
    let mut rest = bytes.strip_prefix(&[0xff, SOI])?;
    loop {
        let (&[0xff, marker, high, low], _) = rest.split_first_chunk::<4>()? else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let segment = rest.get(4..2 + length)?;
        if marker == SOF0 {
            return size_of_frame(segment);
        }
        rest = &rest[2 + length..];
    }
}

fn size_of_frame(segment: &[u8]) -> Option<Dimensions> {
    let &[_, high, low, wide, narrow, ..] = segment else { return None };
    let [height, width] = [[high, low], [wide, narrow]].map(u16::from_be_bytes).map(u32::from);
    (width > 0 && height > 0).then_some(Dimensions { width, height })
}

/// Returns the entropy-coded bytes after the headers, if those are of a baseline JPEG of `extent`.
fn header(bytes: &[u8], extent: Dimensions) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(&[0xff, SOI])?;
    let mut components = None;
    loop {
        let (&[0xff, marker, high, low], _) = rest.split_first_chunk::<4>()? else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let segment = rest.get(4..2 + length)?;
        rest = &rest[2 + length..];
        match marker {
            APP0 | DQT | DHT | DRI => {}
            SOF0 if components.is_none() => components = Some(frame(segment, extent)?),
            // The scan must have all components and all their coefficients.
            SOS => {
                let &[count, .., 0, 63, 0] = segment else { return None };
                let is_whole = Some(count) == components;
                return (is_whole && segment.len() == 4 + 2 * usize::from(count)).then_some(rest);
            }
            _ => return None,
        }
    }
}

/// Returns the number of components, if the frame header has `extent` and 8 bits per sample.
fn frame(segment: &[u8], extent: Dimensions) -> Option<u8> {
    let [8, _, _, _, _, count @ (1 | 3), components @ ..] = segment else { return None };
    let fits = size_of_frame(segment) == Some(extent);
    (fits && components.len() == 3 * usize::from(*count)).then_some(*count)
}

/// Returns true if the scan has no marker but restarts and ends with the end-of-image marker.
fn ends_with_its_scan(scan: &[u8]) -> bool {
    let Some(coded) = scan.strip_suffix(&[0xff, EOI]) else { return false };
    let mut coded = coded.iter();
    while let Some(byte) = coded.next() {
        if *byte == 0xff && !matches!(coded.next(), Some(0 | 0xd0..=0xd7)) {
            return false;
        }
    }
    true
}

/// Returns the shortest bytes that pass as a grey picture of `extent`.
#[cfg(test)]
pub(crate) fn shortest(extent: Dimensions) -> Vec<u8> {
    let mut bytes = vec![0xff, SOI, 0xff, SOF0, 0, 11, 8];
    bytes.extend_from_slice(&(extent.height as u16).to_be_bytes());
    bytes.extend_from_slice(&(extent.width as u16).to_be_bytes());
    bytes.extend_from_slice(&[1, 1, 0x11, 0, 0xff, SOS, 0, 8, 1, 1, 0, 0, 63, 0, 0xff, EOI]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Dimensions = Dimensions { width: 320, height: 180 };

    #[test]
    fn only_a_baseline_picture_of_the_announced_size_passes() {
        let good = shortest(EXTENT);
        assert!(is_baseline(&good, EXTENT));
        assert_eq!(extent_of(&good), Some(EXTENT));
        assert_eq!(extent_of(&good[..8]), None);
        assert!(!is_baseline(&good, Dimensions { width: 180, height: 320 }), "another size");
        let edit = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let with = |at: usize, more: &[u8]| {
            let mut bytes = good.clone();
            bytes.splice(at..at, more.iter().copied());
            bytes
        };
        let end = good.len() - 2;
        let rows = [
            ("progressive", edit(3, 0xc2), false),
            ("12 bits", edit(6, 12), false),
            ("two components", edit(11, 2), false),
            ("a part of the spectrum", edit(22, 5), false),
            ("a segment past the end", edit(4, 0xff), false),
            ("cut short", good[..end].to_vec(), false),
            ("bytes after the end", with(good.len(), b"<script>"), false),
            ("a second picture", with(good.len(), &good), false),
            ("metadata", with(2, &[0xff, 0xe1, 0, 3, 7]), false),
            ("a comment", with(2, &[0xff, 0xfe, 0, 3, 7]), false),
            ("a second frame", with(2, &good[2..15]), false),
            ("a marker in the scan", with(end, &[0xff, 0xc4]), false),
            ("no length", with(2, &[0xff, APP0, 0, 0]), false),
            ("JFIF", with(2, &[0xff, APP0, 0, 3, 7]), true),
            ("coded bytes", with(end, &[1, 0xff, 0, 0xff, 0xd3, 2]), true),
            ("nothing", Vec::new(), false),
            ("text", b"GIF89a".to_vec(), false),
        ];
        for (case, bytes, passes) in rows {
            assert_eq!(is_baseline(&bytes, EXTENT), passes, "{case}");
        }
    }
}
