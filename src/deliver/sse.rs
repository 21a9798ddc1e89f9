//! Event streams by run and owner, and the task that wakes them for new events.
//!
//! Promises that the log's writer does one cheap operation per publish, however many streams there are: a
//! task wakes the streams concerned, and each reads on from its own cursor. No events are queued per stream.

mod feed;
mod page;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use media::{RunId, Seq};
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use crate::{
    base::{
        keys::Principal,
        owner_limit::{LimitScope, OwnerLimiter, OwnerPermit},
    },
    runs::registry::{Run, RunRegistry},
};
use page::{PageKey, SsePage};

pub use feed::EventStreamCursor;
pub use page::{Filter, index_of};

/// Events read in one step of waking.
const STEP: usize = 4096;
/// Number of known pages from which unused ones are removed.
const PAGES_KEPT: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    pub all: usize,
    pub principal: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRefusal {
    #[error("{0} event streams are open already: try again later")]
    All(usize),
    #[error("{0} of your event streams are open already: close one")]
    Principal(usize),
}

#[derive(Clone)]
pub enum StreamScope {
    Run(Arc<Run>),
    Owner(Principal),
}

/// Run, or else owner, whose events a stream tells.
type Whose = Result<RunId, Principal>;

impl StreamScope {
    fn whose(&self) -> Whose {
        match self {
            StreamScope::Run(run) => Ok(run.id()),
            StreamScope::Owner(owner) => Err(owner.clone()),
        }
    }
}

/// Wake-up of the streams of one run or owner.
#[derive(Default)]
struct Topic {
    wake: Arc<Notify>,
    streams: usize,
}

#[derive(Default)]
struct Topics {
    by_scope: HashMap<Whose, Topic>,
    open: OwnerLimiter,
}

impl Topics {
    fn wake(&self, whose: &Whose) {
        if let Some(topic) = self.by_scope.get(whose) {
            topic.wake.notify_waiters();
        }
    }
}

/// Page read that several streams wait for; `None` if the log fails.
type Reading = OnceCell<Option<Arc<SsePage>>>;

pub struct EventStreams {
    registry: Arc<RunRegistry>,
    limits: StreamLimits,
    topics: Mutex<Topics>,
    /// Reads in progress, each shared by the streams at the same position.
    pages: Mutex<HashMap<PageKey, Weak<Reading>>>,
    published: Arc<Notify>,
    closed: CancellationToken,
}

impl EventStreams {
    /// Creates the registry, without streams, on the log of `registry`.
    pub fn new(registry: Arc<RunRegistry>, limits: StreamLimits) -> Arc<EventStreams> {
        let published = Arc::new(Notify::new());
        let wake = Arc::clone(&published);
        registry.timeline().on_publish(Box::new(move |_| wake.notify_one()));
        let streams = Arc::new(EventStreams {
            registry,
            limits,
            topics: Mutex::default(),
            pages: Mutex::default(),
            published,
            closed: CancellationToken::new(),
        });
        let waker = Arc::downgrade(&streams);
        streams.registry.on_job_end(move |run| {
            if let Some(streams) = waker.upgrade() {
                // Streams of the run's owner do not end with it.
                streams.topics.lock().wake(&Ok(run));
            }
        });
        streams
    }

    pub fn limits(&self) -> StreamLimits {
        self.limits
    }

    pub fn open(&self) -> usize {
        self.topics.lock().open.all()
    }

    /// Ends every stream after its currently readable events; later ones end likewise.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// Wakes streams when events become readable, until [`EventStreams::close`].
    pub async fn run(self: Arc<EventStreams>) {
        let timeline = self.registry.timeline().clone();
        let mut next = timeline.head().0 + 1;
        while self.closed.run_until_cancelled(self.published.notified()).await.is_some() {
            let head = timeline.head().0;
            while next <= head {
                let count = STEP.min((head - next + 1) as usize);
                let mut runs: Vec<RunId> =
                    timeline.heads(Seq(next), count).iter().map(|head| head.run).collect();
                runs.sort_unstable();
                runs.dedup();
                self.wake(&runs);
                next += count as u64;
            }
        }
    }

    fn wake(&self, runs: &[RunId]) {
        let topics = self.topics.lock();
        if topics.by_scope.is_empty() {
            return;
        }
        for run in runs {
            topics.wake(&Ok(*run));
            if let Some(run) = self.registry.run(*run) {
                // A repeated call has no effect.
                topics.wake(&Err(run.origin().principal.clone()));
            }
        }
    }

    /// Counts a stream of `principal` with `scope`, until the subscription is dropped.
    pub fn subscribe(
        self: &Arc<EventStreams>,
        principal: Principal,
        scope: StreamScope,
    ) -> Result<Subscription, StreamRefusal> {
        let StreamLimits { all, principal: own } = self.limits;
        let mut topics = self.topics.lock();
        let _permit = topics.open.enter(&principal, all, own).map_err(|whose| match whose {
            LimitScope::All => StreamRefusal::All(all),
            LimitScope::Own => StreamRefusal::Principal(own),
        })?;
        let topic = topics.by_scope.entry(scope.whose()).or_default();
        topic.streams += 1;
        let wake = Arc::clone(&topic.wake);
        drop(topics);
        Ok(Subscription { streams: Arc::clone(self), _permit, scope, wake })
    }

    /// Returns the page of `key`, read once for all streams that need it; `None` if the log fails.
    async fn page(&self, key: PageKey, scope: &StreamScope) -> Option<Arc<SsePage>> {
        let cell = {
            let mut pages = self.pages.lock();
            match pages.get(&key).and_then(Weak::upgrade) {
                Some(cell) => cell,
                None => {
                    if pages.len() >= PAGES_KEPT {
                        pages.retain(|_, cell| cell.strong_count() > 0);
                    }
                    let cell = Arc::default();
                    pages.insert(key.clone(), Arc::downgrade(&cell));
                    cell
                }
            }
        };
        let read = || async {
            let (registry, scope) = (Arc::clone(&self.registry), scope.clone());
            let stop = CancellationToken::new();
            // If the reading stream is dropped, the read stops, and another waiting stream reads again.
            let _left = stop.clone().drop_guard();
            let read = move || page::read(&registry, &scope, &key, &stop);
            feed::reading(read).await.ok().map(Arc::new)
        };
        cell.get_or_init(read).await.clone()
    }
}

/// Open stream, counted and woken until dropped.
pub struct Subscription {
    streams: Arc<EventStreams>,
    _permit: OwnerPermit,
    scope: StreamScope,
    wake: Arc<Notify>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let (mut topics, whose) = (self.streams.topics.lock(), self.scope.whose());
        if let Some(topic) = topics.by_scope.get_mut(&whose) {
            topic.streams -= 1;
            if topic.streams == 0 {
                topics.by_scope.remove(&whose);
            }
        }
    }
}

#[cfg(test)]
mod tests;
