//! Runs blocking work, such as disk access, off the threads that serve sockets.

use tracing::Span;

/// The work panicked, which is a bug of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a disk task panicked")]
pub struct TaskPanicked;

/// Starts `work` at once on a thread for blocking work, in the tracing span of the caller.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, TaskPanicked>> {
    let span = Span::current();
    let task = tokio::task::spawn_blocking(move || span.in_scope(work));
    async { task.await.map_err(|_| TaskPanicked) }
}
