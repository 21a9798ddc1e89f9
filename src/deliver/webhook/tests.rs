//! Tests of abandoned calls and a failing ledger: memory and disk stay consistent.

use std::{task::Poll, time::Instant};

use media::RequestId;
use redb::{Key, TableDefinition, Value};
use transport::egress::EgressConfig;

use super::*;
use crate::{
    deliver::outbox::DeliveryResult,
    runs::registry::{JobToken, Run, tests, tests::samples},
};

/// Limit of waits, so that a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(30);

struct Setup {
    webhooks: Arc<WebhookService>,
    ledger: MetaStore,
    run: Arc<Run>,
    dir: tempfile::TempDir,
}

fn opened(registry: Arc<RunRegistry>, ledger: MetaStore) -> Arc<WebhookService> {
    let egress = EgressClient::new(&EgressConfig::default()).expect("a way out");
    let second = Duration::from_secs(1);
    let settings = WebhookSettings { attempts: 3, retry: second, timeout: second };
    WebhookService::open(registry, egress, ledger, Arc::default(), settings).expect("opens")
}

async fn setup() -> Setup {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    std::fs::create_dir(&log).expect("made");
    let registry = samples::registry(&log, 10);
    let run = registry
        .create(samples::origin("alice"), None, RequestId::from_bytes([1; 8]))
        .await
        .expect("created");
    let ledger = MetaStore::open(&dir.path().join("ledger")).expect("opens");
    Setup { webhooks: opened(registry, ledger.clone()), ledger, run, dir }
}

pub(super) fn webhook(run: RunId) -> Webhook {
    Webhook {
        id: WebhookId::from_bytes([2; 16]),
        run: Some(run),
        owner: Principal::named("alice"),
        url: RequestUrl::parse("https://example.com/hook").expect("a URL"),
        kinds: None,
        description: None,
        secret: SigningSecret::generate(),
        created_at: WallTime { epoch_ms: 0 },
    }
}

impl Setup {
    /// Returns true if Alice finds the webhook `id` of her run.
    fn has(&self, id: WebhookId) -> bool {
        let found = self.webhooks.find(&Principal::named("alice"), Some(self.run.id()), id);
        found.is_some()
    }

    /// Returns true for memory and for disk if the webhook is there.
    fn is_there(&self) -> (bool, bool) {
        let id = WebhookId::from_bytes([2; 16]);
        let kept = WebhookStore(self.ledger.clone()).load().expect("readable");
        let is_kept = kept.iter().any(|live| live.webhook.id == id);
        (self.has(id), is_kept)
    }

    /// Puts a table of another type in the place of a table, so that every use of that one fails.
    fn spoil<K: Key + 'static, V: Value + 'static>(&self, name: &str) {
        let spoilt = self.ledger.write(|change| {
            change.delete_table(TableDefinition::<K, V>::new(name))?;
            change.open_table(TableDefinition::<&str, u64>::new(name))?.insert("a", 1)?;
            Ok(())
        });
        spoilt.expect("written");
    }

    async fn wait_for(&self, expected: (bool, bool)) {
        let started = Instant::now();
        while self.is_there() != expected {
            let found = self.is_there();
            assert!(started.elapsed() < PATIENCE, "{found:?}, expected {expected:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn of_webhooks_that_are_done_the_newest_stay() {
    let table = WebhookTable::default();
    let alice = Principal::named("alice");
    let id = |at: u8| WebhookId::from_bytes([at; 16]);
    // Five webhooks are finished, one is disabled while its run goes on, and one is another owner's.
    for at in 0..7 {
        let owner = if at == 6 { "bob" } else { "alice" };
        let webhook = Webhook {
            id: id(at),
            owner: Principal::named(owner),
            created_at: WallTime { epoch_ms: 100 - i64::from(at) },
            ..webhook(RunId::from_bytes([at; 16]))
        };
        let (is_finished, is_disabled) = (at != 5, at == 5);
        table.insert(WebhookState {
            is_finished,
            is_disabled,
            ..WebhookState::new(webhook, Seq(1))
        });
    }
    let goes = |has_ended: bool, kept| table.done(&alice, |_| has_ended, kept);
    assert_eq!(goes(false, 5), []);
    assert_eq!(goes(false, 2), [id(4), id(3), id(2)], "the oldest first");
    assert_eq!(goes(true, 4), [id(5), id(4)]);
}

#[tokio::test]
async fn whoever_gives_up_leaves_a_webhook_whole_or_not_at_all() {
    let setup = setup().await;
    let webhooks = &setup.webhooks;
    give_up(webhooks.create(webhook(setup.run.id()))).await;
    setup.wait_for((true, true)).await;
    give_up(webhooks.remove(WebhookId::from_bytes([2; 16]))).await;
    setup.wait_for((false, false)).await;
}

/// Polls once and drops, as when a client disconnects.
async fn give_up<T>(asked: impl Future<Output = T>) {
    let mut asked = std::pin::pin!(asked);
    let polled = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
    assert!(polled.await.is_pending(), "answered at once");
}

#[tokio::test]
async fn what_the_ledger_refuses_did_not_happen_and_letters_are_looked_for_again() {
    let setup = setup().await;
    let (webhooks, id) = (&setup.webhooks, WebhookId::from_bytes([2; 16]));
    webhooks.create(webhook(setup.run.id())).await.expect("made");
    webhooks.redeliver(id).await.expect("queued");
    setup.spoil::<([u8; 16], u64), &[u8]>("webhook_dead_letters");
    let result = Arc::clone(webhooks).turn(id).await;
    assert!(matches!(result, DeliveryResult::Failed { .. }), "{result:?}");
    assert!(webhooks.table.get(id).expect("there").has_queued);
    setup.spoil::<[u8; 16], &[u8]>("webhooks");
    let refused = webhooks.remove(id).await;
    assert!(matches!(refused, Err(WebhookError::Ledger(_))), "{refused:?}");
    assert!(setup.has(id), "still there");
    let other = Webhook { id: WebhookId::from_bytes([3; 16]), ..webhook(setup.run.id()) };
    let refused = webhooks.create(other).await;
    assert!(matches!(refused, Err(WebhookError::Ledger(_))), "{refused:?}");
    assert!(!setup.has(WebhookId::from_bytes([3; 16])));
}

#[tokio::test]
async fn a_webhook_of_a_run_whose_owner_cannot_be_read_stays() {
    let setup = setup().await;
    let id = WebhookId::from_bytes([2; 16]);
    setup.webhooks.create(webhook(setup.run.id())).await.expect("made");
    samples::damage(&setup.dir.path().join("log"), "alice");
    let registry = tests::rebuilt(setup.webhooks.timeline().clone(), PATIENCE);
    let again = opened(registry, setup.ledger.clone());
    let result = again.turn(id).await;
    assert!(matches!(result, DeliveryResult::Ended), "{result:?}");
    assert!(setup.is_there().1, "for when the event is back");
}

#[tokio::test]
async fn a_webhook_is_not_finished_before_the_job_of_its_stopped_run() {
    let setup = setup().await;
    let (webhooks, run) = (&setup.webhooks, &setup.run);
    let (stop, id) = (CancellationToken::new(), WebhookId::from_bytes([2; 16]));
    let delivering = webhooks.start(stop.clone());
    // No event has this kind: the test only observes that events are read.
    let kinds = Some(vec![EventKind::Vlm]);
    webhooks.create(Webhook { kinds, ..webhook(run.id()) }).await.expect("made");
    let wait_for = async |what: &str, is_there: fn(&WebhookState, Seq) -> bool| {
        let (started, head) = (Instant::now(), webhooks.timeline().head());
        while !is_there(&webhooks.table.get(id).expect("there"), head) {
            assert!(started.elapsed() < PATIENCE, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        webhooks.table.get(id).expect("there").status()
    };
    let job = run.begin_job(JobToken::default()).expect("free");
    webhooks.registry.stop(run, RequestId::from_bytes([1; 8])).await.expect("active");
    let status = wait_for("looks at the stop", |live, head| live.next > head).await;
    assert_eq!(status, Status::Active, "its job may have something to tell");
    drop(job);
    let status = wait_for("is finished", |live, _| live.is_finished).await;
    assert_eq!(status, Status::Finished);
    stop.cancel();
    delivering.await.expect("no panic");
}

#[tokio::test]
async fn a_redelivery_and_the_end_of_a_turn_leave_disk_and_memory_the_same() {
    let setup = setup().await;
    let (webhooks, id) = (&setup.webhooks, WebhookId::from_bytes([2; 16]));
    webhooks.create(webhook(setup.run.id())).await.expect("made");
    for round in 0..40 {
        let disabled = async {
            // Lets each of the two come first in some rounds.
            for _ in 0..round % 4 {
                tokio::task::yield_now().await;
            }
            webhooks.keep(id, |live| live.is_disabled = true).await
        };
        let (queued, kept) = tokio::join!(webhooks.redeliver(id), disabled);
        (queued.map(drop).and(kept)).expect("written");
        let kept = WebhookStore(setup.ledger.clone()).load().expect("readable");
        let shown = webhooks.table.get(id).expect("there");
        assert_eq!(kept[0].is_disabled, shown.is_disabled, "round {round}");
    }
}
