//! A file as packetized pictures, held in memory and shared by all sessions.

use std::{fmt::Display, path::Path};

use bytes::Bytes;
use decode::{CodedPicture, DemuxLimits, Demuxer};
use media::{Codec, Timestamp};

use super::packetize::Packetizer;
use crate::{
    analysis,
    error::{CliError, Exit, of_kind},
};

/// Most bytes of coded pictures: two hours of 1.5 Mbit/s.
const BYTES_MAX: usize = 1 << 30;
/// Largest payload: 1200 bytes, which any path carries, minus headers and the authentication tag.
const PAYLOAD_BYTES: usize = 1160;
/// Duration of the last picture in ticks, if the clip does not give one.
const LAST_TICKS: i64 = 3000;

/// A coded picture; times in 90 kHz ticks since the first one.
#[derive(Debug)]
pub struct CodedFrame {
    /// True if decoding can start here.
    pub keyframe: bool,
    /// Presentation time.
    pub pts: i64,
    /// Time at which the picture is sent.
    pub decode_at: i64,
    /// Payloads of the picture's packets.
    pub payloads: Vec<Bytes>,
}

/// Pictures of a file from its first keyframe on; at least one.
#[derive(Debug)]
pub struct ClipFile {
    pub codec: Codec,
    /// Format parameters for the offer (RFC 8866 6.15).
    pub fmtp: String,
    /// Pictures in decode order.
    pub pictures: Vec<CodedFrame>,
    /// Length of the clip, in ticks.
    pub length: i64,
}

impl ClipFile {
    pub fn read(path: &Path) -> Result<ClipFile, CliError> {
        let named = |exit, reason: &dyn Display| {
            CliError::Exit(exit, format!("{}: {reason}", path.display()))
        };
        let (file, _) = analysis::open(path)?;
        let demuxer = Demuxer::open(Box::new(file), DemuxLimits::default())
            .map_err(|error| named(of_kind(error.kind()), &error))?;
        let codec = demuxer.stream().codec;
        ClipFile::of(codec, demuxer.into_coded_pictures())
            .map_err(|error| named(error.exit(), &error))
    }

    fn of(
        codec: Codec,
        pictures: impl Iterator<Item = CodedPicture>,
    ) -> Result<ClipFile, CliError> {
        let refused = |reason: String| CliError::Exit(Exit::Refused, reason);
        let mut packetizer = Packetizer::new(codec, PAYLOAD_BYTES).ok_or_else(|| {
            let codec = codec.as_str();
            refused(format!("{codec} cannot be published; H.264, H.265, VP8, VP9 and AV1 can"))
        })?;
        let mut clip = ClipFile { codec, fmtp: String::new(), pictures: Vec::new(), length: 0 };
        let (mut bytes, mut first) = (0, None);
        for picture in pictures.skip_while(|picture| !picture.access_unit.keyframe) {
            let unit = &picture.access_unit;
            bytes += unit.data.len();
            if bytes > BYTES_MAX {
                let problem = format!("the file holds more than {BYTES_MAX} bytes of video");
                return Err(CliError::Check(problem));
            }
            if first.is_none() {
                clip.fmtp = fmtp(codec, &unit.data);
            }
            let (pts, decode_at) = (ticks(unit.pts), ticks(picture.decode_at));
            let zero = *first.get_or_insert(decode_at);
            // Decode times step back in some files; a sender's clock must not.
            let earliest = clip.pictures.last().map_or(0, |before| before.decode_at);
            clip.pictures.push(CodedFrame {
                keyframe: unit.keyframe,
                pts: pts - zero,
                decode_at: (decode_at - zero).max(earliest),
                payloads: packetizer.payloads(unit).into_iter().map(Bytes::from).collect(),
            });
        }
        let last = clip.pictures.last();
        let last = last.ok_or_else(|| refused("the file has no keyframe".to_owned()))?.decode_at;
        let steps = clip.pictures.len() as i64 - 1;
        clip.length = last + if steps > 0 && last > 0 { last / steps } else { LAST_TICKS };
        Ok(clip)
    }
}

fn ticks(at: Timestamp) -> i64 {
    let (num, den) = (i128::from(at.timebase.num()), i128::from(at.timebase.den()));
    let ticks = (i128::from(at.ticks) * num * 90_000).div_euclid(den);
    i64::try_from(ticks).unwrap_or(if ticks < 0 { i64::MIN / 4 } else { i64::MAX / 4 })
}

/// Returns the format parameters: for H.264 profile and level of the first sequence parameter set (RFC 6184
/// 8.1), for H.265 the profile (RFC 7798 7.1), for VP9 the profile (RFC 9628 6).
fn fmtp(codec: Codec, first: &[u8]) -> String {
    match codec {
        Codec::H264 => {
            let set =
                first.windows(7).find(|window| window[..3] == [0, 0, 1] && window[3] & 0x1f == 7);
            let profile = set.map_or([0x42, 0xe0, 0x1f], |set| [set[4], set[5], set[6]]);
            format!(
                "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id={:02x}{:02x}{:02x}",
                profile[0], profile[1], profile[2]
            )
        }
        Codec::H265 => {
            let set = first
                .windows(7)
                .find(|window| window[..3] == [0, 0, 1] && window[3] >> 1 & 0x3f == 33);
            let profile = set.map_or(1, |set| set[6] & 0x1f);
            format!("profile-id={profile}")
        }
        // The bits of the profile are in reverse order (VP9 bitstream 6.2).
        Codec::Vp9 => {
            let head = first.first().copied().unwrap_or(0);
            format!("profile-id={}", head >> 5 & 1 | head >> 3 & 2)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use media::{AccessUnit, Timebase};

    use super::*;

    fn picture(ms: i64, keyframe: bool, data: &[u8]) -> CodedPicture {
        let pts = Timestamp::new(ms, Timebase::MILLIS);
        let access_unit = AccessUnit { codec: Codec::Vp8, pts, keyframe, data: data.to_vec() };
        CodedPicture { access_unit, decode_at: pts }
    }

    #[test]
    fn a_clip_begins_at_its_first_keyframe() {
        let pictures = [(0, false), (40, true), (80, false), (70, false)]
            .map(|(ms, keyframe)| picture(ms, keyframe, &[9]));
        let clip = ClipFile::of(Codec::Vp8, pictures.into_iter()).expect("a clip");
        let times: Vec<(i64, i64)> =
            clip.pictures.iter().map(|picture| (picture.pts, picture.decode_at)).collect();
        assert_eq!(times, [(0, 0), (3600, 3600), (2700, 3600)]);
        assert_eq!(clip.length, 3600 + 1800);
        let none = ClipFile::of(Codec::Vp8, [picture(0, false, &[1])].into_iter());
        assert_eq!(none.expect_err("no start").to_string(), "the file has no keyframe");
        let mjpeg = ClipFile::of(Codec::Mjpeg, [picture(0, true, &[1])].into_iter());
        assert_eq!(mjpeg.expect_err("no format").exit(), Exit::Refused);
    }

    #[test]
    fn the_offer_says_what_the_bytes_say() {
        let cases: [(Codec, &[u8], &str); 6] = [
            (Codec::H265, &[0, 0, 1, 0x42, 1, 1, 0x22, 9], "profile-id=2"),
            (
                Codec::H264,
                &[0, 0, 0, 1, 0x09, 0xf0, 0, 0, 0, 1, 0x67, 0x64, 0x00, 0x1f, 9],
                "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=64001f",
            ),
            (
                Codec::H264,
                &[],
                "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f",
            ),
            (Codec::Vp9, &[0x82], "profile-id=0"),
            (Codec::Vp9, &[0x92], "profile-id=2"),
            (Codec::Av1, &[0x12], ""),
        ];
        for (codec, first, expected) in cases {
            assert_eq!(fmtp(codec, first), expected);
        }
    }
}
