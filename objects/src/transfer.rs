//! Uploads of files: in one request or in parts, and read back when due.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use media::BlobHash;
use object_store::{
    MultipartId, ObjectStoreExt, PutPayload, multipart::MultipartStore, path::Path,
};
use sha2::{Digest, Sha256};
use timeline::{RemoteError, RemoteFault};
use tokio::task::spawn_blocking;

use crate::{
    ANSWER_TIME, PART_BYTES, UPLOADS_PER_CHECK,
    failure::{is_missing, local, told},
    store::{Store, bounded, outcome, turn},
};

/// Maximum concurrent parts of one file.
const PARTS_AT_ONCE: usize = 4;

impl Store {
    /// Uploads the file `from` to `key`.
    pub async fn put(self: &Arc<Store>, key: &Path, from: &FilePath) -> Result<(), RemoteError> {
        let size = of_disk(from, |file| Ok(file.metadata()?.len())).await?;
        if size > PART_BYTES {
            return self.put_in_parts(key, from, size).await;
        }
        self.send(async |bytes| self.s3.put(key, bytes).await.map(|_| ()), from, 0, size).await
    }

    async fn put_in_parts(
        self: &Arc<Store>,
        key: &Path,
        from: &FilePath,
        size: u64,
    ) -> Result<(), RemoteError> {
        let id = outcome(self.in_turn(self.s3.create_multipart(key)).await)?;
        let unfinished = Unfinished { store: Some(Arc::clone(self)), key: key.clone(), id };
        let id = &unfinished.id;
        let part = async |number: u64| {
            // Leaves some requests to small files.
            let _part = turn(&self.parts).await;
            let start = number * PART_BYTES;
            let length = PART_BYTES.min(size - start);
            // The largest file has a few thousand parts at most.
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            let put = async |bytes| self.s3.put_part(key, id, index, bytes).await;
            self.send(put, from, start, length).await
        };
        let parts = stream::iter((0..size.div_ceil(PART_BYTES)).map(part))
            .buffered(PARTS_AT_ONCE)
            .try_collect()
            .await?;
        outcome(self.in_turn(self.s3.complete_multipart(key, id, parts)).await)?;
        unfinished.finish();
        Ok(())
    }

    /// Reads `length` bytes of `from` at `start` once it has a permit, and sends them with `put`.
    async fn send<T>(
        &self,
        put: impl AsyncFnOnce(PutPayload) -> object_store::Result<T>,
        from: &FilePath,
        start: u64,
        length: u64,
    ) -> Result<T, RemoteError> {
        // Acquired before the file is read, so that the limit of requests bounds the memory.
        let _turn = turn(&self.requests).await;
        let read = move |file: &File| {
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, start)?;
            Ok(bytes)
        };
        let bytes = of_disk(from, read).await?;
        outcome(bounded(put(bytes.into())).await)
    }

    /// Uploads the file `from` to `key` if its hash is `hash`; reads the object back if due.
    pub async fn put_hashed(
        self: &Arc<Store>,
        key: &Path,
        from: &FilePath,
        hash: &BlobHash,
    ) -> Result<(), RemoteError> {
        if of_disk(from, digest_of).await? != *hash {
            let name = from.file_name().unwrap_or_default().display();
            return Err(local(&format!("the file {name} is damaged here")));
        }
        self.put(key, from).await?;
        // Until one upload passes the check, each is checked: a store that keeps nothing is reported at once.
        if self.unchecked.fetch_add(1, Ordering::Relaxed) < UPLOADS_PER_CHECK - 1 {
            return Ok(());
        }
        let problem = match self.in_turn(self.digest(key)).await {
            Ok(digest) if digest == *hash => {
                self.unchecked.store(0, Ordering::Relaxed);
                return Ok(());
            }
            Ok(_) => "is another",
            Err(error) if is_missing(&error) => "is not there",
            Err(error) => return Err(told(&error)),
        };
        let detail = format!("{key} was stored and {problem}");
        Err(RemoteError { fault: RemoteFault::NotKept, detail })
    }

    async fn digest(&self, key: &Path) -> object_store::Result<BlobHash> {
        let mut stream = self.s3.get(key).await?.into_stream();
        let mut digest = Sha256::new();
        while let Some(piece) = stream.try_next().await? {
            digest.update(&piece);
        }
        Ok(BlobHash::from_bytes(digest.finalize().into()))
    }
}

/// Opens the file at `path` and runs `work` on it, on a blocking thread.
async fn of_disk<T: Send + 'static>(
    path: &FilePath,
    work: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
) -> Result<T, RemoteError> {
    let path = PathBuf::from(path);
    let name = path.file_name().unwrap_or_default().display().to_string();
    let done = spawn_blocking(move || work(&File::open(path)?)).await;
    let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| local(&format!("the file {name} cannot be read here: {error}")))
}

fn digest_of(mut file: &File) -> io::Result<BlobHash> {
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        let read = io::Read::read(&mut file, &mut buffer)?;
        if read == 0 {
            return Ok(BlobHash::from_bytes(digest.finalize().into()));
        }
        digest.update(&buffer[..read]);
    }
}

/// Multipart upload in progress; aborted when dropped, unless finished.
struct Unfinished {
    /// `None` once the upload is finished.
    store: Option<Arc<Store>>,
    key: Path,
    id: MultipartId,
}

impl Unfinished {
    fn finish(mut self) {
        self.store = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(store) = self.store.take() else { return };
        let (key, id) = (self.key.clone(), std::mem::take(&mut self.id));
        // Runs in the background, since the call that began the upload may have timed out. If the
        // abort fails, a lifecycle rule of the bucket removes the parts.
        store.handle.clone().spawn(async move {
            let abort = store.in_turn(store.s3.abort_multipart(&key, &id));
            // The rule removes the parts if this times out.
            tokio::time::timeout(ANSWER_TIME, abort).await.ok();
        });
    }
}
