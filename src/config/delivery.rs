//! Settings of what leaves the server: the database, the export, the object store and webhooks.

use std::time::Duration;

use media::NodeTag;

use super::{Vars, whole};
use crate::{
    base::{database, json::Problem},
    deliver::{export, mirror, objects, webhook},
};
use ::objects::{Credentials, Place};

/// The database that is configured, if one is.
pub(super) fn database(vars: &mut Vars) -> Option<database::Settings> {
    let url = vars.secret("SERVICE_DB_URL");
    let connections = vars.read("SERVICE_DB_POOL_SIZE", "8", whole(1, 64)) as usize;
    let timeout_ms = vars.read("SERVICE_DB_TIMEOUT_MS", "5000", whole(100, 60_000));
    let target = database::Target::parse(&url?);
    // A refusal stops the start: what is returned then is of no use.
    let target = target.map_err(|problem| vars.refuse("SERVICE_DB_URL", problem)).ok()?;
    let timeout = Duration::from_millis(timeout_ms);
    Some(database::Settings { target, connections, timeout })
}

/// Events that the mirror copies.
pub(super) fn mirror(vars: &mut Vars) -> mirror::Scope {
    vars.read("SERVICE_DB_MIRROR", "descriptions", |text| match text {
        "descriptions" => Ok(mirror::Scope::Descriptions),
        "all" => Ok(mirror::Scope::All),
        _ => Err("must be descriptions or all".into()),
    })
}

/// Place and pace of the export, if there is one.
pub(super) fn export(vars: &mut Vars, tag: Option<NodeTag>) -> Option<export::Settings> {
    let place = vars.read_url("SERVICE_EXPORT_URL", "", place);
    let age = vars.read("SERVICE_EXPORT_AGE_SECS", "900", whole(1, 86_400));
    let (age, tag) = (Duration::from_secs(age), tag.map(|tag| tag.to_string()));
    Some(export::Settings { place: place?, age, tag })
}

fn place(text: &str) -> Result<Option<export::Place>, Problem> {
    match text.strip_prefix("file://") {
        _ if text.is_empty() => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(export::Place::Directory(path.into()))),
        _ => Err("must be an absolute directory such as file:///srv/export".into()),
    }
}

/// Object store of stills and columns, if there is one.
pub(super) fn objects(vars: &mut Vars) -> Option<objects::Settings> {
    let url = vars.read_url("SERVICE_BLOB_URL", "file:", |text| match text {
        "file:" => Ok(None),
        _ => Place::parse(text).map(Some).map_err(|error| Problem::from(error.to_string())),
    });
    let endpoint = vars.read_url("SERVICE_BLOB_ENDPOINT", "", |text| match text {
        "" => Ok(None),
        _ => Place::endpoint(text).map(Some).map_err(|error| Problem::from(error.to_string())),
    });
    let cache_mib = vars.read("SERVICE_BLOB_CACHE_MIB", "10240", whole(0, 1 << 30));
    let place = url?;
    let place = Place { endpoint, ..place };
    let credentials = Credentials::of(|name| vars.raw(name).map(str::to_owned));
    let credentials =
        credentials.map_err(|error| vars.refuse("SERVICE_BLOB_URL", error.to_string()));
    Some(objects::Settings { place, credentials: credentials.ok()?, cache_bytes: cache_mib << 20 })
}

/// Attempts and timeout of webhook deliveries.
pub(super) fn webhooks(vars: &mut Vars) -> webhook::Settings {
    let attempts = vars.read("SERVICE_WEBHOOK_ATTEMPTS", "10", whole(1, 20)) as u32;
    let retry_ms = vars.read("SERVICE_WEBHOOK_RETRY_MS", "5000", whole(10, 3_600_000));
    let timeout_ms = vars.read("SERVICE_WEBHOOK_TIMEOUT_MS", "15000", whole(100, 60_000));
    let (retry, timeout) = (Duration::from_millis(retry_ms), Duration::from_millis(timeout_ms));
    webhook::Settings { attempts, retry, timeout }
}
