//! An event whose signals stay in their column until its text is written, piece by piece.
//!
//! Half a million signals are a hundred megabytes of text; a reader that sends them on needs
//! one piece at a time in memory.

use std::path::PathBuf;

use media::BlobHash;

use crate::{
    EventMeta, Result, StoredEvent, TimelineError,
    event::{Event, EventKind},
    record::{ColumnRef, RawPayload, decode_stored, put_signal},
    signal_column::{ColumnDir, ColumnReader},
};

/// Signals in one piece of text; about 64 KiB of it.
const PIECE_SIGNALS: usize = 256;
/// Bytes of JSON that a signal takes, about.
const SIGNAL_JSON_BYTES: u64 = 380;
/// Start of the last member of a payload that has signals.
const SIGNALS_MEMBER: &str = r#","signals":"#;
/// The end of a payload that could not be read whole.
const DAMAGED: &str = r#""damaged":true}"#;

/// A stored event, its signals where they are stored.
pub struct StreamedEvent {
    /// Everything but the payload.
    pub head: EventMeta,
    text: Box<str>,
    column: Option<(ColumnDir, ColumnRef)>,
    /// File, offset and kind of the damage of its record.
    damage: Option<(PathBuf, u64, &'static str)>,
}

impl StreamedEvent {
    /// Bytes of memory that it takes, columns left out, which are read when they are written out.
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

    /// An event of which no more than the head can be read.
    pub(crate) fn damaged(
        head: EventMeta,
        file: PathBuf,
        offset: u64,
        what: &'static str,
    ) -> StreamedEvent {
        let (text, damage) = (format!("{{{DAMAGED}").into(), Some((file, offset, what)));
        StreamedEvent { head, text, column: None, damage }
    }

    /// Returns the damage of its record; its payload says `damaged` then.
    pub fn damage(&self) -> Option<TimelineError> {
        let (file, offset, what) = self.damage.clone()?;
        Some(TimelineError::Damaged { file, offset, what })
    }

    /// Length of the payload's text, estimated where signals are in a column.
    pub fn payload_bytes(&self) -> u64 {
        let signals = self.column.as_ref().map_or(0, |(_, column)| column.count);
        self.text.len() as u64 + signals.saturating_mul(SIGNAL_JSON_BYTES)
    }

    /// The column that has its signals, if one has.
    pub(crate) fn column(&self) -> Option<BlobHash> {
        self.column.as_ref().map(|(_, column)| column.hash)
    }

    /// The event that was appended, a column left as the reference it is.
    pub fn decode(&self) -> Result<Event> {
        if let Some(damage) = self.damage() {
            return Err(damage);
        }
        let column = self.column.as_ref().map(|(_, column)| *column);
        decode_stored(self.head, RawPayload { text: &self.text, column })
    }

    /// The payload as JSON text, without the signals of frames, which may be half a million.
    pub fn into_outline(self) -> String {
        let mut text = self.text.into_string();
        // They are its last member, and hold no text that could look like this.
        if self.head.kind == EventKind::FramesDecoded
            && let Some(at) = text.rfind(SIGNALS_MEMBER)
        {
            text.truncate(at);
            text.push('}');
        }
        text
    }

    /// The payload as JSON text in pieces of bounded length; ends after the first error.
    pub fn into_payload(self) -> PayloadChunks {
        PayloadChunks { text: Some(self.text), column: self.column, signals: None, is_open: false }
    }

    /// The event with all of its text.
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

/// The text of a payload, piece by piece.
pub struct PayloadChunks {
    text: Option<Box<str>>,
    column: Option<(ColumnDir, ColumnRef)>,
    signals: Option<ColumnReader>,
    /// A part of the signals was returned.
    is_open: bool,
}

impl PayloadChunks {
    /// Returns the rest of a text that ended with an error: the signals as far as they came, none
    /// where none did, and `damaged`.
    pub fn closing(&self) -> String {
        let signals = if self.is_open { "]" } else { "null" };
        format!("{signals},{DAMAGED}")
    }
}

impl Iterator for PayloadChunks {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        if let Some(text) = self.text.take() {
            return Some(Ok(text.into_string()));
        }
        let (mut out, mut first) = (Vec::new(), false);
        if let Some((columns, column)) = self.column.take() {
            match columns.read(&column) {
                Ok(signals) => self.signals = Some(signals),
                Err(error) => return Some(Err(error)),
            }
            out.push(b'[');
            first = true;
        }
        for signal in self.signals.as_mut()?.take(PIECE_SIGNALS) {
            match signal {
                Ok(signal) => put_signal(&mut out, &signal, first),
                Err(error) => {
                    self.signals = None;
                    return Some(Err(error));
                }
            }
            first = false;
        }
        if self.signals.as_ref().is_some_and(ColumnReader::is_finished) {
            self.signals = None;
            out.extend_from_slice(b"]}");
        }
        self.is_open = true;
        Some(Ok(String::from_utf8(out).expect("JSON is text")))
    }
}
