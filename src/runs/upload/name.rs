//! Name of a stored upload: random, ordered by time on one node, never chosen by a caller.

use std::{fmt, str::FromStr};

use media::{NodeTag, WallTime};

/// Hexadecimal digits of a name: 4 of the node's tag, if any, 12 of the time, the rest random.
const DIGITS: usize = 32;
const EXTENSION_MAX: usize = 5;
/// Maximum bytes of an uploader's file name.
const ORIGINAL_NAME_MAX: usize = 255;

/// 32 hexadecimal digits, a dot and an extension; later names of a node sort after earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredName(Box<str>);

impl StoredName {
    /// Creates the name of a file that arrived at `at`; begins with the tag of the node, if any.
    pub fn new(tag: Option<NodeTag>, at: WallTime, extension: &str) -> StoredName {
        let time = u64::try_from(at.epoch_ms).unwrap_or(0) & 0xffff_ffff_ffff;
        let chance = crate::base::hex(&crate::base::random_bytes::<10>());
        let tag = tag.map(|tag| tag.to_string()).unwrap_or_default();
        let mut digits = format!("{tag}{time:012x}{chance}");
        digits.truncate(DIGITS);
        StoredName(format!("{digits}.{extension}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StoredName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for StoredName {
    type Err = ();

    fn from_str(text: &str) -> Result<StoredName, ()> {
        let (digits, extension) = text.split_once('.').ok_or(())?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = digits.len() == DIGITS
            && digits.bytes().all(is_hex)
            && (1..=EXTENSION_MAX).contains(&extension.len())
            && extension.bytes().all(is_plain);
        if fits { Ok(StoredName(text.into())) } else { Err(()) }
    }
}

/// Returns the last component of an uploader's file name, truncated to the maximum.
pub(super) fn last_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    last[..last.floor_char_boundary(ORIGINAL_NAME_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_are_names() {
        let tag: NodeTag = "00ff".parse().expect("a tag");
        let tagged = StoredName::new(Some(tag), WallTime { epoch_ms: 1 }, "mp4");
        assert!(tagged.as_str().starts_with("00ff000000000001"), "{tagged}");
        assert_eq!(tagged.as_str().parse(), Ok(tagged.clone()));
        let at = |epoch_ms| StoredName::new(None, WallTime { epoch_ms }, "mp4");
        let (early, late) = (at(1_700_000_000_000), at(1_700_000_000_001));
        assert!(early < late, "{early} {late}");
        assert_eq!(early.as_str().parse(), Ok(early.clone()));
        let hex = "0".repeat(32);
        let cases = [
            ("", false),
            ("a.mp4", false),
            (&hex, false),
            (&format!("{hex}."), false),
            (&format!("{hex}.mp4"), true),
            (&format!("{hex}.MP4"), false),
            (&format!("{hex}.mp4.x"), false),
            (&format!("{hex}.toolong"), false),
            (&format!("../{hex}.mp4"), false),
            (&format!("{}g.mp4", &hex[1..]), false),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<StoredName>().is_ok(), expected, "{text}");
        }
    }
}
