//! Findings of a model about images, in the vocabulary of events and markers.
//!
//! Reading never fails, because the answer was validated before. Of an answer by a caller's own schema, only
//! the fields that are also in the default schema are read.

use std::sync::{Arc, LazyLock};

use media::{EventType, LABEL_BYTES, Score};
use serde_json::{Value, json};

use crate::OutputSchema;

/// Most bytes kept of a summary.
pub const SUMMARY_BYTES_MAX: usize = 512;
/// Most bytes kept of a description.
pub const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// Returns the JSON Schema of an answer if the caller gives none.
///
/// Every field is required and no others are allowed, as strict modes of backends require. Texts have a
/// maximum length, else a small model under a grammar may never close one; the confidence has bounds, else 7
/// of 10 would pass for certainty. The confidence comes last, because a model that writes the fields in order
/// has described the image by then.
pub fn default_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let text = |chars_max: u32, says: &str| json!({ "type": "string", "maxLength": chars_max, "description": says });
        json!({
            "type": "object",
            "properties": {
                "event_type": text(64, "What happens, one to four words such as person_enters"),
                "object_label": text(64, "The main object or person, such as car; empty for none"),
                "summary": text(300, "One sentence"),
                "description": text(1500, "Everything that can be seen and matters, a few sentences"),
                "confidence": { "type": "number", "minimum": 0, "maximum": 1, "description": "How sure you are, 0 to 1" },
            },
            "required": ["event_type", "object_label", "summary", "description", "confidence"],
            "additionalProperties": false,
        })
    });
    &SCHEMA
}

/// Returns the default schema for backends; validation ignores its lengths, because many backends enforce
/// none and a long description is truncated.
pub fn default_answer() -> Arc<OutputSchema> {
    static SCHEMA: LazyLock<Arc<OutputSchema>> = LazyLock::new(|| {
        let mut judge = default_schema().clone();
        for field in judge["properties"].as_object_mut().into_iter().flatten() {
            field.1.as_object_mut().and_then(|schema| schema.remove("maxLength"));
        }
        let schema = OutputSchema::compile(default_schema().clone());
        let schema = schema.and_then(|schema| schema.validated_by(judge));
        Arc::new(schema.expect("a schema of ours is usable").or_text())
    });
    Arc::clone(&SCHEMA)
}

/// Finding of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// Normalised action; `None` if the model gave none.
    pub event_type: Option<EventType>,
    /// Normalised object of the action; `None` if the model gave none.
    pub object_label: Option<String>,
    /// Summary on one line.
    pub summary: String,
    /// Description, which may have several lines.
    pub description: String,
    /// Confidence of the model; `None` if the model gave none.
    pub confidence: Option<Score>,
    /// True if the description was truncated.
    pub truncated: bool,
}

impl Finding {
    /// Creates a finding from plain text; event type, label and confidence are unknown.
    pub fn of_text(text: &str) -> Finding {
        let (description, truncated) = prose(text);
        Finding { summary: line(&description), description, truncated, ..Finding::default() }
    }

    /// Reads a finding from the JSON answer of a model.
    ///
    /// A missing summary or description is filled from the other. Without both, as by a caller's own schema,
    /// the whole answer is the description.
    pub fn read(answer: &Value) -> Finding {
        let text = |field: &str| answer.get(field).and_then(Value::as_str).unwrap_or_default();
        let label = |field: &str| Some(label(text(field))).filter(|label| !label.is_empty());
        let mut summary = line(text("summary"));
        let (mut description, mut truncated) = prose(text("description"));
        if description.is_empty() && summary.is_empty() {
            (description, truncated) = prose(&answer.to_string());
        } else if description.is_empty() {
            description.clone_from(&summary);
        }
        if summary.is_empty() {
            summary = line(&description);
        }
        Finding {
            event_type: label("event_type").map(|name| EventType::from_name(&name)),
            object_label: label("object_label"),
            summary,
            description,
            confidence: answer.get("confidence").and_then(Value::as_f64).map(confidence),
            truncated,
        }
    }
}

/// Converts a JSON number to a score, clamped to [0, 1].
pub fn confidence(said: f64) -> Score {
    Score::from_f64(said.clamp(0.0, 1.0)).unwrap_or_default()
}

/// Returns a label in lower case with its words joined by `_`.
pub fn normalised(label: &str) -> String {
    let words = label.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("_")
}

fn label(said: &str) -> String {
    truncate_body(&normalised(said), *LABEL_BYTES.end()).trim_end_matches('_').to_owned()
}

/// Returns `said` on one line of bounded length.
fn line(said: &str) -> String {
    let words = said.split(|c: char| c.is_whitespace() || c.is_control());
    let joined = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    truncate_body(&joined, SUMMARY_BYTES_MAX).trim_end().to_owned()
}

/// Returns `said` without control characters but newlines, of bounded length, and true if truncated.
fn prose(said: &str) -> (String, bool) {
    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    let (said, kept) = (said.trim(), truncate_body(said.trim(), DESCRIPTION_BYTES_MAX));
    (kept.chars().map(plain).collect(), kept.len() < said.len())
}

/// Returns the start of `text`, at most `bytes_max` bytes.
pub(crate) fn truncate_body(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: Value) -> Finding {
        Finding::read(&answer)
    }

    #[test]
    fn a_long_description_is_no_reason_to_ask_again() {
        let answer = |chars: usize, confidence: f64| {
            json!({
                "event_type": "van waits", "object_label": "van", "summary": "s".repeat(chars),
                "description": "d".repeat(chars), "confidence": confidence,
            })
        };
        let schema = default_answer();
        assert_eq!(schema.value(), default_schema(), "backends are told the lengths");
        assert!(schema.validate(&answer(20_000, 0.5)).is_ok());
        assert!(schema.validate(&answer(1, 7.0)).is_err(), "7 of 10 is no certainty");
        assert!(schema.validate(&json!({"summary": "s"})).is_err());
        assert_eq!(Finding::read(&answer(20_000, 0.5)).description.len(), DESCRIPTION_BYTES_MAX);
    }

    #[test]
    fn a_whole_answer_is_normalised() {
        let found = read(json!({
            "event_type": " Person ENTERS, the Room! ",
            "object_label": "Délivery-Van",
            "summary": "A van\n arrives.",
            "description": " A van arrives.\r\nIt stops. ",
            "confidence": 0.25,
        }));
        let expected = Finding {
            event_type: Some(EventType::from_name("person_enters_the_room")),
            object_label: Some("délivery_van".to_owned()),
            summary: "A van arrives.".to_owned(),
            description: "A van arrives. \nIt stops.".to_owned(),
            confidence: Score::from_f64(0.25).ok(),
            truncated: false,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn confidence_is_clamped() {
        let cases = [(json!(1.7), 1.0), (json!(-3), 0.0), (json!(0.5), 0.5), (json!(1), 1.0)];
        for (said, expected) in cases {
            let found = read(json!({ "confidence": said })).confidence.map(Score::as_f64);
            assert_eq!(found, Some(expected), "{said}");
        }
        for said in [json!("high"), json!(null), json!([])] {
            assert_eq!(read(json!({ "confidence": said })).confidence, None, "{said}");
        }
    }

    #[test]
    fn lengths_are_bounded_between_characters() {
        let found = read(json!({
            "event_type": "é".repeat(100), "object_label": "a ".repeat(100),
            "summary": "ü".repeat(1000), "description": "語".repeat(10_000),
        }));
        let event_type = found.event_type.expect("said");
        assert_eq!(event_type.as_str().len(), 128);
        let label = found.object_label.expect("said");
        assert!(label.len() <= 128 && label.ends_with('a'), "{label}");
        assert_eq!(found.summary.len(), SUMMARY_BYTES_MAX);
        assert_eq!(found.description.len(), DESCRIPTION_BYTES_MAX / 3 * 3);
        assert!(found.truncated);
        let whole = read(json!({"description": "d".repeat(DESCRIPTION_BYTES_MAX)}));
        assert!(!whole.truncated, "the longest that is kept");
        assert!(read(json!({"own": "x".repeat(20_000)})).truncated, "a caller's own answer too");
    }

    #[test]
    fn one_text_stands_for_both_and_an_unknown_answer_for_itself() {
        let both = |summary: &str, description: &str| {
            let found = read(json!({ "summary": summary, "description": description }));
            (found.summary, found.description)
        };
        assert_eq!(both("one", ""), ("one".to_owned(), "one".to_owned()));
        assert_eq!(both("", "a\nb"), ("a b".to_owned(), "a\nb".to_owned()));
        let own = read(json!({ "count": 3 }));
        assert_eq!(own.description, r#"{"count":3}"#);
        assert_eq!((own.event_type, own.object_label, own.confidence), (None, None, None));
        assert_eq!(read(json!([1])).description, "[1]");
    }

    #[test]
    fn a_label_of_signs_alone_is_none() {
        for said in ["", "  ", "!?", "--"] {
            let found = read(json!({ "event_type": said, "object_label": said }));
            assert_eq!((found.event_type, found.object_label), (None, None), "{said:?}");
        }
        assert_eq!(read(json!({"event_type": "Scene Cut"})).event_type, Some(EventType::SceneCut));
    }
}
