//! Standard output: tables for people, JSON for programs; untrusted text cannot control a terminal.
//!
//! A closed reader is an error, which `main` treats as success.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use media::{escaped, has_hidden, is_hidden};
use serde::Serialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::{environment, error::CliError};

/// Buffered standard output; flushed by [`StdoutWriter::finish`] or [`StdoutWriter::flush`].
pub struct StdoutWriter {
    writer: BufWriter<StdoutLock<'static>>,
    bold: bool,
}

impl StdoutWriter {
    /// Locks standard output for this command.
    pub fn stdout() -> StdoutWriter {
        let stdout = io::stdout().lock();
        let bold = stdout.is_terminal() && !environment::no_color();
        StdoutWriter { writer: BufWriter::new(stdout), bold }
    }

    /// Prints one line of text; hidden characters are escaped.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<(), CliError> {
        writeln!(self.writer, "{}", escaped(&text.to_string())).map_err(CliError::Stdout)
    }

    /// Prints a JSON value on several lines.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer_pretty(Json { out: &mut self.writer, is_line: false }, value)
            .map_err(|error| CliError::Stdout(error.into()))?;
        self.line("")
    }

    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer(Json { out: &mut self.writer, is_line: true }, value)
            .map_err(|error| CliError::Stdout(error.into()))?;
        self.line("")
    }

    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.writer.write_all(bytes).map_err(CliError::Stdout)
    }

    /// Prints a table with a heading line.
    pub fn table(&mut self, table: &TextTable) -> Result<(), CliError> {
        let (on, off) = if self.bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let widths = table.widths();
        writeln!(self.writer, "{on}{}{off}", table.row(&table.head, &widths))
            .map_err(CliError::Stdout)?;
        for cells in &table.rows {
            self.line(table.row(cells, &widths))?;
        }
        Ok(())
    }

    /// Prints the rows added since the last call, before the first of them the heading.
    pub fn grow(&mut self, table: &mut TextTable) -> Result<(), CliError> {
        table.least = table.widths();
        if table.is_headed {
            for cells in &table.rows {
                self.line(table.row(cells, &table.least))?;
            }
        } else {
            self.table(table)?;
        }
        table.is_headed = true;
        table.rows.clear();
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), CliError> {
        self.writer.flush().map_err(CliError::Stdout)
    }

    /// Flushes, and releases standard output.
    pub fn finish(mut self) -> Result<(), CliError> {
        self.flush()
    }
}

/// Prints `value` as JSON, or as its table.
pub fn print<T: Serialize + ?Sized>(
    json: bool,
    value: &T,
    table: impl FnOnce(&T) -> TextTable,
) -> Result<(), CliError> {
    let mut out = StdoutWriter::stdout();
    match json {
        true => out.json(&value)?,
        false => out.table(&table(value))?,
    }
    out.finish()
}

/// Prints the server's response as JSON, or `line` for people.
pub fn say(json: bool, reply: &Value, line: impl FnOnce(&Value) -> String) -> Result<(), CliError> {
    let mut out = StdoutWriter::stdout();
    if json {
        out.json(reply)?
    } else {
        out.line(printable(&line(reply)))?
    }
    out.finish()
}

/// Writer of JSON. Escapes hidden characters in strings, which changes no value. JSON passed on from a server
/// may have white space between tokens; it is reduced to blanks.
struct Json<'a, W> {
    out: &'a mut W,
    is_line: bool,
}

impl<W: Write> Write for Json<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The serializer writes complete pieces of text.
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        if !has_hidden(text) {
            self.out.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut written = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| is_hidden(*c)) {
            self.out.write_all(&bytes[written..at])?;
            match c {
                '\n' if !self.is_line => self.out.write_all(b"\n")?,
                '\n' | '\r' | '\t' => self.out.write_all(b" ")?,
                c => write!(self.out, "\\u{:04x}", u32::from(c))?,
            }
            written = at + c.len_utf8();
        }
        self.out.write_all(&bytes[written..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Rows of text under a heading; each column is as wide as its widest cell.
pub struct TextTable {
    head: Vec<String>,
    right: Vec<bool>,
    /// Least widths of the columns, so that a growing table stays aligned.
    least: Vec<usize>,
    is_headed: bool,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table with these columns; a leading `>` aligns a column to the right.
    pub fn new(columns: &[&str]) -> TextTable {
        TextTable {
            head: columns.iter().map(|c| c.trim_start_matches('>').to_owned()).collect(),
            right: columns.iter().map(|c| c.starts_with('>')).collect(),
            least: vec![0; columns.len()],
            is_headed: false,
            rows: Vec::new(),
        }
    }

    pub fn of<const N: usize>(
        columns: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> TextTable {
        let mut table = TextTable::new(&columns);
        rows.into_iter().for_each(|cells| table.push(cells));
        table
    }

    /// Adds a row with one cell per column.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| printable(&cell)).collect();
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells);
    }

    /// Returns the number of rows not printed yet.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |cell: &String| cell.width();
        (0..self.head.len())
            .map(|i| {
                let least = self.least[i].max(width(&self.head[i]));
                self.rows.iter().map(|row| width(&row[i])).fold(least, usize::max)
            })
            .collect()
    }

    fn row(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let pad = widths[i] - cell.width();
            if i > 0 {
                line.push_str("  ");
            }
            if self.right[i] {
                line.extend(std::iter::repeat_n(' ', pad));
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Replaces characters that could control a terminal: file names and server texts are untrusted.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if is_hidden(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Formats a JSON value for a cell: strings without quotes.
pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), printable)
}

/// Like [`text`], with a dash for null.
pub fn or_dash(value: &Value) -> String {
    if value.is_null() { "-".to_owned() } else { text(value) }
}

/// Formats a list of JSON values for a cell, as `none` if it is no list.
pub fn joined(list: &Value, none: &str) -> String {
    let items = list.as_array().map(|items| items.iter().map(text).collect::<Vec<_>>());
    items.map_or_else(|| none.to_owned(), |items| items.join(", "))
}

/// Formats media time in milliseconds like [`clock`], with a dash for anything else.
pub fn clock_or_dash(pts_ms: &Value) -> String {
    pts_ms.as_i64().map_or_else(|| "-".to_owned(), clock)
}

/// Formats media time as `m:ss.mmm`, with hours if there are any.
pub fn clock(pts_ms: i64) -> String {
    let sign = if pts_ms < 0 { "-" } else { "" };
    let ms = pts_ms.unsigned_abs();
    let (hours, minutes, seconds, millis) =
        (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
    if hours > 0 {
        format!("{sign}{hours}:{minutes:02}:{seconds:02}.{millis:03}")
    } else {
        format!("{sign}{minutes}:{seconds:02}.{millis:03}")
    }
}

/// Formats a byte count with a binary unit.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Formats an integer with a comma at every third digit.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things, in the plural with an `s`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_read_as_people_write_them() {
        assert_eq!(clock(0), "0:00.000");
        assert_eq!(clock(61_234), "1:01.234");
        assert_eq!(clock(3_600_000), "1:00:00.000");
        assert_eq!(clock(-40), "-0:00.040");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        let frames = [0, 1, 1000].map(|count| counted(count, "frame"));
        assert_eq!(frames, ["0 frames", "1 frame", "1,000 frames"]);
    }

    #[test]
    fn foreign_text_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\u{202e}c\nd"), "a\u{fffd}[2Jb\u{fffd}c d");
    }

    #[test]
    fn columns_align() {
        let rows = [["a", "1"], ["long", "1000"], ["門", "é"]].map(|row| row.map(str::to_owned));
        let table = TextTable::of(["name", ">n"], rows);
        let widths = table.widths();
        assert_eq!(table.row(&table.head, &widths), "name     n");
        assert_eq!(table.row(&table.rows[0], &widths), "a        1");
        assert_eq!(table.row(&table.rows[1], &widths), "long  1000");
        assert_eq!(table.row(&table.rows[2], &widths), "門       é", "of two columns, and of one");
    }
}
