//! HLS: the result equals that of a file with the bytes of the segments. Long because all cases share the host's faults.

use std::{fs, path::Path, process::Command};

use decode::FileReport;
use media::ErrorKind;
use worker::{CancelToken, JobEvent, JobSpec, LiveEnd, Resume, WorkerError};

use crate::{
    shelf::Shelf,
    support::{Heard, alone, assert_same_media, run, spec, supervisor, with},
};

/// Has ffmpeg write four seconds in one-second segments, with `options` for its HLS muxer.
pub fn segmented(folder: &Path, codec: &str, options: &str) -> Shelf {
    let source = "-v error -nostdin -f lavfi -i testsrc2=s=320x240:r=25:d=4";
    let muxer = "-g 25 -f hls -hls_time 1 -hls_list_size 0";
    let line = format!("{source} {codec} {muxer} {options} list.m3u8");
    let mut ffmpeg = Command::new("ffmpeg");
    let output = ffmpeg.args(line.split_whitespace()).current_dir(folder).output();
    let output = output.expect("ffmpeg is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Shelf::of(folder)
}

pub const H264: &str = "-c:v libx264 -preset ultrafast";
const HEVC: &str = "-c:v libx265 -preset ultrafast -x265-params log-level=none";

/// Returns four segments of H.264 and their playlist.
fn plain() -> Shelf {
    segmented(tempfile::tempdir().expect("a folder").path(), H264, "")
}

/// Analyses a file with the concatenated bytes of `names`.
fn joined(folder: &Path, shelf: &Shelf, names: &[&str]) -> Heard {
    let bytes: Vec<u8> = names.iter().flat_map(|name| shelf.get(name)).collect();
    let path = folder.join("joined");
    fs::write(&path, bytes).expect("written");
    run(spec(&path)).expect("a result").settled()
}

#[test]
fn a_playlist_gives_what_its_segments_hold() {
    let _alone = alone();
    let four = ["list0.ts", "list1.ts", "list2.ts", "list3.ts"];
    let whole = ["whole.mp4"];
    let mapped = ["init.mp4", "list0.m4s", "list1.m4s", "list2.m4s", "list3.m4s"];
    let fmp4 = "-hls_segment_type fmp4";
    let single = "-hls_segment_type fmp4 -hls_flags single_file -hls_segment_filename whole.mp4";
    let cases: [(_, _, _, &[&str]); 5] = [
        ("transport stream", H264, "", &four),
        ("live that has ended", H264, "-hls_playlist_type event", &four),
        ("fragments", H264, fmp4, &mapped),
        ("HEVC fragments", HEVC, fmp4, &mapped),
        ("byte ranges", H264, single, &whole),
    ];
    for (name, codec, options, parts) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = segmented(folder.path(), codec, options);
        let expected = joined(folder.path(), &shelf, parts);
        let found = shelf.run("list.m3u8").expect(name);
        assert_same_media(&found, &expected, name);
    }
}

#[test]
fn encrypted_segments_are_those_of_the_plain_playlist() {
    let _alone = alone();
    for (name, vector) in
        [("own vector", Some("000102030405060708090a0b0c0d0e0f")), ("numbers", None)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let key: Vec<u8> = (0..16).map(|byte| byte * 7 + 3).collect();
        fs::write(folder.path().join("key.bin"), &key).expect("written");
        let mut info = "keys/of%20it.bin\nkey.bin\n".to_owned();
        info.extend(vector);
        fs::write(folder.path().join("info"), info).expect("written");
        let shelf = segmented(folder.path(), H264, "-hls_key_info_file info");
        shelf.put("keys/of%20it.bin", key);
        let expected = plain().run("list.m3u8").expect("plain").settled();
        let found = shelf.run("list.m3u8").expect(name);
        assert_same_media(&found, &expected, name);
        let keys = shelf.asked().iter().filter(|asked| asked.starts_with("keys/")).count();
        assert_eq!(keys, 1, "{name}");
        shelf.put("keys/of%20it.bin", vec![0; 16]);
        let error = shelf.run("list.m3u8").expect_err("another key").to_string();
        assert_eq!(error, "a segment does not decrypt with its key", "{name}");
        shelf.put("keys/of%20it.bin", vec![0; 15]);
        let error = shelf.run("list.m3u8").expect_err("no key").to_string();
        assert_eq!(error, "the key of a segment has 15 bytes instead of 16", "{name}");
    }
}

#[test]
fn the_best_variant_is_followed_from_where_it_was_found() {
    let _alone = alone();
    let shelf = plain();
    let expected = shelf.run("list.m3u8").expect("a result").settled();
    for name in ["list.m3u8", "list0.ts", "list1.ts", "list2.ts", "list3.ts"] {
        shelf.put(&format!("far/away/{name}"), shelf.get(name));
    }
    shelf.put(
        "master.m3u8",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nnowhere\n#EXT-X-STREAM-INF:BANDWIDTH=2\n../near\n",
    );
    shelf.redirect("near", "far/away/list.m3u8");
    let before = shelf.asked().len();
    let found = shelf.run("master.m3u8").expect("a result");
    assert_same_media(&found, &expected, "master");
    assert_eq!(
        shelf.asked()[before..],
        ["master.m3u8@0", "near@0"]
            .map(str::to_owned)
            .into_iter()
            .chain((0..4).map(|number| format!("far/away/list{number}.ts@0")))
            .collect::<Vec<_>>()[..],
        "no other variant is opened, and nothing twice"
    );
}

#[test]
fn a_growing_playlist_is_followed_to_its_end() {
    let _alone = alone();
    let shelf = plain();
    let mut expected = shelf.run("list.m3u8").expect("a result").settled();
    // Times of a live source begin at 0.
    let began = expected.signals[0].pts_ms;
    assert!(began > 0);
    expected.signals.iter_mut().for_each(|signal| signal.pts_ms -= began);
    let text = String::from_utf8(shelf.get("list.m3u8")).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let until = |segment: &str| {
        let at = lines.iter().position(|line| *line == segment).expect("there");
        lines[..=at].join("\n")
    };
    shelf.put("live.m3u8", until("list1.ts"));
    for name in ["list2.ts", "list3.ts"] {
        shelf.put(&format!("moved/{name}"), shelf.get(name));
    }
    let grow = || {
        let times_read =
            |shelf: &Shelf| shelf.asked().iter().filter(|asked| asked.starts_with("live")).count();
        for (seen, path, text) in
            [(2, "live.m3u8", until("list2.ts")), (3, "moved/live.m3u8", text.clone())]
        {
            while times_read(&shelf) < seen {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            shelf.put(path, text);
            shelf.redirect("live.m3u8", path);
        }
    };
    let found = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("grow".into())
            .spawn_scoped(scope, grow)
            .expect("a thread");
        shelf.run("live.m3u8").expect("a result")
    });
    // Which pictures are kept depends on their times.
    expected.stills.clone_from(&found.stills);
    assert_same_media(&found, &expected, "growing");
    assert!(shelf.asked().contains(&"moved/list3.ts@0".to_owned()), "beside the moved playlist");
}

#[test]
fn nothing_but_http_is_ever_asked_for() {
    let _alone = alone();
    let shelf = Shelf::new();
    for address in [
        "file:///etc/passwd",
        "data:text/plain;base64,AAAA",
        "concat:a|b",
        "tcp://192.0.2.1:80",
        "udp://192.0.2.1:80",
        "rtp://192.0.2.1:80",
        "pipe:0",
        "fd:0",
        "crypto:https://media.test/a",
        "crypto+https://media.test/a",
        "ftp://192.0.2.1/a",
        "http:",
        "https://[::1%25lo]/a",
    ] {
        let lists = [
            ("segment", format!("#EXTM3U\n#EXTINF:1,\n{address}\n#EXT-X-ENDLIST\n")),
            ("variant", format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{address}\n")),
            (
                "key",
                format!(
                    "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"{address}\"\na\n#EXT-X-ENDLIST\n"
                ),
            ),
            ("map", format!("#EXTM3U\n#EXT-X-MAP:URI=\"{address}\"\na\n#EXT-X-ENDLIST\n")),
        ];
        for (place, text) in lists {
            shelf.put("list.m3u8", text);
            shelf.put("a", "some bytes of a segment");
            let before = shelf.asked().len();
            let error = shelf.run("list.m3u8").expect_err(address);
            let leads = format!("the playlist leads to {address}");
            let told = match address {
                "http:" => format!("malformed url: {leads} (empty host)"),
                "https://[::1%25lo]/a" => format!("malformed url: {leads} (invalid IPv6 address)"),
                _ => format!("{leads}: only http and https are followed"),
            };
            assert_eq!(error.to_string(), told, "{place}");
            let asked = shelf.asked()[before..].to_vec();
            assert!(
                asked.iter().all(|asked| asked == "list.m3u8@0" || asked == "a@0"),
                "{asked:?}"
            );
        }
    }
    shelf.put("list.m3u8", "#EXTM3U\n#EXTINF:1,\na\n#EXT-X-ENDLIST\n");
    shelf.put("a", "#EXTM3U\nb\n#EXT-X-ENDLIST\n");
    let error = shelf.run("list.m3u8").expect_err("a playlist as a segment").to_string();
    assert_eq!(error, "playlists and references to other resources are refused: m3u");
}

#[test]
fn playlists_that_ask_for_too_much_are_refused() {
    let _alone = alone();
    let shelf = Shelf::new();
    let master = |to: &str| format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{to}\n");
    shelf.put("1", master("2"));
    shelf.put("2", master("3"));
    shelf.put("3", master("1"));
    shelf.put("wide", format!("#EXTM3U\n#{}\na\n", " ".repeat(4 << 20)));
    shelf.put("gone", "#EXTM3U\nnothing.ts\n#EXT-X-ENDLIST\n");
    for (path, told) in [
        ("1", "too large: playlists are nested more than 3 deep"),
        ("wide", "too large: a playlist is over 4 MiB"),
        ("gone", "http status 404: https://media.test/nothing.ts"),
        ("missing", "http status 404: https://media.test/missing"),
    ] {
        let error = shelf.run(path).expect_err(path);
        assert_eq!(error.to_string(), told, "{path}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path}");
    }
}

#[test]
fn a_discontinuity_loses_neither_frames_nor_time() {
    let _alone = alone();
    let shelf = plain();
    let text = String::from_utf8(shelf.get("list.m3u8")).expect("text");
    let segments: String = text
        .lines()
        .filter(|line| line.starts_with("#EXTINF") || line.ends_with(".ts"))
        .map(|line| format!("{line}\n"))
        .collect();
    shelf.put(
        "twice.m3u8",
        format!("#EXTM3U\n{segments}#EXT-X-DISCONTINUITY\n{segments}#EXT-X-ENDLIST\n"),
    );
    let once = shelf.run("list.m3u8").expect("a result");
    let twice = shelf.run("twice.m3u8").expect("a result");
    let seen = |signals: &[media::Signal], later: i64| -> Vec<(i64, u64)> {
        let of = |signal: &media::Signal| (signal.pts_ms + later, signal.perceptual_hash);
        signals.iter().map(of).collect()
    };
    let expected = [seen(&once.signals, 0), seen(&once.signals, 4000)].concat();
    assert_eq!(seen(&twice.signals, 0), expected, "times go on");
}

/// Returns what a job said, the number of the segment after the last one that it began, and its outcome.
fn followed(job: JobSpec) -> (Heard, Option<u64>, Result<FileReport, WorkerError>) {
    let (mut heard, mut next) = (Heard::default(), None);
    let outcome = supervisor().run_job(job, &CancelToken::new(), &mut |event| {
        if let JobEvent::Segment { next: told } = event {
            next = Some(told);
        }
        heard.take(event)
    });
    (heard, next, outcome)
}

#[test]
fn a_playlist_that_is_gone_on_with_is_read_behind_what_was_read() {
    let _alone = alone();
    let shelf = plain();
    let whole = shelf.run("list.m3u8").expect("a result").settled();
    shelf.put("empty.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n");
    shelf.put("page.m3u8", "<html>starting</html>");
    let last = whole.signals[49];
    // Playlist, segment to continue with, frames that come, and the end.
    type Row = (&'static str, Option<u64>, std::ops::Range<usize>, LiveEnd);
    let rows: [Row; 6] = [
        ("list.m3u8", Some(2), 50..100, LiveEnd::Over),
        ("list.m3u8", Some(4), 0..0, LiveEnd::Over),
        // Another broadcast with lower numbers.
        ("list.m3u8", Some(9), 0..100, LiveEnd::Over),
        ("list.m3u8", None, 0..100, LiveEnd::Over),
        ("empty.m3u8", Some(2), 0..0, LiveEnd::Lost),
        ("page.m3u8", Some(2), 0..0, LiveEnd::Lost),
    ];
    for (path, segment, frames, end) in rows {
        let (gate, begins_at_ms) = (Default::default(), 10_000);
        let resume = Some(Resume { last, gate, begins_at_ms, segment });
        let (heard, next, outcome) = followed(with(shelf.spec(path), |it| it.resume = resume));
        let name = format!("{path} from {segment:?}: {outcome:?}");
        assert_eq!(LiveEnd::of(&outcome, 500_000), end, "{name}");
        assert_eq!(next, (!frames.is_empty()).then_some(4), "{name}");
        let hashes = |signals: &[media::Signal]| -> Vec<u64> {
            signals.iter().map(|signal| signal.perceptual_hash).collect()
        };
        assert_eq!(hashes(&heard.signals), hashes(&whole.signals[frames]), "{name}");
        let first = heard.signals.first().map(|signal| signal.frame_index);
        assert!(first.is_none_or(|first| first == 50), "{name}");
    }
}

#[test]
fn a_live_playlist_whose_host_fails_is_lost_behind_what_came() {
    let _alone = alone();
    let mut shelf = plain();
    let text = String::from_utf8(shelf.get("list.m3u8")).expect("text");
    shelf.put("live.m3u8", text.replace("#EXT-X-ENDLIST", ""));
    let last = shelf.get("list3.ts");
    for (bytes, next) in [(0, 3), (last.len() / 2, 4)] {
        shelf.cut_one = Some(("list3.ts".to_owned(), bytes));
        let (heard, told, outcome) = followed(shelf.spec("live.m3u8"));
        assert_eq!(LiveEnd::of(&outcome, 500_000), LiveEnd::Lost, "{outcome:?}");
        // Reading of a live playlist begins three segments before its end.
        let frames = heard.signals.len();
        assert!(if bytes == 0 { frames == 50 } else { (51..75).contains(&frames) }, "{frames}");
        assert_eq!(told, Some(next), "what was begun is not read again");
        assert!(heard.opened.is_some_and(|stream| stream.is_endless));
    }
}

#[test]
fn segments_that_left_a_live_playlist_unread_are_a_loss_of_it() {
    let _alone = alone();
    let shelf = plain();
    let playlist = |first: u32, segments: &[u32]| {
        let head = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{first}\n");
        let lines = segments.iter().map(|segment| format!("#EXTINF:1,\nlist{segment}.ts\n"));
        head + &lines.collect::<String>()
    };
    shelf.put("live.m3u8", playlist(0, &[0, 1]));
    let jump = || {
        let times_read = || shelf.asked().iter().filter(|asked| asked.starts_with("live")).count();
        while times_read() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        shelf.put("live.m3u8", playlist(3, &[3]));
    };
    let (heard, next, outcome) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("jump".into());
        thread.spawn_scoped(scope, jump).expect("a thread");
        followed(shelf.spec("live.m3u8"))
    });
    assert_eq!(LiveEnd::of(&outcome, 500_000), LiveEnd::Lost, "{outcome:?}");
    let told = outcome.expect_err("lost").to_string();
    assert!(told.contains("before they were read"), "{told}");
    assert_eq!((heard.signals.len(), next), (50, Some(2)));
}

#[test]
fn a_live_playlist_whose_key_cannot_be_fetched_is_lost() {
    let _alone = alone();
    let shelf = plain();
    let text = String::from_utf8(shelf.get("list.m3u8")).expect("text");
    let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"gone.key\"\n#EXTINF";
    let text = text.replace("#EXT-X-ENDLIST", "").replacen("#EXTINF", key, 1);
    shelf.put("live.m3u8", text);
    shelf.put("gone.key", "");
    let (_, _, outcome) = followed(shelf.spec("live.m3u8"));
    assert_eq!(LiveEnd::of(&outcome, 500_000), LiveEnd::Lost, "{outcome:?}");
}

#[test]
fn a_playlist_with_another_map_ends_there_and_a_live_one_is_read_anew_from_there() {
    let _alone = alone();
    let [small, large] = ["", "-vf scale=480:270"].map(|scale| {
        let folder = tempfile::tempdir().expect("a folder");
        segmented(folder.path(), &format!("{scale} {H264}"), "-hls_segment_type fmp4")
    });
    let shelf = Shelf::new();
    let mut live = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-PLAYLIST-TYPE:EVENT\n".to_owned();
    for (name, of, segments) in [("small", &small, 0..2), ("large", &large, 2..4)] {
        shelf.put(&format!("{name}.mp4"), of.get("init.mp4"));
        // The same map at another address is no other map.
        shelf.put(&format!("{name}-again.mp4"), of.get("init.mp4"));
        for segment in segments {
            let again = if segment % 2 == 1 { "-again" } else { "" };
            shelf.put(&format!("{segment}.m4s"), of.get(&format!("list{segment}.m4s")));
            live += &format!("#EXT-X-MAP:URI=\"{name}{again}.mp4\"\n#EXTINF:1,\n{segment}.m4s\n");
        }
    }
    shelf.put("live.m3u8", live.as_str());
    shelf.put("list.m3u8", format!("{live}#EXT-X-ENDLIST\n"));
    let mut last = None;
    for path in ["list.m3u8", "live.m3u8"] {
        let (heard, next, outcome) = followed(shelf.spec(path));
        assert_eq!(LiveEnd::of(&outcome, 500_000), LiveEnd::Lost, "{path}: {outcome:?}");
        let told = outcome.expect_err("lost").to_string();
        assert!(told.contains("another initialization section"), "{path}: {told}");
        assert_eq!((heard.signals.len(), next), (50, Some(2)), "{path}");
        last = heard.signals.last().copied();
    }
    let (last, gate, begins_at_ms) = (last.expect("pictures"), Default::default(), 10_000);
    let resume = Some(Resume { last, gate, begins_at_ms, segment: Some(2) });
    let (heard, _, outcome) = followed(with(shelf.spec("list.m3u8"), |it| it.resume = resume));
    assert_eq!(LiveEnd::of(&outcome, 500_000), LiveEnd::Over, "{outcome:?}");
    let extent = heard.opened.expect("opened").extent;
    assert_eq!((heard.signals.len(), extent.width, extent.height), (50, 480, 270));
}

#[test]
fn a_page_in_place_of_a_segment_is_told() {
    let _alone = alone();
    let shelf = plain();
    let text = String::from_utf8(shelf.get("list.m3u8")).expect("text");
    shelf.put("live.m3u8", text.replace("#EXT-X-ENDLIST", ""));
    shelf.put("list2.ts", "<!doctype html><title>Sign in</title>");
    // Playlist, and the frames before the page: a live one is read from three segments before its end.
    for (list, frames) in [("list.m3u8", 50), ("live.m3u8", 25)] {
        let (heard, next, outcome) = followed(shelf.spec(list));
        assert_eq!(LiveEnd::of(&outcome, 500_000), LiveEnd::Lost, "{list}: {outcome:?}");
        let told = outcome.expect_err("lost").to_string();
        assert!(told.contains("segment 2 of the playlist is no media"), "{list}: {told}");
        assert_eq!((heard.signals.len(), next), (frames, Some(2)), "{list}");
    }
}

#[test]
fn a_segment_that_is_missing_again_is_passed_over_if_a_later_one_is_there() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let mapped = segmented(folder.path(), H264, "-hls_segment_type fmp4");
    let last = media::Signal::plain(24, 960);
    for (mut shelf, list, kind, missing, next) in [
        (plain(), "live.m3u8", "ts", 1, Some(2)),
        (plain(), "live.m3u8", "ts", 3, None),
        // One that has ended meanwhile.
        (plain(), "list.m3u8", "ts", 1, Some(2)),
        (mapped.clone(), "live.m3u8", "m4s", 1, Some(2)),
        (mapped, "live.m3u8", "m4s", 3, None),
    ] {
        let text = String::from_utf8(shelf.get("list.m3u8")).expect("text");
        shelf.put("live.m3u8", text.replace("#EXT-X-ENDLIST", ""));
        shelf.cut_one = Some((format!("list{missing}.{kind}"), 0));
        let (gate, begins_at_ms) = (Default::default(), 10_000);
        let resume = Some(Resume { last, gate, begins_at_ms, segment: Some(missing) });
        let (heard, told, outcome) = followed(with(shelf.spec(list), |it| it.resume = resume));
        assert_eq!(LiveEnd::of(&outcome, 500_000), LiveEnd::Lost, "{outcome:?}");
        assert_eq!((heard.signals.len(), told), (0, next), "{list}: {missing}.{kind}");
    }
}
