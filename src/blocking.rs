//! Work that waits for the disk, away from the threads that serve sockets.

use tracing::Span;

/// The work ended in a panic: our bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work that waits for the disk died")]
pub struct Died;

/// Runs `work` on a thread that may wait, in the caller's span.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Died> {
    let span = Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await.map_err(|_| Died)
}
