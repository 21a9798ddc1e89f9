//! Fuzz targets, which no build of the workspace has: their names agree, and what they call and include is there.

use std::fs::read_dir;

use crate::{files, read, relative, root};

#[test]
fn each_fuzz_target_is_built_explained_and_fed_and_calls_what_is_there() {
    let fuzz = root().join("fuzz");
    let (manifest, readme) = (read(&fuzz.join("Cargo.toml")), read(&fuzz.join("README.md")));
    let parsers: String = files(".rs").iter().map(|path| read(path)).collect();
    let mut wrong = Vec::new();
    let targets = files(".rs").into_iter().filter(|path| path.starts_with(fuzz.join("targets")));
    for path in targets {
        let (source, name) = (read(&path), relative(&path));
        let target = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let entry = format!("name = \"{target}\"\npath = \"targets/{target}.rs\"");
        let corpus = read_dir(fuzz.join("corpus").join(target));
        let included =
            source.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next());
        let called = source.split("(bytes)").next().and_then(|before| before.rsplit("::").next());
        let is_there = |call: &str| {
            !source.contains("(bytes)") || parsers.contains(&format!("pub fn {call}(bytes: &[u8])"))
        };
        let faults = [
            ("is not in Cargo.toml", !manifest.contains(&entry)),
            ("is not in README.md", !readme.contains(&format!("`{target}`"))),
            ("has no corpus", corpus.map_or(true, |mut corpus| corpus.next().is_none())),
            ("calls what is not there", !called.is_none_or(is_there)),
        ];
        wrong.extend(
            faults.iter().filter(|fault| fault.1).map(|(what, _)| format!("{name} {what}")),
        );
        let folder = included.clone().find(|path| !path.ends_with(".rs"));
        let module = |line: &str| {
            let name = line.strip_prefix("    pub mod ")?.strip_suffix(';')?;
            Some(format!("{}/{name}.rs", folder?))
        };
        let needed = included.map(str::to_owned).chain(source.lines().filter_map(module));
        let lost = needed.filter(|file| !fuzz.join("targets").join(file).exists());
        wrong.extend(lost.map(|file| format!("{name}: no {file}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}
