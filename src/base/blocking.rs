//! Work that waits for the disk, away from the threads that serve sockets.

use tracing::Span;

/// The work ended in a panic: our bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a disk task panicked")]
pub struct TaskPanicked;

/// Begins `work` at once, on a thread that may wait and in the caller's span.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, TaskPanicked>> {
    let span = Span::current();
    let task = tokio::task::spawn_blocking(move || span.in_scope(work));
    async { task.await.map_err(|_| TaskPanicked) }
}
