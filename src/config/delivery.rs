//! Settings of deliveries: the database, the export, the object store and webhooks.

use ::objects::{Credentials, Place, Url};

use super::*;
use crate::deliver::webhook;

/// Reads the settings of the database; `None` if there is none or its URL is refused.
pub(super) fn database(vars: &mut EnvReader) -> Option<database::DatabaseSettings> {
    let url = vars.secret("SERVICE_DB_URL");
    let connections = vars.read("SERVICE_DB_POOL_SIZE", "8", whole(1, 64));
    let timeout = vars.read("SERVICE_DB_TIMEOUT_MS", "5000", millis(100, 60_000));
    let target = database::DatabaseUrl::parse(&url?);
    // A refused URL stops the start, so the returned `None` is not used.
    let target = target.map_err(|problem| vars.refuse("SERVICE_DB_URL", problem)).ok()?;
    Some(database::DatabaseSettings { target, connections, timeout })
}

pub(super) fn mirror(vars: &mut EnvReader) -> mirror::Scope {
    let scopes = [("descriptions", mirror::Scope::Descriptions), ("all", mirror::Scope::All)];
    vars.read("SERVICE_DB_MIRROR", "descriptions", one_of(scopes))
}

/// Reads target and interval of the export; `None` turns it off.
pub(super) fn export(
    vars: &mut EnvReader,
    tag: Option<NodeTag>,
    endpoint: Option<&Url>,
) -> Option<export::Settings> {
    let target = vars.read_url("SERVICE_EXPORT_URL", "", optional(target));
    let age = vars.read("SERVICE_EXPORT_AGE_SECS", "900", seconds(1, 86_400));
    let place = match target? {
        Target::Directory(path) => export::Target::Directory(path),
        Target::Store(place) => {
            export::Target::Store(access(vars, "SERVICE_EXPORT_URL", place, endpoint)?)
        }
    };
    Some(export::Settings { place, age, tag: tag.map(|tag| tag.to_string()) })
}

/// Parses a directory or a location in an object store.
fn target(text: &str) -> Result<Target, ValueError> {
    let must = "must be an absolute directory such as file:///srv/export, or s3://bucket/prefix";
    match text.split_once("://") {
        Some(("file", path)) if path.starts_with('/') => Ok(Target::Directory(path.into())),
        Some(("s3", _)) => {
            let place = Place::parse(text).map_err(|error| format!("must be {error}"));
            Ok(Target::Store(place?))
        }
        _ => Err(must.into()),
    }
}

enum Target {
    Directory(PathBuf),
    Store(Place),
}

/// Reads the object store of stills and columns; `None` keeps them in the data directory alone.
pub(super) fn objects(vars: &mut EnvReader, endpoint: Option<&Url>) -> Option<objects::Settings> {
    let url = vars.read_url("SERVICE_BLOB_URL", "file:", |text| match text {
        "file:" => Ok(None),
        _ => Place::parse(text).map(Some).map_err(|error| {
            format!("must be file:, for the data directory alone, or else {error}").into()
        }),
    });
    let cache_bytes = vars.read("SERVICE_BLOB_CACHE_MIB", "10240", mib(0, 1 << 30));
    let access = access(vars, "SERVICE_BLOB_URL", url?, endpoint)?;
    Some(objects::Settings { access, cache_bytes })
}

/// Reads the endpoint of object stores other than those of AWS.
pub(super) fn endpoint(vars: &mut EnvReader) -> Option<Url> {
    let endpoint = |text: &str| Place::endpoint(text).map_err(|error| error.to_string().into());
    vars.read_url("SERVICE_BLOB_ENDPOINT", "", optional(endpoint))
}

/// Joins `place`, set by the variable `name`, with credentials; `None` if the credentials are refused.
fn access(
    vars: &mut EnvReader,
    name: &'static str,
    place: Place,
    endpoint: Option<&Url>,
) -> Option<objects::Access> {
    let place = Place { endpoint: endpoint.cloned(), ..place };
    let credentials = Credentials::of(|name| vars.raw(name).map(str::to_owned));
    let credentials = credentials.map_err(|error| vars.refuse(name, error.to_string())).ok()?;
    Some(objects::Access { place, credentials })
}

pub(super) fn webhooks(vars: &mut EnvReader) -> webhook::WebhookSettings {
    webhook::WebhookSettings {
        attempts: vars.read("SERVICE_WEBHOOK_ATTEMPTS", "10", whole(1, 20)),
        retry: vars.read("SERVICE_WEBHOOK_RETRY_MS", "5000", millis(10, 3_600_000)),
        timeout: vars.read("SERVICE_WEBHOOK_TIMEOUT_MS", "15000", millis(100, 60_000)),
    }
}
