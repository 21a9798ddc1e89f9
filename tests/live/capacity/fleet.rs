//! A day of a fleet in virtual time. The server's own code admits; the rules of `deploy/proxy` place, told in a few lines.
//!
//! Not modelled: the time that an answer takes, limits of requests a second and of active runs, and what media do.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use sightline::{
    base::keys::Principal,
    record::{LOST_AFTER, MemoryBudget, MemoryReservation, QUEUE_MAX, SESSION_BYTES},
    runs::{JobPermit, JobQueue, QueueFull},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
/// Time after which a refused client asks again: `Retry-After` of the server and of HAProxy.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Stock proxy before the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    HaProxy,
    Nginx,
}

/// Work of a day, and nodes that are alike.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub proxy: Proxy,
    pub nodes: usize,
    /// Cameras, all of which come in the first minute.
    pub cameras: usize,
    /// Files, at random times.
    pub files: u64,
    /// Time that one core takes for a file.
    pub file_work: Duration,
    /// Memory budget of a node's sessions, in bytes.
    pub memory_budget: u64,
    /// Cores of a node, and so its jobs at once.
    pub cores: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Offers and files that clients sent.
    pub asked: u64,
    /// Those that were refused though a node took new work.
    pub refused: u64,
    /// Most sessions, or jobs under way and waiting, of a node at once.
    pub busiest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A camera makes an offer.
    Offer(usize),
    /// A camera goes, unless this session of it has ended.
    Leave(usize, u64),
    File,
    /// A job is done, unless its node has died since.
    Done {
        node: usize,
        life: u64,
        job: u64,
    },
    /// A node dies, any.
    Fail,
    /// A node is drained, to be ended and started anew.
    Drain(usize),
    End(usize),
    /// A node is there again; the upgrade goes on with the next where it was one.
    Back(usize, bool),
}

type Entering = Pin<Box<dyn Future<Output = Result<JobPermit, QueueFull>>>>;

struct Node {
    is_up: bool,
    is_drained: bool,
    life: u64,
    budget: MemoryBudget,
    jobs: JobQueue,
    waiting: Vec<Entering>,
    running: HashMap<u64, JobPermit>,
    /// State of the proxy about it: its turn in the round, its weight, and the time until which nginx passes it over.
    turn: i64,
    weight: i64,
    passed_over: Duration,
}

impl Node {
    fn new(spec: &Spec) -> Node {
        Node {
            is_up: true,
            is_drained: false,
            life: 0,
            budget: MemoryBudget::new(spec.memory_budget, spec.memory_budget),
            jobs: JobQueue::new(spec.cores, QUEUE_MAX),
            waiting: Vec::new(),
            running: HashMap::new(),
            turn: 0,
            weight: 1,
            passed_over: Duration::ZERO,
        }
    }

    fn sessions(&self) -> usize {
        (self.budget.used() / SESSION_BYTES) as usize
    }

    fn takes_new(&self) -> bool {
        self.is_up && !self.is_drained
    }

    /// Loses all that it had, as a process that ends.
    fn end(&mut self, spec: &Spec) {
        let (life, turn) = (self.life + 1, self.turn);
        *self = Node { is_up: false, life, turn, ..Node::new(spec) };
    }
}

struct Camera {
    session: u64,
    at: Option<(usize, MemoryReservation)>,
}

pub struct Day {
    spec: Spec,
    principal: Principal,
    now: Duration,
    random: u64,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    count: u64,
    nodes: Vec<Node>,
    cameras: Vec<Camera>,
    /// Time at which the agent last told weights.
    weighed: Option<Duration>,
    outcome: Outcome,
}

impl Day {
    /// Runs a day from `seed`, to its end or, where `to_first` holds, to its first refusal.
    pub fn run(spec: Spec, seed: u64, to_first: bool) -> Outcome {
        let mut day = Day {
            spec,
            principal: Principal::named("cameras"),
            now: Duration::ZERO,
            random: seed,
            events: BinaryHeap::new(),
            count: 0,
            nodes: (0..spec.nodes).map(|_| Node::new(&spec)).collect(),
            cameras: (0..spec.cameras).map(|_| Camera { session: 0, at: None }).collect(),
            weighed: None,
            outcome: Outcome::default(),
        };
        for camera in 0..spec.cameras {
            let after = day.within(MINUTE);
            day.plan(after, Event::Offer(camera));
        }
        for _ in 0..spec.files {
            let after = day.within(DAY);
            day.plan(after, Event::File);
        }
        // One node at a time: five die, and then all are upgraded.
        for hour in [1, 3, 5, 7, 9] {
            day.plan(hour * HOUR, Event::Fail);
        }
        day.plan(12 * HOUR, Event::Drain(0));
        while let Some(Reverse((at, _, event))) = day.events.pop() {
            if at >= DAY || to_first && day.outcome.refused > 0 {
                break;
            }
            day.now = at;
            day.happen(event);
        }
        day.outcome
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now + after, self.count, event)));
    }

    /// Any whole number below `bound` (splitmix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn within(&mut self, time: Duration) -> Duration {
        Duration::from_millis(self.below(time.as_millis() as u64))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Offer(camera) => self.offer(camera),
            Event::Leave(camera, session) if self.cameras[camera].session == session => {
                self.cameras[camera].at = None;
                let after = MINUTE / 2 + self.within(MINUTE);
                self.plan(after, Event::Offer(camera));
            }
            Event::File => self.file(),
            Event::Done { node, life, job } if self.nodes[node].life == life => {
                self.nodes[node].running.remove(&job);
                self.admit_waiting(node);
            }
            Event::Leave(..) | Event::Done { .. } => {}
            Event::Fail => {
                let node = self.below(self.nodes.len() as u64) as usize;
                self.end(node);
                self.plan(10 * MINUTE, Event::Back(node, false));
            }
            Event::Drain(node) => {
                self.nodes[node].is_drained = true;
                self.plan(4 * MINUTE, Event::End(node));
            }
            Event::End(node) => {
                self.end(node);
                self.plan(MINUTE, Event::Back(node, true));
            }
            Event::Back(node, is_upgrade) => {
                self.nodes[node].is_up = true;
                if is_upgrade && node + 1 < self.nodes.len() {
                    self.plan(MINUTE, Event::Drain(node + 1));
                }
            }
        }
    }

    /// Ends a node: its cameras notice and come back, its jobs are sent again.
    fn end(&mut self, node: usize) {
        let jobs = self.nodes[node].running.len() + self.nodes[node].waiting.len();
        for camera in 0..self.cameras.len() {
            if self.cameras[camera].at.as_ref().is_some_and(|(at, _)| *at == node) {
                self.cameras[camera].session += 1;
                self.cameras[camera].at = None;
                let after = LOST_AFTER + self.within(RETRY_AFTER);
                self.plan(after, Event::Offer(camera));
            }
        }
        self.nodes[node].end(&self.spec);
        for _ in 0..jobs {
            let after = self.within(MINUTE);
            self.plan(after, Event::File);
        }
    }

    fn offer(&mut self, camera: usize) {
        let principal = self.principal.clone();
        match self.place(|node| node.budget.reserve(&principal).ok()) {
            Some((node, reserved)) => {
                self.cameras[camera].session += 1;
                self.cameras[camera].at = Some((node, reserved));
                self.outcome.busiest = self.outcome.busiest.max(self.nodes[node].sessions());
                let stay = self.within(DAY);
                self.plan(stay, Event::Leave(camera, self.cameras[camera].session));
            }
            None => self.plan(RETRY_AFTER, Event::Offer(camera)),
        }
    }

    fn file(&mut self) {
        let principal = self.principal.clone();
        let enter = |node: &mut Node| {
            let (jobs, owner) = (node.jobs.clone(), principal.clone());
            let mut entering: Entering = Box::pin(async move { jobs.enter(&owner).await });
            match poll(&mut entering) {
                Poll::Ready(entered) => entered.ok().map(|place| (Some(place), None)),
                Poll::Pending => Some((None, Some(entering))),
            }
        };
        let Some((node, (place, entering))) = self.place(enter) else {
            return self.plan(RETRY_AFTER, Event::File);
        };
        self.nodes[node].waiting.extend(entering);
        place.into_iter().for_each(|place| self.begin(node, place));
        let has = self.nodes[node].running.len() + self.nodes[node].waiting.len();
        self.outcome.busiest = self.outcome.busiest.max(has);
    }

    fn begin(&mut self, node: usize, place: JobPermit) {
        let job = self.count;
        self.nodes[node].running.insert(job, place);
        let life = self.nodes[node].life;
        self.plan(self.spec.file_work, Event::Done { node, life, job });
    }

    /// Begins the jobs that the node's admission has given a place since.
    fn admit_waiting(&mut self, node: usize) {
        let waiting = std::mem::take(&mut self.nodes[node].waiting);
        for mut entering in waiting {
            match poll(&mut entering) {
                Poll::Ready(place) => self.begin(node, place.expect("one principal gives up none")),
                Poll::Pending => self.nodes[node].waiting.push(entering),
            }
        }
    }

    /// Asks nodes as the proxy does, until one admits; `None` is the client's 503.
    fn place<T>(&mut self, mut admit: impl FnMut(&mut Node) -> Option<T>) -> Option<(usize, T)> {
        self.outcome.asked += 1;
        self.weigh();
        let mut tried = Vec::new();
        while let Some(at) = self.next(&tried) {
            let node = &mut self.nodes[at];
            if let Some(admitted) = node.takes_new().then(|| admit(node)).flatten() {
                return Some((at, admitted));
            }
            node.passed_over = self.now + 5 * SECOND;
            tried.push(at);
        }
        self.outcome.refused += u64::from(self.nodes.iter().any(Node::takes_new));
        None
    }

    /// The node that the proxy asks next: smooth weighted round robin, which HAProxy's `roundrobin` and nginx's `least_conn` come
    /// to where no request takes time.
    fn next(&mut self, tried: &[usize]) -> Option<usize> {
        let asks = |at: usize, node: &Node| match self.spec.proxy {
            // Checked every second; `retries 3`, each with `redispatch` to another than the last.
            Proxy::HaProxy => tried.len() < 4 && tried.last() != Some(&at) && node.takes_new(),
            // `down` where it is drained; `max_fails=1 fail_timeout=5s` unless it is the only one; each once.
            Proxy::Nginx => {
                let is_passed_over = node.passed_over > self.now && self.nodes.len() > 1;
                !tried.contains(&at) && !node.is_drained && !is_passed_over
            }
        };
        let open: Vec<usize> =
            (0..).zip(&self.nodes).filter(|(at, node)| asks(*at, node)).map(|(at, _)| at).collect();
        let total: i64 = open.iter().map(|at| self.nodes[*at].weight).sum();
        open.iter().for_each(|at| self.nodes[*at].turn += self.nodes[*at].weight);
        let next = open.into_iter().max_by_key(|at| (self.nodes[*at].turn, Reverse(*at)))?;
        self.nodes[next].turn -= total;
        Some(next)
    }

    /// Takes the weights that `deploy/proxy/agent` answers once a second.
    fn weigh(&mut self) {
        let fresh = self.weighed.is_some_and(|at| self.now < at + SECOND);
        if self.spec.proxy == Proxy::Nginx || fresh {
            return;
        }
        self.weighed = Some(self.now);
        let load = |node: &Node| (4 + node.sessions() + node.jobs.waiting()) as i64;
        let up = self.nodes.iter().filter(|node| node.is_up);
        let Some(least) = up.map(load).min() else { return };
        for node in self.nodes.iter_mut().filter(|node| node.is_up) {
            node.weight = (100 * least.pow(3) / load(node).pow(3)).max(1);
        }
    }
}

fn poll(entering: &mut Entering) -> Poll<Result<JobPermit, QueueFull>> {
    entering.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
