//! Streams the items of an array in a JSON response.

use std::io::Read;

use serde::de::{DeserializeOwned, Error};
use serde_json::{Map, Value};

use crate::error::CliError;

/// Initial size of the read buffer in bytes; it doubles until the current item fits.
const PIECE: usize = 1 << 16;

/// Reason that a response was not read to its end.
pub enum Stopped {
    /// The response ended early.
    Cut,
    /// The response is not valid JSON of the expected form.
    Json(serde_json::Error),
    /// The callback failed.
    Taker(CliError),
}

/// Passes each item of the array `list` to `take`, with the fields that precede the array; returns all other fields.
pub fn each<T: DeserializeOwned>(
    answer: impl Read,
    list: &str,
    mut take: impl FnMut(&Map<String, Value>, T) -> Result<(), CliError>,
) -> Result<Map<String, Value>, Stopped> {
    let mut text = Text { answer, buffer: vec![0; PIECE], at: 0, end: 0 };
    let mut head = Map::new();
    let mut follows = text.open(b'{', b'}')?;
    while follows {
        let name: String = text.value()?;
        text.expect(b':')?;
        if name == list {
            let mut follows = text.open(b'[', b']')?;
            while follows {
                take(&head, text.value()?).map_err(Stopped::Taker)?;
                follows = text.follows(b']')?;
            }
        } else {
            head.insert(name, text.value()?);
        }
        follows = text.follows(b'}')?;
    }
    Ok(head)
}

/// Incremental reader; the bytes from `at` to `end` of the buffer are unread.
struct Text<R> {
    answer: R,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
}

impl<R: Read> Text<R> {
    /// Reads more; returns false at the end of the response, or after an error.
    fn fill(&mut self) -> bool {
        if self.at == 0 && self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        self.buffer.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        let read = self.answer.read(&mut self.buffer[self.end..]).unwrap_or(0);
        self.end += read;
        read > 0
    }

    /// Takes the next value; in objects and arrays another character always follows it.
    fn value<T: DeserializeOwned>(&mut self) -> Result<T, Stopped> {
        let (mut tried, mut is_over) = (0, false);
        loop {
            let unread = &self.buffer[self.at..self.end];
            // A long item is parsed again only once twice as many bytes are there.
            if unread.len() < PIECE || unread.len() >= 2 * tried || is_over {
                tried = unread.len();
                let mut values = serde_json::Deserializer::from_slice(unread).into_iter();
                match values.next() {
                    Some(Ok(value)) if values.byte_offset() < unread.len() => {
                        self.at += values.byte_offset();
                        return Ok(value);
                    }
                    Some(Err(error)) if !is_at_end(&error, unread) => {
                        return Err(Stopped::Json(error));
                    }
                    _ => {}
                }
            }
            if is_over {
                return Err(Stopped::Cut);
            }
            is_over = !self.fill();
        }
    }

    /// Returns the next character that is not white space, without taking it.
    fn peek(&mut self) -> Result<u8, Stopped> {
        loop {
            match self.buffer[self.at..self.end].first().copied() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(next) => return Ok(next),
                None if self.fill() => {}
                None => return Err(Stopped::Cut),
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Stopped> {
        let found = self.peek()?;
        self.at += 1;
        let odd = || format!("{:?} in place of {:?}", char::from(found), char::from(wanted));
        if found == wanted { Ok(()) } else { Err(Stopped::Json(Error::custom(odd()))) }
    }

    /// Enters an object or array; returns true if it is not empty.
    fn open(&mut self, first: u8, last: u8) -> Result<bool, Stopped> {
        self.expect(first)?;
        let is_empty = self.peek()? == last;
        self.at += usize::from(is_empty);
        Ok(!is_empty)
    }

    /// Moves on in an object or array; returns true if another element follows.
    fn follows(&mut self, last: u8) -> Result<bool, Stopped> {
        let ends = self.peek()? == last;
        self.expect(if ends { last } else { b',' })?;
        Ok(!ends)
    }
}

/// Returns true for an error that more text may fix: an incomplete `1.` is one, like a missing bracket.
fn is_at_end(error: &serde_json::Error, text: &[u8]) -> bool {
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    let last = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    error.is_eof() || error.line() == lines && error.column() + 1 >= last.len()
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    /// Reader that returns a few bytes at a time.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let most = self.1.min(into.len());
            self.0.read(&mut into[..most])
        }
    }

    /// Returns the fields before the array, the items, and the way in which reading ended.
    fn read(answer: &str, step: usize) -> (String, Vec<String>, &'static str) {
        let (mut before, mut items) = (String::new(), Vec::new());
        let read = each(Slowly(answer.as_bytes(), step), "it", |head, item: Box<RawValue>| {
            before = Value::Object(head.clone()).to_string();
            items.push(item.get().to_owned());
            if item.get() == "\"no more\"" { Err(CliError::Interrupted) } else { Ok(()) }
        });
        let ended = match read {
            Ok(_) => "whole",
            Err(Stopped::Cut) => "cut",
            Err(Stopped::Json(_)) => "odd",
            Err(Stopped::Taker(_)) => "refused",
        };
        (before, items, ended)
    }

    #[test]
    fn a_list_is_read_however_its_text_is_cut_up() {
        let long = format!(r#"{{"text":"{}"}}"#, "\\\"ä".repeat(PIECE));
        let of_long = format!(r#"{{"it":[{long},{long}]}}"#);
        let rows: [(&str, &str, &[&str], &str); 13] = [
            ("{}", "", &[], "whole"),
            (r#"{"it":[]}"#, "", &[], "whole"),
            (
                r#" {"a" : 12 , "it" : [ 1 , {"b":[2]} ] , "c" : {} } "#,
                r#"{"a":12}"#,
                &["1", r#"{"b":[2]}"#],
                "whole",
            ),
            (r#"{"it":["]},","\""],"it2":null}"#, "{}", &[r#""]},""#, r#""\"""#], "whole"),
            (
                "{\n\"it\":\n[-1.5e-3,{\n\"a\":0.25}]}",
                "{}",
                &["-1.5e-3", "{\n\"a\":0.25}"],
                "whole",
            ),
            (&of_long, "{}", &[&long, &long], "whole"),
            (r#"{"it":[1,"no more",3]}"#, "{}", &["1", "\"no more\""], "refused"),
            (r#"{"it":[1,2"#, "{}", &["1"], "cut"),
            (r#"{"it":[1]"#, "{}", &["1"], "cut"),
            ("", "", &[], "cut"),
            (r#"{"it":[1 2]}"#, "{}", &["1"], "odd"),
            (r#"{"it":{}}"#, "", &[], "odd"),
            ("<html>", "", &[], "odd"),
        ];
        for (answer, before, items, ended) in rows {
            for step in [1, 7, usize::MAX] {
                let step = if answer.len() > PIECE { step.max(1000) } else { step };
                let found = read(answer, step);
                let name = answer.get(..60).unwrap_or(answer);
                assert_eq!(
                    (found.0.as_str(), found.2),
                    (before, ended),
                    "{name}, {step} at a time"
                );
                assert_eq!(found.1, items, "{name}, {step} at a time");
            }
        }
    }
}
