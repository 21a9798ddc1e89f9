//! Choice of the video that the demo shows.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use decode::StreamInfo;
use worker::{CancelToken, Supervisor, WorkerError};

use crate::{environment, error::CliError};

/// Clips worth showing, best first, below the media directory.
const CLIPS: [&str; 3] =
    ["cuts_dev_360p.mp4", "clips/anim_bbb-480p-30s.mp4", "clips/surv_traffic-camera.mp4"];

/// Four scenes with hard cuts, a stretch of noise and one of flicker.
const SCENES: &str = "\
testsrc2=s=960x540:r=25:d=4[a];\
mandelbrot=s=960x540:r=25,trim=duration=4[b];\
smptehdbars=s=960x540:r=25:d=3,noise=alls=60:allf=t[c];\
gradients=s=960x540:r=25:d=5:seed=7:speed=0.02:nb_colors=2:c0=0x16425b:c1=0xe8b04b,\
eq=brightness='if(between(t,2,4),0.06*sgn(sin(2*PI*6.25*t)),0)':eval=frame,format=yuv420p[d];\
[a][b][c][d]concat=n=4";

/// The absolute path of the user's video, else of a sample, else of one that is rendered now.
pub fn choose(
    video: Option<&Path>,
    media_dir: Option<&Path>,
    out: &Path,
) -> Result<PathBuf, CliError> {
    if let Some(video) = video {
        return absolute(video);
    }
    let samples = CLIPS.iter().filter_map(|clip| Some(media_dir?.join(clip)));
    match samples.into_iter().find(|clip| clip.is_file()) {
        Some(sample) => absolute(&sample),
        None => render(&out.join("rendered.mp4")),
    }
}

/// The video under a folder that does not hold `out`: a server's data lie in none of its roots.
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
        // Where a link cannot be, on another file system, a copy is.
        fs::hard_link(&video, &other).or_else(|_| fs::copy(&video, &other).map(drop))
    });
    copied.map_err(|source| CliError::Write { path: other.clone(), source })?;
    Ok(other)
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    path.canonicalize().map_err(|source| CliError::Read { path: path.to_owned(), source })
}

fn render(path: &Path) -> Result<PathBuf, CliError> {
    if path.is_file() {
        return absolute(path);
    }
    let ffmpeg = environment::find_program("SERVICE_FFMPEG_PATH", "ffmpeg").ok_or_else(|| {
        CliError::Usage("no video given, no sample found, and no ffmpeg to render one".to_owned())
    })?;
    // Under another name until it is whole: an interrupted rendering is no video.
    let partial = path.with_extension("partial.mp4");
    let output = Command::new(&ffmpeg)
        .args(["-v", "error", "-nostdin", "-y", "-filter_complex", SCENES])
        .args(["-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p"])
        .arg(&partial)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| CliError::Read { path: ffmpeg.clone(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CliError::Check(format!("ffmpeg cannot render a video: {said}")));
    }
    std::fs::rename(&partial, path)
        .map_err(|source| CliError::Write { path: path.to_owned(), source })?;
    absolute(path)
}

/// Reads the container's description in a worker; the API tells neither codec nor length.
pub fn look(supervisor: &Supervisor, video: &Path) -> Option<StreamInfo> {
    // The ingest that follows says what is wrong with a file that cannot be opened or read.
    supervisor.probe(File::open(video).ok()?, &CancelToken::new()).ok()
}
