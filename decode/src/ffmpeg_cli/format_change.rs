//! Detection of a change of a stream's size or format after its first pictures, from the coded bytes.
//!
//! A program outputs both once, before its first picture. A different sequence parameter set counts as a
//! change, whatever its contents; for other codecs the fields are compared. Unreadable data counts as a
//! change too. Pure; accepts any bytes.

mod av1;

use media::{Bits, Codec, Obu};

use crate::nal::{Framing, NalUnit, NalUnits};
use av1::{Av1Dimensions, Av1SequenceHeader};

/// Follows one stream in its in-band form, in decode order.
pub(super) struct FormatChangeDetector {
    codec: Codec,
    /// First sequence parameter set, or the size bytes of the first VP8 keyframe.
    sequence: Option<Box<[u8]>>,
    vp9: Vp9,
    /// Size and format in the first AV1 sequence header.
    shape: Option<Av1Dimensions>,
    /// Latest AV1 sequence header, needed to read frame headers.
    av1: Option<Av1SequenceHeader>,
}

/// Size and format in the first VP9 frames.
#[derive(Default)]
struct Vp9 {
    profile: Option<u32>,
    colour: Option<[u32; 3]>,
    /// Columns and rows, minus one.
    size: Option<(u32, u32)>,
}

impl FormatChangeDetector {
    pub(super) fn new(codec: Codec) -> FormatChangeDetector {
        FormatChangeDetector { codec, sequence: None, vp9: Vp9::default(), shape: None, av1: None }
    }

    /// Takes the next coded picture and returns true if size and format are unchanged.
    pub(super) fn holds(&mut self, data: &[u8]) -> bool {
        let holds = match self.codec {
            Codec::H264 | Codec::H265 => Some(self.sets_hold(data)),
            Codec::Vp8 => self.vp8_holds(data),
            Codec::Vp9 => self.vp9_holds(data),
            Codec::Av1 => self.av1_holds(data),
            Codec::Mpeg4 | Codec::Mjpeg => None,
        };
        holds.unwrap_or(false)
    }

    fn sets_hold(&mut self, data: &[u8]) -> bool {
        let codec = self.codec;
        let mut sets =
            NalUnits::new(data, Framing::StartCodes).filter(|nal| is_sequence_set(codec, nal));
        sets.all(|set| is_first(&mut self.sequence, set.bytes().into()))
    }

    /// Compares the size after the start code of a keyframe (RFC 6386 9.1).
    fn vp8_holds(&mut self, data: &[u8]) -> Option<bool> {
        let is_key = data.first()? & 1 == 0;
        if !is_key {
            return Some(true);
        }
        let (code, size) = (data.get(3..6)?, data.get(6..10)?);
        (code == [0x9d, 0x01, 0x2a]).then(|| is_first(&mut self.sequence, size.into()))
    }

    fn vp9_holds(&mut self, data: &[u8]) -> Option<bool> {
        for frame in vp9_frames(data)? {
            if !self.vp9.holds(frame)? {
                return Some(false);
            }
        }
        Some(true)
    }

    fn av1_holds(&mut self, data: &[u8]) -> Option<bool> {
        let mut rest = data;
        while !rest.is_empty() {
            let (obu, after) = Obu::split(rest)?;
            rest = after;
            let mut bits = Bits::new(obu.payload);
            match Obu::kind_of(obu.header) {
                Obu::SEQUENCE_HEADER => {
                    let (sequence, shape) = av1::sequence(&mut bits)?;
                    if !is_first(&mut self.shape, shape) {
                        return Some(false);
                    }
                    self.av1 = Some(sequence);
                }
                Obu::FRAME_HEADER | Obu::FRAME | Obu::REDUNDANT_FRAME_HEADER
                    if !self.av1.as_ref()?.rules(&mut bits)? =>
                {
                    return Some(false);
                }
                _ => {}
            }
        }
        Some(true)
    }
}

/// Stores the first value; returns true if `now` equals it.
fn is_first<T: PartialEq>(first: &mut Option<T>, now: T) -> bool {
    match first {
        Some(first) => *first == now,
        None => {
            *first = Some(now);
            true
        }
    }
}

/// True for a base-layer sequence parameter set (ITU-T H.264 and H.265 table 7-1); others are not decoded.
fn is_sequence_set(codec: Codec, nal: &NalUnit<'_>) -> bool {
    let (first, second) = (nal.header(0), nal.header(1));
    match codec {
        Codec::H264 => first & 0x1f == 7,
        _ => first >> 1 & 0x3f == 33 && (first & 1) << 5 | second >> 3 == 0,
    }
}

/// Returns the frames of a superframe (VP9 annex B), or the single frame.
fn vp9_frames(data: &[u8]) -> Option<Vec<&[u8]>> {
    let &mark = data.last()?;
    let (count, width) = (usize::from(mark & 7) + 1, usize::from(mark >> 3 & 3) + 1);
    let index = data.len().checked_sub(2 + count * width).filter(|&at| data[at] == mark);
    let Some(index) = index.filter(|_| mark & 0xe0 == 0xc0) else { return Some(vec![data]) };
    let (mut rest, index) = data.split_at(index);
    let mut frames = Vec::with_capacity(count);
    for size in index[1..index.len() - 1].chunks(width) {
        let size = size.iter().rev().fold(0, |size, &byte| size << 8 | usize::from(byte));
        let (frame, after) = rest.split_at_checked(size).filter(|_| size > 0)?;
        frames.push(frame);
        rest = after;
    }
    Some(frames)
}

impl Vp9 {
    /// Compares `uncompressed_header` up to the size (VP9 6.2); `None` if it is unreadable.
    fn holds(&mut self, frame: &[u8]) -> Option<bool> {
        let mut bits = Bits::new(frame);
        // frame_marker
        if bits.take(2)? != 2 {
            return None;
        }
        let profile = bits.take(1)? | bits.take(1)? << 1;
        if profile == 3 {
            bits.take(1)?;
        }
        if !is_first(&mut self.profile, profile) {
            return Some(false);
        }
        // show_existing_frame
        if bits.flag()? {
            return Some(true);
        }
        let (is_inter, is_shown, is_resilient) = (bits.flag()?, bits.flag()?, bits.flag()?);
        let is_intra_only = is_inter && !is_shown && bits.flag()?;
        if is_inter && !is_resilient {
            // reset_frame_context
            bits.take(2)?;
        }
        if is_inter && !is_intra_only {
            // refresh_frame_flags, then index and sign bias of three references.
            bits.take(8 + 3 * 4)?;
            for _ in 0..3 {
                // found_ref: the size equals that of an earlier frame, and so that of the first.
                if bits.flag()? {
                    return Some(true);
                }
            }
        } else {
            // frame_sync_code
            if bits.take(24)? != 0x49_83_42 {
                return None;
            }
            if !is_intra_only || profile > 0 {
                let colour = vp9_colour(&mut bits, profile)?;
                if !is_first(&mut self.colour, colour) {
                    return Some(false);
                }
            }
            if is_intra_only {
                // refresh_frame_flags
                bits.take(8)?;
            }
        }
        let size = (bits.take(16)?, bits.take(16)?);
        Some(is_first(&mut self.size, size))
    }
}

/// Reads `color_config` (VP9 6.2.2): bit depth, colour space and subsampling.
fn vp9_colour(bits: &mut Bits<'_>, profile: u32) -> Option<[u32; 3]> {
    const RGB: u32 = 7;
    // ten_or_twelve_bit
    let depth = bits.take(u32::from(profile >= 2))?;
    let space = bits.take(3)?;
    let has_subsampling = profile & 1;
    // color_range, subsampling_x, subsampling_y, reserved_zero.
    let sampling_bits = if space == RGB { has_subsampling } else { 1 + 3 * has_subsampling };
    Some([depth, space, bits.take(sampling_bits)?])
}

#[cfg(test)]
mod tests;
