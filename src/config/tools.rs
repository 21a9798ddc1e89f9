//! External programs: their paths, or the directories that were searched.

use std::{env, path::PathBuf};

use super::EnvReader;
use crate::api::Tool;

/// Looks for ffmpeg and ffprobe.
pub(super) fn tools(vars: &mut EnvReader) -> [Tool; 2] {
    let search = vars.raw("PATH").unwrap_or_default().to_owned();
    let mut tool = |name: &'static str, variable| {
        let text = vars.read(variable, name, |text| Ok(text.to_owned()));
        let searched = if text.contains('/') { text.clone() } else { search.clone() };
        Tool { name, variable, searched, path: find(&text, &search) }
    };
    [tool("ffmpeg", "SERVICE_FFMPEG_PATH"), tool("ffprobe", "SERVICE_FFPROBE_PATH")]
}

/// Finds a program by its path, or by its name in the directories of `search`.
fn find(program: &str, search: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    env::split_paths(search).map(|dir| dir.join(program)).find(is_program)
}
