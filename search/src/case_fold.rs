//! Case folding: Unicode's full default folding, character by character, without normalisation.
//!
//! Pattern and text are folded alike, so `STRASSE` finds `straße`, `σ` finds `ς` and `k` finds the Kelvin
//! sign. A precomposed letter and its decomposed form remain different, `I` is `i` in every language, and
//! Turkish `İ` is `i` with a dot above.

use std::iter::once;

use caseless::Caseless;
use memchr::memmem::Finder;

/// Folds `c` into one to three characters.
pub(crate) fn folded(c: char) -> impl Iterator<Item = char> {
    once(c).default_case_fold()
}

/// Appends the folded `text` to `out`.
pub(crate) fn fold_into(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while !rest.is_empty() {
        let ascii = rest.bytes().position(|byte| !byte.is_ascii()).unwrap_or(rest.len());
        let (plain, other) = rest.split_at(ascii);
        out.extend(plain.bytes().map(|byte| byte.to_ascii_lowercase()));
        let mut chars = other.chars();
        if let Some(c) = chars.next() {
            folded(c).for_each(|c| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()));
        }
        rest = chars.as_str();
    }
}

/// Text to search for, folded once.
#[derive(Clone, Debug)]
pub struct FoldedPattern(Finder<'static>);

impl FoldedPattern {
    /// Folds `query`; returns `None` if it is empty and would match everything.
    pub fn new(query: &str) -> Option<FoldedPattern> {
        let mut folded = Vec::with_capacity(query.len());
        fold_into(query, &mut folded);
        (!folded.is_empty()).then(|| FoldedPattern(Finder::new(&folded).into_owned()))
    }

    /// Returns the first position of the pattern in folded text.
    pub(crate) fn find(&self, folded: &[u8]) -> Option<usize> {
        self.0.find(folded)
    }

    /// Length of the folded pattern in bytes.
    pub(crate) fn folded_len(&self) -> usize {
        self.0.needle().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(text: &str) -> String {
        let mut out = Vec::new();
        fold_into(text, &mut out);
        String::from_utf8(out).expect("folding makes text")
    }

    #[test]
    fn letters_fold_as_unicode_says() {
        let cases = [
            ("A Red CAR", "a red car"),
            ("Straße STRASSE", "strasse strasse"),
            ("ẞ ſ", "ss s"),
            ("ΟΔΟΣ οδος οδοσ", "οδοσ οδοσ οδοσ"),
            ("300 \u{212a}", "300 k"),
            ("\u{212b}ngström", "ångström"),
            ("ISTANBUL İI ıi", "istanbul i\u{307}i ıi"),
            ("ﬃ", "ffi"),
            ("ΐ", "ι\u{308}\u{301}"),
            ("e\u{301} É", "e\u{301} é"),
            ("日本語 ДОМ 🚗", "日本語 дом 🚗"),
            ("\0 a\u{7f}", "\0 a\u{7f}"),
        ];
        for (text, expected) in cases {
            assert_eq!(fold(text), expected, "{text}");
            assert_eq!(fold(text), caseless::default_case_fold_str(text), "{text}");
        }
    }

    #[test]
    fn an_empty_query_is_no_needle() {
        assert!(FoldedPattern::new("").is_none());
        assert_eq!(FoldedPattern::new("ß").map(|pattern| pattern.folded_len()), Some(2));
    }
}
