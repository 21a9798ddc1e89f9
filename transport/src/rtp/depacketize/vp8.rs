//! VP8 (RFC 7741): removes the payload descriptors and keeps all temporal layers.

use super::vpx::Part;

/// Removes the payload descriptor (RFC 7741 4.2).
pub(super) fn part(payload: &[u8]) -> Option<Part<'_>> {
    let (&first, mut rest) = payload.split_first()?;
    if first & 0x80 != 0 {
        let (&extension, after) = rest.split_first()?;
        rest = after;
        if extension & 0x80 != 0 {
            let is_long = rest.first()? & 0x80 != 0;
            rest = rest.get(if is_long { 2 } else { 1 }..)?;
        }
        let has_layers = extension & 0x30 != 0;
        rest = rest.get(usize::from(extension & 0x40 != 0) + usize::from(has_layers)..)?;
    }
    let begins_frame = first & 0x10 != 0 && first & 0x07 == 0;
    Part { begins_frame, spatial_layer: 0, bytes: rest }.if_any()
}

/// Returns true for a keyframe (RFC 6386 9.1): bit 0 is clear, and the start code follows.
pub(super) fn is_key(frame: &[u8]) -> bool {
    matches!(frame, [tag, _, _, 0x9d, 0x01, 0x2a, ..] if tag & 1 == 0)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{DepacketizedUnit, Depacketizer, Malformed, UnitKind, vpx::Vpx},
        *,
    };

    const KEY: [u8; 10] = [0x10, 0, 0, 0x9d, 0x01, 0x2a, 64, 0, 64, 0];

    #[test]
    fn every_descriptor_is_taken_off() {
        /// Expected result: begin of a frame, and the remaining bytes.
        type Left = Option<(bool, &'static [u8])>;
        let cases: [(&str, &[u8], Left); 13] = [
            ("plain", &[0x10, 9], Some((true, &[9]))),
            ("in the frame", &[0x00, 9], Some((false, &[9]))),
            ("another partition", &[0x11, 9], Some((false, &[9]))),
            ("short picture id", &[0x90, 0x80, 0x11, 9], Some((true, &[9]))),
            ("long picture id", &[0x90, 0x80, 0x91, 0x22, 9], Some((true, &[9]))),
            ("layer index", &[0x90, 0x40, 1, 9], Some((true, &[9]))),
            ("temporal layer", &[0x90, 0x20, 1, 9], Some((true, &[9]))),
            ("key index", &[0x90, 0x10, 1, 9], Some((true, &[9]))),
            ("all", &[0x90, 0xf0, 0x81, 2, 3, 4, 9], Some((true, &[9]))),
            ("no payload", &[0x10], None),
            ("cut in the descriptor", &[0x90, 0xf0, 0x81, 2, 3], None),
            ("cut in the extension", &[0x90], None),
            ("empty", &[], None),
        ];
        for (name, payload, expected) in cases {
            let found = part(payload).map(|part| (part.begins_frame, part.bytes));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn frames_are_joined_and_keys_known() {
        let mut vp8 = Vpx::new(part, is_key);
        let first = [&[0x10][..], &KEY].concat();
        assert!(vp8.starts_keyframe(&first) && !vp8.begins_another(&first));
        assert_eq!(vp8.push(&[0x00, 1]), Err(Malformed), "no beginning");
        vp8.push(&first).expect("valid");
        assert!(vp8.begins_another(&first));
        assert_eq!(vp8.push(&first), Err(Malformed), "two beginnings");
        vp8.push(&[0x00, 7]).expect("valid");
        let data = [&KEY[..], &[7]].concat();
        let role = UnitKind::Start { breaks_link: false };
        assert_eq!(vp8.finish(), Ok(Some(DepacketizedUnit { data, role })));
        vp8.push(&[0x10, 0x11, 0, 0]).expect("valid");
        let inter = DepacketizedUnit { data: vec![0x11, 0, 0], role: UnitKind::Other };
        assert_eq!(vp8.finish(), Ok(Some(inter)));
        assert_eq!(vp8.finish(), Ok(None));
    }
}
