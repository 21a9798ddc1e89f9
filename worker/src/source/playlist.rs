//! Parser of HLS playlists (RFC 8216), reduced to what reading their video needs.
//!
//! Never panics, and uses no more than a few times the memory of the text. Renditions, partial segments and
//! tags that do not change the bytes of the video are ignored.

use std::{collections::HashMap, sync::Arc, time::Duration};

/// Most segments in a playlist: a day and a half of two seconds each.
pub const SEGMENTS_MAX: usize = 1 << 16;

/// Longest target duration that is accepted; longer ones are clamped.
const TARGET_MAX_S: u64 = 60;

/// Reason that a text is not a usable playlist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlaylistError {
    #[error("the playlist is not a text that begins with #EXTM3U")]
    NotOne,
    #[error("the playlist is malformed: {tag} in line {line}")]
    Tag { tag: &'static str, line: usize },
    #[error("the playlist's encryption {method} is not supported, only AES-128 is")]
    Encryption { method: String },
    #[error("the playlist names no media")]
    Empty,
    #[error("too large: the playlist names more than {SEGMENTS_MAX} segments")]
    TooManySegments,
}

impl PlaylistError {
    /// Returns true if it may be a playlist that is still being written.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self, PlaylistError::NotOne | PlaylistError::Tag { .. } | PlaylistError::Empty)
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Playlist {
    /// Master playlist: address of the variant with the best video.
    Master(String),
    Media(MediaPlaylist),
}

/// Segments of one rendition, as far as they are listed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MediaPlaylist {
    /// Upper bound of a segment's duration.
    pub(super) target: Duration,
    pub(super) first: u64,
    pub(super) segments: Vec<MediaSegment>,
    /// True if no segment will be added.
    pub(super) has_ended: bool,
    /// True if segments are only added, never removed, so that the first one is the beginning.
    pub(super) has_beginning: bool,
}

impl MediaPlaylist {
    /// Returns the number after that of the last segment.
    pub(super) fn end(&self) -> u64 {
        self.first.saturating_add(self.segments.len() as u64)
    }

    pub(super) fn segment(&self, number: u64) -> Option<&MediaSegment> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.segments.get(index)
    }
}

/// Byte range of a resource, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByteRange {
    /// Address relative to the playlist.
    pub(super) address: String,
    /// First byte and number of bytes; `None` is all.
    pub(super) range: Option<(u64, u64)>,
    pub(super) key: Option<Arc<EncryptionKey>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MediaSegment {
    pub(super) piece: ByteRange,
    /// Initialization section that the decoder needs first.
    pub(super) map: Option<Arc<ByteRange>>,
    /// True if the segment is marked as missing.
    pub(super) is_gap: bool,
}

/// Address of a key, and the initialization vector.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EncryptionKey {
    pub(super) address: String,
    /// `None` stands for the number of the segment.
    pub(super) vector: Option<[u8; 16]>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Playlist, PlaylistError> {
    let text = std::str::from_utf8(bytes).map_err(|_| PlaylistError::NotOne)?;
    if !decode::is_playlist(bytes) {
        return Err(PlaylistError::NotOne);
    }
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate().skip(1) {
        reader.line = index + 1;
        reader.take(line.trim())?;
    }
    reader.finish()
}

/// State of the parser after some lines.
#[derive(Default)]
struct Reader {
    line: usize,
    media: MediaPlaylist,
    variants: Vec<(Rank, String)>,
    /// Set if the next address is that of a variant.
    variant: Option<Rank>,
    range: Option<(u64, Option<u64>)>,
    /// End of the last range of each resource.
    ends: HashMap<String, u64>,
    key: Option<Arc<EncryptionKey>>,
    map: Option<Arc<ByteRange>>,
    is_gap: bool,
}

/// Highest number of a first segment: enough for two segments a second for longer than life has existed, and
/// small enough that adding to it never overflows.
const SEQUENCE_MAX: u64 = 1 << 53;

/// Order of variants: those with video rank higher, then by bit rate.
type Rank = (bool, u64);

impl Reader {
    fn take(&mut self, line: &str) -> Result<(), PlaylistError> {
        let Some(tag) = line.strip_prefix('#') else {
            return if line.is_empty() { Ok(()) } else { self.address(line) };
        };
        let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
        let number = |tag, max: u64| {
            let number = value.trim().parse::<u64>().ok().filter(|number| *number <= max);
            number.ok_or_else(|| self.malformed(tag))
        };
        match name {
            "EXT-X-STREAM-INF" => self.variant = Some(rank(value)),
            "EXT-X-TARGETDURATION" => {
                let seconds = number("EXT-X-TARGETDURATION", u64::MAX)?.clamp(1, TARGET_MAX_S);
                self.media.target = Duration::from_secs(seconds);
            }
            "EXT-X-MEDIA-SEQUENCE" => {
                self.media.first = number("EXT-X-MEDIA-SEQUENCE", SEQUENCE_MAX)?;
            }
            "EXT-X-ENDLIST" => self.media.has_ended = true,
            "EXT-X-PLAYLIST-TYPE" => self.media.has_beginning = matches!(value, "VOD" | "EVENT"),
            "EXT-X-GAP" => self.is_gap = true,
            "EXT-X-BYTERANGE" => {
                let range = byte_range(value);
                self.range = Some(range.ok_or_else(|| self.malformed("EXT-X-BYTERANGE"))?);
            }
            "EXT-X-KEY" => self.key = self.read_key(value)?,
            "EXT-X-MAP" => self.map = Some(self.read_map(value)?),
            _ => {}
        }
        Ok(())
    }

    fn malformed(&self, tag: &'static str) -> PlaylistError {
        PlaylistError::Tag { tag, line: self.line }
    }

    fn address(&mut self, address: &str) -> Result<(), PlaylistError> {
        if let Some(rank) = self.variant.take() {
            self.variants.push((rank, address.to_owned()));
            return Ok(());
        }
        if self.media.segments.len() >= SEGMENTS_MAX {
            return Err(PlaylistError::TooManySegments);
        }
        let range = self.range.take();
        let range = range.map(|(len, from)| self.placed(address, len, from)).transpose()?;
        let piece = ByteRange { address: address.to_owned(), range, key: self.key.clone() };
        let is_gap = std::mem::take(&mut self.is_gap);
        self.media.segments.push(MediaSegment { piece, map: self.map.clone(), is_gap });
        Ok(())
    }

    fn read_map(&self, value: &str) -> Result<Arc<ByteRange>, PlaylistError> {
        let malformed = || self.malformed("EXT-X-MAP");
        let address = attribute(value, "URI").ok_or_else(malformed)?.to_owned();
        let range = attribute(value, "BYTERANGE");
        let range = range.map(|text| byte_range(text).ok_or_else(malformed)).transpose()?;
        let range = range.map(|(len, from)| (from.unwrap_or(0), len));
        // A map has no segment number that could replace a missing vector.
        if self.key.as_ref().is_some_and(|key| key.vector.is_none()) {
            return Err(malformed());
        }
        Ok(Arc::new(ByteRange { address, range, key: self.key.clone() }))
    }

    /// Returns first byte and length of a range; without an offset it follows the resource's last range.
    fn placed(
        &mut self,
        address: &str,
        len: u64,
        from: Option<u64>,
    ) -> Result<(u64, u64), PlaylistError> {
        let from = from.or_else(|| self.ends.get(address).copied()).unwrap_or(0);
        let end = from.checked_add(len).ok_or_else(|| self.malformed("EXT-X-BYTERANGE"))?;
        self.ends.insert(address.to_owned(), end);
        Ok((from, len))
    }

    fn read_key(&self, attributes: &str) -> Result<Option<Arc<EncryptionKey>>, PlaylistError> {
        let malformed = || self.malformed("EXT-X-KEY");
        match attribute(attributes, "METHOD").ok_or_else(malformed)? {
            "NONE" => return Ok(None),
            "AES-128" => {}
            method => {
                let method = method.chars().take(32).collect();
                return Err(PlaylistError::Encryption { method });
            }
        }
        let address = attribute(attributes, "URI").ok_or_else(malformed)?.to_owned();
        let vector = attribute(attributes, "IV").map(|text| vector(text).ok_or_else(malformed));
        Ok(Some(Arc::new(EncryptionKey { address, vector: vector.transpose()? })))
    }

    fn finish(self) -> Result<Playlist, PlaylistError> {
        // Of equal variants the first one, which the author prefers.
        let best = self.variants.into_iter().rev().max_by_key(|(rank, _)| *rank);
        let mut media = self.media;
        match best {
            Some((_, address)) => Ok(Playlist::Master(address)),
            None if media.segments.is_empty() => Err(PlaylistError::Empty),
            None => {
                media.target = media.target.max(Duration::from_secs(1));
                Ok(Playlist::Media(media))
            }
        }
    }
}

fn rank(attributes: &str) -> Rank {
    const VIDEO: [&str; 9] =
        ["avc1", "avc3", "hvc1", "hev1", "vp08", "vp8", "vp09", "av01", "mp4v"];
    let has_video = attribute(attributes, "RESOLUTION").is_some()
        || attribute(attributes, "CODECS").is_none_or(|codecs| {
            codecs.split(',').any(|codec| VIDEO.iter().any(|name| codec.trim().starts_with(name)))
        });
    let bandwidth = attribute(attributes, "BANDWIDTH").and_then(|text| text.parse().ok());
    (has_video, bandwidth.unwrap_or(0))
}

fn vector(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let is_hex = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    // Some servers leave out leading zeros.
    let number = if is_hex { u128::from_str_radix(digits, 16).ok()? } else { return None };
    Some(number.to_be_bytes())
}

/// Parses `len[@from]`.
fn byte_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (len, from) = match text.trim().split_once('@') {
        Some((len, from)) => (len, Some(from.parse().ok()?)),
        None => (text.trim(), None),
    };
    Some((len.parse().ok()?, from))
}

/// Returns the value of an attribute, without its quotes.
fn attribute<'a>(list: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = list;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = quoted.split_once('"')?;
                (value, after.split_once(',').map_or("", |(_, next)| next))
            }
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if name.trim() == wanted {
            return Some(value.trim());
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests;
