//! Claim of a prefix: an object that names the server whose files are below it.
//!
//! The first server to write it holds the prefix. The object is read before and after the write, since some
//! stores do not support a conditional PUT, or ignore the condition.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, path::Path};
use timeline::{RemoteError, RemoteFault};

use crate::{
    Operation,
    failure::{is_unknown, present, shown, told},
    store::{Store, within},
};

pub(crate) const OWNER_BYTES_MAX: usize = 256;

impl Store {
    /// Claims the prefix for this server within `limit`, unless known to be claimed; fails for another owner.
    pub async fn own(&self, limit: Duration) -> Result<(), RemoteError> {
        if self.is_ours.load(Ordering::Acquire) {
            return Ok(());
        }
        self.observed(Operation::Claim, within(limit, self.claim_once())).await
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

    /// Writes `owner` to `key` unless it exists; returns the content of `key` after that.
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
        let put = match self.in_turn(put).await {
            Err(error) if is_unknown(&error) => self.in_turn(self.s3.put(key, payload())).await,
            created => created,
        };
        put.map(drop)
    }

    /// Returns the start of the object at `key` as text; `None` if it does not exist.
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
            content.truncate(OWNER_BYTES_MAX);
            Ok(content)
        };
        let content = present(self.in_turn(read).await)?;
        Ok(content.map(|content| String::from_utf8_lossy(&content).trim().to_owned()))
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
