//! Writes records as an Arrow IPC stream: a schema, then batches of rows, each a message of its own.
//!
//! The records are those that also become JSON; a column takes its values from a path (`luma_mean.max`).
//! Written by hand from the schemas of the format (Message.fbs, Schema.fbs; metadata version 5): the crates
//! for it would take longer to build than the rest of the server. At most one batch is in memory.

mod flat;

use flat::{Flat, Slot};
use serde_json::{Map, Value};

/// Maximum number of rows in a batch.
pub const ROWS_MAX: usize = 1024;

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned 64-bit integer; zero if the record has no value.
    Unsigned,
    Signed,
    Number,
    Flag,
    Text,
}

/// A column: the path of its values in a record, and their type.
#[derive(Debug)]
pub struct Column {
    /// Keys of nested objects, joined by dots.
    pub path: String,
    pub kind: Kind,
    pub is_nullable: bool,
}

/// Marker that starts every message (Columnar.rst, "Encapsulated message format").
const CONTINUATION: [u8; 4] = [0xff; 4];
/// `MetadataVersion.V5`.
const VERSION: i16 = 4;
/// Type codes of the union `MessageHeader`.
const SCHEMA: u8 = 1;
const RECORD_BATCH: u8 = 3;

/// Returns the first message: the columns, and `about` as metadata of the stream.
pub fn schema(columns: &[Column], about: &Map<String, Value>) -> Vec<u8> {
    let (mut flat, header) = message(SCHEMA, 0);
    // endianness, fields, custom_metadata.
    let schema = flat.table(header, &[Slot::Absent, Slot::Ref, Slot::Ref]);
    for (at, column) in flat.refs(schema[0], columns.len()).into_iter().zip(columns) {
        field(&mut flat, at, column);
    }
    for (at, (key, value)) in flat.refs(schema[1], about.len()).into_iter().zip(about) {
        let pair = flat.table(at, &[Slot::Ref, Slot::Ref]);
        flat.text(pair[0], key);
        match value {
            Value::String(text) => flat.text(pair[1], text),
            value => flat.text(pair[1], &value.to_string()),
        }
    }
    encapsulated(flat, &[])
}

/// Returns the end-of-stream marker.
pub fn end() -> Vec<u8> {
    [CONTINUATION, [0; 4]].concat()
}

/// Returns the message of a batch of `rows`, which must be objects.
pub fn batch(columns: &[Column], rows: &[Value]) -> Vec<u8> {
    let (mut nodes, mut buffers, mut body) = (Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        let keys: Vec<&str> = column.path.split('.').collect();
        let found = |row| keys.iter().try_fold(row, |value: &Value, key| value.get(key));
        let values: Vec<&Value> =
            rows.iter().map(|row| found(row).unwrap_or(&Value::Null)).collect();
        let nulls = match column.is_nullable {
            true => values.iter().filter(|value| value.is_null()).count(),
            false => 0,
        };
        nodes.push((rows.len() as i64, nulls as i64));
        let mut add = |bytes: Vec<u8>| {
            buffers.push((body.len() as i64, bytes.len() as i64));
            body.extend(bytes);
            body.resize(body.len().next_multiple_of(8), 0);
        };
        add(if nulls > 0 { bits(values.iter().map(|value| !value.is_null())) } else { Vec::new() });
        write(column.kind, &values, &mut add);
    }
    let (mut flat, header) = message(RECORD_BATCH, body.len() as i64);
    // length, nodes, buffers.
    let batch = flat.table(header, &[Slot::Long(rows.len() as i64), Slot::Ref, Slot::Ref]);
    flat.pairs(batch[0], &nodes);
    flat.pairs(batch[1], &buffers);
    encapsulated(flat, &body)
}

/// Adds the buffers of a column, except its validity bitmap.
fn write(kind: Kind, values: &[&Value], add: &mut impl FnMut(Vec<u8>)) {
    let plain = |bytes: &dyn Fn(&Value) -> [u8; 8]| {
        values.iter().flat_map(|value| bytes(value)).collect::<Vec<u8>>()
    };
    match kind {
        Kind::Unsigned => add(plain(&|value| value.as_u64().unwrap_or(0).to_le_bytes())),
        Kind::Signed => add(plain(&|value| value.as_i64().unwrap_or(0).to_le_bytes())),
        Kind::Number => add(plain(&|value| value.as_f64().unwrap_or(0.0).to_le_bytes())),
        Kind::Flag => add(bits(values.iter().map(|value| value.as_bool().unwrap_or(false)))),
        Kind::Text => {
            let texts = || values.iter().map(|value| value.as_str().unwrap_or(""));
            let ends = texts().scan(0i32, |end, text| {
                *end += text.len() as i32;
                Some(*end)
            });
            add(std::iter::once(0).chain(ends).flat_map(i32::to_le_bytes).collect());
            add(texts().collect::<String>().into_bytes());
        }
    }
}

/// Packs `flags` into a bitmap, least significant bit first.
fn bits(flags: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, flag) in flags.enumerate() {
        if at % 8 == 0 {
            bytes.push(0);
        }
        bytes[at / 8] |= u8::from(flag) << (at % 8);
    }
    bytes
}

/// Writes a message up to its header; also returns the position of the reference to the header.
fn message(header: u8, body: i64) -> (Flat, usize) {
    let mut flat = Flat::default();
    let root = flat.root();
    // version, header_type, header, bodyLength.
    let slots = [Slot::Short(VERSION), Slot::Byte(header), Slot::Ref, Slot::Long(body)];
    let header = flat.table(root, &slots)[0];
    (flat, header)
}

fn field(flat: &mut Flat, at: usize, column: &Column) {
    // Type codes of the union `Type`, and the slots of the type's table.
    let (kind, slots): (u8, &[Slot]) = match column.kind {
        Kind::Unsigned => (2, &[Slot::Int(64), Slot::Byte(0)]),
        Kind::Signed => (2, &[Slot::Int(64), Slot::Byte(1)]),
        // DOUBLE.
        Kind::Number => (3, &[Slot::Short(2)]),
        Kind::Text => (5, &[]),
        Kind::Flag => (6, &[]),
    };
    // name, nullable, type_type, type, dictionary, children.
    let nullable = Slot::Byte(column.is_nullable.into());
    let slots_of_field =
        [Slot::Ref, nullable, Slot::Byte(kind), Slot::Ref, Slot::Absent, Slot::Ref];
    let field = flat.table(at, &slots_of_field);
    flat.text(field[0], &column.path);
    flat.table(field[1], slots);
    flat.refs(field[2], 0);
}

/// Returns the message as sent: marker, metadata length, metadata, body.
fn encapsulated(flat: Flat, body: &[u8]) -> Vec<u8> {
    let mut metadata = flat.into_bytes();
    metadata.resize(metadata.len().next_multiple_of(8), 0);
    let length = (metadata.len() as u32).to_le_bytes();
    [&CONTINUATION[..], &length, &metadata, body].concat()
}
