//! Messages survive the wire, and no bytes make the parser panic.
//!
//! Long because messages of every kind are made up here.

mod session;

use media::{
    Codec, Extent, PixelLayout, Rate, Rotation, Sample, SampleRange, Score, Signal, Subsampling,
    Timebase, Zone, Zones,
};
use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::{
    Chunking, Crop, FrameRecord, FrameView, GateBackend, GateError, MeasuredBy, NoveltySpec,
    Pictures, SessionResume, ViewOptions, measuring::GateDevice, sandbox::Asked,
};

fn score() -> impl Strategy<Value = Score> {
    (0..=Score::SCALE).prop_map(Score::from_millionths)
}

fn signal() -> impl Strategy<Value = Signal> {
    let scores = (score(), score(), score(), score(), option::of(score()));
    (any::<u64>(), option::of(any::<u64>()), any::<i64>(), any::<u64>(), scores).prop_map(
        |(frame_index, source_frame_index, pts_ms, perceptual_hash, scores)| Signal {
            frame_index,
            source_frame_index,
            pts_ms,
            perceptual_hash,
            luma_mean: scores.0,
            flicker_score: scores.1,
            ghosting_score: scores.2,
            noise_variance_score: scores.3,
            scene_score: scores.4,
            activity: None,
        },
    )
}

fn rate() -> impl Strategy<Value = Rate> {
    (1..=u32::MAX, 1..=u32::MAX).prop_map(|(num, den)| Rate::new(num, den).expect("positive"))
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 1..=u32::MAX, 1..=u32::MAX).prop_map(|(ticks, num, den)| {
        Timestamp::new(ticks, Timebase::new(num, den).expect("positive"))
    })
}

fn extent() -> impl Strategy<Value = Extent> {
    (1..=u32::MAX, 1..=u32::MAX).prop_map(|(width, height)| Extent { width, height })
}

fn zones() -> impl Strategy<Value = Zones> {
    let polygon = vec((score(), score()), Zone::CORNERS_MIN..=Zone::CORNERS_MAX);
    let zone = ("[a-z]{0,64}", polygon).prop_map(|(name, polygon)| Zone { name, polygon });
    let zones = (vec(zone, 0..=Zone::MAX), any::<bool>());
    zones.prop_map(|(zones, only)| Zones { zones, only })
}

#[test]
fn zones_beyond_their_bounds_are_refused() {
    let zone = |name: usize, corners: usize| Zone {
        name: "a".repeat(name),
        polygon: vec![(Score::ZERO, Score::ONE); corners],
    };
    let rows = [
        (vec![zone(1, 3); 16], true),
        (vec![zone(1, 3); 17], false),
        (vec![zone(64, 32)], true),
        (vec![zone(65, 3)], false),
        (vec![zone(1, 2)], false),
        (vec![zone(1, 33)], false),
    ];
    for (zones, is_valid) in rows {
        let zones = Zones { zones, only: true };
        let mut bytes = Vec::new();
        zones.put(&mut bytes);
        let read = Zones::get(&mut Reader::new(&bytes));
        assert_eq!(read.ok(), is_valid.then_some(zones));
    }
}

fn gate_config() -> impl Strategy<Value = GateConfig> {
    (any::<u32>(), any::<Option<u32>>(), vec(score(), 7)).prop_map(|(frames, ms, scores)| {
        GateConfig {
            keepalive_frames: frames,
            keepalive_ms: ms,
            scene_cut: scores[0],
            luma_shift: scores[1],
            flicker: scores[2],
            ghosting: scores[3],
            noise: scores[4],
            activity_on: scores[5],
            activity_off: scores[6],
        }
    })
}

fn crop() -> impl Strategy<Value = Crop> {
    // Where a part of a side begins and how long it is, never nothing.
    let part = || (0..Score::SCALE).prop_flat_map(|from| (Just(from), 1..=Score::SCALE - from));
    (part(), part()).prop_map(|((x, width), (y, height))| {
        let [x, y, width, height] = [x, y, width, height].map(Score::from_millionths);
        Crop::new(x, y, width, height).expect("inside")
    })
}

fn view_options() -> impl Strategy<Value = ViewOptions> {
    let chunks = prop_oneof![
        (Chunking::FRAMES_MIN..=Chunking::FRAMES_MAX).prop_map(Chunking::Frames),
        (1..=Chunking::SPAN_MS_MAX).prop_map(|ms| Chunking::Span { ms }),
    ];
    let edge = option::of(ViewOptions::EDGE_MIN..=ViewOptions::EDGE_MAX);
    let side = NoveltySpec::SIDE_MIN..=NoveltySpec::SIDE_MAX;
    let novelty = option::of(side.prop_map(|side| NoveltySpec { side }));
    (chunks, 1..=ViewOptions::PER_CHUNK_MAX, edge, option::of(crop()), novelty).prop_map(
        |(chunks, per_chunk, max_edge, crop, novelty)| ViewOptions {
            chunks,
            per_chunk,
            max_edge,
            crop,
            novelty,
        },
    )
}

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(Codec::ALL.to_vec())
}

fn sampling() -> impl Strategy<Value = Sampling> {
    prop_oneof![Just(Sampling::Every), rate().prop_map(Sampling::Fixed)]
}

fn asked() -> impl Strategy<Value = Asked> {
    let backend = proptest::sample::select(Backend::ALL.to_vec());
    let spec = (backend, option::of(".{0,9}"), option::of(".{0,9}"));
    (spec, vec(codec(), 0..4), any::<bool>()).prop_map(
        |((backend, device, capabilities), codecs, was_there)| Asked {
            spec: DeviceSpec { backend, device, capabilities },
            codecs,
            was_there,
        },
    )
}

fn gate_device() -> impl Strategy<Value = GateDevice> {
    let backend = proptest::sample::select(GateBackend::ALL.to_vec());
    (backend, any::<u32>(), any::<bool>(), any::<bool>()).prop_map(
        |(backend, number, is_named, was_there)| GateDevice {
            backend,
            number,
            is_named,
            was_there,
        },
    )
}

/// A decoding device, a measuring one, what a program decodes, and directories of libraries.
type Devices = (Option<Asked>, Option<GateDevice>, Vec<Codec>, Vec<String>);

fn devices() -> impl Strategy<Value = Devices> {
    (option::of(asked()), option::of(gate_device()), vec(codec(), 0..4), vec(".{0,9}", 0..3))
}

fn request() -> impl Strategy<Value = Request> {
    let pictures = (any::<bool>(), option::of(view_options()));
    let resume = option::of((session::resume(), option::of(any::<u64>()), any::<i64>()));
    let resume = resume.prop_map(|place| {
        place.map(|(SessionResume { last, activity }, segment, begins_at_ms)| Resume {
            last,
            activity,
            begins_at_ms,
            segment,
        })
    });
    let threads = (1..99usize, resume);
    let job = (any::<u64>(), sampling(), any::<u64>(), pictures, (gate_config(), zones()), threads);
    prop_oneof![
        (any::<u64>(), option::of(any::<u64>()), devices()).prop_map(
            |(memory_bytes, cpu_seconds, (device, gate, program, libraries))| {
                Request::Confine(Confinement {
                    memory_bytes,
                    cpu_seconds,
                    parent: 1,
                    device,
                    program,
                    gate,
                    libraries,
                })
            }
        ),
        job.prop_map(
            |(len, sampling, max_frames, (stills, views), (gate, zones), (threads, resume))| {
                Request::Job {
                    source: Source::File { len },
                    options: JobOptions {
                        sampling,
                        max_frames,
                        stills,
                        views,
                        gate,
                        zones,
                        threads,
                        resume,
                    },
                }
            }
        ),
        (any::<u32>(), session::spec())
            .prop_map(|(session, spec)| Request::OpenSession { session, spec }),
        (any::<u32>(), timestamp(), any::<[bool; 2]>(), vec(any::<u8>(), 0..300)).prop_map(
            |(session, pts, [keyframe, follows_gap], data)| Request::AccessUnit {
                session,
                pts,
                keyframe,
                follows_gap,
                data
            }
        ),
        any::<u32>().prop_map(|session| Request::CloseSession { session }),
        (".{0,9}", any::<bool>()).prop_map(|(url, playlists)| Request::Job {
            source: Source::Remote { url, playlists },
            options: JobOptions {
                sampling: Sampling::Every,
                max_frames: 1,
                stills: false,
                views: None,
                gate: GateConfig::default(),
                zones: Zones::default(),
                threads: 1,
                resume: None,
            },
        }),
        (".{0,9}", option::of((".{0,9}", ".{0,9}"))).prop_map(|(url, names)| Request::Job {
            source: Source::Rtsp {
                url,
                credentials: names.map(|(user, password)| Credentials { user, password }),
            },
            options: JobOptions {
                sampling: Sampling::Every,
                max_frames: 1,
                stills: false,
                views: None,
                gate: GateConfig::default(),
                zones: Zones::default(),
                threads: 1,
                resume: None,
            },
        }),
        (".{0,9}", option::of(any::<u64>()), any::<bool>())
            .prop_map(|(url, size, seekable)| Request::Resource { url, size, seekable }),
        Just(Request::Probe),
        (vec(any::<u8>(), 0..300), any::<u32>())
            .prop_map(|(jpeg, edge_max)| Request::Shrink { jpeg, edge_max }),
        (any::<u64>(), any::<i64>(), any::<i64>())
            .prop_map(|(len, from_ms, to_ms)| Request::Excerpt { len, from_ms, to_ms }),
    ]
}

fn picture() -> impl Strategy<Value = Picture> {
    (extent(), vec(any::<u8>(), 0..99)).prop_map(|(extent, jpeg)| Picture { extent, jpeg })
}

fn record() -> impl Strategy<Value = FrameRecord> {
    let view = prop_oneof![Just(FrameView::Still), picture().prop_map(FrameView::Own)];
    let shown = (option::of(view), option::of(session::novelty()));
    let pictures = (option::of(picture()), shown, option::of(picture()));
    (signal(), option::of(timestamp()), pictures).prop_map(
        |(signal, pts, (still, (view, novelty), clip))| {
            let pictures = Pictures { still, view, clip, novelty };
            FrameRecord { signal, pts, pictures }
        },
    )
}

fn stream() -> impl Strategy<Value = StreamInfo> {
    let layout = prop_oneof![
        Just(None),
        (0..=8u8, any::<bool>()).prop_map(|(shift, interleaved_chroma)| Some(PixelLayout {
            subsampling: Subsampling::Yuv420,
            sample: if shift == 0 { Sample::U8 } else { Sample::U16 { shift } },
            interleaved_chroma,
            range: SampleRange::Limited,
        }))
    ];
    let times =
        (option::of(rate()), option::of(timestamp()), timestamp(), option::of(any::<u64>()));
    (codec(), ".{0,20}", extent(), layout, times).prop_map(
        |(codec, container, extent, layout, (source_rate, duration, at, declared_frames))| {
            StreamInfo {
                codec,
                pixel_format: container.clone(),
                container,
                extent,
                rotation: Rotation::Quarter,
                layout,
                source_rate,
                duration,
                timebase: at.timebase,
                declared_frames,
                wall_start: declared_frames.map(|at| media::WallTime { epoch_ms: at as i64 }),
                is_endless: declared_frames.is_none(),
            }
        },
    )
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Stopped),
        ".{0,40}".prop_map(|reason| Fault::PixelsLost(media::PixelsLost { reason })),
        ".{0,40}".prop_map(|message| Fault::Other { kind: media::ErrorKind::DataLoss, message }),
        (any::<bool>(), ".{0,40}")
            .prop_map(|(is_refused, message)| Fault::Source { is_refused, message }),
        any::<u64>().prop_map(|frame_index| Fault::Unforeseen { frame_index }),
        (".{0,9}", option::of(".{0,9}")).prop_map(|(reason, capabilities)| {
            Fault::Backend(BackendError::NoVideoCapability { reason, capabilities })
        }),
        (".{0,9}", ".{0,9}").prop_map(|(reason, path)| {
            Fault::Backend(BackendError::RenderNode { reason, path })
        }),
        ".{0,9}".prop_map(|reason| {
            Fault::Gate(GateError { kind: media::ErrorKind::Unavailable, reason })
        }),
        option::of(".{0,10}").prop_map(|name| DecodeError::UnsupportedContainer { name }.into()),
        (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(width, height, max)| {
            DecodeError::PictureTooLarge { width, height, max }.into()
        }),
        (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(width, height, max)| {
            DecodeError::TooManyPixels { width, height, max }.into()
        }),
        (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
            |(width, height, bytes, max)| {
                DecodeError::TooManyBytes { width, height, bytes, max }.into()
            }
        ),
        (codec(), codec()).prop_map(|(expected, got)| {
            DecodeError::WrongCodec { expected: expected.name(), got: got.name() }.into()
        }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let attempt = (".{0,9}", option::of(any::<i32>()));
    prop_oneof![
        vec(".{0,9}", 0..3).prop_map(|missing| Reply::Confined(SandboxReport {
            landlock_abi: 7,
            seccomp: true,
            rlimits: false,
            level: SandboxLevel::Partial { missing },
        })),
        stream().prop_map(|stream| Reply::Job(JobEvent::Opened(stream))),
        (any::<u64>(), any::<i64>())
            .prop_map(|(frames, pts_ms)| Reply::Job(JobEvent::Progress { frames, pts_ms })),
        vec(record(), 0..5).prop_map(|records| Reply::Job(JobEvent::Frames(records))),
        (any::<u64>(), any::<u64>()).prop_map(|(decode_us, gate_us)| {
            Reply::Job(JobEvent::Spent(Spent { decode_us, gate_us }))
        }),
        (".{0,9}", option::of(".{0,9}"), any::<u32>()).prop_map(|(measurer, lost, late)| {
            Reply::Job(JobEvent::Measured(MeasuredBy { measurer, lost, late }))
        }),
        fault().prop_map(Reply::Failed),
        (any::<u32>(), session::event())
            .prop_map(|(session, event)| Reply::Session { session, event }),
        any::<u32>().prop_map(|session| Reply::Taken { session }),
        ".{0,9}".prop_map(|reason| Reply::GateLost { reason }),
        Just(Reply::GateLate),
        ".{0,9}".prop_map(|reason| Reply::DecoderLost { reason }),
        codec().prop_map(|codec| Reply::Program { codec }),
        (codec(), any::<u8>(), vec(option::of(".{0,9}"), 2), ".{0,9}").prop_map(
            |(codec, bits, mut texts, measurer)| {
                let (decoder, reason) = (texts.remove(0), texts.remove(0));
                let codecs = vec![CodecProbeResult { codec, bits, decoder, reason }];
                Reply::Able(Capabilities { codecs, measurer })
            }
        ),
        (".{0,9}", any::<u64>()).prop_map(|(url, from)| Reply::Open { url, from }),
        picture().prop_map(Reply::Shrunk),
        any::<i64>().prop_map(|starts_at_ms| {
            let container = ExcerptContainer::Matroska;
            Reply::Excerpt(ExcerptEvent::Begins(ExcerptStart { container, starts_at_ms }))
        }),
        vec(any::<u8>(), 0..300).prop_map(|bytes| Reply::Excerpt(ExcerptEvent::Bytes(bytes))),
        Just(Reply::Excerpt(ExcerptEvent::Ended)),
        vec(attempt, 0..4).prop_map(|attempts| {
            let attempts =
                attempts.into_iter().map(|(what, errno)| Attempt { what, errno }).collect();
            Reply::Probed(attempts)
        }),
    ]
}

fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(message: &T) -> Result<(), TestCaseError> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).expect("below the bound");
    let (header, payload) = bytes.split_first_chunk().expect("a header");
    prop_assert_eq!(payload_len(*header), Ok(payload.len()));
    prop_assert_eq!(&decode::<T>(payload)?, message);
    for cut in 0..payload.len() {
        prop_assert!(decode::<T>(&payload[..cut]).is_err(), "cut at {}", cut);
    }
    let mut longer = payload.to_vec();
    longer.push(0);
    prop_assert_eq!(decode::<T>(&longer), Err(ProtocolError::Trailing(1)));
    Ok(())
}

/// Checks that an accepted message is written as it was read, so that nothing has two forms.
fn accepts_only_its_own<T: Wire>(payload: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(message) = decode::<T>(payload) {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).expect("below the bound");
        prop_assert_eq!(&bytes[HEADER_BYTES..], payload);
    }
    Ok(())
}

#[test]
fn the_call_of_libav_that_failed_arrives() {
    let detail = "cannot allocate memory".to_owned();
    let fault = Fault::from(DecodeError::Libav { call: "avcodec_open2", detail });
    let mut bytes = Vec::new();
    encode(&Reply::Failed(fault), &mut bytes).expect("below the bound");
    let Ok(Reply::Failed(arrived)) = decode(&bytes[HEADER_BYTES..]) else { panic!("no fault") };
    assert_eq!(arrived.to_string(), "avcodec_open2 failed: cannot allocate memory");
    assert_eq!(arrived.kind(), media::ErrorKind::InvalidInput);
}

proptest! {
    #[test]
    fn requests_survive_the_wire(message in request()) {
        round_trip(&message)?;
    }

    #[test]
    fn replies_survive_the_wire(message in reply()) {
        round_trip(&message)?;
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(mut bytes in vec(any::<u8>(), 0..400), versioned: bool) {
        if versioned && !bytes.is_empty() {
            bytes[0] = VERSION;
        }
        decode::<Request>(&bytes).ok();
        decode::<Reply>(&bytes).ok();
    }

    #[test]
    fn a_changed_byte_gives_a_message_or_an_error(message in reply(), at: prop::sample::Index, flip in 1u8..) {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).expect("below the bound");
        let mut payload = bytes.split_off(HEADER_BYTES);
        let at = at.index(payload.len());
        payload[at] ^= flip;
        decode::<Reply>(&payload).ok();
        decode::<Request>(&payload).ok();
    }

    #[test]
    fn accepted_requests_have_one_form(message in request(), at: prop::sample::Index, flip in 1u8..) {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).expect("below the bound");
        let mut payload = bytes.split_off(HEADER_BYTES);
        let at = at.index(payload.len());
        payload[at] ^= flip;
        // A rate is reduced when it is made, so that one has more than one form.
        let has_rate = matches!(&message, Request::Job { options, .. } if options.sampling != Sampling::Every);
        if !has_rate {
            accepts_only_its_own::<Request>(&payload)?;
        }
    }
}

#[test]
fn a_length_beyond_the_bound_is_refused_before_anything_is_read() {
    assert_eq!(payload_len([0, 0, 0, 4]), Ok(64 << 20));
    assert_eq!(payload_len([1, 0, 0, 4]), Err(ProtocolError::TooLong((64 << 20) + 1)));
    assert_eq!(payload_len([0xff; 4]), Err(ProtocolError::TooLong(u32::MAX)));
}

#[test]
fn a_count_without_its_values_allocates_nothing() {
    for (count, refused) in
        [(512_u32, ProtocolError::Short("u64")), (513, ProtocolError::Invalid("list"))]
    {
        let mut payload = vec![VERSION, 2, 3];
        payload.extend(count.to_le_bytes());
        assert_eq!(decode::<Reply>(&payload), Err(refused), "{count}");
    }
}

#[test]
fn another_version_is_named() {
    assert_eq!(decode::<Request>(&[9, 6]), Err(ProtocolError::Version(9)));
}
