//! JSON from outside: strict parsing, and declared types for bodies and queries.
//!
//! Refuses what `serde_json` alone would let through or could not name: a key that appears
//! twice, a number too large for a double. Does not know which fields exist: declared types do.

mod bounds;
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

pub use bounds::{BoundedInt, BoundedText};
pub(crate) use declared::declared;
pub use declared::{Declared, Form, List, Nullable, Object};
pub use faults::Faults;
pub use values::{digits, integer, name, number, parsed, said, score, signed, text};

/// Fault of one field, in words for the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `frames[3].pts_ms`.
    pub field: String,
    /// Requirement that its value does not meet.
    pub message: String,
}

impl FieldError {
    /// A complaint about `field`.
    ///
    /// A longer name than any of ours is cut: an answer must not repeat what was sent.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> FieldError {
        let mut field = field.into();
        if field.len() > FIELD_BYTES_MAX {
            let kept = (0..=FIELD_BYTES_MAX).rev().find(|at| field.is_char_boundary(*at));
            field.truncate(kept.unwrap_or(0));
            field.push('\u{2026}');
        }
        FieldError { field, message: message.into() }
    }
}

/// Values of a text at most: the densest body that is acceptable has two thirds of them, and each takes many times the memory
/// of the two bytes that it may be sent in.
const VALUES_MAX: usize = 1 << 18;
/// Bytes of a field's name that are repeated.
const FIELD_BYTES_MAX: usize = 128;

/// Reason for which a value is refused, without its field's name.
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

/// Reason for which text is not the JSON that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON.
    #[error("malformed JSON: {0}")]
    Malformed(String),
    /// JSON, and these fields are not acceptable.
    #[error("{}", Details(.0))]
    Invalid(Vec<FieldError>),
}

struct Details<'a>(&'a [FieldError]);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, detail) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{} {}", detail.field, detail.message)?;
        }
        Ok(())
    }
}

/// Parses one JSON value that fills all of `bytes`.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let (trail, left) = (RefCell::new(Vec::new()), Cell::new(VALUES_MAX));
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = Strict { trail: &trail, left: &left }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    parsed.map_err(|error| {
        let text = error.to_string();
        let message = text.split(" at line ").next().unwrap_or(&text);
        // serde_json calls an overflowing number a syntax error, and it is valid JSON.
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

/// The steps were noted from the inside out.
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

/// Deserializes a value and, when it fails, notes where on the way out.
#[derive(Clone, Copy)]
struct Strict<'a> {
    trail: &'a RefCell<Vec<Step>>,
    /// Values that may follow.
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

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
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
