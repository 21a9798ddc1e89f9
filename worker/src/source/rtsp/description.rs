//! Selects from an SDP description (RFC 4566) the one video stream to set up.

use std::fmt::Write;

use decode::DecodeError;

use super::error::{RtspError, quoted};

/// Encodings whose RTP payload libav depacketizes and that can be decoded here.
const SUPPORTED: [&str; 6] = ["H264", "H265", "VP8", "VP9", "MP4V-ES", "JPEG"];
/// Static payload number of JPEG (RFC 3551).
const JPEG_PAYLOAD: &str = "26";
/// Most bytes of a description that libav reads.
const TEXT_BYTES_MAX: usize = 16_000;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct SdpDescription {
    /// Description of this stream only, without an address.
    pub(super) text: String,
    /// URLs to set up the stream and to play it, as the server named them.
    pub(super) control: Option<String>,
    pub(super) whole_control: Option<String>,
    /// True if the description gives the end of the media: a recording.
    pub(super) has_end: bool,
}

#[derive(Default)]
struct Section<'a> {
    is_video: bool,
    payloads: Vec<&'a str>,
    attributes: Vec<(&'a str, &'a str)>,
}

impl<'a> Section<'a> {
    fn attribute(&self, wanted: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
    }

    /// Returns true if the range (RFC 2326 C.1.5) has an end; a camera's is open, or 0 with some.
    fn has_end(&self) -> bool {
        let end = self.attribute("range").and_then(|range| range.split_once('-'));
        end.is_some_and(|(_, end)| {
            let end = end.trim();
            !end.is_empty() && end.parse::<f64>().map_or(true, |seconds| seconds > 0.0)
        })
    }

    /// Returns the value of attribute `name` for `payload`.
    fn about(&self, name: &str, payload: &str) -> Option<&'a str> {
        let mut lines = self.attributes.iter().filter(|(found, _)| *found == name);
        lines.find_map(|(_, value)| {
            let (number, rest) = value.split_once(' ')?;
            (number == payload).then(|| rest.trim())
        })
    }

    /// Returns a payload's encoding name; empty if unknown.
    fn coding(&self, payload: &str) -> &'a str {
        match self.about("rtpmap", payload) {
            Some(map) => map.split('/').next().unwrap_or_default(),
            None if payload == JPEG_PAYLOAD => "JPEG",
            None => "",
        }
    }
}

/// Selects the first video stream that can be decoded.
pub(super) fn read(body: &[u8]) -> Result<SdpDescription, RtspError> {
    let text = String::from_utf8_lossy(body);
    let mut whole = Section::default();
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in text.lines() {
        let Some((kind, value)) = line.trim().split_once('=') else { continue };
        match kind {
            "m" => {
                let mut words = value.split_ascii_whitespace();
                let is_video = words.next() == Some("video")
                    && words.nth(1).is_some_and(|transport| transport.starts_with("RTP/AVP"));
                sections.push(Section { is_video, payloads: words.collect(), attributes: vec![] });
            }
            "a" => {
                let attribute = value.split_once(':').unwrap_or((value, ""));
                sections.last_mut().unwrap_or(&mut whole).attributes.push(attribute);
            }
            _ => {}
        }
    }
    let mut unsupported = None;
    for section in sections.iter().filter(|section| section.is_video) {
        for &payload in &section.payloads {
            let coding = section.coding(payload);
            if SUPPORTED.iter().any(|name| name.eq_ignore_ascii_case(coding)) {
                let control = |section: &Section<'_>| section.attribute("control").map(Into::into);
                return Ok(SdpDescription {
                    text: alone(section, payload, coding)?,
                    control: control(section),
                    whole_control: control(&whole),
                    has_end: [section, &whole].iter().any(|section| section.has_end()),
                });
            }
            unsupported.get_or_insert(coding);
        }
    }
    Err(RtspError::Media(match unsupported {
        Some(coding) => DecodeError::UnsupportedCodec(quoted(coding)),
        None => DecodeError::NoVideoStream(sections.len()),
    }))
}

/// Builds a description of one payload with only the lines that its decoder needs.
fn alone(section: &Section<'_>, payload: &str, coding: &str) -> Result<String, RtspError> {
    let malformed = |_| RtspError::Malformed { what: "a payload number" };
    let payload = payload.parse::<u8>().map_err(malformed)?.to_string();
    let mut text = format!(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
         m=video 9 RTP/AVP {payload}\r\n"
    );
    if !coding.is_empty()
        && let Some(map) = section.about("rtpmap", &payload)
    {
        write!(text, "a=rtpmap:{payload} {map}\r\n").expect("a text takes all");
    }
    for name in ["fmtp", "framesize"] {
        if let Some(value) = section.about(name, &payload) {
            write!(text, "a={name}:{payload} {value}\r\n").expect("a text takes all");
        }
    }
    for name in ["framerate", "x-framerate", "x-dimensions"] {
        if let Some(value) = section.attribute(name) {
            write!(text, "a={name}:{value}\r\n").expect("a text takes all");
        }
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(RtspError::TooLarge { limit_bytes: TEXT_BYTES_MAX });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAMERA: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nc=IN IP4 192.0.2.1\r\n\
        a=control:*\r\na=range:npt=0-\r\nm=audio 0 RTP/AVP 0\r\na=control:track1\r\n\
        m=video 5004 RTP/AVP 98 96\r\na=rtpmap:98 AV2/90000\r\na=rtpmap:96 H264/90000\r\n\
        a=fmtp:98 no=1\r\na=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0LgHt,aM48gA==\r\n\
        a=control:track2\r\na=framerate:25\r\nm=video 0 RTP/AVP 97\r\na=rtpmap:97 H265/90000\r\n";

    #[test]
    fn the_first_video_that_can_be_decoded_is_described_alone() {
        let description = read(CAMERA.as_bytes()).expect("video");
        assert_eq!(
            description,
            SdpDescription {
                text: "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                       m=video 9 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
                       a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0LgHt,aM48gA==\r\n\
                       a=framerate:25\r\n"
                    .to_owned(),
                control: Some("track2".to_owned()),
                whole_control: Some("*".to_owned()),
                has_end: false,
            }
        );
        let jpeg = read(b"m=video 0 RTP/AVP 26\n").expect("video");
        assert!(jpeg.text.ends_with("m=video 9 RTP/AVP 26\r\n"), "{}", jpeg.text);
        assert_eq!(jpeg.control, None);
    }

    #[test]
    fn a_recording_is_told_from_a_camera() {
        for (range, has_end) in [
            ("npt=0-7.741", true),
            ("npt=0-", false),
            ("npt=now-", false),
            ("npt=0-0.000", false),
            ("npt=0.0-00:01:40", true),
            ("clock=20261127T000000Z-20261127T000010Z", true),
            ("clock=20261127T000000Z-", false),
            ("nonsense", false),
        ] {
            let media = "m=video 0 RTP/AVP 26";
            for text in
                [format!("a=range:{range}\n{media}\n"), format!("{media}\na=range:{range}\n")]
            {
                let description = read(text.as_bytes()).expect("video");
                assert_eq!(description.has_end, has_end, "{text}");
            }
        }
        assert!(!read(b"m=video 0 RTP/AVP 26\n").expect("video").has_end);
    }

    #[test]
    fn what_cannot_be_decoded_is_named() {
        for (text, told) in [
            ("", "no video stream (streams: 0)"),
            ("m=audio 0 RTP/AVP 0\r\n", "no video stream (streams: 1)"),
            ("m=video 0 UDP 33\r\n", "no video stream (streams: 1)"),
            ("m=video 0 RTP/AVP 96\r\na=rtpmap:96 AV1/90000", "unsupported video codec: AV1"),
        ] {
            assert_eq!(read(text.as_bytes()).expect_err(text).to_string(), told, "{text}");
        }
        let long = format!("{CAMERA}a=fmtp:97 {}\r\n", "x".repeat(TEXT_BYTES_MAX));
        let long = long.replace("H264", "H263");
        assert!(matches!(read(long.as_bytes()), Err(RtspError::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn no_description_is_too_strange(
            lines in proptest::collection::vec("[vmac]=(video |RTP/AVP |[0-9]{1,3} |rtpmap:|fmtp:|H264|\\PC){0,9}", 0..30)
        ) {
            if let Ok(description) = read(lines.join("\n").as_bytes()) {
                prop_assert!(description.text.len() <= TEXT_BYTES_MAX);
                prop_assert_eq!(description.text.matches("m=video").count(), 1);
            }
        }
    }
}
