//! Settings that handlers look at: what they allow, and what they say of the server.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf};

use gate::GateConfig;

use super::cors::CorsOrigins;
use crate::{
    base::{keys::ApiKeys, quota::QuotaLimits},
    deliver::webhook,
    record::{image_embedder::NoveltyConfig, inference::InferenceConfig, live::LiveConfig},
    runs::source::remote::RemoteConfig,
};

/// Settings that handlers look at.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address at which HTTP/1.1 and HTTP/2 are served.
    pub bind_addr: SocketAddr,
    /// That address is served with TLS.
    pub tls: bool,
    /// Address of HTTP/3, where it is served.
    pub h3: Option<SocketAddr>,
    /// Accepted keys; `None` lets every caller act as one principal.
    pub keys: Option<ApiKeys>,
    /// Keys accepted for the metrics; `None` shows them to every caller.
    pub metrics_keys: Option<ApiKeys>,
    /// Requests must say a tenant.
    pub require_tenant_id: bool,
    /// Thresholds of the gate.
    pub gate: GateConfig,
    /// Free bytes on disk below which no new work is taken.
    pub disk_reserve: u64,
    /// Most bytes kept on disk.
    pub quotas: QuotaLimits,
    /// Attempts and timeout of webhook deliveries.
    pub webhooks: webhook::WebhookSettings,
    /// Most bytes of an uploaded file.
    pub upload_bytes_max: u64,
    /// Programs looked for at start.
    pub tools: [Tool; 2],
    /// Browser origins.
    pub cors_origins: CorsOrigins,
    /// The console is served at `/`.
    pub console: bool,
    /// Most open connections of one address.
    pub connections_per_address: Option<NonZeroU32>,
    /// Requests a second, all together.
    pub rate_global: Option<NonZeroU32>,
    /// Requests a second of one principal.
    pub rate_principal: Option<NonZeroU32>,
    /// Remote sources that are ingested.
    pub remote: RemoteConfig,
    /// The model backends and admission to them.
    pub inference: InferenceConfig,
    /// Live sessions.
    pub live: LiveConfig,
    /// Rules that tell whether a live picture shows anything new.
    pub novelty: NoveltyConfig,
}

/// A program that some work needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Name of the program.
    pub name: &'static str,
    /// The variable that says where it is.
    pub variable: &'static str,
    /// Places in which it was looked for.
    pub searched: String,
    /// Path of the program; `None` when it is missing.
    pub path: Option<PathBuf>,
}
