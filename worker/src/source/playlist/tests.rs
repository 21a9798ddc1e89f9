//! Tests of playlists as servers write them, and of invalid ones.

use proptest::prelude::*;

use super::*;
use crate::source::fuzz;

/// Returns one line per segment: `number address [from+len] [key:address[/vector]] [map:address] [gap]`.
fn described(media: &MediaPlaylist) -> Vec<String> {
    let piece = |piece: &ByteRange| {
        let range = piece.range.map(|(from, len)| format!(" {from}+{len}")).unwrap_or_default();
        let key = piece.key.as_ref().map_or(String::new(), |key| {
            let vector = key.vector.map(|vector| format!("/{:x}", u128::from_be_bytes(vector)));
            format!(" key:{}{}", key.address, vector.unwrap_or_default())
        });
        format!("{}{range}{key}", piece.address)
    };
    let line = |(index, segment): (usize, &MediaSegment)| {
        let map = segment.map.as_ref().map(|map| format!(" map:{}", piece(map)));
        let gap = if segment.is_gap { " gap" } else { "" };
        let number = media.first + index as u64;
        format!("{number} {}{}{gap}", piece(&segment.piece), map.unwrap_or_default())
    };
    media.segments.iter().enumerate().map(line).collect()
}

fn media(text: &str) -> MediaPlaylist {
    match parse(text.as_bytes()) {
        Ok(Playlist::Media(media)) => media,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn segments_carry_what_was_said_before_them() {
    let text = "\u{feff}#EXTM3U\r\n#EXT-X-VERSION:7\r\n#EXT-X-TARGETDURATION:6\r\n\
        #EXT-X-MEDIA-SEQUENCE:41\r\n#EXT-X-PLAYLIST-TYPE:VOD\r\n#EXT-X-MAP:URI=\"init.mp4\"\r\n\
        #EXTINF:6.0,a title, with commas\r\na.m4s\r\n\r\n#EXT-X-GAP\r\n#EXTINF:6.0,\r\nb.m4s\r\n\
        #EXT-X-KEY:METHOD=AES-128,URI=\"k,1\",IV=0x0000000000000000000000000000002A\r\n\
        #EXT-X-MAP:URI=\"all.mp4\",BYTERANGE=\"100@4\"\r\n\
        #EXT-X-BYTERANGE:1000@104\r\n#EXTINF:6.0,\r\nall.mp4\r\n\
        #EXT-X-BYTERANGE:500\r\nall.mp4\r\n#EXT-X-BYTERANGE:7\r\nother.mp4\r\n\
        #EXT-X-KEY:METHOD=NONE\r\nlast.m4s\r\n#EXT-X-ENDLIST\r\n";
    let media = media(text);
    assert_eq!(
        described(&media),
        [
            "41 a.m4s map:init.mp4",
            "42 b.m4s map:init.mp4 gap",
            "43 all.mp4 104+1000 key:k,1/2a map:all.mp4 4+100 key:k,1/2a",
            "44 all.mp4 1104+500 key:k,1/2a map:all.mp4 4+100 key:k,1/2a",
            "45 other.mp4 0+7 key:k,1/2a map:all.mp4 4+100 key:k,1/2a",
            "46 last.m4s map:all.mp4 4+100 key:k,1/2a",
        ]
    );
    assert!(media.has_ended && media.has_beginning);
    assert_eq!((media.target, media.end()), (Duration::from_secs(6), 47));
    assert!(media.segment(40).is_none() && media.segment(47).is_none());
}

#[test]
fn the_best_video_is_chosen() {
    for (name, variants, expected) in [
        ("most bits", "#EXT-X-STREAM-INF:BANDWIDTH=1\na\n#EXT-X-STREAM-INF:BANDWIDTH=2\nb", "b"),
        (
            "the first of equals",
            "#EXT-X-STREAM-INF:BANDWIDTH=1\na\n#EXT-X-STREAM-INF:BANDWIDTH=1\nb",
            "a",
        ),
        (
            "not the sound alone",
            "#EXT-X-STREAM-INF:BANDWIDTH=9,CODECS=\"mp4a.40.2\"\na\n\
             #EXT-X-STREAM-INF:CODECS=\"mp4a.40.2,avc1.64001f\",BANDWIDTH=2\nb",
            "b",
        ),
        ("no bandwidth at all", "#EXT-X-STREAM-INF:\na", "a"),
    ] {
        let found = parse(format!("#EXTM3U\n{variants}\n").as_bytes());
        assert_eq!(found, Ok(Playlist::Master(expected.to_owned())), "{name}");
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let long = "a\n".repeat(SEGMENTS_MAX + 1);
    for (name, text, told) in [
        ("no playlist", "<html>", "the playlist is not a text that begins with #EXTM3U"),
        ("nothing", "#EXTM3U\n# a comment\n", "the playlist names no media"),
        (
            "range",
            "#EXTM3U\n\n#EXT-X-BYTERANGE:x@1\na",
            "the playlist is malformed: EXT-X-BYTERANGE in line 3",
        ),
        (
            "encryption",
            "#EXTM3U\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k\"\na",
            "the playlist's encryption SAMPLE-AES is not supported, only AES-128 is",
        ),
        (
            "too many",
            &format!("#EXTM3U\n{long}"),
            "too large: the playlist names more than 65536 segments",
        ),
    ] {
        let error = parse(text.as_bytes()).expect_err(name);
        assert_eq!(error.to_string(), told, "{name}");
    }
    for (name, tag, value, line) in [
        ("number", "EXT-X-MEDIA-SEQUENCE", "-1", 2),
        ("number that cannot be counted on from", "EXT-X-MEDIA-SEQUENCE", "9007199254740993", 2),
        ("range beyond all bytes", "EXT-X-BYTERANGE", "18446744073709551615@1", 3),
        ("key", "EXT-X-KEY", "METHOD=AES-128", 2),
        ("vector", "EXT-X-KEY", "METHOD=AES-128,URI=\"k\",IV=12", 2),
        ("map", "EXT-X-MAP", "BYTERANGE=\"1@2\"", 2),
    ] {
        let found = parse(format!("#EXTM3U\n#{tag}:{value}\na").as_bytes());
        assert_eq!(found, Err(PlaylistError::Tag { tag, line }), "{name}");
    }
    assert_eq!(parse(b"#EXTM3U\n\xff\n"), Err(PlaylistError::NotOne), "no text");
}

proptest! {
    #[test]
    fn no_text_is_too_strange(lines in proptest::collection::vec(line(), 0..40)) {
        fuzz::playlist(format!("#EXTM3U\n{}", lines.join("\n")).as_bytes());
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz::playlist(&[b"#EXTM3U\n", bytes.as_slice()].concat());
    }
}

fn line() -> impl Strategy<Value = String> {
    let tag = proptest::sample::select(vec![
        "#EXT-X-STREAM-INF:",
        "#EXT-X-TARGETDURATION:",
        "#EXT-X-MEDIA-SEQUENCE:",
        "#EXT-X-BYTERANGE:",
        "#EXT-X-KEY:METHOD=AES-128,",
        "#EXT-X-KEY:",
        "#EXT-X-MAP:URI=\"m\",",
        "#EXT-X-MAP:",
        "#EXT-X-ENDLIST",
        "#EXT-X-GAP",
        "#EXTINF:",
        "",
    ]);
    let value = prop_oneof!["[0-9@]{0,22}", "[A-Z]{1,5}=\"?[^\"]{0,9}\"?,?", ".{0,20}"];
    (tag, value).prop_map(|(tag, value)| format!("{tag}{value}"))
}
