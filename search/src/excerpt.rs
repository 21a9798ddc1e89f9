//! Excerpt of an original text around a match in its folded form.

use crate::case_fold::{FoldedPattern, folded};

/// Maximum bytes of text on each side of the match.
pub const CONTEXT_BYTES: usize = 80;

/// Returns the part of `text` around the first match of the pattern.
///
/// All characters that the match touches are included. Longer texts are cut to at most [`CONTEXT_BYTES`]
/// bytes before and after the match, between characters. Without a match, returns the beginning of the text.
pub fn excerpt<'a>(text: &'a str, pattern: &FoldedPattern) -> &'a str {
    let mut all = Vec::with_capacity(text.len());
    crate::case_fold::fold_into(text, &mut all);
    let at = pattern.find(&all);
    let (start, end) = at.map_or((0, 0), |at| original(text, at, at + pattern.folded_len()));
    let (least, most) = (start.saturating_sub(CONTEXT_BYTES), end + CONTEXT_BYTES);
    &text[text.ceil_char_boundary(least)..text.floor_char_boundary(most)]
}

/// Range of `text` whose characters fold into the non-empty byte range `from..to`.
fn original(text: &str, from: usize, to: usize) -> (usize, usize) {
    let mut at = 0;
    let mut start = 0;
    for (position, c) in text.char_indices() {
        if at <= from {
            start = position;
        }
        at += folded(c).map(char::len_utf8).sum::<usize>();
        if at >= to {
            return (start, position + c.len_utf8());
        }
    }
    (start, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, query: &str) -> String {
        excerpt(text, &FoldedPattern::new(query).expect("not empty")).to_owned()
    }

    #[test]
    fn a_short_text_comes_whole_and_as_it_was_written() {
        assert_eq!(of("A RED car", "red"), "A RED car");
        assert_eq!(of("A RED car", "nothing"), "A RED car");
        assert_eq!(of("", "x"), "");
    }

    #[test]
    fn a_long_text_is_cut_between_characters_around_the_match() {
        let text = format!("{}Straße{}", "é".repeat(100), "日".repeat(100));
        let (before, after) = ("é".repeat(40), "日".repeat(26));
        assert_eq!(of(&text, "STRASSE"), format!("{before}Straße{after}"));
        // A match of half of the folded `ß` includes the whole `ß`.
        assert_eq!(of(&text, "ras"), format!("{}Straße{after}", "é".repeat(39)));
    }
}
