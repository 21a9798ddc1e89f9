//! Bits of a NAL unit: big-endian, without emulation prevention, Exp-Golomb numbers.

/// Reads from the first bit on; past the end there is nothing.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Index of the byte that is read next.
    index: usize,
    zeros: u8,
    current: u8,
    left: u8,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits { bytes, index: 0, zeros: 0, current: 0, left: 0 }
    }

    fn load(&mut self) -> Option<()> {
        let mut byte = *self.bytes.get(self.index)?;
        self.index += 1;
        // ITU-T H.264 7.4.1: 00 00 03 stands for 00 00.
        if self.zeros >= 2 && byte == 3 {
            byte = *self.bytes.get(self.index)?;
            self.index += 1;
            self.zeros = 0;
        }
        self.zeros = if byte == 0 { self.zeros.saturating_add(1) } else { 0 };
        (self.current, self.left) = (byte, 8);
        Some(())
    }

    /// The next `count` bits, at most 32.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            if self.left == 0 {
                self.load()?;
            }
            self.left -= 1;
            value = value << 1 | u32::from(self.current >> self.left & 1);
        }
        Some(value)
    }

    pub(super) fn skip(&mut self, count: u32) -> Option<()> {
        (0..count).try_for_each(|_| self.take(1).map(drop))
    }

    /// ue(v), ITU-T H.264 9.1; `None` also for what no identifier can be.
    pub(super) fn ue(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.take(1)? == 0 {
            zeros += 1;
            if zeros > 24 {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.take(zeros)?)
    }
}

#[cfg(test)]
mod tests {
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
            let mut bits = Bits::new(bytes);
            let found = [bits.ue(), bits.ue()];
            assert_eq!(found[0], expected[0], "{bytes:02x?}");
            if expected[0].is_some() && expected[1].is_some() {
                assert_eq!(found, expected, "{bytes:02x?}");
            }
        }
        let mut bits = Bits::new(&[0, 0, 3, 1]);
        assert_eq!((bits.take(16), bits.take(8), bits.take(1)), (Some(0), Some(1), None));
        let mut bits = Bits::new(&[0xff, 0x0f]);
        assert_eq!((bits.skip(12), bits.take(4), bits.skip(1)), (Some(()), Some(15), None));
    }
}
