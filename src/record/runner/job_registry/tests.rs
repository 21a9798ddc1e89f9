//! Tests of job records: on a failing disk, over the limit, and with each kind of last event.

use std::path::Path;

use media::RequestId;
use timeline::{FramesDecoded, NewEvent, RunCompleted, Signals, TimelineOptions};

use super::*;
use crate::{base::meta_store::InjectedFault, runs::registry::tests::samples};

const RUN: RunId = RunId::from_bytes([1; 16]);
const OTHER: RunId = RunId::from_bytes([2; 16]);

fn request(at: u8) -> RequestId {
    RequestId::from_bytes([at; 8])
}

fn order(at: u8, kind: JobKind) -> JobOrder {
    let started_at = WallTime { epoch_ms: i64::from(at) };
    JobOrder { id: JobId::from_bytes([at; 16]), kind, run: RUN, request: request(at), started_at }
}

fn job(at: u8) -> JobView {
    JobView {
        order: order(at, JobKind::Ingest),
        status: JobStatus::Queued,
        frames_done: 7,
        frames_total: Some(9),
        worked_ms: 3,
        ended_at: None,
    }
}

fn ended(at: u8, ms: i64) -> JobView {
    JobView { status: JobStatus::Failed, ended_at: Some(WallTime { epoch_ms: ms }), ..job(at) }
}

fn open(dir: &Path) -> Jobs {
    Jobs::new(MetaStore::open(&dir.join("ledger")).expect("opens"))
}

/// Jobs that the next start finds in progress.
fn under_way(jobs: &Jobs) -> Vec<JobView> {
    Jobs::new(jobs.ledger.clone()).under_way().expect("readable")
}

#[test]
fn a_record_that_a_failing_disk_keeps_goes_before_there_is_another() {
    for fault in [InjectedFault::Lost, InjectedFault::Unclear] {
        let dir = tempfile::tempdir().expect("a directory");
        let jobs = open(dir.path());
        jobs.begin(&job(1)).expect("written");
        let reasoning = JobView { order: order(2, JobKind::Reasoning), ..job(2) };
        jobs.begin(&reasoning).expect("written");
        assert_eq!(under_way(&jobs), [job(1), reasoning]);
        // The end of the first job fails to be written, and so does the settling before job 3.
        jobs.ledger.fail_next(&[fault, InjectedFault::Lost]);
        jobs.close(Pending::Ended(ended(1, 5))).expect_err("the disk fails");
        jobs.begin(&job(3)).expect_err("the disk fails");
        jobs.begin(&job(3)).expect("written");
        assert_eq!(under_way(&jobs), [reasoning, job(3)], "{fault:?}");
        // The record of job 4 is durable in spite of the error.
        jobs.ledger.fail_next(&[InjectedFault::Unclear]);
        jobs.begin(&job(4)).expect_err("the disk fails");
        assert_eq!(under_way(&jobs), [reasoning, job(3), job(4)], "{fault:?}");
        assert_eq!(jobs.find(RUN, job(4).order.id).expect("readable"), None, "{fault:?}");
        let known = jobs.of_run(RUN).expect("readable");
        assert!(known.contains(&job(3)) && !known.contains(&job(4)), "{fault:?}: {known:?}");
        jobs.settle().expect("written");
        assert_eq!(under_way(&jobs), [reasoning, job(3)], "{fault:?}");
        jobs.close(Pending::Ended(ended(3, 5))).expect("written");
        jobs.close(Pending::Forgotten(reasoning.order)).expect("written");
        assert_eq!(under_way(&jobs), [], "{fault:?}");
    }
}

#[test]
fn a_record_reads_back_as_it_was_written_until_it_is_old() {
    let dir = tempfile::tempdir().expect("a directory");
    let jobs = open(dir.path());
    let kinds = JobKind::ALL.into_iter().zip(1..);
    let written: Vec<_> = kinds
        .map(|(kind, at)| JobView { order: order(at, kind), ..ended(at, 10 * i64::from(at)) })
        .collect();
    written.iter().for_each(|job| jobs.close(Pending::Ended(*job)).expect("written"));
    let read = || records::of_run(&jobs.ledger, RUN).expect("readable");
    assert_eq!(read(), written);
    let found = records::find(&jobs.ledger, OTHER, written[0].order.id);
    assert_eq!(found.expect("readable"), None, "another run's");
    jobs.expire(WallTime { epoch_ms: 20 }).expect("written");
    assert_eq!(read(), written[1..]);
}

#[test]
fn a_run_keeps_so_many_records_and_every_job_under_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let jobs = open(dir.path());
    jobs.begin(&job(1)).expect("written");
    let numbered = |at: u64| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&at.to_be_bytes());
        let order = JobOrder { id: JobId::from_bytes(id), ..order(9, JobKind::Ingest) };
        JobView { order, ..ended(9, at as i64) }
    };
    let most = records::ENDED_MAX as u64;
    let fill = |change: &redb::WriteTransaction| {
        (0..most).try_for_each(|at| records::put(change, &numbered(at)))
    };
    jobs.ledger.write(fill).expect("written");
    jobs.close(Pending::Ended(numbered(most))).expect("written");
    let left = records::of_run(&jobs.ledger, RUN).expect("readable");
    assert_eq!(left.len() as u64, most + 1);
    let has = |job: &JobView| left.iter().any(|known| known.order.id == job.order.id);
    assert_eq!([has(&job(1)), has(&numbered(0)), has(&numbered(1))], [true, false, true]);
}

fn decoded(at: u8) -> Event {
    Event::FramesDecoded(samples::decoded(request(at), Signals::Inline(Vec::new())))
}

fn recovered(at: u8, reason: &str) -> Event {
    let decoded = samples::decoded(request(at), Signals::Inline(Vec::new()));
    Event::FramesDecoded(FramesDecoded { reason: Some(reason.to_owned()), ..decoded })
}

fn completed(at: u8) -> Event {
    Event::RunCompleted(RunCompleted { request_id: Some(request(at)), ..RunCompleted::default() })
}

#[test]
fn a_job_is_over_where_its_own_last_event_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, _) = Timeline::open(dir.path(), TimelineOptions::default()).expect("opened");
    // As many events of the kind as one step reads.
    let before = (0..1000).map(|_| NewEvent { run: RUN, event: decoded(8) });
    log.append_wait(before.collect()).expect("durable");
    let events = [
        (RUN, decoded(1)),
        (RUN, decoded(2)),
        (OTHER, decoded(3)),
        (RUN, completed(4)),
        (RUN, recovered(5, "interrupted")),
        (RUN, recovered(6, "interrupted, and it was damaged on the disk")),
        (RUN, recovered(7, "it was damaged on the disk")),
    ];
    let events = events.map(|(run, event)| NewEvent { run, event });
    log.append_wait(events.into()).expect("durable");
    let rows = [
        (1, JobKind::Ingest, true, "an ingest before the latest"),
        (2, JobKind::Ingest, true, "a later ingest"),
        (3, JobKind::Ingest, false, "another run's"),
        (5, JobKind::Ingest, false, "recovered"),
        (6, JobKind::Ingest, false, "recovered with damage"),
        (7, JobKind::Ingest, true, "damaged, and whole else"),
        (9, JobKind::Ingest, false, "cut off before its events"),
        (2, JobKind::Reasoning, false, "cut off behind its frames"),
        (4, JobKind::Reasoning, true, "a whole reasoning"),
    ];
    for (at, kind, expected, case) in rows {
        let over = is_over(&log, &order(at, kind)).expect("readable");
        assert_eq!(over, expected, "{case}");
    }
    samples::damage(dir.path(), &request(1).to_string());
    let known = |at| is_over(&log, &order(at, JobKind::Ingest)).expect("readable");
    assert_eq!([known(1), known(2)], [false, true], "the event of the first is damaged");
}
