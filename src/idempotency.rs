//! Requests that must not be carried out twice: what was asked under a key and what was answered.
//!
//! A record is durable before its request begins and again with its answer, so that a crash
//! between leaves one that says "begun": the log then tells whether anything came of it.
//! Bounded for each owner in records and bytes: what is kept is kept for its time, and an owner
//! whose table is full begins nothing new under a key. Knows no HTTP.

mod records;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use media::{RequestId, RunId, Seq, WallTime};
use redb::WriteTransaction;
use sha2::{Digest, Sha256};
use timeline::{Event, EventKind, Timeline, TimelineError};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::blocking,
    clock::{AgeClock, Moment},
    config::Principal,
    ledger::{Ledger, LedgerError},
};
use records::State;

/// How long an answer is kept.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Records of one owner; with so many it begins nothing new.
pub const RECORDS_MAX: usize = 4096;
/// Bytes of the answers of one owner; with so many it begins nothing new, and only what was
/// under way then is kept beside them.
pub const BYTES_MAX: u64 = 64 << 20;
/// Bytes of one answer; a longer one is sent and not kept.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Heads of events looked at in one step.
const STEP: usize = 4096;
/// Events read to find out what became of a request.
pub const TRACED_MAX: usize = 1 << 16;
/// Time from one look for records that are over to the next.
const EXPIRE_EVERY: Duration = Duration::from_secs(600);
/// Records forgotten in one step.
const EXPIRED_AT_ONCE: usize = 1000;
/// Requests that were cut off, looked at where an owner's table is full.
pub const IDLE_AT_ONCE: usize = 8;

/// Why room cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] TimelineError),
}

/// What one key stands for: an owner, a route and the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    owner: Principal,
    digest: [u8; 32],
}

impl Scope {
    /// Whose key it is.
    pub fn owner(&self) -> &Principal {
        &self.owner
    }

    /// The key `key` of `owner` on `route`, which is a method and a path.
    pub fn new(owner: &Principal, route: &str, key: &str) -> Scope {
        Scope { owner: owner.clone(), digest: digest(&[route.as_bytes(), key.as_bytes()]) }
    }
}

/// What tells one body from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a request whose effect depends on these parts.
    pub fn of(parts: &[&[u8]]) -> Fingerprint {
        Fingerprint(digest(parts))
    }
}

/// A digest of `parts` that no other division of the same bytes has.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// An answer as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The headers that are repeated, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// What a key was used for before.
pub enum Begun {
    /// Nothing: carry the request out.
    Fresh(Attempt),
    /// This was answered.
    Answered(Fingerprint, Answer),
    /// A request that was begun and never answered; nothing of it is under way.
    Interrupted(Attempt, Interrupted),
    /// The same, and it is under way.
    UnderWay,
    /// Nothing, and its owner has as many records as may be.
    Full {
        /// When the oldest of them is over.
        frees_in: Duration,
    },
}

/// What the log says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// It did nothing.
    Nothing,
    /// It did something in this run.
    Run(RunId),
    /// Too much happened since to find out.
    Unknown,
}

/// A request that was begun and has no answer that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Its body; `None` where that was not known before its end.
    pub fingerprint: Option<Fingerprint>,
    /// The request.
    pub request_id: String,
    /// Its events, if there are any, come after this one.
    pub after: Seq,
}

/// The use of keys.
pub struct Idempotency {
    ledger: Ledger,
    clock: AgeClock,
    under_way: Mutex<HashSet<Scope>>,
}

impl Idempotency {
    /// The records in `ledger`, without those whose time is over by `clock`.
    pub fn open(ledger: Ledger, clock: AgeClock) -> Result<Arc<Idempotency>, LedgerError> {
        let keys = Idempotency { ledger, clock, under_way: Mutex::default() };
        keys.expire(keys.clock.now())?;
        Ok(Arc::new(keys))
    }

    /// What records are dated with, and their ages counted to.
    pub fn now(&self) -> Moment {
        self.clock.moment()
    }

    /// Forgets what is over now and then, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(EXPIRE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let keys = Arc::clone(&self);
            match blocking(move || keys.expire(keys.clock.now())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "records of keys stay longer"),
                Err(died) => tracing::error!(%died, "records of keys stay longer"),
            }
        }
    }

    /// Forgets every record whose time is over at `now`.
    fn expire(&self, now: WallTime) -> Result<(), LedgerError> {
        loop {
            let oldest = oldest_kept(now);
            let over = self.ledger.read(|view| records::before(view, oldest, EXPIRED_AT_ONCE))?;
            if over.is_empty() {
                return Ok(());
            }
            self.ledger.write(|change| records::forget(change, &over))?;
        }
    }

    /// Begins the use of a key; waits for the disk.
    pub fn begin(
        self: &Arc<Self>,
        scope: Scope,
        fingerprint: Option<Fingerprint>,
        request_id: RequestId,
        head: Seq,
        now: Moment,
    ) -> Result<Begun, LedgerError> {
        // Taken before looking: of two at once, only one may find nothing.
        if !self.under_way().insert(scope.clone()) {
            return Ok(Begun::UnderWay);
        }
        let mut attempt =
            Attempt { keys: Arc::clone(self), scope, request_id, at: now.dated, after: head };
        let oldest = oldest_kept(now.counted);
        let known = self.ledger.read(|view| records::find(view, &attempt.scope))?;
        if let Some(record) = known.filter(|record| record.at >= oldest) {
            return Ok(match record.state {
                State::Answered(fingerprint, answer) => Begun::Answered(fingerprint, answer),
                State::Begun(past) => Begun::Interrupted(attempt, past),
            });
        }
        let owner = &attempt.scope.owner;
        let full = self.ledger.read(|view| records::oldest_of_full(view, owner, oldest))?;
        if let Some(at) = full {
            let left_ms = at.epoch_ms.saturating_sub(oldest.epoch_ms);
            let frees_in = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
            return Ok(Begun::Full { frees_in });
        }
        attempt.write(fingerprint, head)?;
        Ok(Begun::Fresh(attempt))
    }

    /// Forgets requests of `owner` that were cut off before they did anything, as the log tells:
    /// they keep nothing that a repetition needs. Looks at [`IDLE_AT_ONCE`] of them.
    pub fn make_room(&self, owner: &Principal, timeline: &Timeline) -> Result<bool, KeysError> {
        let idle = |scope: &Scope| !self.under_way().contains(scope);
        let begun = self.ledger.read(|view| records::begun_of(view, owner, idle, IDLE_AT_ONCE))?;
        let mut made = false;
        for (scope, past) in begun {
            // Nobody else begins it while it is looked at.
            if !self.under_way().insert(scope.clone()) {
                continue;
            }
            let looked_at = UnderWay { keys: self, scope };
            if past.trace(timeline, None, TRACED_MAX)? == Trace::Nothing {
                let (scope, request) = (&looked_at.scope, &past.request_id);
                // It may have been answered since it was listed.
                made |=
                    self.ledger.write(|change| records::remove_begun(change, scope, request))?;
            }
        }
        Ok(made)
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<Scope>> {
        // Every change is one insert or remove: a panic leaves the set usable.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is taken, until dropped.
struct UnderWay<'a> {
    keys: &'a Idempotency,
    scope: Scope,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.keys.under_way().remove(&self.scope);
    }
}

fn oldest_kept(now: WallTime) -> WallTime {
    WallTime { epoch_ms: now.epoch_ms.saturating_sub(KEPT.as_millis() as i64) }
}

/// A request that is being carried out under its key, until dropped.
///
/// Dropped without an answer it stays "begun", as after a crash.
pub struct Attempt {
    keys: Arc<Idempotency>,
    scope: Scope,
    request_id: RequestId,
    at: WallTime,
    after: Seq,
}

impl Attempt {
    /// Says durably that the request begins; what was said of an earlier one is forgotten.
    pub fn write(
        &mut self,
        fingerprint: Option<Fingerprint>,
        head: Seq,
    ) -> Result<(), LedgerError> {
        self.after = head;
        let request_id = self.request_id.to_string();
        let begun = State::Begun(Interrupted { fingerprint, request_id, after: head });
        self.keys.ledger.write(|change| records::put(change, &self.scope, self.at, &begun))
    }

    /// Keeps what was answered.
    pub fn answered(&self, fingerprint: Fingerprint, answer: Answer) -> Result<(), LedgerError> {
        self.keys.ledger.write(|change| self.answered_with(change, fingerprint, answer))
    }

    /// As [`Attempt::answered`], together with other changes: all of them happen or none.
    pub fn answered_with(
        &self,
        change: &WriteTransaction,
        fingerprint: Fingerprint,
        answer: Answer,
    ) -> Result<(), redb::Error> {
        records::put(change, &self.scope, self.at, &State::Answered(fingerprint, answer))
    }

    /// Forgets a request that did nothing.
    pub fn refused(&self) -> Result<(), LedgerError> {
        self.keys.ledger.write(|change| records::remove(change, &self.scope))
    }

    /// Where the log tells that the request did something, as [`Interrupted::trace`] does.
    pub fn trace(
        &self,
        timeline: &Timeline,
        run: Option<RunId>,
        reads_max: usize,
    ) -> Result<Trace, TimelineError> {
        let request_id = self.request_id.to_string();
        let begun = Interrupted { fingerprint: None, request_id, after: self.after };
        begun.trace(timeline, run, reads_max)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.keys.under_way().remove(&self.scope);
    }
}

impl Interrupted {
    /// Where events tell that the request did something; `run` alone is looked at where the
    /// request was about one, and at most `reads_max` events are read.
    pub fn trace(
        &self,
        timeline: &Timeline,
        run: Option<RunId>,
        reads_max: usize,
    ) -> Result<Trace, TimelineError> {
        let (mut from, last, mut reads) = (Seq(self.after.0 + 1), timeline.head(), 0);
        while from <= last {
            let (heads, next) = match run {
                Some(run) => {
                    let heads = timeline.heads_of(run, from, STEP);
                    let next = heads.last().map_or(last, |head| head.seq).0 + 1;
                    (heads, next)
                }
                None => (timeline.heads(from, STEP), from.0 + STEP as u64),
            };
            for head in heads.iter().filter(|head| says_who_asked(head.kind)) {
                if reads == reads_max {
                    return Ok(Trace::Unknown);
                }
                reads += 1;
                let Some(parts) = timeline.get_parts(head.seq)? else { continue };
                if request_of(&parts.decode()?).is_some_and(|id| id.to_string() == self.request_id)
                {
                    return Ok(Trace::Run(head.run));
                }
            }
            from = Seq(next);
        }
        Ok(Trace::Nothing)
    }
}

/// The kinds with which the effects of a request begin.
fn says_who_asked(kind: EventKind) -> bool {
    use EventKind::{AnalysisGenerated, InferenceCompleted, IngestReceived, RunCreated, RunFailed};
    matches!(kind, RunCreated | IngestReceived | AnalysisGenerated | InferenceCompleted | RunFailed)
}

fn request_of(event: &Event) -> Option<RequestId> {
    match event {
        Event::RunCreated(event) => Some(event.request_id),
        Event::IngestReceived(event) => Some(event.request_id),
        Event::AnalysisGenerated(event) => Some(event.request_id),
        Event::InferenceCompleted(event) => Some(event.request_id),
        Event::RunFailed(event) => event.request_id,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
