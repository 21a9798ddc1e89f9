//! Supported payload types of an offer, and their contents.
//!
//! All supported codecs are answered in the peer's order, because the payload type tells the contents of a
//! packet: the peer's first choice is kept (Chromium and OBS send the first, aiortc the first that it knows),
//! and a peer may change codecs without a new offer.

use media::Codec;

use super::{OfferError, sdp::MediaSection};
use crate::rtp;

/// Supported codecs, for the message of a rejection.
const SERVED: &str = "H264 baseline, main and high in packetization modes 0 and 1, \
                      H265 main and main 10, VP8, VP9 profiles 0 and 2, AV1 main";

/// Transport-wide feedback, which requires a header extension too.
pub(super) const TRANSPORT_WIDE: &str = "transport-cc";
/// Feedback messages accepted when offered; all of them are used.
pub(super) const FEEDBACK: [&str; 5] = ["nack", "nack pli", "ccm fir", "goog-remb", TRANSPORT_WIDE];

/// Accepted payload type of video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PayloadFormat {
    pub(super) number: u8,
    pub(super) codec: Codec,
    /// Payload type of the RTX stream (RFC 4588), if any.
    pub(super) rtx: Option<u8>,
    /// Parameter sets from the format parameters, as NAL units.
    pub(super) parameter_sets: Vec<Vec<u8>>,
}

/// Contents of a payload type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum PayloadKind {
    /// Payload type that was not negotiated.
    #[default]
    Unknown,
    Video(Codec),
    /// RTX stream (RFC 4588) of the given video payload type.
    Rtx(u8),
    /// Audio: rejected.
    Audio,
}

#[derive(Clone, Debug)]
pub(super) struct PayloadTypeMap(Box<[PayloadKind; 128]>);

impl PayloadTypeMap {
    pub(super) fn new(video: &[PayloadFormat], audio: Option<u8>) -> PayloadTypeMap {
        let mut table = Box::new([PayloadKind::Unknown; 128]);
        if let Some(number) = audio {
            table[usize::from(number & 127)] = PayloadKind::Audio;
        }
        for payload in video {
            table[usize::from(payload.number & 127)] = PayloadKind::Video(payload.codec);
            if let Some(rtx) = payload.rtx {
                table[usize::from(rtx & 127)] = PayloadKind::Rtx(payload.number);
            }
        }
        PayloadTypeMap(table)
    }

    /// Returns the contents of `payload_type`; its top bit is ignored.
    pub(super) fn get(&self, payload_type: u8) -> PayloadKind {
        self.0[usize::from(payload_type & 127)]
    }
}

/// Returns the supported payload types of a video section, at least one, in the peer's order, except that
/// H.264 packetization mode 1 goes before mode 0, which sends one NAL unit per packet and cannot fragment.
pub(super) fn select(section: &MediaSection) -> Result<Vec<PayloadFormat>, OfferError> {
    let mut chosen: Vec<PayloadFormat> = Vec::new();
    for number in section.formats.iter().filter_map(|format| format.parse::<u8>().ok()) {
        // Payload types 64 to 95 would read as RTCP on a shared port (RFC 5761 4).
        if number >= 128 || (64..96).contains(&number) {
            continue;
        }
        if let Some(codec) = servable(section, number)
            && chosen.iter().all(|payload| payload.number != number)
        {
            let parameter_sets = section.fmtp(number).map(rtp::parameter_sets).unwrap_or_default();
            chosen.push(PayloadFormat { number, codec, rtx: rtx(section, number), parameter_sets });
        }
    }
    if chosen.is_empty() {
        return Err(OfferError::NoCodec { offered: offered(section), served: SERVED });
    }
    let is_h264 = |payload: &&PayloadFormat| payload.codec == Codec::H264;
    let mut h264: Vec<PayloadFormat> = chosen.iter().filter(is_h264).cloned().collect();
    h264.sort_by_key(|payload| {
        parameter(section, payload.number, "packetization-mode") != Some("1")
    });
    let places = chosen.iter_mut().filter(|payload| payload.codec == Codec::H264);
    places.zip(h264).for_each(|(place, payload)| *place = payload);
    Ok(chosen)
}

/// Returns a format parameter of a payload type; names are case-insensitive.
fn parameter<'a>(section: &'a MediaSection, number: u8, name: &str) -> Option<&'a str> {
    section.fmtp(number)?.split(';').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn servable(section: &MediaSection, number: u8) -> Option<Codec> {
    let (name, rate) = section.rtpmap(number)?.split_once('/')?;
    if rate != "90000" {
        return None;
    }
    let one_of = |name: &str, absent: &str, values: &[&str]| {
        values.contains(&parameter(section, number, name).unwrap_or(absent))
    };
    match name.to_ascii_uppercase().as_str() {
        // RFC 6184 8.1: profile_idc is the first byte; the default is baseline.
        "H264" => {
            let level = parameter(section, number, "profile-level-id").unwrap_or("420010");
            let profile = level.get(..2)?.to_ascii_lowercase();
            let fits = level.len() == 6
                && matches!(profile.as_str(), "42" | "4d" | "64")
                && one_of("packetization-mode", "0", &["0", "1"]);
            fits.then_some(Codec::H264)
        }
        // RFC 7798 7.1: main and main 10; transmission over several streams is not supported.
        "H265" => {
            let fits =
                one_of("profile-id", "1", &["1", "2"]) && one_of("tx-mode", "SRST", &["SRST"]);
            fits.then_some(Codec::H265)
        }
        "VP8" => Some(Codec::Vp8),
        "VP9" => one_of("profile-id", "0", &["0", "2"]).then_some(Codec::Vp9),
        "AV1" => one_of("profile", "0", &["0"]).then_some(Codec::Av1),
        _ => None,
    }
}

fn rtx(section: &MediaSection, number: u8) -> Option<u8> {
    section.attributes.rtpmaps.iter().find_map(|(candidate, encoding)| {
        let is_rtx = encoding.eq_ignore_ascii_case("rtx/90000")
            && parameter(section, *candidate, "apt").and_then(|apt| apt.parse().ok())
                == Some(number)
            && !(64..96).contains(candidate);
        is_rtx.then_some(*candidate)
    })
}

/// Returns names and parameters of the offered codecs, truncated for a readable message.
fn offered(section: &MediaSection) -> String {
    let names: Vec<String> = section
        .attributes
        .rtpmaps
        .iter()
        .filter(|(_, encoding)| !encoding.to_ascii_lowercase().starts_with("rtx/"))
        .take(16)
        .map(|(number, encoding)| {
            let name: String =
                encoding.split('/').next().unwrap_or_default().chars().take(32).collect();
            match section.fmtp(*number) {
                Some(fmtp) => {
                    format!("{name} ({})", fmtp.chars().take(96).collect::<String>())
                }
                None => name,
            }
        })
        .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
