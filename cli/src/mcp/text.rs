//! Text for an assistant: JSON of bounded length, with hidden characters escaped.

use std::fmt::Write;

use media::is_hidden;
use rmcp::model::ContentBlock;
use serde_json::Value;

/// Most characters of a text shown on its own.
pub const TEXT: usize = 4000;
/// Most characters of a text shown among others.
pub const BRIEF: usize = 300;

pub fn block(value: &Value) -> ContentBlock {
    ContentBlock::text(json(value))
}

/// Serializes `value`; escapes hidden characters in strings, which changes no value.
pub fn json(value: &Value) -> String {
    let json = value.to_string();
    if !json.contains(is_covert) {
        return json;
    }
    let mut shown = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_covert(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(shown, "\\u{unit:04x}").expect("a string takes all");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns true for a character that is invisible to people but read by models.
fn is_covert(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{ad}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e01ef}'
    );
    is_hidden(c) || unseen
}

/// Returns the first `most` characters of `text`, with the number of omitted ones.
pub fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => {
            format!("{}… ({} more characters)", &text[..end], text[end..].chars().count())
        }
    }
}

/// Returns the fields `names` of `record`, strings clipped; leaves out fields that are null or missing.
pub fn picked(record: &Value, names: &[&str]) -> Value {
    let kept = names.iter().filter_map(|name| {
        let value = record.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), brief(value)))
    });
    Value::Object(kept.collect())
}

/// Returns `value` with clipped strings, and lists replaced by their length.
fn brief(value: &Value) -> Value {
    match value {
        Value::String(text) => clipped(text, BRIEF).into(),
        Value::Array(items) => format!("{} items", items.len()).into(),
        Value::Object(fields) => {
            let fields = fields.iter().take(32);
            fields.map(|(name, value)| (clipped(name, BRIEF), brief(value))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_hidden_is_left_and_no_value_changes() {
        for hostile in [
            "a\u{1b}[2J\u{202e}b\nc",
            "tags \u{e0041}\u{e0042}, zero \u{200b}width, \u{feff}, \u{e0100}",
            "\"quoted\" \\ Größe \u{1f3a5}\u{fe0f}",
        ] {
            let value = json!({ hostile: hostile });
            let shown = json(&value);
            assert!(!shown.contains(is_covert), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), value);
        }
    }

    #[test]
    fn long_texts_say_how_much_is_missing() {
        assert_eq!(clipped("äöü", 3), "äöü");
        assert_eq!(clipped("äöüß", 2), "äö… (2 more characters)");
        let record =
            json!({"a": "x".repeat(BRIEF + 1), "b": null, "c": [1, 2], "d": {"e": [3]}, "f": 1});
        let expected = json!({
            "a": format!("{}… (1 more characters)", "x".repeat(BRIEF)),
            "c": "2 items", "d": {"e": "1 items"},
        });
        assert_eq!(picked(&record, &["a", "b", "c", "d", "g"]), expected);
    }
}
