//! Tests of the upload store alone: stored files, visibility, and the leavings of a crash.

use std::{num::NonZeroU64, time::SystemTime};

use super::*;
use crate::base::{meta_store::InjectedFault, quota::QuotaLimits};

fn open(dir: &Path) -> UploadStore {
    let limits = QuotaLimits { global: None, principal: NonZeroU64::new(1000) };
    let ledger = MetaStore::open(&dir.join("ledger")).expect("opens");
    UploadStore::open(&dir.join("uploads"), None, ledger, Quota::new(limits, None)).expect("opens")
}

fn put(uploads: &UploadStore, owner: &Principal, bytes: &[u8], at: i64) -> StoredUpload {
    let mut incoming = uploads.receive(owner, 100).expect("made");
    incoming.write(bytes).expect("written");
    let at = WallTime { epoch_ms: at };
    let new = NewUpload { owner, extension: "mp4", file_name: "C:\\clips\\a.mp4", at };
    uploads.keep(incoming, new, |_, _| Ok(())).expect("kept")
}

/// All files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let (dirs, mut files): (Vec<_>, Vec<_>) =
        list(dir).expect("readable").into_iter().partition(|path| path.is_dir());
    files.extend(dirs.iter().flat_map(|dir| self::files(dir)));
    files
}

#[test]
fn a_former_path_finds_a_file_of_its_owner_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let uploads = open(dir.path());
    let (alice, bob) = (Principal::named("alice"), Principal::named("bob"));
    let kept = put(&uploads, &alice, b"abc", 1);
    assert_eq!(kept.original_name.as_str(), "a.mp4", "without its folders");
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(kept.sha256.to_string(), digest);
    let elsewhere = Path::new("/other/uploads").join(folder_of(&alice));
    let cases: [(&Principal, &str, bool); 4] = [
        (&alice, kept.name.as_str(), true),
        (&bob, kept.name.as_str(), false),
        (&alice, "0123456789abcdef0123456789abcdef.mp4", false),
        (&alice, "x.mp4", false),
    ];
    for (owner, name, expected) in cases {
        let found = uploads.moved(owner, &elsewhere.join(name)).expect("readable");
        assert_eq!(found.is_some(), expected, "{} {name}", owner.as_str());
    }
    let alone = Path::new("/other").join(kept.name.as_str());
    assert_eq!(uploads.moved(&alice, &alone).expect("readable"), None, "not an upload's path");
}

#[test]
fn a_record_with_a_name_of_another_form_takes_no_place_of_a_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let (uploads, alice) = (open(dir.path()), Principal::named("alice"));
    let [old, new] = [1, 2].map(|at| put(&uploads, &alice, b"abc", at));
    // As of a newer server that was here for a while.
    let folder = folder_of(&alice);
    let written = uploads.ledger.write(|change| {
        let value = (3_u64, [0_u8; 32], 3_i64, "a.longer", "alice");
        change.open_table(UPLOADS)?.insert((folder.as_str(), "f.longer"), value)?;
        Ok(())
    });
    written.expect("writable");
    let page = |limit| uploads.list(&alice, None, limit).expect("readable");
    assert_eq!(page(1), [new.clone(), old.clone()], "one more: the page is not the last");
    assert_eq!(page(2), [new, old]);
}

/// Opens the store to set aside a file without a record, then makes the file old enough for removal.
fn age(dir: &Path, path: &Path) {
    drop(open(dir));
    let aside = path.with_added_extension(UNRECORDED);
    let old = SystemTime::now() - UNRECORDED_KEPT - Duration::from_secs(1);
    File::open(aside).and_then(|file| file.set_modified(old)).expect("set aside");
}

#[test]
fn what_is_not_kept_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let uploads = open(dir.path());
    let alice = Principal::named("alice");
    // A killed process leaves an unfinished file, and a complete one without a record.
    let kept = put(&uploads, &alice, b"kept", 1);
    std::mem::forget(uploads.receive(&alice, 9).expect("made"));
    let orphan = uploads.path(&kept).with_file_name("0123456789abcdef0123456789abcdef.mp4");
    fs::write(&orphan, "x").expect("written");
    assert_eq!(files(&dir.path().join("uploads")).len(), 3);
    drop(uploads);
    age(dir.path(), &orphan);
    let again = open(dir.path());
    assert_eq!(files(&dir.path().join("uploads")), [again.path(&kept)]);
    assert_eq!(again.quota.used(&alice), 4, "counted again at start");
    assert_eq!(again.find(&alice, &kept.name).expect("readable"), Some(kept.clone()));
    assert!(again.remove(&alice, &kept.name).expect("writable"));
    assert_eq!(again.quota.used(&alice), 0);
}

#[test]
fn uploads_without_their_ledger_are_left_until_it_is_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let uploads = open(dir.path());
    let alice = Principal::named("alice");
    let kept = put(&uploads, &alice, b"kept", 1);
    drop(uploads);
    let [ledger, aside, folder] = ["ledger", "aside", "uploads"].map(|name| dir.path().join(name));
    fs::rename(&ledger, &aside).expect("moved");
    let other = MetaStore::open(&ledger).expect("made");
    let limits = QuotaLimits { global: None, principal: None };
    let refused = UploadStore::open(&folder, None, other, Quota::new(limits, None)).map(drop);
    assert!(matches!(refused, Err(UploadError::LedgerLost { .. })), "{refused:?}");
    fs::rename(&aside, &ledger).expect("moved");
    let again = open(dir.path());
    assert_eq!(again.find(&alice, &kept.name).expect("readable"), Some(kept.clone()));
    // The ledger is restored to an earlier copy, then to the current one.
    drop(again);
    fs::copy(&ledger, &aside).expect("copied");
    let newer = put(&open(dir.path()), &alice, b"newer", 2);
    fs::copy(&ledger, dir.path().join("now")).expect("copied");
    fs::copy(&aside, &ledger).expect("copied");
    for _ in 0..2 {
        assert_eq!(open(dir.path()).find(&alice, &newer.name).expect("readable"), None);
    }
    fs::rename(dir.path().join("now"), &ledger).expect("moved");
    let again = open(dir.path());
    assert!(again.open_file(&newer).is_ok(), "it is there again");
    let (mut found, mut kept) = (files(&folder), [&kept, &newer].map(|one| again.path(one)));
    found.sort();
    kept.sort();
    assert_eq!(found, kept);
}

#[test]
fn a_record_that_failed_to_be_written_is_there_with_its_file_or_not_at_all() {
    for (fault, is_kept) in [(InjectedFault::Unclear, true), (InjectedFault::Lost, false)] {
        let dir = tempfile::tempdir().expect("a directory");
        let uploads = open(dir.path());
        let alice = Principal::named("alice");
        let mut incoming = uploads.receive(&alice, 100).expect("made");
        incoming.write(b"abc").expect("written");
        let at = WallTime { epoch_ms: 1 };
        let new = NewUpload { owner: &alice, extension: "mp4", file_name: "a.mp4", at };
        uploads.ledger.fail_next(&[fault]);
        let kept = uploads.keep(incoming, new, |_, _| Ok(()));
        assert_eq!(kept.is_ok(), is_kept, "{fault:?}: {kept:?}");
        let records = uploads.list(&alice, None, 9).expect("readable");
        assert_eq!(records, Vec::from_iter(kept.ok()), "{fault:?}");
        let paths: Vec<_> = records.iter().map(|upload| uploads.path(upload)).collect();
        assert_eq!(files(&dir.path().join("uploads")), paths, "{fault:?}");
        assert_eq!(uploads.quota.used(&alice), 3 * u64::from(is_kept), "{fault:?}");
    }
}

#[test]
fn what_is_not_ours_stays_and_does_not_stop_a_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let uploads = open(dir.path());
    let kept = put(&uploads, &Principal::named("alice"), b"kept", 1);
    let root = dir.path().join("uploads");
    let own = uploads.path(&kept).parent().expect("a folder").to_owned();
    drop(uploads);
    let foreign = [
        root.join("notes.txt"),
        root.join("lost+found/a"),
        root.join("0123456789ABCDEF0123456789ABCDEF/a"),
        own.join("folder/a"),
        root.join("incoming/folder/a"),
    ];
    for path in &foreign {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, "x").expect("written");
    }
    std::os::unix::fs::symlink("/nonexistent", own.join("link")).expect("linked");
    let stray = own.join("stray");
    fs::write(&stray, "x").expect("written");
    age(dir.path(), &stray);
    let again = open(dir.path());
    for path in foreign.iter().chain([&again.path(&kept)]) {
        assert!(path.exists(), "{}", path.display());
    }
    assert!(!stray.exists(), "an upload without a record goes");
    assert!(own.join("link").symlink_metadata().is_err(), "what is no file goes at once");
}

#[test]
fn uploads_at_once_are_bounded_for_all_callers() {
    let dir = tempfile::tempdir().expect("a directory");
    let uploads = open(dir.path());
    let enter = |at: usize| uploads.enter(&Principal::named(&format!("owner-{}", at / OWN_MAX)));
    let _held: Vec<_> = (0..ALL_MAX).map(|at| enter(at).expect("free")).collect();
    let refused = enter(ALL_MAX).expect_err("full").to_string();
    assert!(refused.starts_with("the limit of 16 uploads of all callers"), "{refused}");
}

#[test]
fn a_quota_stops_an_upload_midway_and_is_given_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let uploads = open(dir.path());
    let alice = Principal::named("alice");
    let mut incoming = uploads.receive(&alice, u64::MAX).expect("room");
    incoming.write(&[0; 1000]).expect("fits");
    let refused = incoming.write(&[0]).expect_err("past the quota");
    assert!(matches!(refused, UploadError::Quota(QuotaError::Principal { .. })), "{refused}");
    assert!(uploads.receive(&alice, 1).is_err(), "nothing is left");
    drop(incoming);
    assert_eq!(uploads.quota.used(&alice), 0);
    assert_eq!(files(&dir.path().join("uploads")), Vec::<PathBuf>::new());
}
