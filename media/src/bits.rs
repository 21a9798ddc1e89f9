//! Bit reader for coded headers, and the open bitstream units (OBUs) of AV1.

/// Bit reader, most significant bit of each byte first; every read past the end returns `None`.
pub struct Bits<'a> {
    rest: &'a [u8],
    current: u8,
    left: u8,
    /// Count of zero bytes just read of a NAL unit; `None` without emulation prevention.
    zeros: Option<u8>,
}

impl<'a> Bits<'a> {
    /// Creates a reader of all bytes.
    pub fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits { rest: bytes, current: 0, left: 0, zeros: None }
    }

    /// Creates a reader of a NAL unit that skips emulation prevention bytes (ITU-T H.264 7.4.1).
    pub fn of_nal(bytes: &'a [u8]) -> Bits<'a> {
        Bits { zeros: Some(0), ..Bits::new(bytes) }
    }

    /// Reads the next `count` bits, at most 32.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        (0..count).try_fold(0, |value, _| Some(value << 1 | self.bit()?))
    }

    /// Skips `count` bits.
    pub fn skip(&mut self, count: u32) -> Option<()> {
        (0..count).try_for_each(|_| self.bit().map(drop))
    }

    /// Reads one bit; true for 1.
    pub fn flag(&mut self) -> Option<bool> {
        Some(self.bit()? == 1)
    }

    /// Reads a ue(v) (ITU-T H.264 9.1); `None` if it has more than `zeros_max` or 31 leading zeros.
    pub fn ue(&mut self, zeros_max: u32) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > zeros_max.min(31) {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.take(zeros)?)
    }

    fn bit(&mut self) -> Option<u32> {
        if self.left == 0 {
            let (mut byte, mut rest) = self.rest.split_first()?;
            if let Some(zeros) = &mut self.zeros {
                // The bytes 00 00 03 encode 00 00.
                if *zeros >= 2 && *byte == 3 {
                    *zeros = 0;
                    (byte, rest) = rest.split_first()?;
                }
                *zeros = if *byte == 0 { zeros.saturating_add(1) } else { 0 };
            }
            (self.current, self.rest, self.left) = (*byte, rest, 8);
        }
        self.left -= 1;
        Some(u32::from(self.current >> self.left & 1))
    }
}

/// Open bitstream unit of AV1 (5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obu<'a> {
    /// First byte of the OBU.
    pub header: u8,
    /// Extension byte, which holds the temporal and spatial layer ids.
    pub extension: Option<u8>,
    /// Bytes after header and size.
    pub payload: &'a [u8],
}

/// Values of `obu_type` (6.2.2).
#[allow(missing_docs, reason = "the names say it")]
impl Obu<'_> {
    pub const SEQUENCE_HEADER: u8 = 1;
    pub const DELIMITER: u8 = 2;
    /// A frame header without tile data.
    pub const FRAME_HEADER: u8 = 3;
    pub const FRAME: u8 = 6;
    pub const REDUNDANT_FRAME_HEADER: u8 = 7;
    pub const TILE_LIST: u8 = 8;
    pub const PADDING: u8 = 15;
}

impl<'a> Obu<'a> {
    /// Header bit `obu_has_size_field`.
    pub const HAS_SIZE: u8 = 0x02;

    /// Splits off the first OBU and returns it and the rest; an OBU without a size takes all bytes.
    pub fn split(bytes: &'a [u8]) -> Option<(Obu<'a>, &'a [u8])> {
        let (&header, mut rest) = bytes.split_first()?;
        let mut extension = None;
        if header & 0x04 != 0 {
            let (&layers, after) = rest.split_first()?;
            (extension, rest) = (Some(layers), after);
        }
        let mut size = rest.len();
        if header & Self::HAS_SIZE != 0 {
            (size, rest) = leb128(rest)?;
        }
        let (payload, after) = rest.split_at_checked(size)?;
        Some((Obu { header, extension, payload }, after))
    }

    /// Returns the `obu_type` in the header byte `header`.
    pub fn kind_of(header: u8) -> u8 {
        header >> 3 & 0x0f
    }
}

/// Reads a leb128 number of at most 32 bits; returns the number and the bytes after it (AV1 4.10.5).
pub fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().enumerate().take(8) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value).ok()?;
            return Some((value as usize, &bytes[index + 1..]));
        }
    }
    None
}

/// Encodes `value` as leb128 with the lowest seven bits first, as [`leb128`] reads it.
pub fn to_leb128(value: u32) -> impl Iterator<Item = u8> {
    let more = |left: u32| left > 0x7f;
    std::iter::successors(Some(value), move |&left| more(left).then_some(left >> 7))
        .map(move |left| (left & 0x7f) as u8 | u8::from(more(left)) << 7)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn numbers_are_read_over_bytes_and_emulation_prevention() {
        let cases: [(&[u8], [Option<u32>; 2]); 7] = [
            (&[0b1010_0000], [Some(0), Some(1)]),
            (&[0b0110_0100], [Some(2), Some(3)]),
            (&[0b0000_0001, 0b0000_0001, 0x80], [Some(127), Some(0)]),
            (&[0, 0, 3, 0x80], [None, None]),
            (&[0, 0x01, 0x00, 0x80], [Some(32_831), None]),
            (&[], [None, None]),
            (&[0], [None, None]),
        ];
        for (bytes, expected) in cases {
            let mut bits = Bits::of_nal(bytes);
            let first = bits.ue(24);
            let second = first.and_then(|_| bits.ue(24));
            assert_eq!([first, second], expected, "{bytes:02x?}");
        }
        let mut bits = Bits::of_nal(&[0, 0, 3, 1]);
        assert_eq!((bits.take(16), bits.take(8), bits.take(1)), (Some(0), Some(1), None));
        let mut bits = Bits::new(&[0, 0, 3]);
        assert_eq!((bits.take(16), bits.take(8)), (Some(0), Some(3)), "not of a NAL unit");
        let mut bits = Bits::new(&[0xff, 0x0f]);
        assert_eq!((bits.skip(12), bits.take(4), bits.skip(1)), (Some(()), Some(15), None));
    }

    #[test]
    fn zeros_are_counted_up_to_the_limit() {
        let number =
            |zeros: usize| [vec![0; zeros / 8], vec![0xff_u8 >> (zeros % 8)], vec![0xff; 8]];
        for zeros in 0..40 {
            let bytes = number(zeros).concat();
            for (limit, most) in [(0, 0), (24, 24), (31, 31), (90, 31)] {
                let expected = (zeros <= most).then(|| (((1_u64 << zeros) - 1) << 1) as u32);
                assert_eq!(Bits::new(&bytes).ue(limit), expected, "{zeros} of {limit}");
            }
        }
    }

    #[test]
    fn units_are_split_by_their_sizes() {
        type Split<'a> = Option<(u8, Option<u8>, &'a [u8], &'a [u8])>;
        let cases: [(&str, &[u8], Split<'_>); 9] = [
            ("sized", &[0x32, 2, 8, 9, 7], Some((0x32, None, &[8, 9], &[7]))),
            ("the rest", &[0x30, 8, 9], Some((0x30, None, &[8, 9], &[]))),
            ("with layers", &[0x36, 0x20, 1, 8], Some((0x36, Some(0x20), &[8], &[]))),
            ("empty", &[0x12, 0, 7], Some((0x12, None, &[], &[7]))),
            ("nothing", &[], None),
            ("without its layers", &[0x34], None),
            ("without its size", &[0x32], None),
            ("too short", &[0x32, 3, 8, 9], None),
            ("an endless size", &[0x32, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], None),
        ];
        for (name, bytes, expected) in cases {
            let found =
                Obu::split(bytes).map(|(it, rest)| (it.header, it.extension, it.payload, rest));
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(leb128(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None, "more than 32 bits");
    }

    proptest! {
        #[test]
        fn bits_are_those_of_the_bytes_that_are_meant(
            bytes in vec(prop_oneof![Just(0_u8), Just(3), any::<u8>()], 0..40),
            counts in vec(0..=32_u32, 0..30),
            is_nal: bool,
        ) {
            let mut meant = Vec::new();
            let mut zeros = 0;
            for &byte in &bytes {
                let is_prevention = is_nal && zeros >= 2 && byte == 3;
                zeros = if byte == 0 { zeros + 1 } else { 0 };
                if !is_prevention {
                    meant.extend((0..8).rev().map(|at| byte >> at & 1));
                }
            }
            let mut bits = if is_nal { Bits::of_nal(&bytes) } else { Bits::new(&bytes) };
            let mut at = 0;
            for count in counts {
                let end = at + count as usize;
                let expected = meant.get(at..end).map(|bits| {
                    bits.iter().fold(0, |value, &bit| value << 1 | u32::from(bit))
                });
                prop_assert_eq!(bits.take(count), expected);
                if expected.is_none() {
                    break;
                }
                at = end;
            }
        }

        #[test]
        fn sizes_are_read_as_they_are_written(value: u32, after in vec(any::<u8>(), 0..3)) {
            let bytes: Vec<u8> = to_leb128(value).chain(after.iter().copied()).collect();
            prop_assert_eq!(leb128(&bytes), Some((value as usize, &after[..])));
            prop_assert_eq!(bytes.len() - after.len(), value.max(1).ilog2() as usize / 7 + 1);
        }
    }
}
