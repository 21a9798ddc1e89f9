//! Claim of a prefix: an object that names the server whose files are there.
//!
//! The first to write it holds the prefix. It is read before and after, since there are stores that
//! do not know a condition of a PUT, and such that take no notice of one.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, path::Path};
use timeline::{RemoteError, RemoteFault};

use crate::{
    ANSWER_TIME, Operation,
    failure::{is_missing, is_unknown, shown, told},
    store::{Store, within},
};

/// Longest name of an owner.
pub(crate) const OWNER_BYTES_MAX: usize = 256;

impl Store {
    /// Claims the prefix of this server within `limit`, unless it was seen to be held; another owner is an error.
    pub async fn own(&self, limit: Duration) -> Result<(), RemoteError> {
        if self.is_ours.load(Ordering::Acquire) {
            return Ok(());
        }
        self.observed(Operation::Claim, within(limit, self.claim_once())).await
    }

    /// Looks again if the prefix is of this server.
    pub async fn own_anew(&self) -> Result<(), RemoteError> {
        self.is_ours.store(false, Ordering::Release);
        self.own(ANSWER_TIME).await
    }

    async fn claim_once(&self) -> Result<(), RemoteError> {
        let _claiming = self.claiming.lock().await;
        if self.is_ours.load(Ordering::Acquire) {
            return Ok(());
        }
        let key = self.key(&format!("{}/owner", self.writer.node))?;
        let holder = self.hold(&key, &self.writer.owner).await?;
        if holder != self.writer.owner {
            return Err(foreign(&key, &holder));
        }
        self.is_ours.store(true, Ordering::Release);
        Ok(())
    }

    /// Writes `owner` under `key` unless something is there; returns what is there then.
    pub async fn hold(&self, key: &Path, owner: &str) -> Result<String, RemoteError> {
        if let Some(holder) = self.text(key).await? {
            return Ok(holder);
        }
        let written = self.create(key, owner).await;
        if let Some(holder) = self.text(key).await? {
            return Ok(holder);
        }
        written.map_err(|error| told(&error))?;
        let detail = format!("{key} was written and is not there");
        Err(RemoteError { fault: RemoteFault::NotKept, detail })
    }

    async fn create(&self, key: &Path, owner: &str) -> object_store::Result<()> {
        let payload = || PutPayload::from(owner.to_owned());
        let put = self.s3.put_opts(key, payload(), PutMode::Create.into());
        match self.in_turn(put).await {
            Err(error) if is_unknown(&error) => {
                self.in_turn(self.s3.put(key, payload())).await.map(|_| ())
            }
            created => created.map(|_| ()),
        }
    }

    /// Returns the start of the object of `key` as text; `None` where there is none.
    async fn text(&self, key: &Path) -> Result<Option<String>, RemoteError> {
        let read = async {
            let mut stream = self.s3.get(key).await?.into_stream();
            let mut content = Vec::new();
            while let Some(piece) = stream.next().await {
                content.extend_from_slice(&piece?);
                if content.len() > OWNER_BYTES_MAX {
                    break;
                }
            }
            Ok(content)
        };
        match self.in_turn(read).await {
            Ok(mut content) => {
                content.truncate(OWNER_BYTES_MAX);
                Ok(Some(String::from_utf8_lossy(&content).trim().to_owned()))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(told(&error)),
        }
    }
}

fn foreign(key: &Path, holder: &str) -> RemoteError {
    let holder = shown(holder, &[]);
    let detail = format!(
        "it is of the server {holder:?}: give this one another SERVICE_NODE_TAG, or remove the \
         object {key} if that server is gone for good"
    );
    RemoteError { fault: RemoteFault::Foreign, detail }
}
