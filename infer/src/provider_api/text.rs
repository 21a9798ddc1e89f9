//! Post-processing of answer text: removes hidden reasoning and extracts JSON.

use serde_json::Value;

use crate::FinishReason;

/// White space characters in a row from which a model counts as lost: a grammar permits white space between
/// any two tokens of JSON, and some models never leave it.
const WHITE_SPACE_MAX: usize = 64;

/// Returns `text` without `<think>…</think>`. Templates that open the block themselves leave only the closing
/// tag, at the end of a line or before JSON; elsewhere the tag belongs to the answer and may have been read
/// in a picture. A block cut off by the token limit has no closing tag.
pub(crate) fn without_thinking(text: &str, finish: FinishReason) -> String {
    const OPEN: &str = "<think>";
    const CLOSE: &str = "</think>";
    let trimmed = text.trim_start();
    let after = match (trimmed.strip_prefix(OPEN), trimmed.split_once(CLOSE)) {
        (Some(_), Some((_, after))) => after,
        (Some(_), None) if finish == FinishReason::Length => "",
        (Some(inside), None) => inside,
        // Closing tag without an opening tag: the text before it is reasoning.
        (None, Some((before, after)))
            if !before.contains(OPEN)
                && (after.starts_with(['\n', '\r']) || json(after).is_some())
                && json(trimmed).is_none() =>
        {
            after
        }
        _ => return text.to_owned(),
    };
    after.trim_start().to_owned()
}

/// Parses `text` as JSON, with or without a Markdown fence around it.
pub(crate) fn json(text: &str) -> Option<Value> {
    let bare = text.trim();
    let fenced = bare.strip_prefix("```").and_then(|inside| inside.strip_suffix("```"));
    let inside = fenced.map_or(bare, |inside| inside.strip_prefix("json").unwrap_or(inside));
    // The caller names the fault of text that is not JSON.
    serde_json::from_str(inside.trim()).ok()
}

/// Returns true if the model wrote words and did not begin with JSON.
pub(crate) fn is_plain_text(text: &str) -> bool {
    let bare = text.trim();
    !bare.starts_with(['{', '[', '`', '"']) && bare.chars().any(char::is_alphabetic)
}

/// Returns true if the text is blank, or ends in so much white space that it would have gone on.
pub(crate) fn fades_out(text: &str) -> bool {
    let words = text.trim_end();
    words.is_empty() || text[words.len()..].chars().nth(WHITE_SPACE_MAX - 1).is_some()
}

/// Returns true if the text contains a longer run of white space than JSON needs.
pub(crate) fn lost_in_white_space(text: &str) -> bool {
    let mut run = 0;
    text.chars().any(|c| {
        run = if c.is_whitespace() { run + 1 } else { 0 };
        run >= WHITE_SPACE_MAX
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{fades_out, is_plain_text, json, lost_in_white_space, without_thinking};
    use crate::FinishReason;

    #[test]
    fn thinking_is_taken_off_however_it_is_marked() {
        use FinishReason::{Length, Stop};
        let cases = [
            ("none", "a car", Stop, "a car"),
            ("a block", "<think>hm</think>a car", Stop, "a car"),
            ("a block on lines", "\n<think>\nhm\n</think>\n\na car", Stop, "a car"),
            ("an empty block", "<think></think>a car", Stop, "a car"),
            ("only its end", "hm hm</think>\na car", Stop, "a car"),
            ("its end and JSON", "hm</think>{\"a\":1}", Stop, "{\"a\":1}"),
            ("a sign", "it says </think> stop", Stop, "it says </think> stop"),
            ("a sign in JSON", "{\"a\":\"</think>\\n\"}", Stop, "{\"a\":\"</think>\\n\"}"),
            ("out of room in it", "<think>hm hm", Length, ""),
            ("never closed", "<think>a car", Stop, "a car"),
            ("as a word later", "say <think>x</think>", Stop, "say <think>x</think>"),
        ];
        for (name, text, finish, expected) in cases {
            assert_eq!(without_thinking(text, finish), expected, "{name}");
        }
    }

    #[test]
    fn json_is_found_in_a_fence_and_nowhere_else() {
        let cases = [
            ("bare", "{\"a\":1}", Some(json!({"a": 1}))),
            ("fenced", "```json\n{\"a\":1}\n```", Some(json!({"a": 1}))),
            ("fenced without a name", " ```\n[1]\n``` ", Some(json!([1]))),
            ("after words", "Here it is: {\"a\":1}", None),
            ("before words", "{\"a\":1} I hope", None),
            ("cut", "{\"a\":", None),
            ("empty", "", None),
        ];
        for (name, text, expected) in cases {
            assert_eq!(json(text), expected, "{name}");
        }
    }

    #[test]
    fn words_are_told_from_json_that_broke() {
        for (text, expected) in [
            ("A van waits.", true),
            ("\n2 vans", true),
            ("{", false),
            ("[\"a van\"", false),
            ("```json\n{", false),
            ("\"a van\"", false),
            ("...", false),
            ("", false),
        ] {
            assert_eq!(is_plain_text(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_text_that_fades_out_ends_in_white_space_alone() {
        let table = format!("a{}b", " ".repeat(200));
        let cases = [
            ("", true),
            ("\n \n", true),
            ("a car", false),
            ("a car\n\n", false),
            (&format!("a car{}", "\u{a0}".repeat(63)), false),
            (&format!("a car{}", "\u{a0}".repeat(64)), true),
            (&table, false),
        ];
        for (text, expected) in cases {
            assert_eq!(fades_out(text), expected, "{text:?}");
        }
    }

    #[test]
    fn white_space_without_end_is_told_from_indentation() {
        assert!(lost_in_white_space(&format!("{{\"a\":1,{}", "\n ".repeat(40))));
        assert!(!lost_in_white_space("{\n        \"a\": 1,\n        \"b\": 2\n}"));
    }
}
