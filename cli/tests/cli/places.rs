//! Commands that read a server's data look in the same place as the server.

use std::path::Path;

use crate::support::{command, doctor, finish};

/// Returns the check of the data directory by `doctor`, run in `folder` with these variables.
fn data_dir(folder: &Path, vars: &[(&str, &Path)]) -> String {
    let mut doctor = doctor(&["--json"]);
    doctor.current_dir(folder).env_remove("XDG_STATE_HOME");
    doctor.envs(vars.iter().map(|(name, path)| (name, path.as_os_str())));
    finish(doctor).check("data", "directory")["detail"].as_str().expect("words").to_owned()
}

#[test]
fn doctor_and_verify_look_where_a_server_started_here_keeps_its_data() {
    let outer = tempfile::tempdir().expect("a folder");
    let outer = outer.path().canonicalize().expect("there");
    let (here, home, set) = (outer.join("footage"), outer.join("home"), outer.join("set"));
    std::fs::create_dir_all(&here).expect("made");
    let (root, home_is) = (("SERVICE_INGEST_FILE_ROOTS", here.as_path()), ("HOME", home.as_path()));
    let state = outer.join("state");
    let rows: [(&[(&str, &Path)], String); 4] = [
        (&[home_is], here.join(".sightline-data").display().to_string()),
        (&[home_is, root], home.join(".local/state/sightline").display().to_string()),
        (
            &[home_is, root, ("XDG_STATE_HOME", &state)],
            state.join("sightline").display().to_string(),
        ),
        (&[home_is, root, ("SERVICE_DATA_DIR", &set)], set.display().to_string()),
    ];
    for (vars, expected) in rows {
        let detail = data_dir(&here, vars);
        let expected = format!("{expected} of a server started here, will be made");
        assert!(detail.starts_with(&expected), "{vars:?}: {detail}");
    }
    let run = "run-000102030405060708090a0b0c0d0eff";
    let mut verify = command(&["verify", run]);
    verify
        .current_dir(&here)
        .envs([("SERVICE_INGEST_FILE_ROOTS", &here), ("XDG_STATE_HOME", &state)]);
    let outcome = finish(verify);
    let looked = state.join("sightline").display().to_string();
    assert!(outcome.code != 0 && outcome.stderr.contains(&looked), "{}", outcome.stderr);
}
