//! Event whose signals stay in their column until its text is written, piece by piece.
//!
//! Half a million signals are a hundred megabytes of text; a reader that forwards them needs only one piece
//! at a time in memory.

use std::path::PathBuf;

use media::BlobHash;

use crate::{
    EventMeta, Result, StoredEvent, TimelineError,
    event::{Event, EventKind},
    record::{ColumnRef, RawPayload, decode_stored, put_signal},
    signal_column::{ColumnDir, ColumnReader},
};

/// Signals per piece of text, about 64 KiB.
const PIECE_SIGNALS: usize = 256;
/// Approximate bytes of a signal as JSON.
const SIGNAL_JSON_BYTES: u64 = 380;
/// Start of the last member of a payload with signals.
const SIGNALS_MEMBER: &str = r#","signals":"#;
/// End of a payload that could not be read completely.
const DAMAGED: &str = r#""damaged":true}"#;

/// Stored event whose signals may still be in their column.
pub struct StreamedEvent {
    /// All but the payload.
    pub head: EventMeta,
    text: Box<str>,
    column: Option<(ColumnDir, ColumnRef)>,
    /// File, offset and description of the damage of the record.
    damage: Option<(PathBuf, u64, &'static str)>,
}

impl StreamedEvent {
    /// Returns the bytes of memory, without columns, which are read on output.
    pub fn held_bytes(&self) -> usize {
        size_of::<StreamedEvent>() + self.text.len()
    }

    pub(crate) fn new(
        columns: &ColumnDir,
        head: EventMeta,
        RawPayload { text, column }: RawPayload<'_>,
    ) -> StreamedEvent {
        let column = column.map(|at| (columns.clone(), at));
        StreamedEvent { head, text: text.into(), column, damage: None }
    }

    /// Returns an event of which only the head is readable.
    pub(crate) fn damaged(
        head: EventMeta,
        file: PathBuf,
        offset: u64,
        what: &'static str,
    ) -> StreamedEvent {
        let (text, damage) = (format!("{{{DAMAGED}").into(), Some((file, offset, what)));
        StreamedEvent { head, text, column: None, damage }
    }

    /// Returns the damage of the record; the payload then has `damaged`.
    pub fn damage(&self) -> Option<TimelineError> {
        let (file, offset, what) = self.damage.clone()?;
        Some(TimelineError::Damaged { file, offset, what })
    }

    /// Returns the length of the payload's text, estimated if signals are in a column.
    pub fn payload_bytes(&self) -> u64 {
        let signals = self.column.as_ref().map_or(0, |(_, column)| column.count);
        self.text.len() as u64 + signals.saturating_mul(SIGNAL_JSON_BYTES)
    }

    /// Returns the column of the signals, if they are in one.
    pub(crate) fn column(&self) -> Option<BlobHash> {
        self.column.as_ref().map(|(_, column)| column.hash)
    }

    /// Decodes the appended event; a column stays a reference.
    pub fn decode(&self) -> Result<Event> {
        if let Some(damage) = self.damage() {
            return Err(damage);
        }
        let column = self.column.as_ref().map(|(_, column)| *column);
        decode_stored(self.head, RawPayload { text: &self.text, column })
    }

    /// Returns the payload as JSON text without the signals of frames, which may be half a million.
    pub fn into_outline(self) -> String {
        let mut text = self.text.into_string();
        // The signals are the last member and contain no text like this.
        if self.head.kind == EventKind::FramesDecoded
            && let Some(at) = text.rfind(SIGNALS_MEMBER)
        {
            text.truncate(at);
            text.push('}');
        }
        text
    }

    /// Returns the payload as JSON text in pieces of limited length; ends after the first error.
    pub fn into_payload(self) -> PayloadChunks {
        PayloadChunks { text: Some(self.text), column: self.column, signals: None, is_open: false }
    }

    /// Returns the event with its complete text.
    pub(crate) fn whole(self) -> Result<StoredEvent> {
        if let Some(damage) = self.damage() {
            return Err(damage);
        }
        let head = self.head;
        let payload = match self.column {
            None => self.text,
            Some(_) => self.into_payload().collect::<Result<String>>()?.into(),
        };
        Ok(StoredEvent { head, payload })
    }
}

/// Text of a payload, piece by piece.
pub struct PayloadChunks {
    text: Option<Box<str>>,
    column: Option<(ColumnDir, ColumnRef)>,
    signals: Option<ColumnReader>,
    /// True if part of the signals was returned.
    is_open: bool,
}

impl PayloadChunks {
    /// Returns the end for a text that broke off with an error: closes the signals returned so far, or writes
    /// `null` if there were none, and adds `damaged`.
    pub fn closing(&self) -> String {
        let signals = if self.is_open { "]" } else { "null" };
        format!("{signals},{DAMAGED}")
    }

    fn piece(&mut self) -> Result<Option<String>> {
        if let Some(text) = self.text.take() {
            return Ok(Some(text.into_string()));
        }
        let mut out = Vec::new();
        if let Some((columns, column)) = self.column.take() {
            self.signals = Some(columns.read(&column)?);
            out.push(b'[');
        }
        let Some(mut signals) = self.signals.take() else { return Ok(None) };
        for signal in signals.by_ref().take(PIECE_SIGNALS) {
            let is_first = out == b"[";
            put_signal(&mut out, &signal?, is_first);
        }
        if signals.left == 0 {
            out.extend_from_slice(b"]}");
        } else {
            self.signals = Some(signals);
        }
        self.is_open = true;
        Ok(Some(String::from_utf8(out).expect("JSON is text")))
    }
}

impl Iterator for PayloadChunks {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        self.piece().transpose()
    }
}
