//! A caller's JSON Schema: checked so that neither compiling nor applying it can cost much.
//!
//! Promises a bounded schema (bytes, depth, patterns, work a level of the answer), references into
//! itself only, and patterns that match in linear time. Nothing is ever fetched.

mod cost;
#[cfg(test)]
mod tests;

use std::fmt;

use jsonschema::{PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use media::ErrorKind;
use serde_json::Value;

/// Longest schema, as compact JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of a schema, and of an answer that is held against one.
pub const DEPTH_MAX: usize = 32;
/// Most regular expressions of a schema.
const PATTERNS_MAX: usize = 64;
/// Memory of one compiled regular expression, and of its cache.
const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Text of an answer that is held against patterns; what a model may write at most has little more.
const MATCHED_BYTES_MAX: usize = 32 * 1024;
/// Violations that are told.
const VIOLATIONS_MAX: usize = 5;
/// Longest text of one violation: it repeats what the model wrote.
const VIOLATION_CHARS_MAX: usize = 200;
/// Values an answer may hold for every violation to be looked for; past it the first one is told.
const VALUES_MAX: usize = 1000;

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema is not an object.
    #[error("must be a JSON object")]
    NotAnObject,
    /// Too long.
    #[error("is {bytes} bytes long; at most {SCHEMA_BYTES_MAX} are taken")]
    TooLarge {
        /// Its length as compact JSON.
        bytes: usize,
    },
    /// Nested too deeply.
    #[error("is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// A keyword whose value could lead out of the schema, or that moves the base of references.
    #[error(
        "must not use {keyword} at {}: references are # and a place or an anchor in the schema itself",
        at(.place)
    )]
    Reference {
        /// The keyword.
        keyword: &'static str,
        /// JSON pointer to the object that holds it.
        place: String,
    },
    /// A reference to nothing.
    #[error("has a $ref to a place that is not there, at {}", at(.place))]
    Dangling {
        /// JSON pointer to the object that holds it.
        place: String,
    },
    /// Too many patterns.
    #[error("has more than {PATTERNS_MAX} patterns")]
    TooManyPatterns,
    /// A pattern that is not matched in bounded memory and time.
    #[error(
        "has a pattern at {} that is no regular expression, is too large, or looks around or back",
        at(.place)
    )]
    Pattern {
        /// JSON pointer to the pattern.
        place: String,
    },
    /// Holding an answer against it could take for ever.
    #[error("is recursive in more than one way, or repeats itself too often")]
    TooComplex,
    /// The schema is invalid, or uses what is not supported.
    #[error("is not a usable JSON Schema: {0}")]
    Invalid(String),
}

impl SchemaError {
    /// The closed kind.
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidInput
    }
}

/// Ways in which an answer does not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Violations(Vec<String>);

/// A schema that answers are held against.
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
    /// The same for backends, where an answer need only match `judge`: what is beyond a bound is
    /// mended by its reader, and not asked for again.
    pub fn validated_by(self, judge: Value) -> Result<OutputSchema, SchemaError> {
        let OutputSchema { validator, has_patterns, .. } = OutputSchema::compile(judge)?;
        Ok(OutputSchema { validator, has_patterns, ..self })
    }

    /// `value` as a schema, if it is one that can be used.
    pub fn compile(value: Value) -> Result<OutputSchema, SchemaError> {
        if !value.is_object() {
            return Err(SchemaError::NotAnObject);
        }
        // Depth first: every other look at it recurses.
        if deeper_than(&value, DEPTH_MAX) {
            return Err(SchemaError::TooDeep);
        }
        let bytes = value.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLarge { bytes });
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

    /// The same for a reader who takes plain words where a model gives no JSON.
    #[must_use]
    pub fn or_text(self) -> OutputSchema {
        OutputSchema { takes_words: true, ..self }
    }

    /// Plain words are an answer too, where there is no JSON.
    pub fn accepts_text(&self) -> bool {
        self.takes_words
    }

    /// The schema as it was given.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Its length as compact JSON, in which it stands in a prompt.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Some text of an answer is held against a pattern, which may take long.
    pub fn has_patterns(&self) -> bool {
        self.has_patterns
    }

    /// Checks that `answer` matches.
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

/// Error of a schema that does not compile.
fn refused(error: &ValidationError<'_>) -> SchemaError {
    match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => {
            SchemaError::Pattern { place: error.instance_path().to_string() }
        }
        _ => SchemaError::Invalid(told(error)),
    }
}

/// A JSON pointer for people: the empty one says nothing to them.
fn at(place: &str) -> &str {
    if place.is_empty() { "/" } else { place }
}

/// A violation and its place, cut.
fn told(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let mut text = format!("{}: {error}", at(&place));
    if let Some((at, _)) = text.char_indices().nth(VIOLATION_CHARS_MAX) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// Some value lies below more than `levels` arrays and objects.
fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(|item| deeper_than(item, levels - 1)),
        Value::Object(fields) => fields.values().any(|field| deeper_than(field, levels - 1)),
        _ => false,
    }
}

/// Bytes of every text in `value`, names included.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| name.len() + text_bytes(field)).sum()
        }
        _ => 0,
    }
}

/// Number of values in `value`, itself included.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        _ => 1,
    }
}
