//! One Parquet file: rows in, row groups of bounded size out, written aside and renamed once whole.

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

/// Reason that a file was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct TableError {
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// The version of the columns: another one where a column goes or comes to mean something else.
pub const VERSION: &str = "1";
/// Rows and bytes of text that are kept until they are written as a row group.
const GROUP_ROWS: usize = 1 << 16;
const GROUP_BYTES: usize = 8 << 20;

/// The columns of a kind of file.
pub struct Schema {
    /// Its name without the ending.
    pub name: &'static str,
    /// Parquet's own notation.
    pub message: &'static str,
}

/// A value of a row.
pub enum Cell<'a> {
    /// None.
    Null,
    /// A number of an integer column, or the milliseconds of a time.
    Int(i64),
    /// A double.
    Real(f64),
    /// True or false.
    Flag(bool),
    /// A string.
    Text(&'a str),
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Cell<'a> {
        value.map_or(Cell::Null, Into::into)
    }
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Cell::Int(value)
    }
}

/// Positions and numbers of the API, which fit JSON's integers.
impl From<u64> for Cell<'_> {
    fn from(value: u64) -> Self {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Cell<'_> {
    fn from(value: f64) -> Self {
        Cell::Real(value)
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Cell::Flag(value)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Cell::Text(value)
    }
}

/// Values of a column of the row group under way.
enum Values {
    Ints(Vec<i64>),
    Reals(Vec<f64>),
    Flags(Vec<bool>),
    Texts(Vec<ByteArray>),
}

struct Column {
    values: Values,
    /// Flags of a column that may lack values: 1 a row that has one, else 0.
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

    /// Adds a value; returns its bytes of text.
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

    /// Writes what it holds, and holds nothing then.
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

/// A file under way; nothing is left of it where it is dropped.
pub struct Table {
    path: PathBuf,
    writer: SerializedFileWriter<NamedTempFile>,
    columns: Vec<Column>,
    /// Rows and bytes of text in `columns`.
    held: (usize, usize),
    rows: u64,
}

impl Table {
    /// Begins a file in `dir`; its metadata say `about` besides what table it is.
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

    /// Adds a row.
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

    /// Rows that it has so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes that are written so far, and text that is to be.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64 + self.held.1 as u64
    }

    /// The whole file on disk, still aside.
    pub fn finish(mut self) -> Result<Whole, TableError> {
        if self.held.0 > 0 {
            self.write_group().map_err(|error| failed(&self.path, error))?;
        }
        // Its footer is written here.
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

/// A file that has all its rows, and not its name yet; nothing is left of it where it is dropped.
pub struct Whole {
    aside: NamedTempFile,
    /// Name that it is to have.
    pub path: PathBuf,
    /// Its rows.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
}

impl Whole {
    /// Path of the file as long as it has not its name.
    pub fn aside(&self) -> &Path {
        self.aside.path()
    }

    /// Gives the file its name.
    pub fn keep(self) -> Result<(), TableError> {
        let Whole { aside, path, .. } = self;
        aside.persist(&path).map(drop).map_err(|error| TableError { path, source: error.error })
    }
}
