//! Files of one kind of one server: the calls that the timeline makes.

use std::{
    fmt, io,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{join_all, ready},
    stream,
};
use media::BlobHash;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use timeline::{Remote, RemoteError};
use tokio::time::Instant;

use crate::{
    ANSWER_TIME, Operation,
    failure::{is_missing, told},
    reader::Reader,
    store::{Store, within},
};

/// Most keys of a request to remove them.
const KEYS_MAX: usize = 1000;

/// A folder of this server in an object store.
pub(crate) struct Folder {
    store: Arc<Store>,
    name: &'static str,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Store { place, writer, .. } = &*self.store;
        write!(f, "Folder({place}, node {}, {})", writer.node, self.name)
    }
}

impl Folder {
    pub fn new(store: Arc<Store>, name: &'static str) -> Folder {
        Folder { store, name }
    }

    fn key(&self, hash: &BlobHash) -> Result<Path, RemoteError> {
        let (node, name, hash) = (&self.store.writer.node, self.name, hash.to_string());
        self.store.key(&format!("{node}/{name}/{}/{hash}", &hash[..2]))
    }

    async fn upload_one(&self, hash: &BlobHash, from: &FilePath) -> Result<(), RemoteError> {
        self.store.put_hashed(&self.key(hash)?, from, hash).await
    }

    async fn remove_some(&self, hashes: &[BlobHash]) -> Result<(), RemoteError> {
        self.store.own(ANSWER_TIME).await?;
        let keys: Vec<_> = hashes.iter().map(|hash| self.key(hash)).collect::<Result<_, _>>()?;
        let removals = self.store.s3.delete_stream(stream::iter(keys).map(Ok).boxed());
        // A key that was not there is an error to some stores.
        let errors = removals.filter_map(|removed| {
            ready(removed.err().filter(|error| !error.to_string().contains("NoSuchKey")))
        });
        let first = self.store.in_turn(async { Ok(Box::pin(errors).next().await) }).await;
        first.ok().flatten().map_or(Ok(()), |error| Err(told(&error)))
    }
}

impl Remote for Folder {
    fn upload(
        &self,
        files: &[(BlobHash, PathBuf)],
        limit: Duration,
    ) -> Vec<Result<(), RemoteError>> {
        if files.is_empty() {
            return Vec::new();
        }
        let store = &self.store;
        store.runtime.block_on(async {
            let end = Instant::now() + limit;
            // Once for all of them: a store that is away is told of in the time of one request.
            if let Err(error) = store.own(limit).await {
                return vec![Err(error); files.len()];
            }
            join_all(files.iter().map(|(hash, from)| {
                let left = end.saturating_duration_since(Instant::now());
                let upload = within(left, self.upload_one(hash, from));
                store.observed(Operation::Upload, upload)
            }))
            .await
        })
    }

    /// To the question for a size a store does not say if it is the bucket that is missing: that is
    /// `None` as well, if the prefix was claimed before.
    fn size(&self, hash: &BlobHash) -> Result<Option<u64>, RemoteError> {
        let store = &self.store;
        let call = async {
            store.own(ANSWER_TIME).await?;
            present(store.in_turn(store.s3.head(&self.key(hash)?)).await)
        };
        let size = store.observed(Operation::Size, within(ANSWER_TIME, call));
        Ok(store.runtime.block_on(size)?.map(|meta| meta.size))
    }

    fn open(&self, hash: &BlobHash) -> Result<Option<Box<dyn io::Read + Send>>, RemoteError> {
        let store = &self.store;
        let call = async {
            store.own(ANSWER_TIME).await?;
            present(store.in_turn(store.s3.get(&self.key(hash)?)).await)
        };
        let opened = store.observed(Operation::Open, within(ANSWER_TIME, call));
        let opened = store.runtime.block_on(opened)?;
        Ok(opened.map(|opened| Box::new(Reader::new(opened, store.runtime.clone())) as Box<_>))
    }

    fn remove(&self, hashes: &[BlobHash]) -> Result<(), RemoteError> {
        let store = &self.store;
        hashes.chunks(KEYS_MAX).try_for_each(|some| {
            let call = within(ANSWER_TIME, self.remove_some(some));
            store.runtime.block_on(store.observed(Operation::Remove, call))
        })
    }
}

/// Returns `None` where the object is not there.
fn present<T>(outcome: object_store::Result<T>) -> Result<Option<T>, RemoteError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(told(&error)),
    }
}
