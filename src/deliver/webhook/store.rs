//! Webhooks in the ledger: their settings, their progress, and their dead letters.

use media::{RunId, Seq, WallTime, WebhookId};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use timeline::EventKind;
use transport::egress::RequestUrl;

use super::{DEAD_LETTERS_MAX, SigningSecret, Webhook, WebhookState};
use crate::{
    base::{
        keys::Principal,
        meta_store::{MetaStore, MetaStoreError},
    },
    deliver::outbox::{Cursors, forget, move_to},
};

/// Webhook id to [`Record`] as JSON.
const WEBHOOKS: TableDefinition<'_, [u8; 16], &[u8]> = TableDefinition::new("webhooks");
/// Webhook id and event number to [`DeadLetter`] as JSON.
const DEAD_LETTERS: TableDefinition<'_, ([u8; 16], u64), &[u8]> =
    TableDefinition::new("webhook_dead_letters");

/// Event that was given up after the maximum attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    #[serde(skip)]
    pub seq: Seq,
    pub kind: EventKind,
    pub attempts: u32,
    /// Error of the last attempt.
    pub error: String,
    /// True if the letter is to be sent again.
    #[serde(default)]
    pub queued: bool,
}

#[derive(Serialize, Deserialize)]
struct Record {
    /// `None` for a webhook of every run of the owner.
    run: Option<String>,
    owner: String,
    url: String,
    kinds: Option<Vec<EventKind>>,
    description: Option<String>,
    secret: String,
    created_at_ms: i64,
    disabled: bool,
    dropped: u64,
    #[serde(default)]
    attempts: u32,
    #[serde(default)]
    last_error: Option<(u64, String)>,
}

/// Error of a record that this server did not write.
fn foreign() -> redb::Error {
    redb::Error::Corrupted("a webhook's record is not one of ours".to_owned())
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("JSON with string keys is writable")
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, redb::Error> {
    serde_json::from_slice(bytes).map_err(|_| foreign())
}

impl Record {
    fn of(live: &WebhookState) -> Record {
        let webhook = &live.webhook;
        Record {
            run: webhook.run.map(|run| run.to_string()),
            owner: webhook.owner.as_str().to_owned(),
            url: webhook.url.url().to_string(),
            kinds: webhook.kinds.clone(),
            description: webhook.description.clone(),
            secret: webhook.secret.reveal(),
            created_at_ms: webhook.created_at.epoch_ms,
            disabled: live.is_disabled,
            dropped: live.dropped,
            attempts: live.attempts,
            last_error: live.last_error.as_ref().map(|(seq, text)| (seq.0, text.clone())),
        }
    }

    /// Returns the webhook `id`, with its state but for the cursor.
    fn live(self, id: [u8; 16]) -> Option<WebhookState> {
        let webhook = Webhook {
            id: WebhookId::from_bytes(id),
            run: self.run.map(|run| run.parse::<RunId>()).transpose().ok()?,
            owner: Principal::named(&self.owner),
            url: RequestUrl::parse(&self.url).ok()?,
            kinds: self.kinds,
            description: self.description,
            secret: SigningSecret::parse(&self.secret).ok()?,
            created_at: WallTime { epoch_ms: self.created_at_ms },
        };
        Some(WebhookState {
            is_disabled: self.disabled,
            dropped: self.dropped,
            attempts: self.attempts,
            last_error: self.last_error.map(|(seq, text)| (Seq(seq), text)),
            // The first turn finds out if letters are queued.
            has_queued: true,
            ..WebhookState::new(webhook, Seq(1))
        })
    }
}

/// Tables of webhooks in the ledger; every call blocks on the disk.
pub struct WebhookStore(pub MetaStore);

impl WebhookStore {
    pub fn load(&self) -> Result<Vec<WebhookState>, MetaStoreError> {
        let found = self.0.read(WEBHOOKS, |table| {
            let mut found = Vec::new();
            for row in table.iter()? {
                let (id, record) = row?;
                let record: Record = decode(record.value())?;
                found.push(record.live(id.value()).ok_or_else(foreign)?);
            }
            Ok(found)
        })?;
        let cursors = Cursors(self.0.clone());
        let place = |mut live: WebhookState| {
            live.next = cursors.of(&live.webhook.id.to_string())?.unwrap_or(live.next);
            Ok(live)
        };
        found.into_iter().map(place).collect()
    }

    pub fn create(&self, live: &WebhookState) -> Result<(), MetaStoreError> {
        self.0.write(|change| put(change, live))
    }

    /// Stores the state of a webhook, unless it was removed meanwhile.
    pub fn keep(&self, live: &WebhookState) -> Result<(), MetaStoreError> {
        self.0.write(|change| {
            let is_there = exists(change, live.webhook.id)?;
            if is_there { put(change, live) } else { Ok(()) }
        })
    }

    /// Stores a dead letter and the state of its webhook. Removes the oldest letters over the
    /// limit; returns their number.
    pub fn add_dead_letter(
        &self,
        mut live: WebhookState,
        letter: &DeadLetter,
    ) -> Result<u64, MetaStoreError> {
        let id = *live.webhook.id.as_bytes();
        self.0.write(|change| {
            if !exists(change, live.webhook.id)? {
                return Ok(0);
            }
            let mut table = change.open_table(DEAD_LETTERS)?;
            table.insert((id, letter.seq.0), encode(letter).as_slice())?;
            let seqs = table.range((id, 0)..=(id, u64::MAX))?;
            let seqs =
                seqs.map(|row| Ok(row?.0.value().1)).collect::<Result<Vec<_>, redb::Error>>()?;
            let excess = seqs.len().saturating_sub(DEAD_LETTERS_MAX);
            for seq in &seqs[..excess] {
                table.remove((id, *seq))?;
            }
            live.dropped += excess as u64;
            drop(table);
            put(change, &live)?;
            Ok(excess as u64)
        })
    }

    /// Dead letters of a webhook, oldest first.
    pub fn dead_letters(&self, id: WebhookId) -> Result<Vec<DeadLetter>, MetaStoreError> {
        self.0.read(DEAD_LETTERS, |table| letters_in(table, *id.as_bytes()))
    }

    pub fn with_letters(
        &self,
        webhooks: Vec<WebhookState>,
    ) -> Result<Vec<(WebhookState, usize)>, MetaStoreError> {
        let counted = |live: WebhookState| {
            let count = self.dead_letters(live.webhook.id)?.len();
            Ok((live, count))
        };
        webhooks.into_iter().map(counted).collect()
    }

    /// Queues every dead letter of a webhook, and enables the webhook; returns the number of
    /// letters.
    pub fn queue(&self, id: WebhookId) -> Result<usize, MetaStoreError> {
        self.0.write(|change| {
            let mut table = change.open_table(WEBHOOKS)?;
            let record = table.get(*id.as_bytes())?.map(|record| decode(record.value()));
            let Some(record) = record.transpose()? else { return Ok(0) };
            let enabled = encode(&Record { disabled: false, ..record });
            table.insert(*id.as_bytes(), enabled.as_slice())?;
            set_queued(change, id, true)
        })
    }

    /// Returns the oldest queued dead letter.
    pub fn first_queued(&self, id: WebhookId) -> Result<Option<DeadLetter>, MetaStoreError> {
        Ok(self.dead_letters(id)?.into_iter().find(|letter| letter.queued))
    }

    /// Removes a dead letter that was delivered, or whose event is gone.
    pub fn take_dead_letter(&self, id: WebhookId, seq: Seq) -> Result<(), MetaStoreError> {
        self.0.write(|change| {
            change.open_table(DEAD_LETTERS)?.remove((*id.as_bytes(), seq.0))?;
            Ok(())
        })
    }

    /// Stores the failed result of a queued dead letter, and takes all others out of the queue.
    pub fn return_dead_letter(
        &self,
        id: WebhookId,
        letter: DeadLetter,
    ) -> Result<(), MetaStoreError> {
        let letter = DeadLetter { queued: false, ..letter };
        self.0.write(|change| {
            set_queued(change, id, false)?;
            let mut table = change.open_table(DEAD_LETTERS)?;
            let key = (*id.as_bytes(), letter.seq.0);
            // The letter may be removed meanwhile, with its webhook or over the limit.
            if table.get(key)?.is_some() {
                table.insert(key, encode(&letter).as_slice())?;
            }
            Ok(())
        })
    }

    /// Removes a webhook with its dead letters and its cursor.
    pub fn remove(&self, id: WebhookId) -> Result<(), MetaStoreError> {
        let key = *id.as_bytes();
        self.0.write(|change| {
            change.open_table(WEBHOOKS)?.remove(key)?;
            change.open_table(DEAD_LETTERS)?.retain_in((key, 0)..=(key, u64::MAX), |_, _| false)?;
            forget(change, &id.to_string())
        })
    }
}

fn exists(change: &WriteTransaction, id: WebhookId) -> Result<bool, redb::Error> {
    Ok(change.open_table(WEBHOOKS)?.get(*id.as_bytes())?.is_some())
}

fn put(change: &WriteTransaction, live: &WebhookState) -> Result<(), redb::Error> {
    let id = live.webhook.id;
    let record = encode(&Record::of(live));
    change.open_table(WEBHOOKS)?.insert(*id.as_bytes(), record.as_slice())?;
    move_to(change, &id.to_string(), live.next)
}

/// Sets the `queued` flag of every dead letter of a webhook; returns their number.
fn set_queued(
    change: &WriteTransaction,
    id: WebhookId,
    queued: bool,
) -> Result<usize, redb::Error> {
    let id = *id.as_bytes();
    let mut table = change.open_table(DEAD_LETTERS)?;
    let mut found = letters_in(&table, id)?;
    for letter in &mut found {
        letter.queued = queued;
        table.insert((id, letter.seq.0), encode(letter).as_slice())?;
    }
    Ok(found.len())
}

fn letters_in(
    table: &impl ReadableTable<([u8; 16], u64), &'static [u8]>,
    id: [u8; 16],
) -> Result<Vec<DeadLetter>, redb::Error> {
    let rows = table.range((id, 0)..=(id, u64::MAX))?;
    rows.map(|row| {
        let (place, letter) = row?;
        Ok(DeadLetter { seq: Seq(place.value().1), ..decode(letter.value())? })
    })
    .collect()
}
