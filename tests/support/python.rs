//! Tools from PyPI, each pinned in a `requirements.txt` and in a virtual environment of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::skip::skip;

/// Output of a command that ended well; an error holds all it printed.
pub fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{command:?}:\n{}{}", text(&output.stdout), text(&output.stderr)))
}

/// The `bin` of the environment that holds what `requirements` pins, made once in the target
/// directory; `None` where it cannot be and `test` is passed over.
///
/// It is called after the first package, with its version: another version is another environment.
pub fn installed(test: &str, requirements: &Path) -> Option<PathBuf> {
    let pinned = fs::read_to_string(requirements).expect("in the repository");
    let name = pinned.split_whitespace().next().expect("a package").replace("==", "-");
    // One pip for all: each of its own takes seconds of the processor.
    let pip = made("pip", |venv, command| run(command.arg(venv)));
    let install = |pip: PathBuf| {
        made(&name, |venv, command| {
            run(command.arg("--without-pip").arg(venv))?;
            let mut pip = Command::new(pip.join("pip"));
            pip.arg("--python").arg(venv.join("bin/python"));
            // What is never imported is not compiled either.
            pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-compile", "-r"]);
            run(pip.arg(requirements))
        })
    };
    let why = |error: String| skip(test, format!("{name} cannot be installed: {error}"));
    pip.and_then(install).map_err(why).ok()
}

/// The `bin` of the environment `name`, which `make` makes once, by a command that lacks its folder.
fn made(
    name: &str,
    make: impl FnOnce(&Path, &mut Command) -> Result<Output, String>,
) -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let venv = target.join(name);
    let (bin, done) = (venv.join("bin"), venv.join("installed"));
    // Tests are processes that start together: one installs, the others wait for it.
    let lock = fs::File::create(target.join(format!("{name}.lock"))).expect("our own directory");
    lock.lock().map_err(|error| format!("{}: {error}", venv.display()))?;
    if !done.exists() {
        make(&venv, Command::new("python3").args(["-m", "venv", "--clear"]))?;
        fs::write(done, "").expect("our own directory");
    }
    Ok(bin)
}
