//! VP9 (RFC 9628), in flexible and non-flexible mode.
//!
//! Of a picture with spatial layers only the lowest is kept: it decodes without the others, and a decoder
//! outputs one picture for it. All temporal layers are kept.

use super::vpx::Part;

/// Removes the payload descriptor (RFC 9628 4.2).
pub(super) fn part(payload: &[u8]) -> Option<Part<'_>> {
    let (&first, mut rest) = payload.split_first()?;
    let has = |bit: u8| first & bit != 0;
    let (has_picture_id, is_inter, has_layers, is_flexible) =
        (has(0x80), has(0x40), has(0x20), has(0x10));
    if has_picture_id {
        let is_long = rest.first()? & 0x80 != 0;
        rest = rest.get(if is_long { 2 } else { 1 }..)?;
    }
    let mut spatial_layer = 0;
    if has_layers {
        spatial_layer = rest.first()? >> 1 & 7;
        // In non-flexible mode each packet carries TL0PICIDX.
        rest = rest.get(if is_flexible { 1 } else { 2 }..)?;
    }
    if is_flexible && is_inter {
        rest = after_references(rest)?;
    }
    if has(0x02) {
        rest = after_structure(rest)?;
    }
    Part { begins_frame: has(0x08), spatial_layer, bytes: rest }.if_any()
}

/// Skips up to three reference indices, each of which tells whether another follows.
fn after_references(payload: &[u8]) -> Option<&[u8]> {
    let mut rest = payload;
    for _ in 0..3 {
        let (&difference, after) = rest.split_first()?;
        rest = after;
        if difference & 1 == 0 {
            return Some(rest);
        }
    }
    None
}

/// Skips the scalability structure (RFC 9628 4.2.1).
fn after_structure(payload: &[u8]) -> Option<&[u8]> {
    let (&head, mut rest) = payload.split_first()?;
    if head & 0x10 != 0 {
        let layers = usize::from(head >> 5) + 1;
        rest = rest.get(4 * layers..)?;
    }
    if head & 0x08 != 0 {
        let (&pictures, after) = rest.split_first()?;
        rest = after;
        for _ in 0..pictures {
            let (&picture, after) = rest.split_first()?;
            rest = after.get(usize::from(picture >> 2 & 3)..)?;
        }
    }
    Some(rest)
}

/// Returns true for a keyframe (VP9 bitstream 6.2): frame_marker, no show_existing_frame, frame_type 0. The
/// sync code is not checked.
pub(super) fn is_key(frame: &[u8]) -> bool {
    let [first, second, ..] = *frame else { return false };
    let bits = u16::from_be_bytes([first, second]);
    let profile_3 = first & 0x30 == 0x30;
    // Bits after the profile and its reserved bit.
    let flags = bits << if profile_3 { 5 } else { 4 };
    let (shows_existing, is_inter) = (flags & 0x8000 != 0, flags & 0x4000 != 0);
    first >> 6 == 2 && !shows_existing && !is_inter
}

#[cfg(test)]
mod tests {
    use super::{
        super::{DepacketizedUnit, Depacketizer, Malformed, UnitKind, vpx::Vpx},
        *,
    };

    #[test]
    fn every_descriptor_is_taken_off() {
        /// Expected result: begin of a frame, its layer, and the remaining bytes.
        type Left = Option<(bool, u8, &'static [u8])>;
        let cases: [(&str, &[u8], Left); 14] = [
            ("plain", &[0x0c, 9], Some((true, 0, &[9]))),
            ("in the frame", &[0x00, 9], Some((false, 0, &[9]))),
            ("short picture id", &[0x88, 0x11, 9], Some((true, 0, &[9]))),
            ("long picture id", &[0x88, 0x91, 0x22, 9], Some((true, 0, &[9]))),
            ("layers", &[0x28, 0x23, 7, 9], Some((true, 1, &[9]))),
            ("layers, flexible", &[0x38, 0x22, 9], Some((true, 1, &[9]))),
            ("one reference", &[0x58, 0x02, 9], Some((true, 0, &[9]))),
            ("three references", &[0x58, 0x03, 0x05, 0x06, 9], Some((true, 0, &[9]))),
            ("four references", &[0x58, 0x03, 0x05, 0x07, 0x02, 9], None),
            (
                "structure",
                &[0x0a, 0x38, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0x04, 1, 0x08, 1, 2, 9],
                Some((true, 0, &[9])),
            ),
            ("cut structure", &[0x0a, 0x18, 1, 2, 3, 4, 200, 9], None),
            ("inter, not flexible", &[0x48, 9], Some((true, 0, &[9]))),
            ("no payload", &[0x0c], None),
            ("empty", &[], None),
        ];
        for (name, payload, expected) in cases {
            let found = part(payload);
            let found = found.map(|part| (part.begins_frame, part.spatial_layer, part.bytes));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn keys_of_every_profile_are_known() {
        let cases: [(&str, &[u8], bool); 7] = [
            ("key", &[0x82, 0x49], true),
            ("inter", &[0x86, 0], false),
            ("repeats a frame", &[0x88, 0], false),
            ("profile 3", &[0xb1, 0], true),
            ("profile 3, inter", &[0xb2, 0], false),
            ("no marker", &[0x02, 0x49], false),
            ("one byte", &[0x82], false),
        ];
        for (name, frame, expected) in cases {
            assert_eq!(is_key(frame), expected, "{name}");
        }
    }

    #[test]
    fn only_the_lowest_spatial_layer_is_kept() {
        let mut vp9 = Vpx::new(part, is_key);
        for payload in
            [&[0x28, 0x00, 7, 0x82, 0x49][..], &[0x24, 0x00, 7, 1], &[0x2c, 0x03, 7, 0x86, 2]]
        {
            assert!(!vp9.begins_another(payload));
            vp9.push(payload).expect("valid");
        }
        let expected = DepacketizedUnit {
            data: vec![0x82, 0x49, 1],
            role: UnitKind::Start { breaks_link: false },
        };
        assert_eq!(vp9.finish(), Ok(Some(expected)));
        vp9.push(&[0x2c, 0x03, 7, 0x86, 2]).expect("valid");
        assert_eq!(vp9.finish(), Ok(None), "nothing but a higher layer");
        assert_eq!(vp9.push(&[0x20, 0x00, 7, 1]), Err(Malformed), "no beginning");
    }
}
