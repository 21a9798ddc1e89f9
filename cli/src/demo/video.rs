//! Selects the video of the demo.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use decode::StreamInfo;
use worker::{CancelToken, Supervisor, WorkerError};

use crate::{analysis, environment, error::CliError};

/// Sample clips below the media directory, the best first.
const CLIPS: [&str; 3] =
    ["cuts_dev_360p.mp4", "clips/anim_bbb-480p-30s.mp4", "clips/surv_traffic-camera.mp4"];

/// Four scenes with hard cuts, a span of noise and one of flicker.
const SCENES: &str = "\
testsrc2=s=960x540:r=25:d=4[a];\
mandelbrot=s=960x540:r=25,trim=duration=4[b];\
smptehdbars=s=960x540:r=25:d=3,noise=alls=60:allf=t[c];\
gradients=s=960x540:r=25:d=5:seed=7:speed=0.02:nb_colors=2:c0=0x16425b:c1=0xe8b04b,\
eq=brightness='if(between(t,2,4),0.06*sgn(sin(2*PI*6.25*t)),0)':eval=frame,format=yuv420p[d];\
[a][b][c][d]concat=n=4";

/// Returns the absolute path of the user's video, else of a sample, else of one rendered now.
pub fn choose(
    video: Option<&Path>,
    media_dir: Option<&Path>,
    out: &Path,
    cancel: &CancelToken,
) -> Result<PathBuf, CliError> {
    if let Some(video) = video {
        return absolute(video);
    }
    let samples = CLIPS.iter().filter_map(|clip| Some(media_dir?.join(clip)));
    match samples.into_iter().find(|clip| clip.is_file()) {
        Some(sample) => absolute(&sample),
        None => render(&out.join("rendered.mp4"), cancel),
    }
}

/// Returns the video in a folder without `out`: a server's data must not lie within its ingest roots.
pub fn apart(video: PathBuf, out: &Path) -> Result<PathBuf, CliError> {
    let out = absolute(out)?;
    let (Some(folder), Some(name)) = (video.parent(), video.file_name()) else {
        return Ok(video);
    };
    if !out.starts_with(folder) && !folder.starts_with(out.join("data")) {
        return Ok(video);
    }
    let (folder, other) = (out.join("source"), out.join("source").join(name));
    if !video.is_file() {
        return Err(CliError::Analysis { path: video, source: WorkerError::NotAFile });
    }
    let copied = fs::create_dir_all(&folder).and_then(|()| {
        if other.exists() {
            fs::remove_file(&other)?;
        }
        // Copies if a hard link is impossible, as on another file system.
        fs::hard_link(&video, &other).or_else(|_| fs::copy(&video, &other).map(drop))
    });
    copied.map_err(|source| CliError::Write { path: other.clone(), source })?;
    Ok(other)
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    path.canonicalize().map_err(|source| CliError::Read { path: path.to_owned(), source })
}

fn render(path: &Path, cancel: &CancelToken) -> Result<PathBuf, CliError> {
    if path.is_file() {
        return absolute(path);
    }
    let ffmpeg = environment::find_program("SERVICE_FFMPEG_PATH", "ffmpeg").ok_or_else(|| {
        CliError::Usage("no video given, no sample found, and no ffmpeg to render one".to_owned())
    })?;
    // Gets its final name once complete: an interrupted rendering is not a valid video.
    let partial = path.with_extension("partial.mp4");
    let output = Command::new(&ffmpeg)
        .args(["-v", "error", "-nostdin", "-y", "-filter_complex", SCENES])
        .args(["-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p"])
        .arg(&partial)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| CliError::Read { path: ffmpeg.clone(), source })?;
    if !output.status.success() {
        // Half a video is of no use; ffmpeg may not have begun it.
        fs::remove_file(&partial).ok();
        // Ctrl-C ends ffmpeg too, which then has not failed.
        if cancel.is_cancelled() {
            return Err(CliError::Interrupted);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CliError::Check(format!("ffmpeg cannot render a video: {said}")));
    }
    fs::rename(&partial, path)
        .map_err(|source| CliError::Write { path: path.to_owned(), source })?;
    absolute(path)
}

/// Reads the container's description in a worker, as the API gives neither codec nor duration.
pub fn look(supervisor: &Supervisor, video: &Path) -> Option<StreamInfo> {
    // If the file cannot be opened or read, the ingest that follows reports it.
    supervisor.probe(analysis::open(video).ok()?.0, &CancelToken::new()).ok()
}
