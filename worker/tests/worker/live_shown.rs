//! Views and clips of a live session.

use media::Score;
use turbojpeg::read_header;
use worker::{
    ClipSampler, ClipSpec, Crop, EncodedImage, FrameChunk, FrameRecord, FrameView, NoveltySpec,
    SessionSpec,
};

use crate::{
    live::{self, Said, access_units, signals_alone, with_stills},
    support::{alone, annex_b},
};

/// Sends four seconds of 25 frames through a session, and passes its output to `until`.
fn say(spec: SessionSpec, until: impl FnOnce(&Said)) {
    live::say(spec, &access_units(&annex_b("testsrc2")), until);
}

fn lower_right() -> Option<Crop> {
    let half = Score::from_millionths(500_000);
    Crop::new(half, half, half, half)
}

fn jpeg_size(jpeg: &[u8]) -> (u32, u32) {
    let header = read_header(jpeg).expect("a JPEG");
    (header.width as u32, header.height as u32)
}

#[test]
fn a_view_is_the_still_or_a_picture_of_its_own() {
    let _alone = alone();
    // Specification, and the size of views that are not the still.
    let cases = [
        ("the still", SessionSpec { view_edge: Some(4096), ..with_stills() }, None),
        ("no still", SessionSpec { view_edge: Some(4096), ..signals_alone() }, Some((352, 288))),
        ("scaled", SessionSpec { view_edge: Some(176), ..with_stills() }, Some((176, 144))),
        (
            "cropped",
            SessionSpec { view_edge: Some(512), crop: lower_right(), ..with_stills() },
            Some((176, 144)),
        ),
    ];
    for (name, spec, expected) in cases {
        say(spec.clone(), |said| {
            let is_shown = |record: &&FrameRecord| record.pictures.view.is_some();
            let shown: Vec<_> = said.records[&1].iter().filter(is_shown).collect();
            assert!(!shown.is_empty(), "{name}");
            if spec.stills {
                let with_still = shown.iter().filter(|it| it.pictures.still.is_some()).count();
                assert_eq!(
                    (with_still, shown.len()),
                    (said.stills[&1].len(), with_still),
                    "{name}"
                );
            }
            for record in shown {
                assert!(record.pictures.novelty.is_none(), "{name}");
                let size = match record.pictures.view.as_ref().expect("asked for") {
                    FrameView::Still => None,
                    FrameView::Own(EncodedImage { extent, jpeg }) => {
                        let size = jpeg_size(jpeg);
                        assert_eq!((extent.width, extent.height), size);
                        Some(size)
                    }
                };
                assert_eq!(size, expected, "{name}");
            }
        });
    }
}

#[test]
fn a_crop_changes_what_novelty_is_told_from_and_no_signal_or_still() {
    let _alone = alone();
    let inputs = |said: &Said| -> Vec<_> {
        said.records[&1].iter().filter_map(|record| record.pictures.novelty.clone()).collect()
    };
    let (mut signals, mut stills, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let spec = SessionSpec { novelty: Some(NoveltySpec { side: 64 }), ..with_stills() };
    say(spec.clone(), |said| {
        assert!(said.records[&1].iter().all(|record| record.pictures.view.is_none()));
        (signals, stills) = (said.signals[&1].clone(), said.stills[&1].clone());
        whole = inputs(said);
    });
    assert!(!whole.is_empty());
    say(SessionSpec { crop: lower_right(), view_edge: Some(512), ..spec }, |said| {
        assert_eq!(said.signals[&1], signals);
        assert!(said.stills[&1] == stills);
        let cropped = inputs(said);
        assert_eq!(cropped.len(), whole.len());
        assert!(cropped.iter().zip(&whole).all(|(cropped, whole)| cropped.cells != whole.cells));
    });
}

/// Returns the clips of a session; fails if a picture is of a frame of which none is wanted.
fn clips_of(said: &Said, spec: ClipSpec) -> Vec<FrameChunk<(u64, EncodedImage)>> {
    let (mut clipper, mut clips) = (ClipSampler::new(spec), Vec::new());
    for FrameRecord { signal, pts, pictures } in &said.records[&1] {
        let pts = pts.expect("clips are cut by it");
        assert_eq!(pts.as_millis(), 40 * signal.frame_index as i64);
        let offered = clipper.offer(signal, pts);
        clips.extend(offered.complete);
        assert_eq!(pictures.clip.is_some(), offered.is_wanted, "frame {}", signal.frame_index);
        if let Some(picture) = pictures.clip.clone() {
            clipper.take((signal.frame_index, picture));
        }
    }
    clips.extend(clipper.finish());
    clips
}

#[test]
fn clips_come_with_their_frames() {
    let _alone = alone();
    let clip =
        ClipSpec { target_fps: 6, length_ms: 500, delay_ms: 500, pictures: 8, max_edge: 176 };
    say(SessionSpec { clip: Some(clip), crop: lower_right(), ..signals_alone() }, |said| {
        let clips = clips_of(said, clip);
        let seen: Vec<(u64, u64)> = clips.iter().map(|it| (it.first_frame, it.frames)).collect();
        assert_eq!(seen, [(0, 13), (25, 13), (50, 13), (75, 13)]);
        for clip in clips {
            let shown: Vec<u64> =
                clip.views.iter().map(|(frame, _)| frame - clip.first_frame).collect();
            assert_eq!(shown, [0, 5, 9]);
            assert!(clip.views.iter().all(|(_, view)| jpeg_size(&view.jpeg) == (176, 144)));
            assert_eq!((clip.end_pts_ms - clip.start_pts_ms, clip.start_pts_ms % 1000), (480, 0));
        }
    });
}
