//! Search of a program's stderr for errors about the media.

use std::io::{self, Read};

/// Texts of error levels in a line, and H.264's message about concealed damage.
const COMPLAINTS: [&[u8]; 4] = [b"[error]", b"[fatal]", b"[panic]", b"concealing"];

/// Last bytes of stderr that are kept, because a message may arrive in parts.
const TAIL_BYTES: usize = 240;

/// Most bytes of stderr between two pictures; with more, some may have been dropped by the pipe.
const SAID_BYTES_MAX: usize = 32 << 10;

pub(super) struct StderrScanner {
    said: Box<dyn Read + Send>,
    tail: Vec<u8>,
}

impl StderrScanner {
    /// Scans `said`, whose reads must not block.
    pub(super) fn new(said: Box<dyn Read + Send>) -> StderrScanner {
        StderrScanner { said, tail: Vec::new() }
    }

    /// Returns true if stderr has an error since the last call; a failed read or too much text counts as one.
    pub(super) fn heard(&mut self) -> bool {
        let (mut part, mut bytes) = ([0; 4096], 0);
        loop {
            match self.said.read(&mut part) {
                Ok(0) => return false,
                Ok(len) => {
                    bytes += len;
                    self.tail.extend_from_slice(&part[..len]);
                    if bytes > SAID_BYTES_MAX || COMPLAINTS.iter().any(|it| holds(&self.tail, it)) {
                        return true;
                    }
                    let excess = self.tail.len().saturating_sub(TAIL_BYTES);
                    self.tail.drain(..excess);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Returns the last line of stderr without control characters.
    pub(super) fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.tail);
        let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        line.chars().filter(|letter| !letter.is_control()).collect()
    }
}

fn holds(text: &[u8], words: &[u8]) -> bool {
    text.windows(words.len()).any(|window| window == words)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Returns one part per read, then `WouldBlock`.
    struct Parts(VecDeque<Vec<u8>>);

    impl Read for Parts {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let Some(part) = self.0.pop_front() else {
                return Err(io::ErrorKind::WouldBlock.into());
            };
            out[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        }
    }

    #[test]
    fn a_complaint_is_heard_however_it_comes() {
        let many = vec!["[info] x".repeat(500); 9];
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let rows: [(&str, &[&str], bool); 8] = [
            ("nothing", &[], false),
            ("what ffmpeg says of every file", &["[info] Input #0, ivf, from 'pipe:0':\n"], false),
            ("an error", &["[hevc @ 0x5] [error] Could not find ref with POC 3\n"], true),
            ("in parts", &["[h264 @ 0x5] ", "[err", "or] ", "no frame!\n"], true),
            ("in passing", &["[h264 @ 0x5] [info] concea", "ling 8 DC errors\n"], true),
            ("a warning", &["[vp9 @ 0x5] [warning] errors are near\n"], false),
            ("at its end", &["[fatal] Exiting.\n", ""], true),
            ("more than can be followed", &many, true),
        ];
        for (name, parts, expected) in rows {
            let parts = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
            let mut complaints = StderrScanner::new(Box::new(Parts(parts)));
            assert_eq!(complaints.heard(), expected, "{name}");
        }
    }

    #[test]
    fn the_last_line_is_kept() {
        let said = ["[info] Input #0\n[fatal] no ", "\x1b[31mframe\n\n"];
        let parts = said.iter().map(|part| part.as_bytes().to_vec()).collect();
        let mut complaints = StderrScanner::new(Box::new(Parts(parts)));
        assert_eq!(complaints.last_words(), "");
        assert!(complaints.heard());
        assert_eq!(complaints.last_words(), "[fatal] no ");
        complaints.heard();
        assert_eq!(complaints.last_words(), "[fatal] no [31mframe");
    }
}
