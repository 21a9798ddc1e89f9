//! Settings that handlers read: limits, and facts that they report.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf};

use gate::GateConfig;

use super::cors::CorsOrigins;
use crate::{
    base::{keys::ApiKeys, quota::QuotaLimits},
    deliver::webhook,
    record::{image_embedder::NoveltyConfig, inference::InferenceConfig, live::LiveConfig},
    runs::source::remote::RemoteConfig,
};

/// Settings that handlers read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of HTTP/1.1 and HTTP/2.
    pub bind_addr: SocketAddr,
    /// True if `bind_addr` is served with TLS.
    pub tls: bool,
    /// Address of HTTP/3; `None` if it is not served.
    pub h3: Option<SocketAddr>,
    /// Accepted keys; `None` turns keys off, so that all callers are one principal.
    pub keys: Option<ApiKeys>,
    /// Keys accepted for the metrics; `None` shows the metrics without a key.
    pub metrics_keys: Option<ApiKeys>,
    pub require_tenant_id: bool,
    pub gate: GateConfig,
    /// Free disk space, in bytes, below which no new work is accepted.
    pub disk_reserve: u64,
    pub quotas: QuotaLimits,
    pub webhooks: webhook::WebhookSettings,
    pub upload_bytes_max: u64,
    /// External programs that were looked for at the start.
    pub tools: [Tool; 2],
    /// Origins whose pages may read answers.
    pub cors_origins: CorsOrigins,
    /// True if the console is served at `/`.
    pub console: bool,
    /// Maximum number of open connections per address; `None` means no limit.
    pub connections_per_address: Option<NonZeroU32>,
    /// Requests per second of all callers together; `None` means no limit.
    pub rate_global: Option<NonZeroU32>,
    /// Requests per second of each principal; `None` means no limit.
    pub rate_principal: Option<NonZeroU32>,
    pub remote: RemoteConfig,
    pub inference: InferenceConfig,
    pub live: LiveConfig,
    pub novelty: NoveltyConfig,
}

/// External program that some work needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    pub name: &'static str,
    pub variable: &'static str,
    /// Directories, or the path, that were searched.
    pub searched: String,
    /// Path of the program; `None` if it was not found.
    pub path: Option<PathBuf>,
}
