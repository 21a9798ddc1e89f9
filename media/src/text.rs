//! Escaping of external text for logs and terminals.

use std::borrow::Cow;

/// Returns true for control characters, line breaks, and characters that reorder the text around them.
pub fn is_hidden(c: char) -> bool {
    let reorders = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Returns true if `text` has a character for which [`is_hidden`] is true.
pub fn has_hidden(text: &str) -> bool {
    text.contains(is_hidden)
}

/// Returns `text` on one line, hidden characters shown as escapes such as `\n` or `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !has_hidden(text) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hidden_is_left() {
        for (text, shown) in [
            ("Größe 5 \u{1f3a5}", "Größe 5 \u{1f3a5}"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\x1b[2J", "\\u{1b}[2J"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("a\u{202e}b\u{2066}c\u{200f}", "a\\u{202e}b\\u{2066}c\\u{200f}"),
            ("a\u{2028}b", "a\\u{2028}b"),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }
}
