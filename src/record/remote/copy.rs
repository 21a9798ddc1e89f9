//! Copies between another host and a media worker, with one buffer per direction, until either side ends.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixStream, unix::pipe},
    time::{Duration, Instant, timeout_at},
};
use transport::egress::{CheckedStream, DownloadBody, DownloadBudget, EgressError, TimeoutPhase};

use super::{MediaHeard, RemoteError, line::Line};
use crate::runs::job_queue::Lender;

/// Longest silence of an RTSP server.
const IDLE: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 32 << 10;

/// Copies `body` into `pipe`, and notes in `heard` when its bytes arrive; succeeds too when the worker stops
/// reading.
pub(super) async fn copy_to_pipe(
    body: &mut DownloadBody,
    pipe: &mut pipe::Sender,
    line: &Line,
    heard: Option<&MediaHeard>,
) -> Result<(), RemoteError> {
    loop {
        let next = tokio::select! {
            next = line.wait(body.next()) => next?,
            () = closed(pipe) => return Ok(()),
        };
        let Some(bytes) = next else { return Ok(()) };
        line.took(bytes.len());
        if let Some(heard) = heard {
            *heard.lock() = Some(std::time::Instant::now());
        }
        if pipe.write_all(&bytes).await.is_err() {
            return Ok(());
        }
    }
}

/// Resolves when the reader of `pipe` is gone.
async fn closed(pipe: &pipe::Sender) {
    // The next write reports any other error.
    pipe.ready(Interest::ERROR).await.ok();
}

/// Copies both ways until the server ends or the worker stops reading.
pub(super) async fn relay(
    server: CheckedStream,
    worker: UnixStream,
    host: &str,
    budget: &DownloadBudget,
    lender: &Lender,
    heard: &MediaHeard,
) -> Result<(), EgressError> {
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (mut from_worker, mut to_worker) = worker.into_split();
    let up = tokio::io::copy(&mut from_worker, &mut to_server);
    let down = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let until = budget.end().min(Instant::now() + IDLE);
            let read = timeout_at(until, from_server.read(&mut buffer));
            let read = lender.lend_while(read).await.map_err(|_| {
                let idle = EgressError::Timeout { wait: TimeoutPhase::Idle, after: IDLE };
                if until < budget.end() { idle } else { budget.late() }
            })?;
            let len = match read {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) => return Err(broken(host, &error)),
            };
            budget.take(len as u64)?;
            *heard.lock() = Some(std::time::Instant::now());
            if to_worker.write_all(&buffer[..len]).await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::pin!(up, down);
    tokio::select! {
        outcome = &mut down => outcome,
        // The worker has no more to send, or the server does not read: the server's data still counts.
        _ = &mut up => down.await,
    }
}

fn broken(host: &str, error: &io::Error) -> EgressError {
    let host = host.to_owned();
    match error.kind() {
        // Many servers end TLS without a close_notify.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => EgressError::Cut { host },
        _ => EgressError::Connect { host, reason: error.to_string() },
    }
}
