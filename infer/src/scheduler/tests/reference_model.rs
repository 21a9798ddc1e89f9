//! Scheduler compared with a reference model: properties of any sequence of steps.

use proptest::prelude::*;

use super::*;

/// Highest cost of a request, in hundredths of its estimate.
const PART_MAX: u64 = 100 * daily_budget::COST_MAX;

#[derive(Clone, Debug)]
enum ScriptStep {
    Push(AdmissionRequest),
    Cancel(prop::sample::Index),
    /// Another attempt of a request: its tokens, and its cost in hundredths of them.
    Again(prop::sample::Index, u64, u64),
    Release(prop::sample::Index, u64),
    Wait(u64),
    NextDay,
}

fn step() -> impl Strategy<Value = ScriptStep> {
    let rest_ms = prop_oneof![4 => Just(0u64), 1 => 1..4000u64];
    let push = (0..4u8, 0..3u8, any::<bool>(), 0..1200u64, 0..1100u64, 1..9000u64, rest_ms)
        .prop_map(|(principal, stream, offline, bytes, tokens, patience_ms, rest_ms)| {
            let priority = if offline { Priority::Offline } else { Priority::Live };
            ScriptStep::Push(AdmissionRequest {
                image_bytes: bytes / 3,
                tokens: tokens / 2,
                wait_max: Some(Duration::from_millis(patience_ms)),
                retry_after: Duration::from_millis(rest_ms),
                ..request(&format!("p{principal}"), &format!("s{stream}"), priority)
            })
        });
    prop_oneof![
        8 => push,
        1 => any::<prop::sample::Index>().prop_map(ScriptStep::Cancel),
        3 => (any::<prop::sample::Index>(), 0..1100u64, 0..=PART_MAX)
            .prop_map(|(which, tokens, part)| ScriptStep::Again(which, tokens / 2, part)),
        5 => (any::<prop::sample::Index>(), 0..=PART_MAX)
            .prop_map(|(which, part)| ScriptStep::Release(which, part)),
        2 => (0..3000u64).prop_map(ScriptStep::Wait),
        1 => Just(ScriptStep::NextDay),
    ]
}

/// Expected state, kept beside the scheduler and compared after every step.
struct Model {
    limits: AdmissionLimits,
    scheduler: Scheduler,
    now: Instant,
    day: u64,
    /// Waiting requests with the first and last time at which they may go.
    waiting: BTreeMap<AdmissionId, (AdmissionRequest, Instant, Instant)>,
    /// Requests in flight with the tokens reserved for them.
    in_flight: BTreeMap<AdmissionId, (AdmissionRequest, u64)>,
    spent: BTreeMap<(Arc<str>, u64), u64>,
}

impl Model {
    fn new(limits: AdmissionLimits) -> Model {
        Model {
            limits,
            scheduler: Scheduler::new(limits),
            now: Instant::now(),
            day: 1,
            waiting: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            spent: BTreeMap::new(),
        }
    }

    fn used(&self, principal: &Arc<str>) -> u64 {
        self.spent.get(&(Arc::clone(principal), self.day)).copied().unwrap_or_default()
    }

    fn day_is_spent(&self, request: &AdmissionRequest) -> bool {
        let (limit, used) = (self.limits.tokens_per_day, self.used(&request.principal));
        limit > 0 && (used >= limit || used + request.tokens > limit)
    }

    fn reserved(&self, principal: &Arc<str>) -> u64 {
        let own = self.in_flight.values().filter(|(request, _)| request.principal == *principal);
        own.map(|(_, reserved)| *reserved).sum()
    }

    /// Charges `spent` for an attempt of `request` that was reserved at `estimate`.
    fn spend(&mut self, request: &AdmissionRequest, estimate: u64, spent: u64) {
        let limit = self.limits.tokens_per_day;
        let used = self.spent.entry((Arc::clone(&request.principal), self.day)).or_default();
        *used += spent;
        let over = spent.saturating_sub(estimate);
        assert!(limit == 0 || *used <= limit + over, "{used} of {limit}: {over} over an estimate");
    }

    fn step(&mut self, step: ScriptStep) {
        match step {
            ScriptStep::Push(request) => self.push(request),
            ScriptStep::Cancel(which) if !self.waiting.is_empty() => {
                let id = *self.waiting.keys().nth(which.index(self.waiting.len())).expect("in");
                assert!(self.scheduler.cancel(id), "it waits");
                assert!(!self.scheduler.cancel(id), "once");
                self.waiting.remove(&id);
            }
            ScriptStep::Release(which, part) if !self.in_flight.is_empty() => {
                let index = which.index(self.in_flight.len());
                self.release(*self.in_flight.keys().nth(index).expect("in"), part);
            }
            ScriptStep::Again(which, tokens, part) if !self.in_flight.is_empty() => {
                let index = which.index(self.in_flight.len());
                self.again(*self.in_flight.keys().nth(index).expect("in"), tokens, part);
            }
            ScriptStep::Wait(ms) => self.now += Duration::from_millis(ms),
            ScriptStep::NextDay => self.day += 1,
            ScriptStep::Cancel(_) | ScriptStep::Again(..) | ScriptStep::Release(..) => {}
        }
        self.poll();
        self.check();
    }

    fn push(&mut self, request: AdmissionRequest) {
        let day = self.limits.tokens_per_day;
        let too_large = request.image_bytes > self.limits.image_bytes
            || request.tokens > self.limits.tokens
            || (day > 0 && request.tokens > day);
        match self.scheduler.push(self.now, self.day, request.clone()) {
            Ok(id) => {
                assert!(!too_large && !self.day_is_spent(&request), "{request:?}");
                let (ready, until) =
                    (self.now + request.retry_after, self.now + request.wait_max.expect("given"));
                assert!(self.waiting.insert(id, (request, ready, until)).is_none(), "a new name");
            }
            Err(AdmissionError::TooLarge { .. }) => assert!(too_large, "{request:?}"),
            Err(AdmissionError::DaySpent { .. }) => {
                assert!(self.day_is_spent(&request), "{request:?}")
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Reserves `tokens` for an attempt of request `id`. The scheduler decides about the room; the model
    /// checks the decision by the resulting cost.
    fn reserve(&mut self, id: AdmissionId, tokens: u64) -> bool {
        let fits = self.scheduler.reserve(id, self.day, tokens);
        let (request, reserved) = self.in_flight.get_mut(&id).expect("under way");
        *reserved = if fits { tokens } else { 0 };
        let principal = Arc::clone(&request.principal);
        let (limit, used) = (self.limits.tokens_per_day, self.used(&principal));
        let is_alone = self.reserved(&principal) == if fits { tokens } else { 0 };
        let too_much = limit > 0 && (used >= limit || used + tokens > limit);
        assert!(!fits || !too_much, "{used} and {tokens} of {limit}");
        assert!(fits || too_much || !is_alone, "there was room");
        fits
    }

    /// Makes an attempt of `tokens` that takes `part` hundredths of them, if there is room.
    fn again(&mut self, id: AdmissionId, tokens: u64, part: u64) {
        if !self.reserve(id, tokens) {
            return;
        }
        let spent = tokens * part / 100;
        self.scheduler.commit(id, self.day, spent);
        let (request, reserved) = self.in_flight.get_mut(&id).expect("under way");
        *reserved = 0;
        let request = request.clone();
        self.spend(&request, tokens, spent);
    }

    /// Ends a request: in mid-attempt if `part` is 100, else after an attempt of `part` hundredths.
    fn release(&mut self, id: AdmissionId, part: u64) {
        let (_, reserved) = *self.in_flight.get(&id).expect("under way");
        if part != 100 {
            self.again(id, reserved, part);
        } else if self.reserve(id, reserved) {
            let request = self.in_flight[&id].0.clone();
            self.spend(&request, reserved, reserved);
        }
        let (request, _) = self.in_flight.remove(&id).expect("under way");
        let found = self.scheduler.release(id, self.day);
        assert_eq!(self.scheduler.release(id, self.day), None, "once");
        assert!(!self.scheduler.reserve(id, self.day, 1), "it is over");
        let senders = found.map(|found| (found.used, found.reserved));
        let expected = (self.used(&request.principal), self.reserved(&request.principal));
        assert_eq!(senders, (self.limits.tokens_per_day > 0).then_some(expected));
    }

    fn poll(&mut self) {
        while let Some((id, outcome)) = self.scheduler.poll(self.now, self.day) {
            let before = self.waiting.len();
            let (request, ready, until) =
                self.waiting.remove(&id).expect("one verdict, of who waits");
            match outcome {
                Ok(()) => {
                    assert!(until > self.now, "nobody goes late");
                    assert!(ready <= self.now, "nobody goes early");
                    let reserved = request.tokens;
                    self.in_flight.insert(id, (request, reserved));
                }
                Err(AdmissionError::TimedOut { .. }) => assert!(until <= self.now, "{request:?}"),
                Err(AdmissionError::QueueFull { .. }) => assert!(before > self.limits.waiters),
                Err(AdmissionError::DaySpent { .. }) => {
                    assert!(self.day_is_spent(&request), "{request:?}")
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn check(&self) {
        let limits = self.limits;
        let in_flight = || self.in_flight.values().map(|(request, _)| request);
        let sum = |of: fn(&AdmissionRequest) -> u64| in_flight().map(of).sum::<u64>();
        let count = |is: &dyn Fn(&AdmissionRequest) -> bool| {
            in_flight().filter(|request| is(request)).count()
        };
        let offline = count(&|request| request.priority == Priority::Offline);
        let load = self.scheduler.load();
        let waiting = |priority| {
            self.waiting.values().filter(|(request, ..)| request.priority == priority).count()
        };
        let expected = SchedulerLoad {
            waiting_live: waiting(Priority::Live),
            waiting_offline: waiting(Priority::Offline),
            in_flight: self.in_flight.len(),
            in_flight_offline: offline,
            image_bytes: sum(|request| request.image_bytes),
            tokens: sum(|request| request.tokens),
        };
        assert_eq!(load, expected, "nobody is lost");
        assert!(load.in_flight <= limits.in_flight);
        assert!(load.image_bytes <= limits.image_bytes && load.tokens <= limits.tokens);
        assert!(offline <= limits.in_flight - limits.in_flight / SLOTS_PER_RESERVED);
        assert!(self.waiting.len() <= limits.waiters);
        for principal in (0..4).map(|at| Arc::<str>::from(format!("p{at}"))) {
            let own = |request: &AdmissionRequest| request.principal == principal;
            assert!(count(&own) <= limits.in_flight_per_principal, "{principal}");
        }
        let could_go = self.waiting.values().any(|(_, ready, _)| *ready <= self.now);
        assert!(!self.in_flight.is_empty() || !could_go, "somebody can go");
        for (id, (_, ready, until)) in &self.waiting {
            let next = if *ready > self.now { ready.min(until) } else { until };
            assert_eq!(self.scheduler.deadline(*id, self.now), Some(*next));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_limit_is_passed_and_nobody_is_lost(
        steps in prop::collection::vec(step(), 1..160),
        in_flight in 1..12usize,
        own in 1..5usize,
        day in prop_oneof![Just(0u64), 500..4000u64],
    ) {
        let limits = AdmissionLimits {
            in_flight,
            in_flight_per_principal: own,
            tokens_per_day: day,
            ..LIMITS
        };
        let mut model = Model::new(limits);
        for step in steps {
            model.step(step);
        }
        // Every request ends with an answer or a named refusal. No retry-after lasts 4 s.
        model.now += Duration::from_secs(4);
        model.poll();
        for _ in 0..model.waiting.len() + model.in_flight.len() {
            let Some(id) = model.in_flight.keys().next().copied() else { break };
            model.release(id, 100);
            model.poll();
            model.check();
        }
        prop_assert_eq!(model.scheduler.load(), SchedulerLoad::default());
    }

    #[test]
    fn nobody_starves(
        crowd in prop::collection::vec((0..4u8, 0..3u8, any::<bool>(), 1..400u64), 400),
        seen_offline in any::<bool>(),
        seen_tokens in 1..1000u64,
    ) {
        let limits = AdmissionLimits { waiters: 1000, in_flight: 9, ..LIMITS };
        let mut model = Model::new(limits);
        let of = |principal: u8, stream: u8, offline: bool, tokens| AdmissionRequest {
            tokens,
            ..request(
                &format!("p{principal}"),
                &format!("s{stream}"),
                if offline { Priority::Offline } else { Priority::Live },
            )
        };
        let (before, after) = crowd.split_at(60);
        for &(principal, stream, offline, tokens) in before {
            model.push(of(principal, stream, offline, tokens));
        }
        let seen = of(0, 9, seen_offline, seen_tokens);
        model.push(seen.clone());
        let id = *model.waiting.keys().next_back().expect("pushed last");
        // Bound, besides those in flight on arrival: for each of at most four streams of the principal a
        // round of four principals, every fifth slot for offline work, and a slot of the principal.
        let turn = 4 * (LIVE_BEFORE_OFFLINE as usize + 1) + limits.in_flight;
        let bound = limits.in_flight + 4 * turn;
        let mut released = 0;
        let mut crowd = after.iter();
        while model.waiting.contains_key(&id) {
            if let Some(&(principal, stream, offline, tokens)) = crowd.next() {
                model.push(of(principal, stream, offline, tokens));
            }
            model.poll();
            // Requests end in the order in which they were admitted.
            if let Some(oldest) = model.in_flight.keys().next().copied() {
                model.release(oldest, 100);
                released += 1;
            }
            model.poll();
            model.check();
            prop_assert!(released <= bound, "{released} others were answered first: {seen:?}");
        }
    }
}
