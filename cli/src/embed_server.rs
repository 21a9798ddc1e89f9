//! `sightline embed-server`: an embedding sidecar for servers, over TCP.
//!
//! Batches the pictures of all clients. Has no authentication: run it for the same machine or on a private
//! network. SIGTERM and Ctrl-C end it after the requests in flight are answered.

mod connection;
mod picture;

#[cfg(test)]
mod tests;

use std::{future::Future, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use embed::{BatchLimits, DEADLINE, Embedder, ExecutionProvider, OnnxConfig, OnnxModel};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use self::connection::{DisconnectReason, EmbedServerState, UNDER_WAY_MAX};
use crate::{doctor, error::CliError};

/// Time limit for answering the requests in flight at shutdown.
const DRAIN: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which means that the system has no free descriptor.
const ACCEPT_REST: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub struct EmbedServerArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// Image encoder in ONNX form, with its settings in a JSON of the same name; without it a
    /// built-in descriptor
    #[arg(long, value_name = "PATH", env = "SERVICE_NOVELTY_MODEL_PATH")]
    model: Option<PathBuf>,
    /// ONNX Runtime's library, 1.20 or newer; without it the loader looks for libonnxruntime.so
    #[arg(long, value_name = "PATH", env = "SERVICE_ONNXRUNTIME_PATH")]
    onnxruntime: Option<PathBuf>,
    /// Provider that runs the model: cpu, cuda or tensorrt; auto for the first of tensorrt, cuda and cpu that does
    #[arg(long, value_name = "PROVIDER", default_value = "auto", value_parser = doctor::provider)]
    provider: ExecutionProvider,
    /// Inference threads on the CPU; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=256))]
    threads: u16,
    /// Most pictures of a batch
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    batch: u16,
    /// Longest time that a picture waits for others, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(..=1000))]
    batch_wait_ms: u16,
    /// Maximum of concurrent clients; further connections are closed
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
}

pub fn run(args: &EmbedServerArgs) -> Result<(), CliError> {
    let model = OnnxModel::load(&OnnxConfig {
        runtime: args.onnxruntime.clone(),
        model: args.model.clone(),
        provider: args.provider,
        threads: usize::from(args.threads),
    })?;
    let dimensions = model.dimensions();
    let limits = BatchLimits {
        size_max: usize::from(args.batch),
        age_max: Duration::from_millis(u64::from(args.batch_wait_ms)),
        stream_waiting_max: UNDER_WAY_MAX,
        ..BatchLimits::default()
    };
    let failed =
        |error: io::Error| CliError::Check(format!("cannot serve on {}: {error}", args.listen));
    let embedder = Embedder::start(model, limits, DEADLINE).map_err(failed)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shared = Arc::new(EmbedServerState::new(embedder, cores));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(async {
        let listener = TcpListener::bind(args.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = signals().map_err(failed)?;
        let provider = shared.embedder.provider();
        note!("listening on {address}: {dimensions} dimensions on {provider}");
        serve(listener, Arc::clone(&shared), usize::from(args.clients), stop).await
    })
}

/// Returns a future that ends at the first SIGTERM or Ctrl-C.
fn signals() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Serves clients until `stop`, or until the model stops.
async fn serve(
    listener: TcpListener,
    shared: Arc<EmbedServerState>,
    clients_max: usize,
    stop: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let (drain, draining) = watch::channel(false);
    let mut clients = JoinSet::new();
    let (mut number, mut hung_up) = (0, 0_u64);
    let mut stop = std::pin::pin!(stop);
    let mut ended = DisconnectReason::Client;
    while ended == DisconnectReason::Client {
        tokio::select! {
            () = &mut stop => break,
            Some(client) = clients.join_next() => ended = client.unwrap_or(DisconnectReason::Client),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if clients.len() < clients_max => {
                    number += 1;
                    let (shared, draining) = (Arc::clone(&shared), draining.clone());
                    clients.spawn(connection::serve(stream, number, shared, draining));
                }
                Ok(_) => hung_up += 1,
                Err(error) => {
                    note!("sightline: cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            },
        }
    }
    drop(listener);
    drain.send_replace(true);
    let drained = timeout(DRAIN, async { while clients.join_next().await.is_some() {} }).await;
    report(&shared, number, hung_up, clients.len());
    if ended == DisconnectReason::Model {
        return Err(CliError::Check("the embedding model stopped".to_owned()));
    }
    drained.map_err(|_| CliError::Check(format!("{} clients were cut off", clients.len())))
}

/// Prints the counts of the work done to standard error.
fn report(shared: &EmbedServerState, clients: u64, hung_up: u64, cut_off: usize) {
    let counts = shared.embedder.counts();
    let (batches, busy) = (counts.batches, counts.busy);
    let refused = shared.refused.load(std::sync::atomic::Ordering::Relaxed);
    note!(
        "{} pictures in {batches} batches, {refused} refused, model busy for {} ms; {clients} clients, \
         {hung_up} hung up on, {cut_off} cut off",
        counts.embedded,
        busy.as_millis()
    );
}
