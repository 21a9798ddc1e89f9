//! The scheduler for tasks: a place is waited for, and given back by dropping it.
//!
//! Promises that a task that stops waiting leaves the queue, that a place comes back however its
//! holder ends, and that a request that nothing was heard of is charged as estimated: hanging up
//! saves no tokens. Long because its tests are beside it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    Purse, Request,
    scheduler::{Ask, Limits, Load, Refused, Scheduler, Ticket, Use, Verdict},
};

/// Tokens that an answer is expected to take where a request does not say.
const ANSWER_TOKENS: u64 = 1024;
/// Tokens that a picture is expected to take: about what the common models make of 1000 x 1000.
const IMAGE_TOKENS: u64 = 1536;
/// Bytes of text that are expected to make a token; most text takes more.
const BYTES_A_TOKEN: u64 = 3;

/// The tokens that a request is expected to take, rather too many than too few.
fn estimate(prompt_bytes: usize, images: usize, max_tokens: Option<u32>) -> u64 {
    let answer = max_tokens.map_or(ANSWER_TOKENS, u64::from);
    (prompt_bytes as u64).div_ceil(BYTES_A_TOKEN) + images as u64 * IMAGE_TOKENS + answer
}

impl Request {
    /// The tokens that it is expected to take.
    pub fn tokens_estimate(&self) -> u64 {
        let captions = self.images.iter().map(|image| image.caption.len()).sum();
        self.tokens_estimate_with(self.images.len(), captions)
    }

    /// The tokens that it is expected to take with so many pictures, and captions of so many bytes.
    pub fn tokens_estimate_with(&self, images: usize, caption_bytes: usize) -> u64 {
        estimate(self.text_bytes() + caption_bytes, images, self.max_tokens)
    }

    /// The tokens that a further request is expected to take, with room for `max_tokens` and so much
    /// more text.
    pub(crate) fn tokens_estimate_again(&self, max_tokens: Option<u32>, more_bytes: usize) -> u64 {
        let captions: usize = self.images.iter().map(|image| image.caption.len()).sum();
        estimate(self.text_bytes() + captions + more_bytes, self.images.len(), max_tokens)
    }

    fn text_bytes(&self) -> usize {
        // Backends put the schema into the prompt, or work it as if it were there.
        self.prompt.len() + self.schema.as_ref().map_or(0, |schema| schema.bytes())
    }

    /// Bytes of its pictures.
    pub fn image_bytes(&self) -> u64 {
        self.images.iter().map(|image| image.jpeg.len() as u64).sum()
    }
}

/// Tells the number of the UTC day.
pub type Today = Box<dyn Fn() -> u64 + Send + Sync>;
/// Hears what a principal has used of a day; called with nothing locked, and must not wait.
pub type OnUse = Box<dyn Fn(Use) + Send + Sync>;

/// Admission to the models; clones share it.
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

struct Shared {
    desk: Mutex<Desk>,
    today: Today,
    on_use: OnUse,
}

struct Desk {
    scheduler: Scheduler,
    told: HashMap<Ticket, oneshot::Sender<Result<(), Refused>>>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admission").field(&self.load()).finish()
    }
}

impl Admission {
    /// Admission within `limits`.
    pub fn new(limits: Limits, today: Today, on_use: OnUse) -> Admission {
        let desk = Desk { scheduler: Scheduler::new(limits), told: HashMap::new() };
        Admission(Arc::new(Shared { desk: Mutex::new(desk), today, on_use }))
    }

    /// Says what a principal had used of a day at the last start.
    pub fn restore(&self, principal: Arc<str>, day: u64, used: u64) {
        self.0.desk().scheduler.restore(principal, day, used);
    }

    /// What waits and what is under way.
    pub fn load(&self) -> Load {
        self.0.desk().scheduler.load()
    }

    /// What a principal has used of this day; `None` without a day budget.
    pub fn used(&self, principal: &Arc<str>) -> Option<Use> {
        self.0.desk().scheduler.used(principal, (self.0.today)())
    }

    /// Waits for a place; dropping the future leaves the queue.
    pub async fn enter(&self, ask: Ask) -> Result<Permit, Refused> {
        let since = Instant::now();
        let (tell, mut told) = oneshot::channel();
        let ticket = {
            let mut desk = self.0.desk();
            let ticket = desk.scheduler.push(since, (self.0.today)(), ask)?;
            desk.told.insert(ticket, tell);
            ticket
        };
        // From here on the ask is somewhere in the scheduler, and is taken out by the drop.
        let mut place = Place { shared: Arc::clone(&self.0), ticket, stage: Stage::Waiting };
        self.0.pump();
        loop {
            let next = self.0.desk().scheduler.deadline(ticket, Instant::now());
            let overdue = async {
                match next {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    // It waits no longer: its verdict is on the way.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                verdict = &mut told => {
                    place.stage = Stage::Over;
                    // The sender is dropped only after it was used.
                    verdict.unwrap_or(Err(Refused::TimedOut { waited: since.elapsed() }))?;
                    place.stage = Stage::UnderWay;
                    return Ok(Permit { place, waited: since.elapsed() });
                }
                () = overdue => self.0.pump(),
            }
        }
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Every change of the desk is finished before anything that could panic.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells every verdict that there is for now.
    fn pump(&self) {
        let (now, day) = (Instant::now(), (self.today)());
        let mut desk = self.desk();
        while let Some(Verdict { ticket, outcome }) = desk.scheduler.poll(now, day) {
            if let Some(tell) = desk.told.remove(&ticket) {
                // Whoever stopped waiting just now gives the place back by its drop.
                tell.send(outcome).ok();
            }
        }
    }

    /// Ends what is under way.
    fn release(&self, ticket: Ticket) {
        let used = self.desk().scheduler.release(ticket, (self.today)());
        if let Some(used) = used {
            (self.on_use)(used);
        }
        self.pump();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the queue, or just out of it without knowing.
    Waiting,
    UnderWay,
    Over,
}

/// What an ask holds of the scheduler.
struct Place {
    shared: Arc<Shared>,
    ticket: Ticket,
    stage: Stage,
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.stage {
            Stage::Over => {}
            Stage::UnderWay => self.shared.release(self.ticket),
            Stage::Waiting => {
                let waited = {
                    let mut desk = self.shared.desk();
                    desk.told.remove(&self.ticket);
                    desk.scheduler.cancel(self.ticket)
                };
                if waited {
                    // Somebody behind it may go now.
                    self.shared.pump();
                } else {
                    // It was let in and never knew.
                    self.shared.release(self.ticket);
                }
            }
        }
    }
}

/// The right to ask a model, until dropped, and what its requests are paid from.
#[must_use]
pub struct Permit {
    place: Place,
    waited: Duration,
}

impl Permit {
    /// How long it was waited for.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Purse for Permit {
    fn reserve(&self, tokens: u64) -> bool {
        let Place { shared, ticket, .. } = &self.place;
        shared.desk().scheduler.reserve(*ticket, (shared.today)(), tokens)
    }

    fn spend(&self, tokens: u64) {
        let Place { shared, ticket, .. } = &self.place;
        shared.desk().scheduler.spend(*ticket, (shared.today)(), tokens);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("ticket", &self.place.ticket).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Class;

    const LIMITS: Limits = Limits {
        in_flight: 2,
        in_flight_per_principal: 2,
        waiters: 2,
        wait: Duration::from_secs(60),
        image_bytes: 1000,
        tokens: 1000,
        tokens_per_day: 0,
    };

    type Uses = Arc<Mutex<Vec<u64>>>;

    fn admission(limits: Limits) -> (Admission, Uses) {
        let uses = Uses::default();
        let heard = Arc::clone(&uses);
        let on_use = Box::new(move |found: Use| heard.lock().expect("whole").push(found.used));
        (Admission::new(limits, Box::new(|| 1), on_use), uses)
    }

    fn ask() -> Ask {
        let (principal, stream) = ("a".into(), "s".into());
        let class = Class::Live;
        let rest = Duration::ZERO;
        Ask { principal, stream, class, image_bytes: 10, tokens: 10, patience: None, rest }
    }

    /// Waits until so many wait.
    async fn waiting(admission: &Admission, count: usize) {
        while admission.load().waiting_live != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn places_come_back_and_wake_who_waits() {
        let (admission, _) = admission(LIMITS);
        let first = admission.enter(ask()).await.expect("free");
        let second = admission.enter(ask()).await.expect("free");
        let waiter = tokio::spawn({
            let admission = admission.clone();
            async move { admission.enter(ask()).await.map(drop) }
        });
        waiting(&admission, 1).await;
        drop(first);
        assert_eq!(waiter.await.expect("no panic"), Ok(()));
        drop(second);
        assert_eq!(admission.load(), Load::default());
    }

    #[tokio::test]
    async fn whoever_stops_waiting_leaves_the_queue() {
        let (admission, _) = admission(LIMITS);
        let held = [admission.enter(ask()).await, admission.enter(ask()).await];
        for _ in 0..5 {
            let soon = Duration::from_millis(2);
            let waited = tokio::time::timeout(soon, admission.enter(ask())).await;
            assert!(waited.is_err(), "no place");
        }
        assert_eq!(admission.load().waiting_live, 0);
        drop(held);
        assert_eq!(admission.load(), Load::default());
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_waiting_ends() {
        let (admission, _) = admission(LIMITS);
        let _held = [admission.enter(ask()).await, admission.enter(ask()).await];
        let waiters = [(); 2].map(|()| {
            let admission = admission.clone();
            tokio::spawn(async move { admission.enter(ask()).await.map(drop) })
        });
        waiting(&admission, 2).await;
        let refused = admission.enter(ask()).await.expect_err("full");
        assert_eq!(refused, Refused::QueueFull { waiters: 2 });
        waiters.iter().for_each(tokio::task::JoinHandle::abort);
        waiting(&admission, 0).await;
        let soon = Some(Duration::from_millis(3));
        let refused = admission.enter(Ask { patience: soon, ..ask() }).await.expect_err("late");
        assert!(matches!(refused, Refused::TimedOut { .. }), "{refused}");
        assert_eq!(admission.load().waiting_live, 0);
    }

    #[tokio::test]
    async fn whoever_must_rest_waits_without_a_place() {
        let (admission, _) = admission(LIMITS);
        let rest = Duration::from_millis(30);
        let since = Instant::now();
        let permit = admission.enter(Ask { rest, ..ask() }).await.expect("free");
        assert!(since.elapsed() >= rest && permit.waited() >= rest);
        let patience = Some(rest);
        let rest = Duration::from_secs(60);
        let refused = admission.enter(Ask { rest, patience, ..ask() }).await.expect_err("late");
        assert!(matches!(refused, Refused::TimedOut { .. }), "{refused}");
    }

    #[tokio::test]
    async fn what_was_asked_and_not_heard_of_is_charged_as_estimated() {
        let (admission, uses) = admission(Limits { tokens_per_day: 100, ..LIMITS });
        drop(admission.enter(ask()).await.expect("free"));
        let permit = admission.enter(ask()).await.expect("free");
        assert!(permit.reserve(20));
        permit.spend(3);
        assert!(!permit.reserve(98) && permit.reserve(50));
        drop(permit);
        assert_eq!(*uses.lock().expect("whole"), [0, 53]);
        let used = admission.used(&"a".into()).expect("a budget");
        assert_eq!((used.used, used.reserved), (53, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_lost_while_many_come_wait_and_go() {
        let (admission, _) = admission(Limits { waiters: 1000, ..LIMITS });
        let tasks: Vec<_> = (0..400u64)
            .map(|at| {
                let admission = admission.clone();
                let principal = format!("p{}", at % 5);
                tokio::spawn(async move {
                    let ask = Ask { principal: principal.as_str().into(), ..ask() };
                    if at % 4 == 0 {
                        let soon = Duration::from_micros(at * 10);
                        return tokio::time::timeout(soon, admission.enter(ask)).await.is_ok();
                    }
                    let permit = admission.enter(ask).await.expect("a place in time");
                    tokio::task::yield_now().await;
                    if at % 3 == 0 {
                        permit.spend(1);
                    }
                    drop(permit);
                    true
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(admission.load(), Load::default());
    }

    #[test]
    fn estimates_grow_with_what_is_asked() {
        assert_eq!(estimate(0, 0, Some(1)), 1);
        assert_eq!(estimate(10, 0, None), 4 + ANSWER_TOKENS);
        assert_eq!(estimate(3, 2, Some(100)), 1 + 2 * IMAGE_TOKENS + 100);
        let schema = crate::OutputSchema::compile(serde_json::json!({"type": "object"}));
        let request = Request {
            model: "m".to_owned(),
            prompt: "abc".to_owned(),
            images: Vec::new(),
            max_tokens: Some(10),
            temperature: None,
            timeout: None,
            schema: Some(Arc::new(schema.expect("a schema"))),
            primary: None,
            allow_fallback: true,
        };
        // 3 bytes of prompt and 17 of schema.
        assert_eq!(request.tokens_estimate(), 7 + 10);
        assert_eq!(request.tokens_estimate_with(1, 4), 8 + 10 + IMAGE_TOKENS);
    }
}
