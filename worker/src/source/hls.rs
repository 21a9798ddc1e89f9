//! An HLS playlist as one byte stream: its segments in order, decrypted, each map before the first segment
//! that needs it. Of several variants the one with the highest bit rate is read.
//!
//! The stream decodes like a file to which the segments were written. Live playlists are reloaded until they
//! end or stop growing. Long because all steps share the place in the playlist.

use std::{
    fs::File,
    io::{self, Cursor, Read, Seek, SeekFrom},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use decode::CbcDecryptor;
use url::Url;

use super::{
    Line, Place, SourceErrorCell,
    encrypted::AesSegmentReader,
    error::RemoteSourceError,
    playlist::{ByteRange, EncryptionKey, MediaPlaylist, MediaSegment, Playlist, parse},
    remote::RemoteInput,
};
use crate::JobFault;

/// Most playlists from the first to the one with segments.
pub const PLAYLISTS_MAX: usize = 3;
/// Most bytes of a playlist.
pub const PLAYLIST_BYTES_MAX: u64 = 4 << 20;
/// Segments before the end of a live playlist at which reading starts (RFC 8216 6.3.3).
const LIVE_SEGMENTS: u64 = 3;
/// Target durations without growth after which a live playlist counts as ended.
const PATIENCE_TARGETS: u32 = 3;
const PATIENCE_MIN: Duration = Duration::from_secs(10);
/// Below the watchdog's limit, so that the media so far is a result.
const PATIENCE_MAX: Duration = Duration::from_secs(45);
/// Most bytes of a map; they are headers.
const MAP_BYTES_MAX: usize = 4 << 20;
/// Most segments behind a missing one that are tried.
const PASSED_MAX: u64 = 8;
/// First bytes that are kept, so that detecting the format does not open the source again.
const HEAD_BYTES: usize = 4 << 10;

type Bytes = Box<dyn Read + Send>;

pub(super) struct HlsReader {
    line: Line,
    trouble: SourceErrorCell,
    place: Place,
    /// URL of the media playlist as requested, and after its latest redirects.
    url: String,
    base: Url,
    media: MediaPlaylist,
    is_live: bool,
    /// Number of the first segment, and of the next.
    begin: u64,
    next: u64,
    current: Option<Bytes>,
    /// The last map, and its bytes.
    map: Option<Arc<ByteRange>>,
    map_bytes: Vec<u8>,
    key: Option<(Arc<EncryptionKey>, [u8; 16])>,
    /// The first bytes, how many of them were read since the last seek to the start, and true if the stream
    /// was longer.
    head: Vec<u8>,
    replayed: usize,
    is_past_head: bool,
}

impl HlsReader {
    /// Follows the playlist in `input` to its segments; segments read by an earlier job are skipped.
    pub(super) fn open(
        line: Line,
        mut input: RemoteInput,
        trouble: SourceErrorCell,
        place: Place,
    ) -> Result<HlsReader, JobFault> {
        for _ in 0..PLAYLISTS_MAX {
            let text = whole(&mut input)?;
            let (asked, found) = input.urls();
            let (asked, base) = (asked.to_owned(), address(None, found)?);
            drop(input);
            let parsed = match parse(&text) {
                // The source may be about to write it.
                Err(error) if place.begin.is_some() && error.is_unfinished() => {
                    return Err(RemoteSourceError::Gone.into());
                }
                parsed => parsed.map_err(RemoteSourceError::Playlist)?,
            };
            match parsed {
                Playlist::Media(media) => {
                    let hls = HlsReader::new(line, trouble, place, (asked, base), media);
                    // Maybe an earlier job read all of it.
                    let is_over = hls.media.has_ended && hls.next >= hls.media.end();
                    return if is_over { Err(RemoteSourceError::Over.into()) } else { Ok(hls) };
                }
                Playlist::Master(variant) => {
                    let url = address(Some(&base), &variant)?;
                    input = RemoteInput::open(Arc::clone(&line), url.as_str(), trouble.clone())?;
                }
            }
        }
        Err(RemoteSourceError::TooDeep { max: PLAYLISTS_MAX }.into())
    }

    fn new(
        line: Line,
        trouble: SourceErrorCell,
        place: Place,
        (url, base): (String, Url),
        media: MediaPlaylist,
    ) -> HlsReader {
        let begin = match place.begin {
            // A number past the end belongs to another playlist, whose numbers have started over.
            Some(next) if next <= media.end() => next.max(media.first),
            _ if media.has_ended || media.has_beginning => media.first,
            _ => media.end().saturating_sub(LIVE_SEGMENTS).max(media.first),
        };
        HlsReader {
            line,
            trouble,
            is_live: !media.has_ended || place.begin.is_some(),
            place,
            url,
            base,
            media,
            begin,
            next: begin,
            current: None,
            map: None,
            map_bytes: Vec::new(),
            key: None,
            head: Vec::new(),
            replayed: 0,
            is_past_head: false,
        }
    }

    /// Returns true if the playlist is still growing, or was when an earlier job read it; it cannot be read
    /// twice.
    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// A live source that fails is lost, but the media so far is a result.
    fn failed(&self, fault: JobFault) -> io::Error {
        match fault {
            JobFault::Source { .. } if self.is_live => self.trouble.suspect(fault),
            fault => self.trouble.note(fault),
        }
    }

    /// Notes a fault that is told of a live source too: what came before is delivered anyway.
    fn certain(&self, error: RemoteSourceError) -> JobFault {
        let fault = JobFault::from(error);
        self.trouble.note(fault.clone());
        fault
    }

    /// Like [`HlsReader::failed`], for reading the bytes of a segment.
    fn broken(&self, error: io::Error) -> io::Error {
        if self.is_live { self.trouble.suspect(RemoteSourceError::Reading(error)) } else { error }
    }

    /// Opens the next segment; `None` after the last.
    fn advance(&mut self) -> io::Result<Option<Bytes>> {
        // Reading the segments listed so far may take long, and is no silence of the playlist.
        let mut waits_since = Instant::now();
        loop {
            if self.next < self.media.first {
                // Certain, so that it is told: the job that follows begins behind the gap.
                return Err(self.trouble.note(RemoteSourceError::Missed));
            }
            if let Some(segment) = self.media.segment(self.next).cloned() {
                self.next += 1;
                if segment.is_gap {
                    waits_since = Instant::now();
                    continue;
                }
                return self.segment(&segment, self.next - 1).map(Some).map_err(|fault| {
                    self.pass_over();
                    self.failed(fault)
                });
            }
            if self.media.has_ended {
                if self.place.begin.is_some() && self.head.is_empty() {
                    return Err(self.trouble.note(RemoteSourceError::Over));
                }
                return Ok(None);
            }
            let patience = (self.media.target * PATIENCE_TARGETS).clamp(PATIENCE_MIN, PATIENCE_MAX);
            if waits_since.elapsed() > patience {
                return Err(self.trouble.suspect(RemoteSourceError::Silent));
            }
            // Half of the time in which a playlist may grow (RFC 8216 6.3.4).
            thread::sleep(self.media.target.min(PATIENCE_MIN) / 2);
            self.reload().map_err(|fault| self.failed(fault))?;
        }
    }

    /// Opens segment `number`, preceded by its map if that differs from the last one. Its first byte is read too: a
    /// map before a missing segment of a live playlist would count as the segment, and libav skips a page of HTML or
    /// XML silently, as no media.
    fn segment(&mut self, segment: &MediaSegment, number: u64) -> Result<Bytes, JobFault> {
        let mut start = match &segment.map {
            Some(map) if segment.map != self.map => self.read_map(map, number)?,
            _ => Vec::new(),
        };
        self.map.clone_from(&segment.map);
        let (mut bytes, map_bytes) = (self.piece(&segment.piece, number)?, start.len());
        let read = bytes.by_ref().take(1).read_to_end(&mut start);
        if start.get(map_bytes) == Some(&b'<') {
            return Err(self.certain(RemoteSourceError::Page { number }));
        }
        if self.is_live {
            read.map_err(RemoteSourceError::Reading)?;
        }
        Ok(if start.is_empty() { bytes } else { Box::new(Cursor::new(start).chain(bytes)) })
    }

    /// Reads a map; empty if its bytes are those of the last one. Fails if they are others: libav takes no
    /// notice of a second map, and would decode what follows with the parameters of the first.
    fn read_map(&mut self, map: &ByteRange, number: u64) -> Result<Vec<u8>, JobFault> {
        let mut bytes = Vec::new();
        let map = self.piece(map, number)?;
        let read = map.take(MAP_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
        if read.map_err(RemoteSourceError::Reading)? > MAP_BYTES_MAX {
            return Err(RemoteSourceError::MapTooLarge { limit_bytes: MAP_BYTES_MAX }.into());
        }
        if self.map_bytes == bytes {
            return Ok(Vec::new());
        }
        if !self.map_bytes.is_empty() {
            return Err(self.certain(RemoteSourceError::OtherMap));
        }
        self.map_bytes.clone_from(&bytes);
        Ok(bytes)
    }

    /// Lets the job that follows begin with a later segment, if that at which this one continues a lost playlist
    /// failed again and the later one can be read: it may stay on the playlist, and missing, for ever.
    fn pass_over(&mut self) {
        let has_read = self.is_past_head || !self.head.is_empty();
        if self.place.begin.is_none() || has_read {
            return;
        }
        for number in self.next..self.next.saturating_add(PASSED_MAX) {
            let Some(segment) = self.media.segment(number).cloned() else { return };
            // It may have another map than the missing one.
            self.map_bytes.clear();
            if self.segment(&segment, number).is_ok() {
                return self.place.passes_to(number);
            }
        }
    }

    fn reload(&mut self) -> Result<(), JobFault> {
        let mut input = RemoteInput::open(Arc::clone(&self.line), &self.url, self.trouble.clone())?;
        let text = whole(&mut input)?;
        let base = address(None, input.urls().1)?;
        let parsed = match parse(&text) {
            // A playlist that is only partly written has not grown yet.
            Err(error) if error.is_unfinished() => return Ok(()),
            parsed => parsed.map_err(RemoteSourceError::Playlist)?,
        };
        match parsed {
            Playlist::Media(media) => {
                if base != self.base {
                    // The same relative address may lead to another key there.
                    (self.base, self.key) = (base, None);
                }
                self.media = media;
                Ok(())
            }
            Playlist::Master(_) => Err(RemoteSourceError::TooDeep { max: PLAYLISTS_MAX }.into()),
        }
    }

    /// Opens a byte range, which belongs to segment `number`.
    fn piece(&mut self, piece: &ByteRange, number: u64) -> Result<Bytes, JobFault> {
        let url = address(Some(&self.base), &piece.address)?;
        let from = piece.range.map_or(0, |(from, _)| from);
        let opened = self.line.open(url.as_str(), from).map_err(RemoteSourceError::Asking)?;
        let whole = opened.size.map(|size| size.saturating_sub(from));
        let left = piece.range.map(|(_, len)| len).or(whole);
        let body = Body { bytes: opened.bytes, left };
        let Some(key) = &piece.key else { return Ok(Box::new(body)) };
        let vector = key.vector.unwrap_or(u128::from(number).to_be_bytes());
        let decryptor = CbcDecryptor::new(&self.key(key)?, vector);
        Ok(Box::new(AesSegmentReader::new(body, decryptor, self.trouble.clone())))
    }

    /// Returns the sixteen bytes of a key; the last key is cached.
    fn key(&mut self, key: &Arc<EncryptionKey>) -> Result<[u8; 16], JobFault> {
        if let Some((known, bytes)) = &self.key
            && known.address == key.address
        {
            return Ok(*bytes);
        }
        let url = address(Some(&self.base), &key.address)?;
        let opened = self.line.open(url.as_str(), 0).map_err(RemoteSourceError::Asking)?;
        let mut bytes = Vec::new();
        opened.bytes.take(17).read_to_end(&mut bytes).map_err(RemoteSourceError::Reading)?;
        if bytes.is_empty() && self.is_live {
            // What cannot be fetched for a live source comes without bytes.
            return Err(RemoteSourceError::Reading(io::ErrorKind::UnexpectedEof.into()).into());
        }
        let found: [u8; 16] = bytes
            .as_slice()
            .try_into()
            .map_err(|_| RemoteSourceError::Key { bytes: bytes.len() })?;
        self.key = Some((Arc::clone(key), found));
        Ok(found)
    }

    fn restart(&mut self) -> io::Result<()> {
        if self.is_live {
            return Err(io::ErrorKind::Unsupported.into());
        }
        (self.next, self.current, self.map) = (self.begin, None, None);
        self.map_bytes.clear();
        self.head.clear();
        self.is_past_head = false;
        Ok(())
    }

    fn read_on(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(current) = &mut self.current {
                let read = current.read(out);
                match read.map_err(|error| self.broken(error))? {
                    0 => self.current = None,
                    len => {
                        self.place.is_before(self.next);
                        return Ok(len);
                    }
                }
            }
            match self.advance()? {
                Some(bytes) => self.current = Some(bytes),
                None => return Ok(0),
            }
        }
    }
}

impl Read for HlsReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let kept = &self.head[self.replayed..];
        if !kept.is_empty() {
            let len = kept.len().min(out.len());
            out[..len].copy_from_slice(&kept[..len]);
            self.replayed += len;
            return Ok(len);
        }
        let len = self.read_on(out)?;
        self.is_past_head |= self.head.len() + len > HEAD_BYTES;
        if !self.is_past_head {
            self.head.extend_from_slice(&out[..len]);
            self.replayed = self.head.len();
        }
        Ok(len)
    }
}

/// Seeks only to the start.
impl Seek for HlsReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.is_past_head {
            self.restart()?;
        }
        self.replayed = 0;
        Ok(0)
    }
}

/// Bytes of a resource, or of a range of it.
struct Body {
    bytes: File,
    /// Number of bytes left, if known.
    left: Option<u64>,
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let want = out.len().min(left);
        let len = self.bytes.read(&mut out[..want])?;
        if len == 0 && want > 0 && self.left.is_some() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.map(|left| left - len as u64);
        Ok(len)
    }
}

fn whole(input: &mut RemoteInput) -> Result<Vec<u8>, RemoteSourceError> {
    let mut text = Vec::new();
    input
        .take(PLAYLIST_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(RemoteSourceError::Reading)?;
    if text.len() as u64 > PLAYLIST_BYTES_MAX {
        return Err(RemoteSourceError::PlaylistTooLarge { limit_bytes: PLAYLIST_BYTES_MAX });
    }
    Ok(text)
}

/// Resolves an address in a playlist found at `base`.
fn address(base: Option<&Url>, text: &str) -> Result<Url, RemoteSourceError> {
    let address = || text.chars().take(100).collect::<String>();
    let url = Url::options().base_url(base).parse(text);
    let url =
        url.map_err(|problem| RemoteSourceError::Malformed { address: address(), problem })?;
    let is_followed = matches!(url.scheme(), "http" | "https");
    if is_followed { Ok(url) } else { Err(RemoteSourceError::Address { address: address() }) }
}
