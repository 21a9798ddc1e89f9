//! Media that is recorded while it is read: pictures come as they are recorded.

use std::{
    io::{Cursor, ErrorKind, Read, Result, Seek, SeekFrom},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use clips::rendered;
use decode::{DemuxLimits, Demuxer, decode_file};

use crate::support::*;

/// Source that returns its bytes packet by packet.
struct Made {
    bytes: Cursor<Vec<u8>>,
    read: Arc<AtomicUsize>,
}

impl Read for Made {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let most = out.len().min(1316);
        let len = self.bytes.read(&mut out[..most])?;
        self.read.fetch_max(self.bytes.position() as usize, Relaxed);
        Ok(len)
    }
}

impl Seek for Made {
    /// Supports only seeking to the beginning.
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        match to {
            SeekFrom::Start(0) => self.bytes.seek(to),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }
}

#[test]
fn the_first_picture_beside_sound_waits_for_no_more_than_two_seconds() {
    let inputs = "-f lavfi -i testsrc=s=160x120:r=25 -f lavfi -i sine -t 10";
    let path = rendered("cast.ts", &format!("{inputs} -c:v libx264 -g 50 -c:a aac"));
    let (bytes, read) = (std::fs::read(&path).expect("made"), Arc::new(AtomicUsize::new(0)));
    let all = bytes.len();
    let input = Made { bytes: Cursor::new(bytes), read: Arc::clone(&read) };
    let demuxer = Demuxer::open_live(Box::new(input), DemuxLimits::default()).expect("recognised");
    assert_eq!(demuxer.stream().source_rate.map(|rate| rate.as_f64()), Some(25.0));
    let (mut first, mut pieces) = (None, 0);
    let sink = || recorder(false);
    let report = decode_file(demuxer.endless(), &every(2), sink, |frames| {
        if !frames.is_empty() {
            first.get_or_insert(read.load(Relaxed));
            pieces += 1;
        }
        ControlFlow::Continue(())
    });
    assert_eq!(report.expect("decodes").frames, 250);
    let first = first.expect("pictures");
    assert!(first < all / 5, "{first} of {all} bytes before the first");
    assert!(pieces > 200, "{pieces}: they come by themselves");
}
