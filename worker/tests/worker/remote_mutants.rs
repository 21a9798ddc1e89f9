//! Damaged playlists and RTSP conversations: each ends with a result or with an error that names the fault.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    thread,
};

use fastrand::Rng;
use worker::JobSpec;

use crate::{
    damaged::mutate,
    hls::{H264, segmented},
    mutants::{patient, verdict},
    rtsp::{Server, job, pipeline},
    support::{alone, rendered, run},
};

/// Mutants of live playlists: each takes ten seconds to be found not growing.
const LIVE_MAX: u64 = 2;

/// Runs every mutant that `make` returns, and checks its outcome.
fn assert_all_end_well(make: impl Fn(u64, &mut Rng) -> JobSpec) {
    let mut tally = BTreeMap::<&str, u64>::new();
    for number in 0..clips::sized(60_u64, 200) {
        let mut dice = Rng::with_seed(1 << 40 | number);
        let outcome = run(patient(make(number, &mut dice)));
        let verdict = match &outcome {
            Err(worker::WorkerError::Refused(_)) => "clear error",
            outcome => outcome.as_ref().map_or_else(verdict, |_| "result"),
        };
        assert!(
            matches!(verdict, "result" | "clear error"),
            "mutant {number}, {verdict}: {:?}",
            outcome.err()
        );
        *tally.entry(verdict).or_default() += 1;
    }
    eprintln!("{tally:?}");
    assert!(tally.values().all(|&count| count > 5), "neither all well nor all broken: {tally:?}");
}

/// Changes the content, the number and the order of lines.
fn mutate_lines(text: &str, dice: &mut Rng) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
    for _ in 0..=dice.usize(..3) {
        let (at, other) = (dice.usize(..lines.len().max(1)), dice.usize(..lines.len().max(1)));
        match dice.usize(..5) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[other].clone()),
            2 => lines.swap(at, other),
            3 => {
                for byte in lines[at].iter_mut().filter(|byte| byte.is_ascii_digit()) {
                    *byte = b'0' + dice.usize(..10) as u8;
                }
            }
            _ if lines[at].is_empty() => {}
            _ => mutate(&mut lines[at], dice),
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join(&b'\n')
}

#[test]
fn damaged_playlists_end_in_a_result_or_a_clear_error() {
    let _alone = alone();
    let kinds = ["", "-hls_segment_type fmp4", "-hls_flags single_file", "-hls_key_info_file info"];
    let shelves = kinds.map(|options| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("key"), [7; 16]).expect("written");
        std::fs::write(folder.path().join("info"), "key\nkey\n").expect("written");
        segmented(folder.path(), H264, options)
    });
    let originals =
        shelves.each_ref().map(|shelf| String::from_utf8(shelf.get("list.m3u8")).expect("text"));
    assert_all_end_well(|number, dice| {
        let kind = number as usize % kinds.len();
        let mut text = mutate_lines(&originals[kind], dice);
        if number >= LIVE_MAX {
            text.extend(b"\n#EXT-X-ENDLIST\n");
        }
        shelves[kind].put("mutant.m3u8", text);
        shelves[kind].spec("mutant.m3u8")
    });
}

/// Records the bytes that the server sends to a worker which reads `path`.
fn recorded(server: &Server, path: &str) -> Vec<u8> {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (upstream, listener) = (server.connect(), ours.try_clone().expect("a descriptor"));
    let told = upstream.try_clone().expect("a descriptor");
    let ask = move || {
        // Ends when the worker ends.
        io::copy(&mut &listener, &mut &told).ok();
        told.shutdown(Shutdown::Both).ok();
    };
    let record = move || {
        let (mut record, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(len @ 1..) = (&upstream).read(&mut piece) {
            record.extend_from_slice(&piece[..len]);
            if (&ours).write_all(&piece[..len]).is_err() {
                break;
            }
        }
        record
    };
    let ask = thread::Builder::new().name("ask".into()).spawn(ask).expect("a thread");
    let record = thread::Builder::new().name("record".into()).spawn(record).expect("a thread");
    let heard = run(job(theirs, server.url(path))).expect("a result");
    assert_eq!(heard.signals.len(), 25);
    ask.join().expect("no panic");
    record.join().expect("no panic")
}

/// Makes a job whose server sends `words` and then closes the connection.
fn replay(words: Vec<u8>) -> JobSpec {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let say = move || {
        // Fails once the worker has stopped reading.
        (&ours).write_all(&words).ok();
        ours.shutdown(Shutdown::Write).ok();
        io::copy(&mut &ours, &mut io::sink()).ok();
    };
    thread::Builder::new().name("say".into()).spawn(say).expect("a thread");
    job(theirs, "rtsp://camera.test/live".to_owned())
}

#[test]
fn damaged_rtsp_conversations_end_in_a_result_or_a_clear_error() {
    let _alone = alone();
    let source = "testsrc2=s=176x144:r=25:d=1";
    let h264 = rendered("mutant-h264.mp4", source, "-g 8");
    let options = "-c:v mjpeg -pix_fmt yuvj420p -huffman default";
    let jpeg = rendered("mutant-jpeg.mov", source, options);
    let server = Server::start(&[
        ("/h264", pipeline(&h264, "qtdemux ! h264parse", "rtph264pay config-interval=-1")),
        ("/jpeg", pipeline(&jpeg, "qtdemux ! jpegparse", "rtpjpegpay")),
    ]);
    let records = [recorded(&server, "/h264"), recorded(&server, "/jpeg")];
    for record in &records {
        let heard = run(replay(record.clone())).expect("a result");
        assert_eq!(heard.signals.len(), 25, "a record says what the server said");
    }
    assert_all_end_well(|number, dice| {
        let mut words = records[number as usize % 2].clone();
        match dice.usize(..2) {
            // Damages only the conversation before the media.
            0 => {
                let mut media = words.split_off(words.len().min(1500));
                mutate(&mut words, dice);
                words.append(&mut media);
            }
            _ => (0..=dice.usize(..3)).for_each(|_| mutate(&mut words, dice)),
        }
        replay(words)
    });
}
