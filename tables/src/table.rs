//! Writer of one Parquet file: row groups of bounded size in a temporary file that is renamed when complete.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::{Compression, Type},
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::{ParquetError, Result as Written},
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::{parser::parse_message_type, types::ColumnDescriptor},
};
use tempfile::{Builder, NamedTempFile};

/// Error of writing a file.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct TableError {
    /// Path of the file.
    pub path: PathBuf,
    /// Error of the system.
    pub source: io::Error,
}

/// Version of the columns; changes when a column is removed or changes its meaning.
pub const VERSION: &str = "1";
/// Rows, and bytes of text, that are buffered before a row group is written.
const GROUP_ROWS: usize = 1 << 16;
const GROUP_BYTES: usize = 8 << 20;

/// Columns of one kind of file.
pub struct Schema {
    /// File name without extension.
    pub name: &'static str,
    /// Schema in Parquet's message notation.
    pub message: &'static str,
}

/// A value of a row.
#[allow(missing_docs, reason = "the names say it")]
pub enum Cell<'a> {
    Null,
    /// Value of an integer column, or a time in milliseconds.
    Int(i64),
    Real(f64),
    Flag(bool),
    Text(&'a str),
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Cell<'a> {
        value.map_or(Cell::Null, Into::into)
    }
}

macro_rules! cells {
    ($($type:ty => $cell:ident),*) => { $(impl From<$type> for Cell<'_> {
        fn from(value: $type) -> Self { Cell::$cell(value) }
    })* };
}
cells!(i64 => Int, f64 => Real, bool => Flag);

/// Converts positions and counts of the API, which stay within JSON's integers.
impl From<u64> for Cell<'_> {
    fn from(value: u64) -> Self {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Cell::Text(value)
    }
}

/// Values of one column in the current row group.
enum Values {
    Ints(Vec<i64>),
    Reals(Vec<f64>),
    Flags(Vec<bool>),
    Texts(Vec<ByteArray>),
}

struct Column {
    values: Values,
    /// Definition levels of an optional column: 1 for a row with a value, else 0.
    present: Option<Vec<i16>>,
}

impl Column {
    fn of(described: &ColumnDescriptor) -> Column {
        let values = match described.physical_type() {
            Type::INT64 => Values::Ints(Vec::new()),
            Type::DOUBLE => Values::Reals(Vec::new()),
            Type::BOOLEAN => Values::Flags(Vec::new()),
            Type::BYTE_ARRAY => Values::Texts(Vec::new()),
            other => unreachable!("no column of ours is {other}"),
        };
        Column { values, present: (described.max_def_level() == 1).then(Vec::new) }
    }

    /// Appends a value; returns its bytes of text.
    fn push(&mut self, cell: &Cell<'_>) -> usize {
        if let Some(present) = &mut self.present {
            present.push(i16::from(!matches!(cell, Cell::Null)));
        }
        match (&mut self.values, cell) {
            (Values::Ints(values), Cell::Int(value)) => values.push(*value),
            (Values::Reals(values), Cell::Real(value)) => values.push(*value),
            (Values::Flags(values), Cell::Flag(value)) => values.push(*value),
            (Values::Texts(values), Cell::Text(value)) => {
                values.push(ByteArray::from(*value));
                return value.len();
            }
            (_, Cell::Null) if self.present.is_some() => {}
            _ => unreachable!("a row that its schema does not describe"),
        }
        0
    }

    /// Writes the buffered values to `out` and clears the buffer.
    fn write(&mut self, mut out: SerializedColumnWriter<'_>) -> Written<()> {
        let present = self.present.as_deref();
        match &mut self.values {
            Values::Ints(values) => {
                out.typed::<Int64Type>().write_batch(values, present, None)?;
                values.clear();
            }
            Values::Reals(values) => {
                out.typed::<DoubleType>().write_batch(values, present, None)?;
                values.clear();
            }
            Values::Flags(values) => {
                out.typed::<BoolType>().write_batch(values, present, None)?;
                values.clear();
            }
            Values::Texts(values) => {
                out.typed::<ByteArrayType>().write_batch(values, present, None)?;
                values.clear();
            }
        }
        if let Some(present) = &mut self.present {
            present.clear();
        }
        out.close()
    }
}

/// Unfinished file; dropping it removes the temporary file.
pub struct Table {
    path: PathBuf,
    writer: SerializedFileWriter<NamedTempFile>,
    columns: Vec<Column>,
    /// Rows and bytes of text buffered in `columns`.
    held: (usize, usize),
    rows: u64,
}

impl Table {
    /// Creates a temporary file in `dir`; its metadata name the schema version, the table and `key`: `about`.
    pub fn create(
        dir: &Path,
        schema: &Schema,
        (key, about): (&str, &str),
    ) -> Result<Table, TableError> {
        let path = dir.join(format!("{}.parquet", schema.name));
        let aside = Builder::new()
            .prefix(&format!(".{}.", schema.name))
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir)
            .map_err(|source| TableError { path: path.clone(), source })?;
        let told = [("schema_version", VERSION), ("table", schema.name), (key, about)]
            .map(|(name, value)| KeyValue::new(format!("sightline.{name}"), value.to_owned()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("sightline ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(told.into()));
        let message = parse_message_type(schema.message).expect("our own");
        let writer =
            SerializedFileWriter::new(aside, Arc::new(message), Arc::new(properties.build()))
                .map_err(|error| failed(&path, error))?;
        let columns = writer.schema_descr().columns().iter().map(|it| Column::of(it)).collect();
        Ok(Table { path, writer, columns, held: (0, 0), rows: 0 })
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[Cell<'_>]) -> Result<(), TableError> {
        assert_eq!(row.len(), self.columns.len(), "a row that its schema does not describe");
        let cells = self.columns.iter_mut().zip(row);
        let bytes: usize = cells.map(|(column, cell)| column.push(cell)).sum();
        self.held = (self.held.0 + 1, self.held.1 + bytes);
        self.rows += 1;
        if self.held.0 < GROUP_ROWS && self.held.1 < GROUP_BYTES {
            return Ok(());
        }
        self.write_group().map_err(|error| failed(&self.path, error))
    }

    fn write_group(&mut self) -> Written<()> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let out = group.next_column()?;
            column.write(out.expect("as many columns as the schema has"))?;
        }
        group.close()?;
        self.held = (0, 0);
        Ok(())
    }

    /// Returns the rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the bytes written so far plus the bytes of buffered text.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64 + self.held.1 as u64
    }

    /// Writes the rest and syncs the file, which keeps its temporary name.
    pub fn finish(mut self) -> Result<Whole, TableError> {
        if self.held.0 > 0 {
            self.write_group().map_err(|error| failed(&self.path, error))?;
        }
        // `into_inner` writes the footer.
        let aside = self.writer.into_inner().map_err(|error| failed(&self.path, error))?;
        let synced = aside.as_file().sync_all().and_then(|()| aside.as_file().metadata());
        let bytes = synced.map_err(|source| TableError { path: self.path.clone(), source })?.len();
        Ok(Whole { aside, path: self.path, rows: self.rows, bytes })
    }
}

fn failed(path: &Path, error: ParquetError) -> TableError {
    let source = match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(inner) => *inner,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    };
    TableError { path: path.to_owned(), source }
}

/// Complete file under its temporary name; dropping it removes the file.
pub struct Whole {
    aside: NamedTempFile,
    /// Final path of the file.
    pub path: PathBuf,
    /// Number of rows.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl Whole {
    /// Returns the temporary path of the file.
    pub fn aside(&self) -> &Path {
        self.aside.path()
    }

    /// Renames the file to its final path.
    pub fn keep(self) -> Result<(), TableError> {
        let Whole { aside, path, .. } = self;
        aside.persist(&path).map(drop).map_err(|error| TableError { path, source: error.error })
    }
}
