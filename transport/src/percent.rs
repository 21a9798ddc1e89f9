//! Strict percent-decoding (RFC 3986 2.1): a broken escape is an error, not a literal.

/// Decodes `encoded`; `None` if an escape is broken or the bytes are not UTF-8.
pub fn decode(encoded: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(digits[0])? << 4 | digit(digits[1])?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn broken_escapes_are_not_text() {
        let cases = [
            ("a%20b", Some("a b")),
            ("%C3%a9", Some("\u{e9}")),
            ("", Some("")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%+1", None),
            ("%ff", None),
        ];
        for (encoded, expected) in cases {
            assert_eq!(decode(encoded.as_bytes()).as_deref(), expected, "{encoded}");
        }
    }
}
