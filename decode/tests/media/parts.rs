//! Excerpts of files: pictures and times are those of the source, from the keyframe before the excerpt on.

use std::{cell::Cell, fs::File, ops::Range, path::Path};

use clips::in_turn;
use decode::{DecodeError, ExcerptStart};
use media::Timestamp;

use crate::{clips::made, support::*};

/// Writes the part `span` of `path` to `out`.
fn cut(path: &Path, span: Range<i64>, out: &Path) -> Result<ExcerptStart, DecodeError> {
    let mut begun = None;
    opened(path).excerpt(span, |start| {
        begun = Some(start);
        Box::new(File::create(out).expect("made"))
    })?;
    Ok(begun.expect("told before the first byte"))
}

/// Returns times in milliseconds and digests of the pictures.
fn pictures(path: &Path) -> Vec<(i64, String)> {
    let timebase = opened(path).stream().timebase;
    let (report, seen) = decode(path, &every(2), true).expect("decodes");
    assert_eq!(report.damaged_packets, 0, "{path:?}");
    let at = |ticks| Timestamp::new(ticks, timebase).as_millis();
    seen.into_iter().map(|frame| (at(frame.ticks), frame.digest)).collect()
}

/// Returns ffprobe's packets of the first stream of a kind.
fn packets(path: &Path, kind: &str) -> Vec<(Option<f64>, bool)> {
    let entries = "-show_entries packet=pts_time,flags -of csv=p=0 {}";
    let text = run("ffprobe", &format!("-v error -select_streams {kind} {entries}"), path);
    let lines = text.lines().filter_map(|line| line.split_once(','));
    lines.map(|(pts, flags)| (pts.parse().ok(), flags.starts_with('K'))).collect()
}

#[test]
fn a_clip_has_the_pictures_of_its_source_from_the_keyframe_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = Cell::new(0);
    made(&[], |path, _| {
        let source = pictures(path);
        let (first, last) = (source[0].0, source.last().expect("pictures").0);
        let keys = packets(path, "v:0").into_iter().filter(|(_, is_key)| *is_key);
        let keys: Option<Vec<i64>> =
            keys.map(|(pts, _)| pts.map(|pts| (pts * 1000.0).round() as i64)).collect();
        let middle = (first + last) / 2;
        let spans = [
            0..first + 700,
            first..first + 1,
            middle..middle + 900,
            last - 900..last + 5000,
            last..last + 1,
        ];
        for span in in_turn(rows.replace(rows.get() + 1), 2, &spans) {
            let name = format!("{path:?} at {span:?}");
            let out = folder.path().join("part");
            let start =
                cut(path, span.clone(), &out).unwrap_or_else(|error| panic!("{name}: {error}"));
            if let Some(keys) = &keys {
                let before = keys.iter().filter(|key| **key <= span.start).max();
                assert_eq!(Some(&start.starts_at_ms), before.or(keys.first()), "{name}");
            }
            let clip = pictures(&out);
            let digests: Vec<String> = clip.iter().map(|(_, digest)| digest.clone()).collect();
            assert!(digests == ffmpeg_digests(&out), "{name}: ffmpeg sees other pictures");
            assert_eq!(clip[0].0, 0, "{name}: the keyframe is at zero");
            // AVI has no presentation times: those of a GOP whose first pictures precede its keyframe derive
            // from decode times.
            let slack = if path.ends_with("mpeg4.avi") { 70 } else { 1 };
            let from = source.iter().position(|(ms, picture)| {
                *ms >= start.starts_at_ms && (slack == 1 || *picture == digests[0])
            });
            let from = from.expect("its first picture");
            let wanted = source[from..].iter().filter(|it| it.0 + slack <= span.end).count();
            assert!(clip.len() >= wanted.max(1), "{name}: {} of {wanted}", clip.len());
            for (at, (ms, digest)) in clip.iter().enumerate() {
                let shown = start.starts_at_ms + ms;
                let is_at = |it: &&(i64, String)| it.0.abs_diff(shown) <= slack as u64;
                // After the end only pictures that earlier ones need.
                let mut found = match at < wanted {
                    true => source[from + at..=from + at].iter(),
                    false => source[from..].iter(),
                };
                let found = found.any(|it| is_at(&it) && it.1 == *digest);
                assert!(found, "{name}: picture {at} at {shown}");
            }
        }
    });
}
