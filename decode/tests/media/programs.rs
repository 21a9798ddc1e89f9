//! An ffmpeg program as the decoder: changes within a stream do not change the frames of libav's own.

use std::{
    fs,
    io::{self, Cursor, Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use clips::rendered;
use decode::{DecoderChain, FfmpegPipes, FileReport, program_arguments};
use media::Codec;

use crate::{
    damage::with_flipped_bits,
    live::{split_at, split_ivf},
    support::*,
};

/// Output of the system's ffmpeg, which is reaped when it has been read.
struct Output(UnixStream, Child);

impl Read for Output {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // The program may have ended by itself.
        self.1.kill().ok();
        self.1.wait().expect("reaped");
    }
}

/// Returns decoders that use the system's ffmpeg, without a sandbox.
fn ffmpeg() -> DecoderChain {
    let start = |codec| {
        let (ours, theirs) = UnixStream::pair()?;
        let (said, says) = UnixStream::pair()?;
        said.set_nonblocking(true)?;
        // A program that blocks on its stderr would output no picture, and its stderr would not be read.
        says.set_nonblocking(true)?;
        let theirs = OwnedFd::from(theirs);
        let mut command = Command::new("ffmpeg");
        command.args(program_arguments(codec, 2));
        command.stdin(theirs.try_clone()?).stdout(theirs).stderr(OwnedFd::from(says));
        let child = command.spawn()?;
        let end = ours.try_clone()?;
        Ok(FfmpegPipes {
            input: Box::new(ours.try_clone()?),
            end: Box::new(move || end.shutdown(Shutdown::Write)),
            output: Box::new(Output(ours.try_clone()?, child)),
            said: Box::new(said),
            hang_up: Box::new(move || ours.shutdown(Shutdown::Both)),
        })
    };
    DecoderChain::with_program(Arc::new(start), Codec::ALL.into())
}

/// Result with the program preferred.
struct Found {
    /// Report without the program.
    report: FileReport,
    seen: Vec<Seen>,
    /// True if the frames equal those without the program.
    is_same: bool,
    /// Reason that the program did not decode all of the stream.
    reason: Option<String>,
}

/// Compares errors, reports and times with those without the program.
fn found(name: &str, bytes: &[u8]) -> Option<Found> {
    let expected = decode_bytes(bytes.to_vec(), &every(2));
    let found = decode_bytes_by(&ffmpeg(), bytes.to_vec(), &every(2));
    match (expected, found) {
        (Ok((report, expected)), Ok((mut by_program, seen))) => {
            let reason = by_program.fallback.take();
            by_program.decoder.clone_from(&report.decoder);
            assert_eq!(by_program, report, "{name}: {reason:?}");
            assert_eq!(ticks(&seen), ticks(&expected), "{name}: {reason:?}");
            Some(Found { is_same: seen == expected, report, seen, reason })
        }
        (Err(expected), Err(found)) => {
            assert_eq!(found, expected, "{name}");
            None
        }
        (expected, found) => panic!("{name}: {found:?} instead of {expected:?}"),
    }
}

/// Compares the frames too, and returns the reason that the program did not decode all of them.
fn same(name: &str, bytes: &[u8]) -> (Vec<Seen>, Option<String>) {
    let Found { seen, is_same, reason, .. } = found(name, bytes).expect("decodes");
    assert!(is_same, "{name}: {reason:?}");
    (seen, reason)
}

/// Returns a second of moving pictures.
fn drawn(name: &str, (size, format): (&str, &str), codec: &str) -> Vec<u8> {
    let source = format!("-f lavfi -i testsrc2=size={size}:rate=25:duration=1 -pix_fmt {format}");
    fs::read(rendered(name, &format!("{source} {codec}"))).expect("made")
}

/// Joins several IVF files, with times one after the other.
fn joined_ivf(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = parts[0][..32].to_vec();
    for (time, picture) in (0_u64..).zip(parts.iter().flat_map(|part| split_ivf(part))) {
        out.extend((picture.len() as u32).to_le_bytes());
        out.extend(time.to_le_bytes());
        out.extend(picture);
    }
    out
}

const LINES: [(&str, &str); 5] = [
    ("part.264", "-c:v libx264 -preset ultrafast -bf 2 -x264-params scenecut=0"),
    ("part.265", "-c:v libx265 -preset ultrafast -x265-params log-level=none"),
    ("vp8.ivf", "-c:v libvpx -deadline realtime -cpu-used 8"),
    ("vp9.ivf", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8"),
    ("av1.ivf", "-c:v libsvtav1 -preset 12"),
];

fn joined(name: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    if name.ends_with(".ivf") { joined_ivf(parts) } else { parts.concat() }
}

#[test]
fn pictures_that_change_in_band_are_those_of_software() {
    let small = ("320x180", "yuv420p");
    let others = [
        ("grows", ("640x360", "yuv420p")),
        ("shrinks", ("160x90", "yuv420p")),
        // Equally many bytes per picture.
        ("swaps its sides", ("180x320", "yuv420p")),
        ("goes to ten bits", ("320x180", "yuv420p10le")),
    ];
    for (name, line) in LINES {
        let first = drawn(name, small, line);
        let (seen, reason) = same(name, &joined(name, &[first.clone(), first.clone()]));
        assert_eq!((seen.len(), reason), (50, None), "{name} stays the same");
        for (what, other) in others {
            if name == "vp8.ivf" && other.1 != small.1 {
                continue;
            }
            let case = format!("{name} {what}");
            let both = [first.clone(), drawn(name, other, line)];
            let (seen, reason) = same(&case, &joined(name, &both));
            assert_eq!(seen.len(), 50, "{case}");
            let turns = seen.windows(2).filter(|pair| pair[0].extent != pair[1].extent).count();
            assert_eq!(turns, usize::from(other.0 != small.0), "{case}");
            assert!(reason.is_some_and(|reason| reason.contains("size or format")), "{case}");
        }
    }
}

#[test]
fn a_turn_that_the_stream_asks_for_is_not_made() {
    let turned = "-c:v libx264 -preset ultrafast -bsf:v \
                  h264_metadata=display_orientation=insert:rotate=90";
    let bytes = drawn("turned.264", ("320x180", "yuv420p"), turned);
    let (seen, reason) = same("a turn", &bytes);
    assert_eq!((seen.len(), reason), (25, None));
}

/// Returns the stream, with one NAL unit per picture, without picture `lost`.
fn without_picture(stream: &[u8], lost: usize) -> Vec<u8> {
    let (mut out, mut pictures) = (vec![0], 0);
    for unit in split_at(stream, &[0, 0, 1]) {
        let is_picture = unit[3] >> 1 & 0x3f < 32;
        if !is_picture || pictures != lost {
            out.extend(unit);
        }
        pictures += usize::from(is_picture);
    }
    out
}

#[test]
fn damage_that_is_only_logged_is_left_to_software() {
    let line = "-c:v libx265 -preset ultrafast -x265-params \
                log-level=none:keyint=999:bframes=0:ref=1:slices=1:wpp=0";
    let whole = drawn("whole.265", ("320x180", "yuv420p"), line);
    let damaged = without_picture(&whole, 9);
    assert!(damaged.len() < whole.len());
    // libav makes a grey reference and reports it only in its log.
    let (seen, reason) = same("a lost picture", &damaged);
    assert_eq!(seen.len(), 24);
    assert!(reason.is_some_and(|reason| reason.contains("reports damage")));
}

#[test]
fn damaged_clips_give_the_frames_and_the_counts_of_software() {
    let x264 = "-c:v libx264 -preset veryfast -bf 2";
    let x265 = "-c:v libx265 -preset ultrafast -x265-params log-level=none";
    let lines = [
        ("gops.mp4", format!("{x264} -g 12 -movflags +faststart")),
        ("one-gop.mp4", format!("{x264} -g 9999 -movflags +faststart")),
        ("gops.ts", format!("{x264} -g 12")),
        ("gops.265", format!("{x265}:keyint=12:open-gop=0")),
        ("one-gop.mkv", format!("{x265}:keyint=9999")),
        ("vp8.webm", "-c:v libvpx -deadline realtime -cpu-used 8 -g 12".to_owned()),
        ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 9999".to_owned()),
        ("av1.mkv", "-c:v libsvtav1 -preset 12 -g 12".to_owned()),
    ];
    let (mut damaged, mut reported, mut silent) = (0, 0, 0);
    for (name, line) in lines {
        let source = "-f lavfi -i testsrc2=size=192x108:rate=25:duration=3 -pix_fmt yuv420p";
        let whole = fs::read(rendered(name, &format!("{source} {line}"))).expect("made");
        for (seed, count) in (1..).zip([0, 1, 4, 20]) {
            let bytes = with_flipped_bits(&whole, count, seed);
            let case = format!("{name}, {count} bits flipped");
            let Some(Found { report, is_same, reason, .. }) = found(&case, &bytes) else {
                continue;
            };
            damaged += usize::from(report.damaged_packets > 0);
            reported += usize::from(reason.as_ref().is_some_and(|it| it.contains("damage")));
            // libav reports some damage nowhere, and its output then depends on threads and buffers.
            let is_silent = count > 0 && reason.is_none();
            silent += usize::from(is_silent);
            assert!(is_same || is_silent, "{case}: {reason:?}");
            assert!(!is_silent || report.damaged_packets == 0, "{case}");
            assert!(count > 0 || reason.is_none(), "{case}: {reason:?}");
        }
    }
    println!("{damaged} damaged, {reported} reported by the program, {silent} silent");
    assert!(damaged > 0 && reported > 0);
}

/// Accepts no input until it is hung up on.
struct Deaf(Arc<(Mutex<bool>, Condvar)>);

impl Write for Deaf {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        let over = self.0.0.lock().expect("no panic");
        let _over = self.0.1.wait_while(over, |over| !*over).expect("no panic");
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns less than a picture per read, at the pace of a slow program.
struct Paced(Cursor<Vec<u8>>);

impl Read for Paced {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        thread::sleep(Duration::from_micros(100));
        let len = out.len().min(1024);
        self.0.read(&mut out[..len])
    }
}

#[test]
fn a_program_that_gives_pictures_and_takes_none_is_given_up() {
    let made = |name: &str, seconds: u32, line: &str| {
        let source = format!("-f lavfi -i testsrc2=size=32x32:rate=25:duration={seconds}");
        fs::read(rendered(name, &format!("{source} -pix_fmt yuv420p {line}"))).expect("made")
    };
    let pictures = Arc::new(made("raw.nut", 400, "-c:v rawvideo"));
    let clip = made("clip.mp4", 80, "-c:v libx264 -preset ultrafast -bf 0");
    let start = move |_| {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let ours = Arc::clone(&over);
        Ok(FfmpegPipes {
            input: Box::new(Deaf(over)),
            end: Box::new(|| Ok(())),
            output: Box::new(Paced(Cursor::new(pictures.to_vec()))),
            said: Box::new(io::empty()),
            hang_up: Box::new(move || {
                *ours.0.lock().expect("no panic") = true;
                ours.1.notify_all();
                Ok(())
            }),
        })
    };
    let decoders = DecoderChain::with_program(Arc::new(start), vec![Codec::H264]);
    let (report, _) = decode_bytes_by(&decoders, clip, &every(2)).expect("goes on");
    assert_eq!(report.frames, 2000);
    let reason = report.fallback.expect("given up");
    assert!(reason.contains("takes no pictures and gives some"), "{reason}");
}
