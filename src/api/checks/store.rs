//! Checks of storage and clock: ingest roots, log, disk, time.

use std::time::{Duration, Instant};

use media::WallTime;

use super::Check;
use crate::{
    api::{self, App},
    base::{clock::wall_now, disk_reserve::DiskRefusal},
};

/// Number of days until the disk is full, below which the check advises.
const DAYS_LEAST: u64 = 14;
/// Milliseconds that the clock may lag the log's last event before it counts as set back.
const BEHIND_MAX_MS: i64 = 2_000;
/// 2025-01-01 UTC: an earlier clock is wrong, as no server of this version is older.
const BEFORE_US_MS: i64 = 1_735_689_600_000;

/// Checks the ingest roots, the state of the log and the free disk space.
pub fn checks(app: &App) -> Vec<Check> {
    vec![roots(app), ready(app), disk(app)]
}

fn roots(app: &App) -> Check {
    let (name, count) = ("ingest roots", app.roots.count());
    let lost = app.roots.lost();
    match (count, lost) {
        (0, _) => Check::advice(
            name,
            "none: sources are uploads and URLs alone",
            "SERVICE_INGEST_FILE_ROOTS=/srv/footage lets callers name files beneath it",
        ),
        (_, 0) => Check::ok(name, format!("{count} of {count} can be read")),
        _ => Check::problem(
            name,
            format!("{lost} of {count} cannot be read, or were replaced since the start"),
            "see that the directories of SERVICE_INGEST_FILE_ROOTS are there, are mounted and may be \
             read by the server's user, then start it again",
        ),
    }
}

fn ready(app: &App) -> Check {
    let (reasons, unowned) = (api::reasons(app), app.registry.unowned().len());
    match (reasons.is_empty(), unowned) {
        (true, 0) => Check::ok("ready", "the log takes events"),
        (true, _) => Check::problem(
            "ready",
            format!(
                "{unowned} runs are served to nobody: the event that names their owner is damaged"
            ),
            "restore a backup, or print their events: sightline log cat",
        ),
        (false, _) => Check::problem("ready", reasons.join("; "), "look into the server's log"),
    }
}

fn disk(app: &App) -> Check {
    let (name, stored) = ("disk", app.quota.total());
    let advice = "make room, or let SERVICE_RETENTION_STILLS_DAYS and SERVICE_RETENTION_RUN_DAYS \
                  remove what is old";
    let room = match (app.reserve.check(), app.reserve.room()) {
        (Ok(Some(moved @ DiskRefusal::Moved(_))), _) => {
            return Check::problem(
                name,
                moved.to_string(),
                "put it back before the server ends: a start without it lacks what is in it",
            );
        }
        (Ok(Some(low)), _) => {
            return Check::problem(name, format!("{low}: no new work is taken"), advice);
        }
        (Ok(None), Ok((_, room))) => room,
        (Err(error), _) | (_, Err(error)) => {
            let said = format!("the data directory cannot be examined: {error}");
            return Check::problem(name, said, "see that it is there and mounted");
        }
    };
    let said = format!("{} free above the reserve, {} stored", size(room), size(stored));
    let Some((a_day, span)) = app.tables.growth.a_day(Instant::now(), stored) else {
        return Check::ok(name, format!("{said}; started too lately to tell its growth"));
    };
    let said =
        format!("{said}, {} a day at the rate of the last {}", signed(a_day), span_text(span));
    match u64::try_from(a_day).ok().and_then(|a_day| room.checked_div(a_day)) {
        Some(days) if days < DAYS_LEAST => {
            Check::advice(name, format!("{said}: full in {days} days"), advice)
        }
        _ => Check::ok(name, said),
    }
}

pub fn time(app: &App) -> Check {
    clock(wall_now(), app.registry.timeline().last_at())
}

/// Checks the clock reading `now` against `last`, the time of the log's last event.
fn clock(now: WallTime, last: Option<WallTime>) -> Check {
    let (name, said) = ("time", now.rfc3339());
    let advice = "set the clock and keep it by NTP: signatures, certificates and ages go by it";
    if now.epoch_ms < BEFORE_US_MS {
        return Check::problem(name, format!("{said} cannot be"), advice);
    }
    match last.filter(|last| last.epoch_ms.saturating_sub(now.epoch_ms) > BEHIND_MAX_MS) {
        None => Check::ok(name, said),
        Some(last) => {
            let last = last.rfc3339();
            let said = format!("{said} is before the last event, {last}: the clock was set back");
            Check::problem(name, said, advice)
        }
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", size(bytes.unsigned_abs()))
}

fn span_text(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::checks::Status;

    #[test]
    fn a_clock_that_cannot_be_right_is_found() {
        let wall = |epoch_ms| WallTime { epoch_ms };
        let now = BEFORE_US_MS + 1_000_000;
        let rows = [
            ("right", now, Some(now - 5_000), Status::Ok),
            ("no event", now, None, Status::Ok),
            ("a little behind", now, Some(now + BEHIND_MAX_MS), Status::Ok),
            ("set back", now, Some(now + BEHIND_MAX_MS + 1), Status::Problem),
            ("never set", 0, None, Status::Problem),
        ];
        for (name, now, last, status) in rows {
            assert_eq!(clock(wall(now), last.map(wall)).status, status, "{name}");
        }
    }

    #[test]
    fn sizes_and_spans_read_as_people_write_them() {
        assert_eq!((size(1536), size(5 << 30)), ("1.5 KiB".to_owned(), "5.0 GiB".to_owned()));
        assert_eq!(signed(-2048), "-2.0 KiB");
        let spans = [90, 600, 7200].map(|seconds| span_text(Duration::from_secs(seconds)));
        assert_eq!(spans, ["90 s", "10 min", "2 h"]);
    }
}
