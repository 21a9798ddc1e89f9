//! Identifiers, each of its own type and parsed once at the system boundary.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use crate::ParseError;

fn hex_into<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let nibble = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

macro_rules! hex_ids {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $prefix:literal, $bytes:literal, $form:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Creates the id from bytes of the OS RNG or of a digest.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> $name {
                $name(bytes)
            }

            /// Returns the bytes that the hexadecimal digits encode.
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// Returns the first eight bytes as a little-endian number, to seed a generator per id.
            pub fn seed(&self) -> u64 {
                let mut first = [0; 8];
                first.copy_from_slice(&self.0[..8]);
                u64::from_le_bytes(first)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<$name, ParseError> {
                text.strip_prefix($prefix).and_then(hex_into).map($name).ok_or(ParseError {
                    what: $what,
                    problem: concat!("must be ", $form, " lower-case hexadecimal digits"),
                })
            }
        }
    )*};
}

hex_ids! {
    /// Names a run: `run-` and 32 hexadecimal digits.
    RunId, "run id", "run-", 16, "run- and 32";
    /// Names a live session: `sess-` and 32 hexadecimal digits.
    SessionId, "session id", "sess-", 16, "sess- and 32";
    /// Names a marker: `mk-` and 16 hexadecimal digits of a digest of its content.
    MarkerId, "marker id", "mk-", 8, "mk- and 16";
    /// Names an analysis of a stream: `an-` and 16 hexadecimal digits of a digest of its parameters.
    AnalysisId, "analysis id", "an-", 8, "an- and 16";
    /// Names a request: `req-` and 16 hexadecimal digits.
    RequestId, "request id", "req-", 8, "req- and 16";
    /// Names a caller's feedback on a run: `fb-` and 32 hexadecimal digits.
    FeedbackId, "feedback id", "fb-", 16, "fb- and 32";
    /// Names a webhook: `wh-` and 32 hexadecimal digits.
    WebhookId, "webhook id", "wh-", 16, "wh- and 32";
    /// Names a job of a run: `job-` and 32 hexadecimal digits.
    JobId, "job id", "job-", 16, "job- and 32";
    /// SHA-256 of a stored blob: 64 hexadecimal digits.
    BlobHash, "SHA-256", "", 32, "64";
}

/// Names a node of a cluster: four hexadecimal digits with which the ids made by that node begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTag([u8; 2]);

impl NodeTag {
    /// Returns the bytes that the digits encode.
    pub const fn as_bytes(&self) -> &[u8; 2] {
        &self.0
    }
}

impl fmt::Display for NodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl FromStr for NodeTag {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<NodeTag, ParseError> {
        let problem = "must be four lower-case hexadecimal digits";
        hex_into(text).map(NodeTag).ok_or(ParseError { what: "node tag", problem })
    }
}

/// Position of an event in the server's total order, from 1; also the cursor of readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Permitted length of a label, in bytes.
pub const LABEL_BYTES: RangeInclusive<usize> = 1..=128;

fn check_label(what: &'static str, text: &str) -> Result<(), ParseError> {
    if !LABEL_BYTES.contains(&text.len()) {
        return Err(ParseError { what, problem: "must be 1 to 128 bytes" });
    }
    if text.chars().any(char::is_control) {
        return Err(ParseError { what, problem: "must hold no control character" });
    }
    Ok(())
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Returns the text, which is never empty.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<$name, ParseError> {
                check_label($what, text).map(|()| $name(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

labels! {
    /// Names a stream within a run: 1 to 128 bytes, no control characters.
    StreamId, "stream id";
    /// A caller's own short name, such as `index_name`: 1 to 128 bytes, no control characters.
    Label, "label";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_what_they_parse_and_refuse_the_rest() {
        let text = "run-000102030405060708090a0b0c0d0eff";
        assert_eq!(text.parse::<RunId>().expect("valid").to_string(), text);
        let cases = [
            "",
            "run-",
            "000102030405060708090a0b0c0d0eff",
            "run-000102030405060708090A0B0C0D0EFF",
            "run-000102030405060708090a0b0c0d0ef",
            "run-000102030405060708090a0b0c0d0eff0",
            "sess-000102030405060708090a0b0c0d0eff",
            "run-000102030405060708090a0b0c0d0eé",
        ];
        for case in cases {
            let problem = case.parse::<RunId>().expect_err(case).problem;
            assert_eq!(problem, "must be run- and 32 lower-case hexadecimal digits", "{case}");
        }
    }

    #[test]
    fn labels_have_a_length_and_no_control_characters() {
        assert!("a".repeat(128).parse::<StreamId>().is_ok());
        assert!("a".repeat(129).parse::<StreamId>().is_err());
        assert!("é".repeat(64).parse::<Label>().is_ok());
        assert!("é".repeat(65).parse::<Label>().is_err(), "bytes are counted");
        for text in ["", "cam\n1", "a\u{7f}", "\u{85}"] {
            assert!(text.parse::<Label>().is_err(), "{text:?}");
        }
        assert!("<b>'\"\\ \u{202e}\u{1f6a7}".parse::<Label>().is_ok());
    }
}
