//! Writer of headers for tests, bit by bit.

/// Bits written so far.
#[derive(Clone, Default)]
pub(crate) struct Writer(Vec<bool>);

impl Writer {
    pub(crate) fn bits(mut self, count: u32, value: u32) -> Writer {
        self.0.extend((0..count).rev().map(|at| value >> at & 1 == 1));
        self
    }

    pub(crate) fn unsigned(self, value: u32) -> Writer {
        let len = (value + 1).ilog2();
        self.bits(len, 0).bits(len + 1, value + 1)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let bit = |chunk: &[bool], at| u8::from(chunk.get(at).copied().unwrap_or(false));
        let byte = |chunk: &[bool]| (0..8).fold(0, |byte, at| byte << 1 | bit(chunk, at));
        self.0.chunks(8).map(byte).collect()
    }

    /// Returns a NAL unit after a start code, with the stop bit, so that it does not end in a zero.
    pub(crate) fn nal(self, header: u8) -> Vec<u8> {
        let mut unit = vec![0, 0, 1, header];
        for byte in self.bits(1, 1).bytes() {
            if byte <= 3 && unit.ends_with(&[0, 0]) {
                unit.push(3);
            }
            unit.push(byte);
        }
        unit
    }
}
