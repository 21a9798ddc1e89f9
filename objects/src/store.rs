//! Client of an object store, shared by its folders, and the limits of its requests.

use std::{
    fmt,
    future::Future,
    path::Path as FilePath,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, Instant},
};

use object_store::{
    BackoffConfig, ObjectStore, RetryConfig,
    aws::{AmazonS3, Checksum},
    path::Path,
};
use timeline::{Remote, RemoteError, RemoteFault};
use tokio::{
    runtime::{Handle, Runtime},
    sync::{Mutex, Semaphore, SemaphorePermit},
};

use crate::{
    ANSWER_TIME, Credentials, Observe, Operation, Place, REQUEST_TIME, REQUESTS_MAX, SetupError,
    UPLOADS_PER_CHECK, Writer,
    failure::{Failure, failed, told},
    folder::Folder,
    wire::Wire,
};

const RETRIES: usize = 2;

/// Object store; clones share the client.
#[derive(Clone)]
pub struct Objects(Arc<Store>);

impl Objects {
    /// Creates the client of `place` for `writer`, without sending anything: the store may be unavailable.
    ///
    /// Calls `observe` after each call. Calls of `Remote` run on a separate thread.
    pub fn open(
        place: Place,
        writer: Writer,
        credentials: Credentials,
        tls: rustls::ClientConfig,
        observe: Observe,
    ) -> Result<Objects, SetupError> {
        writer.check()?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(1).thread_name("object-store").enable_all();
        let runtime = runtime.build().map_err(SetupError::Thread)?;
        let builder = credentials.builder();
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        };
        let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: ANSWER_TIME };
        let mut builder = builder
            .with_bucket_name(&place.bucket)
            .with_checksum_algorithm(Checksum::SHA256)
            .with_retry(retry)
            .with_http_connector(Wire::new(tls)?);
        builder = match &place.endpoint {
            Some(endpoint) => builder.with_endpoint(endpoint.as_str()),
            // The wildcard certificate covers one label before the address, and a bucket with a dot has more.
            None => builder.with_virtual_hosted_style_request(!place.bucket.contains('.')),
        };
        let s3 = builder.build().map_err(SetupError::Store)?;
        Ok(Objects(Arc::new(Store {
            place,
            writer,
            s3,
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            observe,
            requests: Semaphore::new(REQUESTS_MAX),
            parts: Semaphore::new(REQUESTS_MAX / 2),
            is_ours: AtomicBool::new(false),
            claiming: Mutex::new(()),
            unchecked: AtomicU64::new(UPLOADS_PER_CHECK - 1),
        })))
    }

    /// Returns this server's files in the folder `name`.
    pub fn folder(&self, name: &'static str) -> Arc<dyn Remote> {
        Arc::new(Folder::new(Arc::clone(&self.0), name))
    }

    /// Uploads the file `from` to `key` below the prefix, replacing an existing object.
    ///
    /// Takes at most `limit`. Must run on a runtime; does not claim the prefix.
    pub async fn put_file(
        &self,
        key: &str,
        from: &FilePath,
        limit: Duration,
    ) -> Result<(), RemoteError> {
        let store = &self.0;
        let key = store.key(key)?;
        store.observed(Operation::Upload, within(limit, store.put(&key, from))).await
    }

    /// Place in the object store.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Writes `owner` to `key` below the prefix unless it exists; returns the content of `key`
    /// after that.
    pub async fn claim(&self, key: &str, owner: &str) -> Result<String, RemoteError> {
        let store = &self.0;
        let key = store.key(key)?;
        store.observed(Operation::Claim, within(ANSWER_TIME, store.hold(&key, owner))).await
    }

    /// Lists the names directly below `folder`, itself below the prefix; none if it does not exist.
    pub async fn names(&self, folder: &str) -> Result<Vec<String>, RemoteError> {
        let store = &self.0;
        let folder = store.key(folder)?;
        let list = async {
            let found = store.in_turn(store.s3.list_with_delimiter(Some(&folder))).await;
            outcome(found).map(|found| {
                let objects = found.objects.iter().map(|object| &object.location);
                let keys = found.common_prefixes.iter().chain(objects);
                keys.filter_map(|key| key.filename().map(str::to_owned)).collect()
            })
        };
        store.observed(Operation::Claim, within(ANSWER_TIME, list)).await
    }
}

/// Formats this server's files as `s3://bucket/prefix node tag`.
impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node {}", self.0.place, self.0.writer.node)
    }
}

/// Shows the place only; the client holds the secret key.
impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("place", &self.0.place).finish_non_exhaustive()
    }
}

/// State of the client.
pub(crate) struct Store {
    pub place: Place,
    pub writer: Writer,
    pub s3: AmazonS3,
    /// Own runtime, as calls may outlive the server's; `None` once dropped.
    pub runtime: Option<Runtime>,
    pub handle: Handle,
    pub observe: Observe,
    /// Permits of requests; each holds at most one part of a file in memory.
    pub requests: Semaphore,
    /// Additional permits of the parts of large files.
    pub parts: Semaphore,
    /// True once the prefix was found to belong to this server.
    pub is_ours: AtomicBool,
    /// Held while the prefix is claimed.
    pub claiming: Mutex<()>,
    /// Number of uploads since a file was last read back.
    pub unchecked: AtomicU64,
}

impl Store {
    /// Returns the full key of `name` below the prefix.
    pub fn key(&self, name: &str) -> Result<Path, RemoteError> {
        let key = self.place.key(name).filter(|_| !name.is_empty());
        key.ok_or_else(|| failed("not a key: a part of it is empty, \".\" or \"..\""))
    }

    /// Runs `request` with a permit.
    pub async fn in_turn<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let _turn = turn(&self.requests).await;
        bounded(request).await
    }

    /// Blocks this thread on `work`; must not be a thread of a runtime.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.handle.block_on(work)
    }

    /// Runs `call` and reports it to the observer.
    pub async fn observed<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        let started = Instant::now();
        let outcome = call.await;
        let told = outcome.as_ref().map(|_| ()).map_err(|error| error.fault);
        (self.observe)(operation, told, started.elapsed());
        outcome
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The drop may happen on a thread of a runtime, which must not block.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

pub(crate) async fn turn(turns: &Semaphore) -> SemaphorePermit<'_> {
    turns.acquire().await.expect("no code closes them")
}

/// Runs `request` with the timeout of one request.
pub(crate) async fn bounded<T>(
    request: impl Future<Output = object_store::Result<T>>,
) -> object_store::Result<T> {
    let ended = tokio::time::timeout(REQUEST_TIME, request).await;
    ended.unwrap_or_else(|_| {
        let detail = format!("no end of a request within {} s", REQUEST_TIME.as_secs());
        let source = Box::new(Failure::lost(RemoteFault::Slow, detail));
        Err(object_store::Error::Generic { store: "S3", source })
    })
}

/// Runs `call` with the timeout `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    let ended = tokio::time::timeout(limit, call).await;
    ended.unwrap_or_else(|_| {
        let detail = format!("not done within {:.1} s", limit.as_secs_f64());
        Err(RemoteError { fault: RemoteFault::Slow, detail })
    })
}

/// Converts the result of a request for the server.
pub(crate) fn outcome<T>(outcome: object_store::Result<T>) -> Result<T, RemoteError> {
    outcome.map_err(|error| told(&error))
}
