//! Delivery of logged events to other systems and to clients.

pub(crate) mod export;
pub mod mirror;
pub(crate) mod node;
pub(crate) mod objects;
pub mod outbox;
pub(crate) mod search;
pub(crate) mod sse;
pub(crate) mod webhook;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::{export::Export, mirror::EventMirror, objects::Sender, webhook::WebhookService};
use crate::{base::database::Database, runs::retention::ReaderLag};

/// Services that deliver events to other systems.
pub(crate) struct Deliveries {
    pub database: Option<Database>,
    pub webhooks: Arc<WebhookService>,
    pub mirror: Option<Arc<EventMirror>>,
    pub export: Option<Arc<Export>>,
    /// Upload of stills and columns to the object store.
    pub sender: Arc<Sender>,
}

impl Deliveries {
    /// Starts the tasks of the services; `stop` ends them.
    pub fn start(&self, stop: &CancellationToken) {
        self.webhooks.start(stop.clone());
        tokio::spawn(Arc::clone(&self.sender).run(stop.clone()));
        if let Some(export) = self.export.clone() {
            tokio::spawn(export.run(stop.clone()));
        }
        if let (Some(database), Some(mirror)) = (self.database.clone(), &self.mirror) {
            let stopped = stop.clone();
            tokio::spawn(
                async move { stopped.run_until_cancelled(database.keep_prepared()).await },
            );
            mirror.start(stop.clone());
        }
    }

    /// Returns the readers of the log that retention waits for before it removes an event.
    pub fn readers(&self) -> Vec<ReaderLag> {
        let webhooks = Arc::clone(&self.webhooks);
        let mut readers: Vec<ReaderLag> = vec![Box::new(move || Ok(webhooks.behind()))];
        if let Some(mirror) = self.mirror.clone() {
            readers.push(Box::new(move || mirror.behind()));
        }
        if let Some(export) = self.export.clone() {
            readers.push(Box::new(move || export.behind()));
        }
        readers
    }
}
