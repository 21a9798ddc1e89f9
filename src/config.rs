//! The configuration: the only reader of the environment, resolved once.
//!
//! A bad value stops the start; the errors name every refused variable at once.
//! API keys are kept as digests; the listing shows of a secret only that it is set.

mod collector;
mod decoding;
mod delivery;
mod inference;
mod keys;
mod live;
mod novelty;
mod places;
mod remote;
mod serving;
mod vars;

use std::{
    env, io,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroU64},
    path::{Path, PathBuf},
    time::Duration,
};

use gate::GateConfig;
use http::HeaderValue;
use media::{NodeTag, Score};
use timeline::held::{FileError, read_named};
use transport::egress::EgressConfig;

use crate::{
    api::{CorsOrigins, KEEPALIVE_FRAMES_MAX, Settings, Tool},
    base::{
        database, json::ValueError, keys::ApiKeys, labels::FILE_BYTES_MAX, quota::QuotaLimits,
        telemetry::LogFormat,
    },
    deliver::{export, mirror, objects, sse::StreamLimits},
    runs::retention::RetentionAges,
    server::ServingConfig,
};
use vars::EnvReader;

pub use collector::TraceEndpoint;
pub use vars::{ResolvedVar, VarError};

/// Every setting of the server.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the types and docs/CONFIG.md tell them")]
pub struct Config {
    pub api: Settings,
    pub serving: ServingConfig,
    /// Absolute path of the log, the blobs and the columns.
    pub data_dir: PathBuf,
    pub ingest_roots: Vec<PathBuf>,
    /// Maximum number of active runs of a principal.
    pub active_limit: usize,
    /// Idle time after which a run is ended.
    pub run_ttl: Duration,
    /// Tag that prefixes the ids of this node, if there are several nodes.
    pub node_tag: Option<NodeTag>,
    pub label_maps_path: Option<PathBuf>,
    pub decode: worker::BackendRequest,
    pub sandbox: worker::SandboxPolicy,
    /// True if ingest stores the stills of selected frames.
    pub ingest_stills: bool,
    pub retention: RetentionAges,
    /// The database; `None` turns feedback and the mirror off.
    pub database: Option<database::DatabaseSettings>,
    /// Events that the mirror copies to the database.
    pub mirror: mirror::Scope,
    pub export: Option<export::Settings>,
    /// Object store of stills and columns; `None` keeps them in the data directory alone.
    pub objects: Option<objects::Settings>,
    pub streams: StreamLimits,
    /// Memory limit of the search index, bytes.
    pub search_memory: usize,
    pub connections_max: usize,
    /// Rules for connections to other hosts.
    pub egress: EgressConfig,
    pub traces_endpoint: Option<TraceEndpoint>,
    pub log_filter: String,
    pub log_format: LogFormat,
    /// Every setting as resolved, secrets masked.
    pub shown: Vec<ResolvedVar>,
    /// Warnings: variables with the prefix that nothing reads, and settings that weaken security.
    pub warnings: Vec<String>,
}

impl Config {
    /// Resolves the environment of the process.
    #[expect(clippy::disallowed_methods, reason = "the one reader of the environment")]
    pub fn from_env() -> Result<Config, Vec<VarError>> {
        let (mut values, mut errors) = (Vec::new(), Vec::new());
        for (name, value) in env::vars_os() {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => values.push((name, value)),
                (Ok(name), Err(_)) if name.starts_with(vars::PREFIX) => {
                    errors.push(VarError { name: name.into(), problem: "is not UTF-8".to_owned() });
                }
                // Other programs' variables may hold any bytes.
                _ => {}
            }
        }
        let resolved = Config::resolve(values).map_err(|found| errors.extend(found));
        resolved.ok().filter(|_| errors.is_empty()).ok_or(errors)
    }

    /// Resolves settings from named values.
    pub fn resolve(
        values: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Config, Vec<VarError>> {
        let mut vars = EnvReader::new(values);
        let tools = decoding::tools(&mut vars);
        let decode = decoding::decoding(&mut vars, tools[0].path.clone());
        let keys = keys::keys(&mut vars);
        let bind_addr = vars.read("SERVICE_BIND_ADDR", "127.0.0.1:8080", address);
        let (data_dir, ingest_roots) = places::places(&mut vars);
        let serving = serving::serving(&mut vars, cfg!(feature = "h3-experimental"));
        let node_tag = vars.read("SERVICE_NODE_TAG", "", optional(node_tag));
        let endpoint = delivery::endpoint(&mut vars);
        let egress = remote::egress(&mut vars);
        let api = settings(&mut vars, tools, &decode, keys, bind_addr, &serving, &egress);
        let stills = one_of([("selected", true), ("none", false)]);
        let sandbox = named(worker::SandboxPolicy::from_name, "require or best-effort");
        let format = named(LogFormat::from_name, "one of both, text, json");
        let traces = optional(collector::collector);
        let filter = "info,object_store=warn,rtc_dtls=error";
        let mut config = Config {
            api,
            serving,
            data_dir,
            ingest_roots,
            active_limit: vars.read("SERVICE_ACTIVE_STREAM_LIMIT", "5", whole(1, 1024)),
            run_ttl: vars.read("SERVICE_STREAM_TTL_SECS", "3600", seconds(60, 86_400)),
            node_tag,
            label_maps_path: vars.read("SERVICE_TENANT_LABEL_MAPS_PATH", "", optional_path),
            decode,
            sandbox: vars.read("SERVICE_SANDBOX", "require", sandbox),
            ingest_stills: vars.read("SERVICE_INGEST_STILLS", "selected", stills),
            retention: retention(&mut vars),
            database: delivery::database(&mut vars),
            mirror: delivery::mirror(&mut vars),
            export: delivery::export(&mut vars, node_tag, endpoint.as_ref()),
            objects: delivery::objects(&mut vars, endpoint.as_ref()),
            streams: StreamLimits {
                all: vars.read("SERVICE_MAX_STREAMS", "12288", whole(1, 1 << 20)),
                principal: vars.read("SERVICE_MAX_PRINCIPAL_STREAMS", "10240", whole(1, 1 << 20)),
            },
            search_memory: vars.read("SERVICE_SEARCH_MEMORY_MIB", "256", mib(8, 1 << 20)) as usize,
            connections_max: vars.read("SERVICE_MAX_CONNECTIONS", "16384", whole(16, 1_000_000)),
            egress,
            traces_endpoint: vars.read_url("SERVICE_TRACES_ENDPOINT", "", traces),
            log_filter: vars.read("RUST_LOG", filter, collector::filter),
            log_format: vars.read("SERVICE_LOG_FORMAT", "both", format),
            shown: Vec::new(),
            warnings: Vec::new(),
        };
        if config.api.keys.is_some() && config.api.cors_origins == CorsOrigins::Any {
            let problem = "must list origins while keys are required, not *";
            vars.refuse("SERVICE_CORS_ALLOWED_ORIGINS", problem);
        }
        config.warnings.extend(vars.unknown());
        config.warnings.extend(remote::warnings(&config.egress));
        config.shown = vars.shown;
        if vars.errors.is_empty() { Ok(config) } else { Err(vars.errors) }
    }
}

/// Reads the settings of the API, given those that are shown before them.
fn settings(
    vars: &mut EnvReader,
    tools: [Tool; 2],
    decode: &worker::BackendRequest,
    (keys, metrics_keys): (Option<ApiKeys>, Option<ApiKeys>),
    bind_addr: SocketAddr,
    serving: &ServingConfig,
    egress: &EgressConfig,
) -> Settings {
    let principals = keys.as_ref().map_or(1, ApiKeys::len);
    Settings {
        bind_addr,
        tls: serving.tls.is_some(),
        h3: serving.h3.as_ref().map(|h3| h3.bind_addr),
        keys,
        metrics_keys,
        require_tenant_id: vars.read("SERVICE_REQUIRE_TENANT_ID", "false", flag),
        gate: gate(vars),
        disk_reserve: vars.read("SERVICE_DISK_RESERVE_MIB", "256", mib(0, 1 << 24)),
        quotas: QuotaLimits {
            global: vars.read("SERVICE_QUOTA_BYTES", "0", quota),
            principal: vars.read("SERVICE_PRINCIPAL_QUOTA_BYTES", "0", quota),
        },
        webhooks: delivery::webhooks(vars),
        upload_bytes_max: vars.read("SERVICE_MAX_UPLOAD_BYTES", "209715200", whole(1, 1 << 40)),
        tools,
        cors_origins: vars.read("SERVICE_CORS_ALLOWED_ORIGINS", "", origins),
        console: vars.read("SERVICE_CONSOLE", "on", one_of([("on", true), ("off", false)])),
        connections_per_address: vars.read("SERVICE_MAX_CONNECTIONS_PER_ADDRESS", "0", rate),
        rate_global: vars.read("SERVICE_RATE_LIMIT_GLOBAL_RPS", "2000", rate),
        rate_principal: vars.read("SERVICE_RATE_LIMIT_TENANT_RPS", "400", rate),
        remote: remote::remote(vars, egress),
        inference: inference::inference(vars),
        live: live::live(vars, bind_addr, decode.names_device(), principals),
        novelty: novelty::novelty(vars),
    }
}

/// Reads the text of a file that a setting names.
fn text_of(path: &Path) -> Result<String, FileError> {
    let bytes = read_named(path, FILE_BYTES_MAX)?;
    let text = String::from_utf8(bytes);
    text.map_err(|error| FileError::Io(io::Error::new(io::ErrorKind::InvalidData, error)))
}

fn retention(vars: &mut EnvReader) -> RetentionAges {
    RetentionAges {
        stills: vars.read("SERVICE_RETENTION_STILLS_DAYS", "0", days),
        deleted_runs: vars.read("SERVICE_RETENTION_DELETED_RUN_DAYS", "7", days),
        runs: vars.read("SERVICE_RETENTION_RUN_DAYS", "0", days),
    }
}

fn gate(vars: &mut EnvReader) -> GateConfig {
    let frames = optional(whole(0, KEEPALIVE_FRAMES_MAX));
    let frames = vars.read("SERVICE_GATE_KEEPALIVE_FRAMES", "", frames);
    let default = GateConfig::default();
    GateConfig {
        keepalive_frames: frames.unwrap_or(default.keepalive_frames),
        keepalive_ms: default.keepalive_ms.filter(|_| frames.is_none()),
        scene_cut: vars.read("SERVICE_GATE_SCENE_CUT", "0.5", fraction),
        activity_on: vars.read("SERVICE_GATE_ACTIVITY_ON", "0.0015", fraction),
        activity_off: vars.read("SERVICE_GATE_ACTIVITY_OFF", "0.0011", fraction),
        luma_shift: vars.read("SERVICE_GATE_LUMA_SHIFT", "0.15", fraction),
        flicker: vars.read("SERVICE_GATE_FLICKER", "0.55", fraction),
        ghosting: vars.read("SERVICE_GATE_GHOSTING", "0.55", fraction),
        noise: vars.read("SERVICE_GATE_NOISE", "0.55", fraction),
    }
}

/// Splits a list at its commas; leaves out empty parts.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn flag(text: &str) -> Result<bool, ValueError> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

/// Parses the name of one of `choices`.
fn one_of<T: Copy, const COUNT: usize>(
    choices: [(&'static str, T); COUNT],
) -> impl Fn(&str) -> Result<T, ValueError> {
    move |text| {
        let found = choices.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| value).ok_or_else(|| {
            let names = choices.map(|(name, _)| name);
            let (last, others) = names.split_last().expect("there are choices");
            format!("must be {} or {last}", others.join(", ")).into()
        })
    }
}

/// Parses a name; `names` lists them in the error.
fn named<T>(
    from_name: impl Fn(&str) -> Option<T>,
    names: &'static str,
) -> impl Fn(&str) -> Result<T, ValueError> {
    move |text| from_name(text).ok_or_else(|| format!("must be {names}").into())
}

/// Parses a text that may be empty.
fn optional<T>(
    parse: impl Fn(&str) -> Result<T, ValueError>,
) -> impl Fn(&str) -> Result<Option<T>, ValueError> {
    move |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

fn address(text: &str) -> Result<SocketAddr, ValueError> {
    text.parse().map_err(|_| "must be an address and port such as 127.0.0.1:8080".into())
}

/// Parses an integer in `min..=max`.
fn whole<T: TryFrom<u64>>(min: u64, max: u64) -> impl Fn(&str) -> Result<T, ValueError> {
    move |text| {
        let found = text.parse::<u64>().ok().filter(|found| (min..=max).contains(found));
        let found = found.and_then(|found| T::try_from(found).ok());
        found.ok_or_else(|| format!("must be an integer in [{min}, {max}]").into())
    }
}

fn seconds(min: u64, max: u64) -> impl Fn(&str) -> Result<Duration, ValueError> {
    move |text| whole(min, max)(text).map(Duration::from_secs)
}

fn millis(min: u64, max: u64) -> impl Fn(&str) -> Result<Duration, ValueError> {
    move |text| whole(min, max)(text).map(Duration::from_millis)
}

/// Parses a number of MiB; returns bytes.
fn mib(min: u64, max: u64) -> impl Fn(&str) -> Result<u64, ValueError> {
    move |text| whole(min, max)(text).map(|found: u64| found << 20)
}

fn fraction(text: &str) -> Result<Score, ValueError> {
    let found = text.parse().ok().and_then(|found| Score::from_f64(found).ok());
    found.ok_or_else(|| "must be a number in [0, 1]".into())
}

fn rate(text: &str) -> Result<Option<NonZeroU32>, ValueError> {
    whole(0, 1_000_000)(text).map(NonZeroU32::new)
}

/// Parses a number of bytes; 0 means no limit.
fn quota(text: &str) -> Result<Option<NonZeroU64>, ValueError> {
    whole(0, 1 << 60)(text).map(NonZeroU64::new)
}

/// Parses an age in days, with fractions; 0 means never.
fn days(text: &str) -> Result<Option<Duration>, ValueError> {
    let found = text.parse().ok().filter(|days| (0.0..=36_500.0).contains(days));
    let age = |days: f64| (days > 0.0).then(|| Duration::from_secs_f64(days * 86_400.0));
    found.map(age).ok_or_else(|| "must be a number of days in [0, 36500], 0 for never".into())
}

fn node_tag(text: &str) -> Result<NodeTag, ValueError> {
    text.parse().map_err(|error: media::ParseError| error.problem.into())
}

fn optional_path(text: &str) -> Result<Option<PathBuf>, ValueError> {
    Ok((!text.is_empty()).then(|| text.into()))
}

fn origins(text: &str) -> Result<CorsOrigins, ValueError> {
    if parts(text).eq(["*"]) {
        return Ok(CorsOrigins::Any);
    }
    parts(text).map(origin).collect::<Result<_, _>>().map(CorsOrigins::Listed)
}

fn origin(text: &str) -> Result<HeaderValue, ValueError> {
    match as_sent(text) {
        Some((sent, value)) if sent == text => Ok(value),
        Some((sent, _)) => Err(format!("must list origins as browsers send them: {sent}").into()),
        None => Err("must list origins such as https://console.example, without a path".into()),
    }
}

/// Returns the origin of the URL `text` as browsers send it; `None` if it has none.
fn as_sent(text: &str) -> Option<(String, HeaderValue)> {
    let uri: http::Uri = text.parse().ok()?;
    let scheme = uri.scheme_str()?;
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let host = uri.host().filter(|host| !host.contains('*'))?.to_ascii_lowercase();
    let port = uri.port_u16().filter(|port| *port != default);
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    let sent = format!("{scheme}://{host}{port}");
    let value = HeaderValue::from_str(&sent).ok()?;
    Some((sent, value))
}

#[cfg(test)]
mod tests;
