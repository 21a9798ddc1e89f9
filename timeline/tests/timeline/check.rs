//! Tests of the operator's commands: verify, print, repair.

use std::{fs, ops::ControlFlow, path::PathBuf};

use media::Seq;
use tempfile::TempDir;
use timeline::{Timeline, TimelineError, TimelineOptions, cat, plan_repair, repair, verify};

use crate::support::{
    description, flip, found, frames, journal_files, new_log, small, stored, texts,
};

/// Returns a closed log of 40 events over several journal files.
fn log_of_40() -> (TempDir, Vec<PathBuf>) {
    let (dir, log) = new_log();
    for number in 0..40 {
        let text = format!("{number} {}", "x".repeat(200));
        log.append_wait(vec![found(1, &text)]).unwrap();
    }
    drop(log);
    let files = journal_files(dir.path());
    assert!(files.len() >= 3, "{files:?}");
    (dir, files)
}

fn printed(dir: &TempDir) -> (Vec<String>, Result<(), TimelineError>) {
    let mut printed = Vec::new();
    let result = cat(dir.path(), |event| {
        printed.push(description(&event));
        ControlFlow::Continue(())
    });
    (printed, result)
}

#[test]
fn a_sound_log_verifies_and_prints_every_event() {
    let (dir, files) = log_of_40();
    let report = verify(dir.path()).unwrap();
    assert_eq!((report.events, report.files), (40, files.len() as u64));
    assert!(report.problems.is_empty() && report.torn.is_none());
    assert_eq!(report.footers_missing, 0);
    let (events, result) = printed(&dir);
    result.unwrap();
    assert_eq!(events.len(), 40);
    let mut first = None;
    cat(dir.path(), |event| {
        first = Some(event.head.seq);
        ControlFlow::Break(())
    })
    .unwrap();
    assert_eq!(first, Some(Seq(1)));
    let report = repair(dir.path()).unwrap();
    assert!(report.damage.is_none() && report.removed.is_empty());
    assert_eq!(report.events, 40);
}

#[test]
fn verify_and_cat_run_beside_a_writer() {
    let (dir, log) = new_log();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..400 {
                log.append_wait(vec![found(1, "beside")]).unwrap();
            }
        });
        while !writer.is_finished() {
            let report = verify(dir.path()).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            printed(&dir).1.unwrap();
            Timeline::open_read_only(dir.path()).unwrap();
        }
    });
    assert_eq!(printed(&dir).0.len(), 400);
}

#[test]
fn verify_tells_of_every_damaged_batch_and_cat_prints_the_others() {
    let (dir, files) = log_of_40();
    // Each event is a batch.
    let places = [(&files[0], 500), (&files[0], 3000), (&files[1], 500)];
    places.iter().for_each(|(file, at)| flip(file, *at));
    let report = verify(dir.path()).unwrap();
    let told: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert_eq!((told.len(), report.events), (3, 37), "{told:?}");
    for (told, (file, _)) in told.iter().zip(places) {
        assert!(told.contains(file.to_str().unwrap()), "{told}");
    }
    let (printed, result) = printed(&dir);
    assert_eq!((printed.len(), &result.unwrap_err().to_string()), (37, &told[0]));
}

#[test]
fn a_damaged_event_of_a_batch_costs_no_other() {
    let (dir, log) = new_log();
    log.append_wait(vec![found(1, "one"), found(1, "two"), found(1, "three")]).unwrap();
    log.append_wait(vec![found(1, "behind")]).unwrap();
    drop(log);
    let file = dir.path().join("journal/00000000000000000001.journal");
    let at = fs::read(&file).unwrap().windows(3).position(|bytes| bytes == b"two").unwrap();
    flip(&file, at);
    let (printed, result) = printed(&dir);
    result.unwrap_err();
    assert_eq!(printed, ["one", "three", "behind"]);
    let report = verify(dir.path()).unwrap();
    assert_eq!((report.events, report.problems.len()), (3, 1));
}

#[test]
fn a_lost_file_costs_no_event_of_the_others() {
    for lost in [0, 1] {
        let (dir, files) = log_of_40();
        let first = |file: usize| {
            files[file].file_stem().unwrap().to_str().unwrap().parse::<usize>().unwrap()
        };
        fs::remove_file(&files[lost]).unwrap();
        let (printed, result) = printed(&dir);
        result.unwrap_err();
        assert_eq!(printed.len(), 40 - (first(lost + 1) - first(lost)), "file {lost}");
    }
}

#[test]
fn repair_cuts_at_the_damage_keeps_the_bytes_and_the_log_goes_on() {
    for (damaged, at) in [(0, 500), (1, 8), (1, 900), (2, 40)] {
        let (dir, files) = log_of_40();
        let before: Vec<u64> = files.iter().map(|file| file.metadata().unwrap().len()).collect();
        flip(&files[damaged], at);
        let (mut kept, result) = printed(&dir);
        let told = result.unwrap_err();
        let plan = plan_repair(dir.path()).unwrap().unwrap();
        kept.truncate(kept.len() - plan.readable as usize);
        assert_eq!(plan.damage.to_string(), told.to_string());
        assert_eq!(plan.from, Seq(kept.len() as u64 + 1));
        // Damage of a batch's header alone costs no event.
        let lost = 40 - kept.len() as u64 - plan.readable;
        assert_eq!(lost == 0, at == 40, "{plan:?}");
        let report = repair(dir.path()).unwrap();
        assert_eq!(report.damage.unwrap().to_string(), told.to_string());
        assert_eq!(report.events, kept.len() as u64);
        assert_eq!(report.removed.len(), files.len() - damaged);
        let cut = &report.removed[0];
        assert_eq!((&cut.from, cut.offset + cut.bytes), (&files[damaged], before[damaged]));
        for removed in &report.removed {
            assert_eq!(fs::metadata(&removed.kept_in).unwrap().len(), removed.bytes);
        }
        let (log, recovery) = Timeline::open(dir.path(), small()).unwrap();
        assert_eq!(recovery.torn, None);
        assert_eq!(texts(&log), kept, "file {damaged}, byte {at}");
        log.append_wait(vec![found(1, "goes on")]).unwrap();
        drop(log);
        assert_eq!(printed(&dir).0.len(), kept.len() + 1);
        assert!(verify(dir.path()).unwrap().problems.is_empty());
    }
}

#[test]
fn repair_needs_the_log_for_itself_and_keeps_what_is_left_when_a_file_is_missing() {
    let (dir, files) = log_of_40();
    let (log, _) = Timeline::open(dir.path(), small()).unwrap();
    assert!(matches!(repair(dir.path()), Err(TimelineError::Locked { .. })));
    drop(log);
    let nowhere = TempDir::new().unwrap();
    assert!(repair(nowhere.path()).is_err());
    assert_eq!(fs::read_dir(nowhere.path()).unwrap().count(), 0, "repair begins no log");
    fs::remove_file(&files[files.len() - 1]).unwrap();
    assert!(Timeline::open(dir.path(), small()).is_err());
    let report = repair(dir.path()).unwrap();
    assert!(report.damage.is_some() && report.removed.len() <= 1);
    let (log, recovery) = Timeline::open(dir.path(), TimelineOptions::default()).unwrap();
    assert_eq!(recovery.events, report.events);
    log.append_wait(vec![found(1, "goes on")]).unwrap();
}

#[test]
fn a_damaged_or_missing_column_is_told_by_its_file() {
    for damage in ["flip", "cut", "empty", "remove"] {
        let (dir, log) = new_log();
        let (signals, _lease) = stored(&log, 0..3000);
        log.append_wait(vec![frames(1, signals), found(1, "after")]).unwrap();
        let column = fs::read_dir(dir.path().join("columns")).unwrap().next().unwrap();
        let column = column.unwrap().path();
        match damage {
            "flip" => flip(&column, 60_000),
            "cut" => fs::write(&column, &fs::read(&column).unwrap()[..60_000]).unwrap(),
            "empty" => fs::write(&column, "").unwrap(),
            _ => fs::remove_file(&column).unwrap(),
        }
        let (printed, result) = printed(&dir);
        assert_eq!(printed, ["after"], "{damage}");
        let told = verify(dir.path()).unwrap().problems.remove(0);
        for error in [log.get(Seq(1)).unwrap_err(), told, result.unwrap_err()] {
            assert_eq!(error.kind(), media::ErrorKind::DataLoss, "{damage}: {error}");
            assert!(error.to_string().contains(column.to_str().unwrap()), "{damage}: {error}");
        }
    }
}

#[test]
fn a_log_whose_journal_is_gone_is_no_new_log() {
    let (dir, files) = log_of_40();
    files.iter().for_each(|file| fs::remove_file(file).unwrap());
    let lock = dir.path().join("lock");
    let refused = |result: Result<(), TimelineError>| match result {
        Err(TimelineError::Damaged { file, .. }) => assert_eq!(file, lock),
        other => panic!("{other:?}"),
    };
    refused(Timeline::open(dir.path(), small()).map(drop));
    refused(repair(dir.path()).map(drop));
    assert_eq!(verify(dir.path()).unwrap().problems.len(), 1);
    fs::remove_file(&lock).unwrap();
    let (log, recovery) = Timeline::open(dir.path(), small()).unwrap();
    assert_eq!((recovery.events, log.head()), (0, Seq(0)));
}

#[test]
fn damage_of_a_record_is_an_error_of_that_event_alone() {
    let (dir, files) = log_of_40();
    let (log, _) = Timeline::open(dir.path(), small()).unwrap();
    let sound = log.read(found(1, "").run, Seq(0), 100, None).unwrap();
    assert_eq!(sound.len(), 40);
    let bytes = fs::read(&files[1]).unwrap();
    let at = bytes.windows(8).position(|some| some == b"xxxxxxxx").expect("a description");
    flip(&files[1], at);
    let parts = log.read_parts(found(1, "").run, Seq(0), 100, None).unwrap();
    let damaged: Vec<_> = parts.iter().filter(|part| part.damage().is_some()).collect();
    let [damaged] = damaged[..] else { panic!("one is damaged, not {}", damaged.len()) };
    assert!(damaged.decode().is_err());
    assert_eq!(log.get(damaged.head.seq).unwrap_err().kind(), media::ErrorKind::DataLoss);
    let damaged = damaged.head.seq;
    for (part, sound) in parts.into_iter().zip(&sound) {
        let (head, is_damaged) = (part.head, part.head.seq == damaged);
        let payload: String = part.into_payload().map(Result::unwrap).collect();
        let expected = if is_damaged { r#"{"damaged":true}"# } else { &sound.payload };
        assert_eq!((head, &*payload), (sound.head, expected));
    }
}
