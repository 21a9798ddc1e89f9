//! Test of a decoder: sixteen pictures of every codec, compared bit for bit.
//!
//! The capabilities that a device or library reports prove nothing, and libav falls back silently. The clips
//! are our own, rendered by `probe/render.py`.

use std::{io::Cursor, ops::ControlFlow};

use media::{Codec, Frame, Plane, SampleFormat};

use crate::{
    DecoderChain, DemuxLimits, Demuxer, FileOptions, FrameCollector, Sampling, SinkStop,
    decode_file,
};

/// Pictures of each clip.
const FRAMES: u64 = 16;

/// Result of one clip.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CodecProbeResult {
    /// Codec of the clip.
    pub codec: Codec,
    /// Bits per sample of the clip.
    pub bits: u8,
    /// Decoder that gave the right pictures; `None` if none did.
    pub decoder: Option<String>,
    /// Reason that the preferred decoder failed.
    pub reason: Option<String>,
}

struct Clip {
    codec: Codec,
    bits: u8,
    bytes: &'static [u8],
    /// [`Digest`] of all pictures.
    digest: u64,
}

macro_rules! clip {
    ($codec:ident, $bits:literal, $name:literal, $digest:literal) => {
        Clip {
            codec: Codec::$codec,
            bits: $bits,
            bytes: include_bytes!(concat!("probe/clips/", $name)),
            digest: $digest,
        }
    };
}

const CLIPS: [Clip; 10] = [
    clip!(H264, 8, "h264.mp4", 0x71bd_de46_469b_d735),
    clip!(H265, 8, "h265.mp4", 0xd628_a71b_b0f3_2935),
    clip!(H265, 10, "h265-10.mp4", 0x780f_6ccf_3794_eaf5),
    clip!(Vp8, 8, "vp8.webm", 0x6c45_7a58_af77_5735),
    clip!(Vp9, 8, "vp9.webm", 0x7643_69e7_ec3a_ae35),
    clip!(Vp9, 10, "vp9-10.webm", 0x8f61_8328_9abc_48b5),
    clip!(Av1, 8, "av1.mp4", 0xee30_32cb_a3ec_6f35),
    clip!(Av1, 10, "av1-10.mp4", 0x1970_312b_9a78_3535),
    clip!(Mpeg4, 8, "mpeg4.mp4", 0xf102_ad65_078f_8c35),
    clip!(Mjpeg, 8, "mjpeg.mkv", 0x8129_316b_af59_9535),
];

/// Decodes every clip with `decoders`.
pub fn try_clips(decoders: &DecoderChain) -> Vec<CodecProbeResult> {
    CLIPS.iter().map(|clip| clip.tried_by(decoders)).collect()
}

impl Clip {
    /// Tries the preferred decoder and, if it fails, libav's own.
    fn tried_by(&self, decoders: &DecoderChain) -> CodecProbeResult {
        let Clip { codec, bits, .. } = *self;
        let tried = |decoder, reason| CodecProbeResult { codec, bits, decoder, reason };
        match self.decode(decoders) {
            Ok((decoder, None)) => tried(Some(decoder), None),
            Ok((decoder, Some(reason))) => tried(Some(decoder), Some(reason)),
            Err(reason) if decoders.first(codec).is_some() => {
                // The reason is the device's; the decoder stays `None` for a codec that software lacks.
                let software = self.decode(&DecoderChain::software()).ok();
                tried(software.map(|(decoder, _)| decoder), Some(reason))
            }
            Err(reason) => tried(None, Some(reason)),
        }
    }

    /// Returns the decoder, and the reason that it is not the preferred one.
    fn decode(&self, decoders: &DecoderChain) -> Result<(String, Option<String>), String> {
        let mut digest = Digest::default();
        let demuxer = Demuxer::open(Box::new(Cursor::new(self.bytes)), DemuxLimits::default())
            .map_err(|error| error.to_string())?;
        let options = FileOptions {
            sampling: Sampling::Every,
            max_frames: u64::MAX,
            threads: 1,
            plan: false,
        };
        let make_sink = || FrameCollector::new(|_, frame| Digest::of(&frame));
        let report = decode_file(decoders, demuxer, &options, make_sink, |frames| {
            frames.into_iter().for_each(|frame: Digest| digest.add(frame.0));
            ControlFlow::Continue(())
        })
        .map_err(|error| error.to_string())?;
        if report.frames != FRAMES {
            return Err(format!("{} gives {} of {FRAMES} frames", report.decoder, report.frames));
        }
        if digest.0 != self.digest {
            return Err(format!("{} gives other pictures: {:#018x}", report.decoder, digest.0));
        }
        Ok((report.decoder, report.fallback))
    }
}

/// FNV-1a of 64 bits over integers; it need not resist deliberate collisions.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn of(frame: &Frame) -> Result<Digest, SinkStop> {
        let picture = frame.pixels.host().map_err(SinkStop::PixelsLost)?;
        let mut digest = Digest::default();
        digest.add_plane(picture.luma());
        picture.chroma().into_iter().flatten().for_each(|plane| digest.add_plane(plane));
        Ok(digest)
    }

    fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Adds the samples of a plane as 16 bits each, four to a number, independent of their storage.
    fn add_plane(&mut self, plane: Plane<'_>) {
        let columns = plane.extent().width as usize;
        for y in 0..plane.extent().height {
            let row = plane.row(y);
            match plane.sample() {
                SampleFormat::U8 => {
                    let samples = row.iter().step_by(plane.step()).take(columns);
                    self.add_row(samples.map(|&sample| u16::from(sample) << 8));
                }
                SampleFormat::U16 { shift } => {
                    let samples = row.chunks_exact(2).step_by(plane.step()).take(columns);
                    let sample = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
                    self.add_row(samples.map(|bytes| sample(bytes) << (8 - shift)));
                }
            }
        }
    }

    fn add_row(&mut self, samples: impl Iterator<Item = u16>) {
        let mut number = 0;
        for (column, sample) in samples.enumerate() {
            number = number << 16 | u64::from(sample);
            if column % 4 == 3 {
                self.add(std::mem::take(&mut number));
            }
        }
        self.add(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_decodes_every_clip() {
        let tried = try_clips(&DecoderChain::software());
        let failed: Vec<&CodecProbeResult> =
            tried.iter().filter(|tried| tried.reason.is_some()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        for CodecProbeResult { codec, decoder, .. } in tried {
            assert!(decoder.is_some_and(|name| name.starts_with("software:")), "{codec:?}");
        }
    }

    #[test]
    fn a_clip_stands_for_every_codec() {
        for codec in Codec::ALL {
            assert!(CLIPS.iter().any(|clip| clip.codec == codec && clip.bits == 8), "{codec:?}");
        }
    }
}
