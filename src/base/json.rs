//! Parses JSON of clients strictly, and reads bodies and queries into declared types.
//!
//! Rejects a key that appears twice and a number too large for a double, and names the field, which
//! `serde_json` alone does not. Does not know which fields exist; the declared types do.

mod declared;
mod faults;
mod values;

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt,
};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, error::Category};

pub(crate) use declared::declared;
pub use declared::{Declared, Form, List, Nullable, Object};
pub use faults::Faults;
pub use values::{BoundedInt, BoundedText, name, number, parsed, said, score, signed};

/// Error in one field, as text for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct FieldError {
    /// Path of the field, such as `frames[3].pts_ms`.
    pub field: String,
    /// Requirement that the value does not meet.
    pub message: String,
}

impl FieldError {
    /// Creates the error of `field`.
    ///
    /// A name longer than any declared one is truncated: an answer must not repeat the client's input.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> FieldError {
        let mut field = field.into();
        if field.len() > FIELD_BYTES_MAX {
            field.truncate(field.floor_char_boundary(FIELD_BYTES_MAX));
            field.push('\u{2026}');
        }
        FieldError { field, message: message.into() }
    }

    /// Returns all of `errors` in one line.
    pub fn joined(errors: &[FieldError]) -> String {
        errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// Maximum number of values in a JSON text. The densest valid body has two thirds as many; each value takes
/// many times the memory of the two bytes that can encode it.
const VALUES_MAX: usize = 1 << 18;
/// Bytes of a field's name that an error repeats.
const FIELD_BYTES_MAX: usize = 128;

/// Reason why a value is rejected, without the name of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError(pub Cow<'static, str>);

impl From<&'static str> for ValueError {
    fn from(text: &'static str) -> ValueError {
        ValueError(Cow::Borrowed(text))
    }
}

impl From<String> for ValueError {
    fn from(text: String) -> ValueError {
        ValueError(Cow::Owned(text))
    }
}

/// Error of parsing JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum JsonError {
    #[error("malformed JSON: {0}")]
    Malformed(String),
    #[error("{}", FieldError::joined(.0))]
    Invalid(Vec<FieldError>),
}

/// Parses one JSON value that must span all of `bytes`.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let (trail, left) = (RefCell::new(Vec::new()), Cell::new(VALUES_MAX));
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = Strict { trail: &trail, left: &left }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    parsed.map_err(|error| {
        let text = error.to_string();
        let message = text.split(" at line ").next().unwrap_or(&text);
        // serde_json reports an overflowing number as a syntax error although the text is valid JSON.
        let too_large = message == "number out of range";
        if too_large || error.classify() == Category::Data {
            let message = if too_large { "is out of range" } else { message };
            JsonError::Invalid(vec![FieldError::new(path_of(trail.into_inner()), message)])
        } else {
            JsonError::Malformed(text)
        }
    })
}

enum Step {
    Key(String),
    Index(usize),
}

/// Formats a path from steps that were recorded from the innermost outwards.
fn path_of(steps: Vec<Step>) -> String {
    let mut path = String::new();
    for step in steps.into_iter().rev() {
        match step {
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Key(key) if path.is_empty() => path = key,
            Step::Key(key) => path = format!("{path}.{key}"),
        }
    }
    if path.is_empty() { "body".to_owned() } else { path }
}

/// Deserializes a value; on an error, records the path to it.
#[derive(Clone, Copy)]
struct Strict<'a> {
    trail: &'a RefCell<Vec<Step>>,
    /// Number of values that may still follow.
    left: &'a Cell<usize>,
}

impl<'a> Strict<'a> {
    fn note(&self, step: impl FnOnce() -> Step) {
        self.trail.borrow_mut().push(step());
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            let message = format!("is one value too many: at most {VALUES_MAX} are read");
            return Err(D::Error::custom(message));
        };
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            match seq.next_element_seed(self) {
                Ok(Some(value)) => values.push(value),
                Ok(None) => return Ok(Value::Array(values)),
                Err(error) => {
                    self.note(|| Step::Index(values.len()));
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                self.note(|| Step::Key(key));
                return Err(A::Error::custom("appears twice"));
            }
            match access.next_value_seed(self) {
                Ok(value) => map.insert(key, value),
                Err(error) => {
                    self.note(|| Step::Key(key));
                    return Err(error);
                }
            };
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;
