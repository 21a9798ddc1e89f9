//! Excerpts of damaged files: each ends with bytes or with an error that names the fault.

use std::{
    fs::{self, File},
    io::Write,
    ops::ControlFlow,
    time::Duration,
};

use fastrand::Rng;
use worker::{CancelToken, ExcerptEvent, ExcerptSpec, WorkerError, WorkerLimits};

use crate::{
    damaged::{made, mutate},
    mutants::verdict,
    support::{alone, supervisor},
};

/// Returns the number of bytes received, and the outcome.
fn cut(file: File) -> (usize, Result<(), WorkerError>) {
    let limits = WorkerLimits { wall: Duration::from_secs(60), ..WorkerLimits::default() };
    let spec = ExcerptSpec { file, span: 0..2000, limits };
    let mut bytes = 0;
    let ended = supervisor().excerpt(spec, &CancelToken::new(), &mut |event| {
        if let ExcerptEvent::Bytes(some) = event {
            bytes += some.len();
        }
        ControlFlow::Continue(())
    });
    (bytes, ended)
}

#[test]
fn mutants_are_copied_as_far_as_they_can_be() {
    let _alone = alone();
    let (mut dice, mut copied) = (Rng::with_seed(7), 0);
    let mutants = clips::sized(4, 40);
    for path in made() {
        let whole = fs::read(&path).expect("readable");
        let (bytes, ended) = cut(File::open(&path).expect("opens"));
        assert!(ended.is_ok() && bytes > 1000, "{path:?}: {bytes} bytes, {ended:?}");
        for at in 0..mutants {
            let mut mutant = whole.clone();
            mutate(&mut mutant, &mut dice);
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&mutant).expect("written");
            match cut(file) {
                (bytes, Ok(())) => copied += usize::from(bytes > 0),
                (_, Err(error)) => {
                    assert_eq!(verdict(&error), "clear error", "{path:?} {at}: {error}");
                }
            }
        }
    }
    assert!(copied > mutants, "only {copied} were copied");
}

#[test]
fn whoever_takes_it_ends_it_and_sets_its_pace() {
    let _alone = alone();
    let file = || File::open(crate::support::long_clip()).expect("opens");
    let spec = |limits| ExcerptSpec { file: file(), span: 0..60_000, limits };
    let mut events = 0;
    let ended =
        supervisor().excerpt(spec(WorkerLimits::default()), &CancelToken::new(), &mut |_| {
            events += 1;
            if events < 4 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    assert!(matches!(ended, Err(WorkerError::Cancelled)) && events == 4, "{events}: {ended:?}");
    let cancel = CancelToken::new();
    cancel.cancel();
    let ended = supervisor()
        .excerpt(spec(WorkerLimits::default()), &cancel, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(ended, Err(WorkerError::Cancelled)), "{ended:?}");
    let few = WorkerLimits { output_bytes: 100_000, ..WorkerLimits::default() };
    let ended =
        supervisor().excerpt(spec(few), &CancelToken::new(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(ended, Err(WorkerError::OutputBudget { .. })), "{ended:?}");
}
