//! Live streams that lose pictures or change midway: every picture that comes out is one of the undamaged
//! stream.

use std::collections::BTreeMap;

use media::Codec;

use crate::{
    live::{CODECS, clip, clip_of, frames, open, poll_all, split_at},
    support::*,
};

/// Checks that all frames are in `seen`, in order, and include everything from `resumed` on.
fn assert_whole(name: &str, frames: &[(i64, String)], seen: &[Seen], resumed: usize) {
    let whole: BTreeMap<i64, &String> =
        seen.iter().map(|frame| (frame.ticks, &frame.digest)).collect();
    for (ms, digest) in frames {
        assert_eq!(whole.get(ms), Some(&digest), "{name}: the frame at {ms} ms");
    }
    assert!(frames.windows(2).all(|pair| pair[0].0 < pair[1].0), "{name}: in order");
    let rest: Vec<i64> =
        frames.iter().map(|it| it.0).filter(|ms| *ms >= seen[resumed].ticks).collect();
    assert_eq!(rest, ticks(&seen[resumed..]), "{name}: all from the next clean start");
}

#[test]
fn a_picture_that_is_missing_without_a_word_breaks_none() {
    // Pictures of these codecs reveal their references.
    for codec in [Codec::H264, Codec::H265] {
        let (units, seen) = clip(codec);
        let mut decoder = open(codec);
        for lost in 1..29 {
            let mut units = units.clone();
            units.remove(lost);
            let (frames, _) = frames(&mut decoder, &units);
            assert_whole(&format!("{codec:?} without unit {lost}"), &frames, &seen, 30);
        }
        for lost in [0..1, 4..9, 10..25, 28..31, 2..60] {
            let mut units = units.clone();
            let name = format!("{codec:?} without units {lost:?}");
            let resumed = if lost.end > 30 { 60 } else { 30 };
            units.drain(lost);
            let (frames, _) = frames(&mut decoder, &units);
            assert_whole(&name, &frames, &seen, resumed);
        }
    }
}

#[test]
fn after_a_loss_that_is_told_nothing_refers_to_what_is_missing() {
    for codec in CODECS {
        let (units, seen) = clip(codec);
        for lost in [1..2, 5..6, 4..20] {
            let name = format!("{codec:?} without units {lost:?}");
            let mut decoder = open(codec);
            let mut found = Vec::new();
            for unit in &units[..lost.start] {
                decoder.push(unit).expect("decodes");
                found.extend(poll_all(&mut decoder));
            }
            decoder.lose();
            found.extend(poll_all(&mut decoder));
            let before = found.len();
            let (rest, damaged) = frames(&mut decoder, &units[lost.end..]);
            found.extend(rest);
            assert_eq!(damaged, 0, "{name}");
            assert_whole(&name, &found, &seen, 30);
            // After the decoder's reordering, the pictures that it held have come out.
            assert!(before <= lost.start && before + 4 >= lost.start, "{name}: {before}");
        }
    }
}

#[test]
fn a_picture_that_is_cut_off_is_damage_and_breaks_none() {
    for codec in [Codec::H264, Codec::H265] {
        let (units, seen) = clip(codec);
        let mut decoder = open(codec);
        for at in [0, 1, 7, 15] {
            let mut units = units.clone();
            let len = units[at].data.len();
            units[at].data.truncate(len / 2);
            let name = format!("{codec:?} with half of unit {at}");
            let (frames, damaged) = frames(&mut decoder, &units);
            assert!(damaged > 0, "{name}");
            assert_whole(&name, &frames, &seen, 30);
        }
    }
}

#[test]
fn another_size_begins_with_its_keyframe() {
    for codec in CODECS {
        let (small, seen_small) = clip_of(codec, "160x120");
        let (large, seen_large) = clip_of(codec, "320x180");
        let mut decoder = open(codec);
        let found = |found: Vec<(i64, String)>| -> Vec<String> {
            found.into_iter().map(|(_, digest)| digest).collect()
        };
        // A stop in the middle of a GOP, then the other size and back, without an end between.
        let changes = [&small[..30], &large[..30], &small[..30]].concat();
        let (frames, damaged) = frames(&mut decoder, &changes);
        let expected = [&seen_small[..30], &seen_large[..30], &seen_small[..30]].concat();
        assert_eq!((found(frames), damaged), (digests(&expected), 0), "{codec:?}");
    }
}

#[test]
fn parameters_that_change_without_a_keyframe_show_nothing_broken() {
    for codec in [Codec::H264, Codec::H265] {
        let (units, seen) = clip(codec);
        let (other, _) = clip_of(codec, "320x180");
        // Parameter sets of the other stream without its keyframe.
        let parameters = sets(codec, &other[0].data);
        assert!(!parameters.is_empty(), "{codec:?}");
        let mut changed = units.clone();
        changed[10].data.splice(0..0, parameters);
        let mut decoder = open(codec);
        let (frames, _) = frames(&mut decoder, &changed);
        assert_whole(&format!("{codec:?}"), &frames, &seen, 30);
    }
}

/// Returns the parameter sets of an access unit in Annex B form.
fn sets(codec: Codec, unit: &[u8]) -> Vec<u8> {
    let is_set = |nal: &Vec<u8>| match codec {
        Codec::H264 => matches!(nal[3] & 0x1f, 7 | 8),
        _ => matches!(nal[3] >> 1 & 0x3f, 32..=34),
    };
    split_at(unit, &[0, 0, 1]).into_iter().filter(is_set).flatten().collect()
}
