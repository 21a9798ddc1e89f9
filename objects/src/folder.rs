//! Files of one kind of one server: the calls of the timeline.

use std::{
    fmt,
    fs::File,
    io::Write,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{join_all, ready},
    stream,
};
use media::BlobHash;
use object_store::{GetResult, ObjectStore, ObjectStoreExt, path::Path};
use timeline::{Remote, RemoteError, RemoteFault, SLOWEST};
use tokio::time::Instant;

use crate::{
    ANSWER_TIME, Operation,
    failure::{local, present, told},
    store::{Store, outcome, within},
};

/// Maximum keys of one removal request.
const KEYS_MAX: usize = 1000;

/// Folder of this server in an object store.
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

    async fn remove_some(&self, hashes: &[BlobHash]) -> Result<(), RemoteError> {
        // Checks the claim again, to remove no file of another server.
        self.store.is_ours.store(false, Ordering::Release);
        self.store.own(ANSWER_TIME).await?;
        let keys: Vec<_> = hashes.iter().map(|hash| self.key(hash)).collect::<Result<_, _>>()?;
        let removals = self.store.s3.delete_stream(stream::iter(keys).map(Ok).boxed());
        // Some stores report a missing key as an error.
        let errors = removals.filter_map(|removed| {
            ready(removed.err().filter(|error| !error.to_string().contains("NoSuchKey")))
        });
        let removed = async { Box::pin(errors).next().await.map_or(Ok(()), Err) };
        outcome(self.store.in_turn(removed).await)
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
        store.block_on(async {
            let end = Instant::now() + limit;
            // Checked once for all files, so that an unavailable store is reported after one request.
            if let Err(error) = store.own(limit).await {
                return vec![Err(error); files.len()];
            }
            join_all(files.iter().map(|(hash, from)| {
                let left = end.saturating_duration_since(Instant::now());
                let upload = async move { store.put_hashed(&self.key(hash)?, from, hash).await };
                store.observed(Operation::Upload, within(left, upload))
            }))
            .await
        })
    }

    /// For a HEAD request a store does not distinguish a missing object from a missing bucket:
    /// both are `None`, if the prefix was claimed before.
    fn sizes(&self, hashes: &[BlobHash]) -> Vec<Result<Option<u64>, RemoteError>> {
        let store = &self.store;
        let size = async |hash: &BlobHash| {
            store.own(ANSWER_TIME).await?;
            let found = present(store.in_turn(store.s3.head(&self.key(hash)?)).await)?;
            Ok(found.map(|meta| meta.size))
        };
        let sizes = hashes
            .iter()
            .map(|hash| store.observed(Operation::Size, within(ANSWER_TIME, size(hash))));
        store.block_on(join_all(sizes))
    }

    fn fetch(&self, hash: &BlobHash, to: &File, size_max: u64) -> Result<bool, RemoteError> {
        let store = &self.store;
        let fetch = async {
            store.own(ANSWER_TIME).await?;
            let key = self.key(hash)?;
            let begun = async { present(store.in_turn(store.s3.get(&key)).await) };
            let Some(found) = within(ANSWER_TIME, begun).await? else { return Ok(false) };
            write(found, to, size_max).await?;
            Ok(true)
        };
        let limit = ANSWER_TIME + Duration::from_secs(size_max / SLOWEST);
        store.block_on(store.observed(Operation::Fetch, within(limit, fetch)))
    }

    fn remove(&self, hashes: &[BlobHash]) -> Result<(), RemoteError> {
        let store = &self.store;
        hashes.chunks(KEYS_MAX).try_for_each(|some| {
            let call = within(ANSWER_TIME, self.remove_some(some));
            store.block_on(store.observed(Operation::Remove, call))
        })
    }
}

/// Writes at most `size_max` bytes of `found` to `to`; fails if the object ends early.
async fn write(found: GetResult, mut to: &File, size_max: u64) -> Result<(), RemoteError> {
    let whole = found.meta.size.min(size_max);
    let (mut pieces, mut left) = (found.into_stream(), whole);
    while left > 0 {
        let next = within(ANSWER_TIME, async { Ok(pieces.next().await) });
        let Some(piece) = next.await? else {
            let detail = format!("it ended {left} bytes before the end of the object");
            return Err(RemoteError { fault: RemoteFault::Unreachable, detail });
        };
        let piece = piece.map_err(|error| told(&error))?;
        let wanted = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        // Blocks only the caller's own thread.
        to.write_all(&piece[..wanted]).map_err(|error| {
            local(&format!("a file that was fetched cannot be written here: {error}"))
        })?;
        left -= wanted as u64;
    }
    Ok(())
}
