//! JSON Schema of a caller, checked so that neither compiling nor applying it can be expensive.
//!
//! Promises a bounded schema (bytes, depth, patterns, work per level of the answer), references within the
//! schema only, and patterns that match in linear time. Fetches nothing.

mod cost;
#[cfg(test)]
mod tests;

use std::fmt;

use jsonschema::{PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value};

/// Longest schema, in bytes of compact JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of a schema and of a validated answer.
pub const DEPTH_MAX: usize = 32;
/// Most regular expressions in a schema.
const PATTERNS_MAX: usize = 64;
/// Memory limit of one compiled regular expression, and of its cache, in bytes.
const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Most text of an answer that is matched against patterns, in bytes; model limits allow little more.
const MATCHED_BYTES_MAX: usize = 32 * 1024;
const VIOLATIONS_MAX: usize = 5;
/// Longest text of one violation, which repeats model output.
const VIOLATION_CHARS_MAX: usize = 200;
/// Most values in an answer for which all violations are searched; beyond it only the first is reported.
const VALUES_MAX: usize = 1000;

/// Reason that a schema cannot be used; the text has the schema as its subject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// Violations of a schema by an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Violations(Vec<String>);

/// Compiled schema for validating answers.
pub struct OutputSchema {
    value: Value,
    bytes: usize,
    validator: Validator,
    takes_words: bool,
    has_patterns: bool,
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.value).finish()
    }
}

impl OutputSchema {
    /// Keeps the schema for backends, but validates answers by `judge`, for readers that fix values out of
    /// bounds themselves.
    pub fn validated_by(self, judge: Value) -> Result<OutputSchema, SchemaError> {
        let OutputSchema { validator, has_patterns, .. } = OutputSchema::compile(judge)?;
        Ok(OutputSchema { validator, has_patterns, ..self })
    }

    /// Compiles `value`; an error if it is not usable as a schema.
    pub fn compile(value: Value) -> Result<OutputSchema, SchemaError> {
        if !value.is_object() {
            return Err(SchemaError("must be a JSON object".to_owned()));
        }
        // The depth is checked first, because every other check recurses.
        if deeper_than(&value, DEPTH_MAX) {
            return Err(SchemaError(format!("is nested deeper than {DEPTH_MAX} levels")));
        }
        let bytes = value.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(SchemaError(format!(
                "is {bytes} bytes long; at most {SCHEMA_BYTES_MAX} are taken"
            )));
        }
        let has_patterns = cost::check(&value)? > 0;
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(patterns)
            .build(&value)
            .map_err(|error| refused(&error))?;
        Ok(OutputSchema { value, bytes, validator, takes_words: false, has_patterns })
    }

    /// Accepts plain text as well, for a reader that takes text if the model returns no JSON.
    #[must_use]
    pub fn or_text(self) -> OutputSchema {
        OutputSchema { takes_words: true, ..self }
    }

    /// Returns true if plain text is accepted where the model returns no JSON.
    pub fn accepts_text(&self) -> bool {
        self.takes_words
    }

    /// Returns the schema as given.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the length as compact JSON in bytes, as in a prompt.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if text of an answer is matched against patterns, which may take long.
    pub fn has_patterns(&self) -> bool {
        self.has_patterns
    }

    /// Validates `answer`.
    pub fn validate(&self, answer: &Value) -> Result<(), Violations> {
        if deeper_than(answer, DEPTH_MAX) {
            return Err(Violations(vec![format!("it is nested deeper than {DEPTH_MAX} levels")]));
        }
        if self.has_patterns && text_bytes(answer) > MATCHED_BYTES_MAX {
            let told =
                format!("it has more than {MATCHED_BYTES_MAX} bytes of text to match patterns");
            return Err(Violations(vec![told]));
        }
        if self.validator.is_valid(answer) {
            return Ok(());
        }
        let told: Vec<String> = if values(answer) > VALUES_MAX {
            self.validator.validate(answer).err().iter().map(told).collect()
        } else {
            self.validator.iter_errors(answer).take(VIOLATIONS_MAX).map(|e| told(&e)).collect()
        };
        Err(Violations(told))
    }
}

/// Converts the error of a schema that does not compile.
fn refused(error: &ValidationError<'_>) -> SchemaError {
    SchemaError(match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => format!(
            "has a pattern at {} that is no regular expression, is too large, or looks around or back",
            at(&error.instance_path().to_string())
        ),
        _ => format!("is not a usable JSON Schema: {}", told(error)),
    })
}

/// Returns a JSON pointer for display; `/` for the empty one.
fn at(place: &str) -> &str {
    if place.is_empty() { "/" } else { place }
}

/// Formats a violation with its place, truncated.
fn told(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let mut text = format!("{}: {error}", at(&place));
    if let Some((at, _)) = text.char_indices().nth(VIOLATION_CHARS_MAX) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// Returns true if a value is nested in more than `levels` arrays and objects.
fn deeper_than(value: &Value, levels: usize) -> bool {
    let is_nested = value.is_array() || value.is_object();
    is_nested && (levels == 0 || inner(value).any(|inner| deeper_than(inner, levels - 1)))
}

/// Returns the bytes of all text in `value`, property names included.
fn text_bytes(value: &Value) -> usize {
    let own: usize = match value {
        Value::String(text) => text.len(),
        Value::Object(fields) => fields.keys().map(String::len).sum(),
        _ => 0,
    };
    own + inner(value).map(text_bytes).sum::<usize>()
}

/// Returns the number of values in `value`, itself included.
fn values(value: &Value) -> usize {
    1 + inner(value).map(values).sum::<usize>()
}

/// Returns the values directly inside an array or object.
fn inner(value: &Value) -> impl Iterator<Item = &Value> {
    let (items, fields) = (value.as_array(), value.as_object());
    items.into_iter().flatten().chain(fields.into_iter().flat_map(Map::values))
}
