//! Clips and variants of them by FFmpeg: exactly the known cuts are found.

use std::path::PathBuf;

use clips::{in_turn, pick_one, pick_with};
use gate::{
    AHEAD, CpuBackend, FrameMeta, Gate, GateConfig, MeasureBackend, SelectionReason, SignalWindow,
    conformance::frame_of,
};
use media::{Dimensions, Signal};

use crate::raw::{PLANAR, rendered};

const SIZE: Dimensions = Dimensions { width: 640, height: 360 };

/// Returns the signals of pictures of this size, each with its time in milliseconds.
pub fn signals_of(
    pictures: impl IntoIterator<Item = (Vec<u8>, i64)>,
    size: Dimensions,
) -> Vec<Signal> {
    let (mut measurer, mut window) = (CpuBackend::new(), SignalWindow::new(AHEAD));
    let (mut signals, mut measured) = (Vec::new(), Vec::new());
    for (index, (picture, pts_ms)) in (0..).zip(pictures) {
        measured.clear();
        let frame = frame_of(picture, size, PLANAR, index);
        measurer.measure(&[frame], &mut measured).expect("measurable");
        let stamp = FrameMeta { frame_index: index, source_frame_index: index, pts_ms };
        window.push(stamp, &measured[0]);
        signals.extend(std::iter::from_fn(|| window.poll()));
    }
    window.flush();
    signals.extend(std::iter::from_fn(|| window.poll()));
    signals
}

/// Returns the signals of the output of `ffmpeg INPUTS -filter_complex GRAPH` at `fps`.
fn signals(inputs: &[String], graph: &str, fps: f64) -> Vec<Signal> {
    let arguments = inputs.iter().map(String::as_str).chain(["-filter_complex", graph]);
    let times = (0_u32..).map(|index| (f64::from(index) * 1000.0 / fps) as i64);
    let signals = signals_of(rendered(arguments, ("yuv420p", PLANAR), SIZE).zip(times), SIZE);
    assert!(signals.len() > 30, "{} frames of {graph}", signals.len());
    signals
}

fn cuts(signals: &[Signal]) -> Vec<u64> {
    let mut gate = Gate::new(GateConfig::default());
    signals
        .iter()
        .filter(|signal| gate.offer(signal).reason == SelectionReason::SceneCut)
        .map(|signal| signal.frame_index)
        .collect()
}

/// Returns up to three clips of different motion, texture and brightness, each with the start of a long shot.
fn shots(count: usize) -> Vec<(PathBuf, &'static str)> {
    pick_with(
        &[("bigbuckbunny.mp4", "1"), ("carphone_pristine.mp4", "0"), ("bikes.mp4", "5.48")]
            [..count],
        &[
            ("surv_traffic-camera.mp4", "2"),
            ("nature_flower.mp4", "0"),
            ("anim_bbb-480p-30s.mp4", "12"),
        ][..count],
    )
}

/// Returns the arguments by which FFmpeg reads `seconds` of a shot.
fn input((clip, start): &(PathBuf, &str), seconds: &str) -> [String; 6] {
    ["-ss", start, "-t", seconds, "-i", &clip.display().to_string()].map(str::to_owned)
}

/// Filter to 640x360 and 30 frames a second.
const PLAIN: &str = "fps=30,scale=640:360,setsar=1,format=yuv420p,trim=end_frame=58";

/// Filters of a clip of 84 frames; `PLAIN` stands for the filter to that size and rate.
const DISTURBANCES: [(&str, &str); 21] = [
    ("flash of one frame", "PLAIN,drawbox=c=white:t=fill:enable='eq(n,30)+eq(n,50)'"),
    ("flash of two frames", "PLAIN,drawbox=c=white:t=fill:enable='between(n,30,31)'"),
    ("bright flash of two frames", "PLAIN,eq=brightness=0.5:enable='between(n,30,31)'"),
    ("black flash of two frames", "PLAIN,drawbox=c=black:t=fill:enable='between(n,30,31)'"),
    ("red flash", "PLAIN,drawbox=c=red@0.7:t=fill:enable='between(n,30,31)'"),
    ("slow pan", "fps=30,scale=1920:1080,crop=640:360:x='4*n':y=360,trim=end_frame=84"),
    (
        "fast pan",
        "fps=30,scale=1920:1080,crop=640:360:x='mod(30*n,1280)*lt(n,42)+1260*gte(n,42)':y=360,trim=end_frame=80",
    ),
    (
        "shake",
        "fps=30,scale=664:384,crop=640:360:x='12+12*sin(n*7.3)':y='12+12*cos(n*5.9)',trim=end_frame=84",
    ),
    (
        "whip pan",
        "fps=30,scale=1920:1080,crop=640:360:x='640+640*sin(max(0,n-30)*0.25)':y=360,trim=end_frame=84",
    ),
    ("fade in", "PLAIN,fade=in:8:12"),
    ("fade out", "PLAIN,fade=out:50:12"),
    ("short fade through white", "PLAIN,fade=in:8:6:color=white,fade=out:60:6:color=white"),
    ("exposure ramp", "PLAIN,eq=eval=frame:brightness='0.3*clip((n-30)/6,0,1)'"),
    ("exposure step", "PLAIN,eq=brightness=0.18:enable='gte(n,30)'"),
    ("contrast ramp", "PLAIN,eq=eval=frame:contrast='1-0.6*clip((n-30)/12,0,1)'"),
    (
        "white pop-up",
        "PLAIN,drawbox=x=80:y=60:w=300:h=200:c=white:t=fill:enable='between(n,30,55)'",
    ),
    (
        "half the picture darkened",
        "PLAIN,drawbox=x=0:y=0:w=320:h=360:c=black@0.8:t=fill:enable='gte(n,30)'",
    ),
    (
        "noisy pop-up",
        "PLAIN,drawbox=x=80:y=60:w=300:h=200:c=white:t=fill:enable='gte(n,30)',noise=alls=40:allf=t",
    ),
    ("dark and noisy", "PLAIN,lutyuv=y='16+(val-16)*0.25',noise=alls=25:allf=t"),
    ("sudden noise", "PLAIN,noise=alls=40:allf=t:enable='gte(n,30)'"),
    (
        "zoom",
        "fps=30,scale=1280:720,zoompan=z='1+on/40':x='iw/2-(iw/zoom/2)':y='ih/2-(ih/zoom/2)':d=1:s=640x360:fps=30,trim=end_frame=84",
    ),
];

#[test]
fn disturbances_are_no_cuts() {
    let shots = shots(2);
    for (row, (name, graph)) in DISTURBANCES.into_iter().enumerate() {
        let graph = format!("[0]{}", graph.replace("PLAIN", PLAIN));
        for shot in in_turn(row, 1, &shots) {
            let found = cuts(&signals(&input(shot, "3.3"), &graph, 30.0));
            assert_eq!(found, [0; 0], "{name} on {shot:?}");
        }
    }
}

#[test]
fn a_fast_pan_over_text_is_no_cut() {
    let screen = (pick_one("screen.mp4", "screen_gh-scoped-creds.mp4"), "0");
    let pan = "[0]trim=end_frame=1,loop=loop=83:size=1,setpts=N/30/TB,crop=640:1400:'8*n':60,scale=640:360,setsar=1,format=yuv420p";
    assert_eq!(cuts(&signals(&input(&screen, "1"), pan, 30.0)), [0; 0]);
}

/// Returns the cuts found between all clips after filter `made` was applied to each.
fn joined(shots: &[(PathBuf, &str)], made: &str) -> Vec<u64> {
    let mut inputs = Vec::new();
    let mut graph = String::new();
    for (at, shot) in shots.iter().enumerate() {
        inputs.extend(input(shot, "2"));
        graph += &format!("[{at}]{PLAIN},trim=end_frame=40,{made},setpts=PTS-STARTPTS[v{at}];");
    }
    graph += "[v0][v1][v2]concat=n=3:v=1:a=0";
    cuts(&signals(&inputs, &graph, 30.0))
}

#[test]
fn cuts_between_disturbed_clips_are_found() {
    let shots = shots(3);
    let cases = [
        ("plain", "null"),
        ("gray", "hue=s=0"),
        ("dark", "lutyuv=y='16+(val-16)*0.2'"),
        ("dark and noisy", "lutyuv=y='16+(val-16)*0.25',noise=alls=15:allf=t"),
        ("darker", "lutyuv=y='16+(val-16)/6',noise=alls=12:allf=t"),
        ("low contrast", "lutyuv=y='110+(val-110)*0.2'"),
        ("noisy", "noise=alls=30:allf=t"),
        ("shaking", "scale=688:408,crop=640:360:x='24+24*sin(n*7.3)':y='24+24*cos(n*5.9)'"),
    ];
    for (name, made) in cases {
        assert_eq!(joined(&shots, made), [40, 80], "{name}");
    }
}

#[test]
fn another_take_of_a_view_is_a_cut_only_if_all_of_it_changes_at_once() {
    let shot = shots(1).remove(0);
    let white_balance = "lutyuv=y=val+4:u=val+6:v=val-5";
    // Filter of the second take, its first frame, and the cuts.
    let cases: [(&str, u32, &[u64]); 3] =
        [(white_balance, 55, &[30]), (white_balance, 30, &[]), ("null", 55, &[])];
    for (balance, first, expected) in cases {
        let graph = format!(
            "[0]fps=30,scale=640:360,setsar=1,format=yuv420p,split[a][b];[a]trim=end_frame=30[one];\
             [b]trim={from},setpts=PTS-STARTPTS,{balance}[two];[one][two]concat",
            from = format_args!("start_frame={first}:end_frame={}", first + 30)
        );
        let found = cuts(&signals(&input(&shot, "4"), &graph, 30.0));
        assert_eq!(found, expected, "{balance} from frame {first} of {shot:?}");
    }
}

/// Returns the names of the artifacts whose threshold any frame reaches.
fn suspected(signals: &[Signal]) -> Vec<&'static str> {
    let GateConfig { flicker, ghosting, noise, .. } = GateConfig::default();
    let found = [
        ("flicker", signals.iter().any(|signal| signal.flicker_score >= flicker)),
        ("ghosting", signals.iter().any(|signal| signal.ghosting_score >= ghosting)),
        ("noise", signals.iter().any(|signal| signal.noise_variance_score >= noise)),
    ];
    found.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect()
}

#[test]
fn artifacts_are_told_apart_and_calm_video_has_none() {
    let inputs = input(&(pick_one("street.mp4", "surv_traffic-camera.mp4"), "2"), "3.3");
    let cases: [(&str, &str, f64, &[&str]); 7] = [
        ("calm", "PLAIN", 30.0, &[]),
        ("alternating", "PLAIN,eq=eval=frame:brightness='0.06*mod(n,2)'", 30.0, &["flicker"]),
        ("ten a second", "PLAIN,eq=eval=frame:brightness='0.06*sin(2*PI*n/3)'", 30.0, &["flicker"]),
        ("one flash", "PLAIN,eq=brightness=0.3:enable='eq(n,40)'", 30.0, &[]),
        (
            "blended to twice the rate",
            "PLAIN,minterpolate=fps=60:mi_mode=blend",
            60.0,
            &["ghosting"],
        ),
        ("slow motion", "PLAIN,setpts=2*PTS,fps=30", 30.0, &[]),
        ("sudden noise", "PLAIN,noise=alls=40:allf=t:enable='gte(n,40)'", 30.0, &["noise"]),
    ];
    for (name, graph, fps, expected) in cases {
        let graph = format!("[0]{}", graph.replace("PLAIN", PLAIN));
        assert_eq!(suspected(&signals(&inputs, &graph, fps)), expected, "{name}");
    }
}

/// Objects that pass close to a hand-held camera: name, and filter that makes one of a picture.
const NEAR: [(&str, &str); 3] = [
    ("lorry", "format=yuva420p"),
    ("dark lorry", "lutyuv=y='30+val/4',format=yuva420p"),
    (
        "hand",
        "lutyuv=y='150+(val-128)/6':u=110:v=150,gblur=8,format=yuva420p,\
         geq=lum='p(X,Y)':cb='p(X,Y)':cr='p(X,Y)':a='255*lt(hypot(2*X/W-1,2*Y/H-1),1)'",
    ),
];
const IN_HAND: &str = "fps=30,scale=688:408,crop=640:360:x='24+10*sin(n*0.9)':y='24+10*cos(n*1.3)',setsar=1,format=yuv420p,trim=end_frame=58";

/// Returns the cuts while an object `made` of the second clip passes before the first at a speed.
fn passed(
    shots: [&(PathBuf, &str); 2],
    made: &str,
    (width, height): (u32, u32),
    speed: u32,
) -> Vec<u64> {
    let inputs = shots.map(|shot| input(shot, "3.3")).concat();
    let graph = format!(
        "[0]{IN_HAND}[b];[1]fps=30,scale={width}:{height},setsar=1,trim=end_frame=1,format=yuv420p,{made},loop=-1:1:0,trim=end_frame=58[f];\
         [b][f]overlay=x='{speed}*max(0,n-30)-{width}':y=(360-{height})/2:eval=frame,format=yuv420p"
    );
    cuts(&signals(&inputs, &graph, 30.0))
}

#[test]
fn what_passes_near_is_no_cut() {
    let shots = shots(3);
    for (row, (name, made)) in NEAR.into_iter().enumerate() {
        for (size, speed) in
            [((500, 300), 200), ((760, 350), 120), ((1000, 400), 120), ((1400, 500), 120)]
        {
            for &back in in_turn(row, 1, &[0, 1, 2]) {
                let cuts = passed([&shots[back], &shots[(back + 1) % 3]], made, size, speed);
                assert_eq!(cuts, [0; 0], "{name} {size:?} {speed} before {:?}", shots[back].0);
            }
        }
    }
}

#[test]
fn a_light_that_pulses_is_flicker_and_no_change_of_light() {
    let inputs = input(&(pick_one("street.mp4", "surv_traffic-camera.mp4"), "2"), "5");
    // Pulses of a rate, and whether their frames are reported as flicker.
    for (wave, flickers) in [
        ("gte(sin(2*PI*5*t),0)", true),
        ("gte(sin(2*PI*4*t),0)", true),
        ("gte(sin(2*PI*t),0)", false),
        ("gte(t,1)", false),
    ] {
        let graph = format!(
            "[0]fps=30,scale=640:360,setsar=1,format=yuv420p,trim=end_frame=150,setpts=PTS-STARTPTS,\
             eq=eval=frame:brightness='0.25*{wave}'"
        );
        let gate = Gate::new(GateConfig { keepalive_ms: None, ..GateConfig::default() });
        let signals = signals(&inputs, &graph, 30.0);
        let kept = |reason| {
            let mut gate = gate.clone();
            let decisions = signals.iter().map(move |signal| gate.offer(signal));
            decisions.filter(|one| one.selected && one.reason == reason).count()
        };
        let stays = usize::from(wave.starts_with("gte(t"));
        assert_eq!(kept(SelectionReason::ExposureShift), stays, "{wave}");
        assert_eq!(kept(SelectionReason::FlickerSuspected), usize::from(flickers), "{wave}");
    }
}
