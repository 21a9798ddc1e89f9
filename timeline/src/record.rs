//! Record bytes: a fixed header, then the payload as JSON text.
//!
//! The record's checksum protects reads of one event; recovery uses only the batch's. If the signals are in a
//! column file, the text lacks its last value and brace, and the reference to the column takes their place.
//! All numbers are little-endian.

mod json;
mod payloads;
mod signal_record;

use media::{BlobHash, RunId, Seq, WallTime};

pub(crate) use json::{JsonObjectReader, JsonObjectWriter, JsonPayload, put_signal};
pub(crate) use payloads::{json_payload, read_field, write_field};
pub use signal_record::{RegionRecord, SignalRecord};

use crate::{
    EventMeta, Result, StoredEvent, TimelineError,
    event::{Event, EventKind, NewEvent, Signals},
};

/// Largest payload of one event; larger data belongs in separate files.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Body length, checksum, seq, time, run, kind, flags, two unused bytes.
pub(crate) const HEADER_BYTES: usize = 4 + 4 + 8 + 8 + 16 + 1 + 1 + 2;
/// Offset of the checksum, after the length.
const CHECKSUM_AT: usize = 4;
/// Flag: the body ends with the hash and the count of a column.
const FLAG_COLUMN: u8 = 1;
const COLUMN_REF_BYTES: usize = 32 + 8;
/// End of the JSON text that a record with a column omits: the column's value and the closing brace.
const COLUMN_PLACEHOLDER: &str = "null}";

/// Event as a record without seq and time, which the writer adds.
pub(crate) struct RecordBuilder {
    pub(crate) run: RunId,
    pub(crate) kind: EventKind,
    flags: u8,
    body: Vec<u8>,
}

impl RecordBuilder {
    pub(crate) fn of(new: NewEvent) -> Result<RecordBuilder> {
        let (run, kind) = (new.run, new.event.kind());
        let column = match &new.event {
            Event::FramesDecoded(frames) => ColumnRef::of(&frames.signals),
            _ => None,
        };
        let mut body = fit(new.event)?;
        let Some(ColumnRef { hash, count }) = column else {
            return Ok(RecordBuilder { run, kind, flags: 0, body });
        };
        body.truncate(body.len() - COLUMN_PLACEHOLDER.len());
        body.extend_from_slice(hash.as_bytes());
        body.extend_from_slice(&count.to_le_bytes());
        Ok(RecordBuilder { run, kind, flags: FLAG_COLUMN, body })
    }

    pub(crate) fn record_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    /// Appends the record to `out` as event `seq`, taken at `at`.
    pub(crate) fn put(&self, out: &mut Vec<u8>, seq: Seq, at: WallTime) {
        let start = out.len();
        let length = u32::try_from(self.body.len()).expect("PAYLOAD_BYTES_MAX fits");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&seq.0.to_le_bytes());
        out.extend_from_slice(&at.epoch_ms.to_le_bytes());
        out.extend_from_slice(self.run.as_bytes());
        out.extend_from_slice(&[self.kind.code(), self.flags, 0, 0]);
        out.extend_from_slice(&self.body);
        put_checksum(&mut out[start..], CHECKSUM_AT);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnRef {
    pub(crate) hash: BlobHash,
    pub(crate) count: u64,
}

impl ColumnRef {
    fn of(signals: &Signals) -> Option<ColumnRef> {
        match signals {
            Signals::Inline(_) => None,
            Signals::Column { hash, count } => Some(ColumnRef { hash: *hash, count: *count }),
        }
    }
}

/// Returns the payload text, with its description shortened if that makes it fit.
fn fit(mut event: Event) -> Result<Vec<u8>> {
    const MARK: &str = ",\"truncated\":true";
    let text = event.text();
    if text.len() <= PAYLOAD_BYTES_MAX {
        return Ok(text);
    }
    let too_large = TimelineError::TooLarge {
        what: "event payload in bytes",
        size: text.len(),
        limit: PAYLOAD_BYTES_MAX,
    };
    let excess = text.len() + MARK.len() - PAYLOAD_BYTES_MAX;
    let (description, truncated) = match &mut event {
        Event::Found(_, finding) => (&mut finding.description, &mut finding.truncated),
        Event::SemanticChunkInferred(chunk) => (&mut chunk.description, &mut chunk.truncated),
        Event::KeyframeStored(still) => (&mut still.description, &mut still.truncated),
        _ => return Err(too_large),
    };
    // Each byte of the description takes at least one of the text, so this frees enough.
    let Some(mut keep) = description.len().checked_sub(excess) else { return Err(too_large) };
    while !description.is_char_boundary(keep) {
        keep -= 1;
    }
    description.truncate(keep);
    *truncated = true;
    Ok(event.text())
}

impl StoredEvent {
    /// Decodes the event, with its signals inline.
    pub fn decode(&self) -> Result<Event> {
        decode(self.head, &self.payload)
    }
}

fn decode(head: EventMeta, text: &str) -> Result<Event> {
    Event::parse(head.kind, text).map_err(|field| invalid(head, field))
}

/// Decodes the event of a stored payload; a column stays a reference.
pub(crate) fn decode_stored(
    head: EventMeta,
    RawPayload { text, column }: RawPayload<'_>,
) -> Result<Event> {
    let Some(ColumnRef { hash, count }) = column else { return decode(head, text) };
    match decode(head, &format!("{text}{COLUMN_PLACEHOLDER}"))? {
        Event::FramesDecoded(mut frames) => {
            frames.signals = Signals::Column { hash, count };
            Ok(Event::FramesDecoded(frames))
        }
        _ => Err(invalid(head, "signals")),
    }
}

fn invalid(head: EventMeta, field: &'static str) -> TimelineError {
    TimelineError::Payload { seq: head.seq, kind: head.kind.as_str(), field }
}

/// Payload as stored in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawPayload<'a> {
    pub(crate) text: &'a str,
    pub(crate) column: Option<ColumnRef>,
}

/// Checked record of a journal file.
pub(crate) struct JournalRecord<'a> {
    pub(crate) head: EventMeta,
    flags: u8,
    body: &'a [u8],
}

impl<'a> JournalRecord<'a> {
    /// Reads the record at the start of `bytes`; the error describes its fault.
    pub(crate) fn parse(bytes: &'a [u8]) -> std::result::Result<JournalRecord<'a>, &'static str> {
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or("a record ends early")?;
        let length = u32_at(header, 0) as usize;
        if length > PAYLOAD_BYTES_MAX + COLUMN_REF_BYTES {
            return Err("a record has an impossible length");
        }
        let bytes = bytes.get(..HEADER_BYTES + length).ok_or("a record ends early")?;
        if checksum(bytes, CHECKSUM_AT) != u32_at(header, CHECKSUM_AT) {
            return Err("a record does not match its checksum");
        }
        let kind = EventKind::from_code(header[40]).ok_or("a record has an unknown kind")?;
        let run: [u8; 16] = header[24..40].try_into().expect("16 bytes");
        let head = EventMeta {
            seq: Seq(u64_at(header, 8)),
            at: WallTime { epoch_ms: u64_at(header, 16) as i64 },
            run: RunId::from_bytes(run),
            kind,
        };
        Ok(JournalRecord { head, flags: header[41], body: &bytes[HEADER_BYTES..] })
    }

    pub(crate) fn record_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    /// Returns the payload text, which lacks its end if there is a column, and the column.
    pub(crate) fn payload(&self) -> std::result::Result<RawPayload<'a>, &'static str> {
        let not_text = |_| "a payload is not UTF-8";
        if self.flags & FLAG_COLUMN == 0 {
            let text = std::str::from_utf8(self.body).map_err(not_text)?;
            return Ok(RawPayload { text, column: None });
        }
        let (text, reference) = self
            .body
            .split_last_chunk::<COLUMN_REF_BYTES>()
            .ok_or("a record lacks its column reference")?;
        let hash: [u8; 32] = reference[..32].try_into().expect("32 bytes");
        let column = ColumnRef { hash: BlobHash::from_bytes(hash), count: u64_at(reference, 32) };
        let text = std::str::from_utf8(text).map_err(not_text)?;
        Ok(RawPayload { text, column: Some(column) })
    }

    /// Decodes the event; a column stays a reference.
    pub(crate) fn decode(&self) -> Result<Event> {
        let payload = self.payload().map_err(|field| invalid(self.head, field))?;
        decode_stored(self.head, payload)
    }
}

/// Returns the checksum of all `bytes` but the four at `at`, which hold it.
pub(crate) fn checksum(bytes: &[u8], at: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &bytes[at + 4..])
}

pub(crate) fn put_checksum(bytes: &mut [u8], at: usize) {
    let checksum = checksum(bytes, at);
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests;
