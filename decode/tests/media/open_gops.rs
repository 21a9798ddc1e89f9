//! HEVC keyframes with leading pictures that refer to earlier ones: decoded in parts, the frames equal those
//! of one decoder.

use std::path::{Path, PathBuf};

use clips::{in_turn, rendered, rendered_from, sized};
use decode::FileOptions;

use crate::{damage::with_flipped_bits, support::*};

const SOURCE: &str = "-f lavfi -i testsrc2=size=192x108:rate=25:duration=20 -pix_fmt yuv420p";
const X265: &str =
    "-c:v libx265 -preset ultrafast -x265-params log-level=none:open-gop=1:rc-lookahead=20";

/// Clips with GOPs of different lengths; some GOPs and pieces are long enough to be segments.
fn recipes() -> Vec<PathBuf> {
    let clips = [
        ("default.mp4", "keyint=250"),
        ("open.mp4", "keyint=120"),
        ("open.mkv", "keyint=70:bframes=8:b-adapt=0"),
        ("open.ts", "keyint=110:bframes=3:rc-lookahead=5:repeat-headers=1"),
        ("open.265", "keyint=120:bframes=4:rc-lookahead=40"),
        ("pyramid.mkv", "keyint=105:bframes=16:b-adapt=0:b-pyramid=1:ref=4"),
        ("flat.mp4", "keyint=101:bframes=2:b-pyramid=0:b-adapt=0"),
        ("layers.mp4", "keyint=125:bframes=4:temporal-layers=3"),
        ("cuts.mp4", "keyint=130:min-keyint=20:scenecut=80:aud=1:hrd=0"),
        ("short.mp4", "keyint=12:bframes=3:b-adapt=0"),
    ];
    let render =
        |(name, params): (&str, &str)| rendered(name, &format!("{SOURCE} {X265}:{params}"));
    clips.into_iter().map(render).collect()
}

/// Returns a clip from a keyframe on, whose leading pictures refer to missing ones.
fn beheaded(path: &Path) -> PathBuf {
    rendered_from("beheaded.mkv", "-ss 6 -i {0} -c copy", &[path])
}

fn alone(path: &Path, options: &FileOptions) -> (decode::FileReport, Vec<Seen>) {
    let options = FileOptions { threads: 1, plan: false, ..options.clone() };
    decode(path, &options, true).expect("decodes")
}

#[test]
fn parts_of_open_gops_are_what_one_decoder_gives() {
    for (row, path) in recipes().into_iter().enumerate() {
        let (report, seen) = alone(&path, &every(1));
        assert!(digests(&seen) == ffmpeg_digests(&path), "pixels differ: {path:?}");
        assert_eq!((report.damaged_packets, seen.len(), report.truncated), (0, 500, false));
        for &threads in in_turn(row, 1, &[2, 3, 5]) {
            let found = decode(&path, &every(threads), true).expect("decodes");
            assert!(found == (report.clone(), seen.clone()), "{path:?} on {threads}");
            let (hurried, outputs) = decode_in_hurry(&path, &every(threads));
            assert!((hurried, outputs.concat()) == found, "{path:?} on {threads} in a hurry");
        }
    }
}

#[test]
fn a_file_that_begins_with_pictures_that_cannot_be_decoded_lacks_them_on_any_thread_count() {
    let whole = recipes();
    let whole = whole.iter().filter(|path| path.extension().is_some_and(|it| it != "265"));
    for (row, path) in whole.map(|path| beheaded(path)).enumerate() {
        let (report, seen) = alone(&path, &every(1));
        assert!(digests(&seen) == ffmpeg_digests(&path), "pixels differ: {path:?}");
        for &threads in in_turn(row, 1, &[2, 3, 5]) {
            let found = decode(&path, &every(threads), true).expect("decodes");
            assert!(found == (report.clone(), seen.clone()), "{path:?} on {threads}");
        }
    }
}

#[test]
fn samples_and_limits_of_open_gops_are_those_of_one_decoder() {
    for (row, path) in recipes().into_iter().enumerate() {
        let limited = |threads, max_frames| FileOptions { max_frames, ..every(threads) };
        let rows = [1.0, 3.0, 7.3].map(|fps| fixed(fps, true)).into_iter();
        // Limits near the leading pictures of the first keyframes too.
        let rows = rows
            .chain([99, 100, 117, 119, 120, 121, 123, 248, 250, 251].map(|max| limited(3, max)));
        for options in in_turn(row, 4, &rows.collect::<Vec<_>>()) {
            let (_, seen) = alone(&path, options);
            let found = decode(&path, options, true).expect("decodes");
            assert!(found.1 == seen, "{path:?}: {options:?}");
            assert!(found.1.len() >= 2, "{path:?}: {options:?}");
        }
    }
}

/// H.265 7.3.1.1: NAL unit that ends a sequence.
const END_OF_SEQUENCE: &[u8] = &[0, 0, 1, 0x48, 1];

#[test]
fn a_sequence_that_begins_in_the_middle_lacks_what_led_it_where_the_one_before_was_ended() {
    let whole = &recipes()[4];
    let later = rendered_from("later.265", "-ss 6 -i {0} -c copy -f hevc", &[&recipes()[1]]);
    let [first, second] = [whole, &later].map(|path| std::fs::read(path).expect("made"));
    let folder = tempfile::tempdir().expect("a folder");
    for (name, between) in [("ended.265", END_OF_SEQUENCE), ("joined.265", &[])] {
        let path = folder.path().join(name);
        std::fs::write(&path, [&first, between, &second].concat()).expect("our own");
        let (report, seen) = alone(&path, &every(1));
        let theirs = ffmpeg_digests(&path);
        println!("{name}: {} and {} frames, {report:?}", seen.len(), theirs.len());
        assert!(digests(&seen) == theirs, "pixels differ: {name}");
        for threads in [2, 5] {
            let found = decode(&path, &every(threads), true).expect("decodes");
            assert!(found == (report.clone(), seen.clone()), "{name} on {threads}");
        }
    }
}

#[test]
fn damage_in_open_gops_decodes_to_the_same_frames_on_any_thread_count() {
    let mut changed = 0;
    for (row, path) in recipes().into_iter().enumerate() {
        let whole = std::fs::read(&path).expect("made");
        let undamaged = decode_bytes(whole.clone(), &every(3)).expect("decodes").1;
        for &(seed, count) in in_turn(row, 2, &[(1, 1), (2, 3), (3, 10), (4, 40)]) {
            let bytes = with_flipped_bits(&whole, count, seed);
            let alone = decode_bytes(bytes.clone(), &every(1));
            changed += usize::from(alone.as_ref().is_ok_and(|(_, seen)| *seen != undamaged));
            for &threads in in_turn(seed as usize + row / 2, 1, &[2, 5]) {
                let found = decode_bytes(bytes.clone(), &every(threads));
                assert!(found == alone, "{path:?} seed {seed} on {threads}");
            }
        }
    }
    assert!(changed >= sized(7, 15), "{changed}");
}

/// A start whose slice ends early has undecoded parts, which its leading pictures take over.
#[test]
fn a_damaged_start_is_told_once_and_leads_to_the_same_frames_on_any_thread_count() {
    let (mut changed, mut told) = (0_u64, 0);
    for path in [1, 4].map(|at| recipes().swap_remove(at)) {
        let whole = std::fs::read(&path).expect("made");
        let undamaged = decode_bytes(whole.clone(), &every(3)).expect("decodes").1;
        // Header of a CRA (two bytes), then the first slice segment of its picture.
        let is_start = |bytes: &[u8]| bytes[..2] == [0x2a, 1] && bytes[2] & 0x80 != 0;
        let starts: Vec<usize> =
            (0..whole.len() - 3).filter(|&at| is_start(&whole[at..at + 3])).collect();
        assert!(starts.len() >= 3, "{path:?}: {starts:?}");
        let places = |(row, at)| in_turn(row, 1, &[3, 60, 500]).map(move |offset| at + offset);
        for at in starts.into_iter().enumerate().flat_map(places) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            let alone = decode_bytes(bytes.clone(), &every(1));
            assert!(decode_bytes(bytes, &every(3)) == alone, "{path:?} byte {at}");
            let Ok((report, seen)) = alone else { continue };
            changed += u64::from(seen != undamaged);
            told += report.damaged_packets;
        }
    }
    assert!(changed >= sized(6, 20) && (1..=changed).contains(&told), "{changed}, {told} told");
}
