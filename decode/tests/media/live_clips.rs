//! Undamaged clips as live streams: no damage is reported.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use decode::{DecodeError, DemuxLimits, Demuxer, LiveDecoder};

use crate::{live::open, support::first_pictures};

/// Returns the problems reported for the start of an undamaged clip.
fn complaints(path: &Path) -> Vec<String> {
    let input = Box::new(BufReader::new(File::open(path).expect("opens")));
    let demuxer = match Demuxer::open(input, DemuxLimits::default()) {
        Err(DecodeError::NoVideoStream(_)) => return Vec::new(),
        opened => opened.expect("media"),
    };
    let codec = demuxer.stream().codec;
    let (mut decoder, mut frames, mut pictures) = (open(codec), 0, 0);
    let mut found = Vec::new();
    for (at, picture) in
        demuxer.into_coded_pictures().take(first_pictures(path) as usize).enumerate()
    {
        pictures += 1;
        if let Err(error) = decoder.push(&picture.access_unit) {
            found.push(format!("{codec:?}, picture {at}: {error}"));
        }
        frames += polled(&mut decoder);
    }
    found.extend(decoder.flush().err().map(|error| format!("{codec:?}, at the end: {error}")));
    frames += polled(&mut decoder);
    // Tolerance for coded pictures that are not meant to be shown.
    if frames < pictures * 9 / 10 {
        found.push(format!("{codec:?}: {frames} frames of {pictures} pictures"));
    }
    found
}

fn polled(decoder: &mut LiveDecoder) -> usize {
    std::iter::from_fn(|| decoder.poll()).count()
}

#[test]
fn whole_clips_are_not_taken_for_damaged() {
    // Pictures of raw streams have no times.
    let is_raw = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "264");
    let clips: Vec<_> = clips::all().into_iter().filter(|path| !is_raw(path)).collect();
    assert!(clips.len() > 10, "{clips:?}");
    for path in clips {
        assert_eq!(complaints(&path), Vec::<String>::new(), "{}", path.display());
    }
}
