//! Tenant label maps: a tenant's own names for event types and objects.
//!
//! Entries match the whole normalised label; `*` applies to tenants without an entry of their own.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use infer::finding::normalised;
use media::EventType;
use parking_lot::RwLock;
use serde_json::Value;
use timeline::held::{FileError, read_named};

use crate::base::json::{
    self, Declared, Faults, FieldError, Form, JsonError, ValueError, declared,
};

/// Maximum size of a file that a setting names, such as the label maps, bytes.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path}: {source}")]
    Content { path: String, source: JsonError },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelMaps(HashMap<String, Labels>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Labels {
    event_types: Option<HashMap<String, String>>,
    object_labels: Option<HashMap<String, String>>,
}

declared!(Labels { event_types: optional renames, object_labels: optional renames }; closed);

/// Label maps in use, and the file that they are loaded from.
#[derive(Debug)]
pub struct CurrentLabels {
    path: Option<PathBuf>,
    maps: RwLock<Arc<LabelMaps>>,
}

impl CurrentLabels {
    /// Loads the maps from the file at `path`; `None` means no maps.
    pub fn open(path: Option<PathBuf>) -> Result<CurrentLabels, LabelError> {
        let maps = RwLock::new(Arc::new(LabelMaps::load(path.as_deref())?));
        Ok(CurrentLabels { path, maps })
    }

    pub fn get(&self) -> Arc<LabelMaps> {
        Arc::clone(&self.maps.read())
    }

    /// Reloads the maps; if the file is invalid, keeps the previous ones.
    pub fn reload(&self) {
        match LabelMaps::load(self.path.as_deref()) {
            Ok(maps) => {
                *self.maps.write() = Arc::new(maps);
                tracing::info!("label maps read again");
            }
            Err(error) => {
                tracing::error!(%error, "could not reload label maps; keeping the previous ones")
            }
        }
    }
}

impl LabelMaps {
    /// Loads the maps from the JSON file at `path`; `None` means no maps.
    fn load(path: Option<&Path>) -> Result<LabelMaps, LabelError> {
        let Some(path) = path else { return Ok(LabelMaps::default()) };
        let name = || path.display().to_string();
        let read = |error: FileError| LabelError::Read { path: name(), source: error.into() };
        let bytes = read_named(path, FILE_BYTES_MAX).map_err(read)?;
        LabelMaps::parse(&bytes).map_err(|source| LabelError::Content { path: name(), source })
    }

    fn parse(bytes: &[u8]) -> Result<LabelMaps, JsonError> {
        let value = json::parse(bytes)?;
        let Value::Object(tenants) = value else {
            return Err(JsonError::Invalid(vec![FieldError::new(
                "file",
                "must be an object of tenants",
            )]));
        };
        let (mut maps, mut faults) = (HashMap::new(), Faults::default());
        for (tenant, entry) in tenants {
            let labels = faults.part(&tenant, Labels::take(&entry, Form::Body));
            maps.extend(labels.map(|labels| (tenant, labels)));
        }
        faults.finish(|| Some(LabelMaps(maps))).map_err(|faults| JsonError::Invalid(faults.into()))
    }
}

#[derive(Clone, Debug, Default)]
pub struct TenantLabels {
    pub maps: Arc<LabelMaps>,
    /// The tenant; the maps of `*` apply to `None` and to tenants without an entry.
    pub tenant: Option<String>,
}

impl TenantLabels {
    fn own(&self) -> Option<&Labels> {
        let LabelMaps(maps) = &*self.maps;
        self.tenant.as_ref().and_then(|tenant| maps.get(tenant)).or_else(|| maps.get("*"))
    }

    /// Returns the tenant's name for an event type, or the type itself.
    pub fn event_type(&self, event_type: EventType) -> EventType {
        let renamed = self
            .own()
            .and_then(|labels| labels.event_types.as_ref()?.get(&normalised(event_type.as_str())));
        renamed.map_or(event_type, |name| EventType::from_name(name))
    }

    /// Returns the tenant's name for an object label, or the label itself.
    pub fn object_label(&self, label: &str) -> String {
        let renamed =
            self.own().and_then(|labels| labels.object_labels.as_ref()?.get(&normalised(label)));
        renamed.map_or(label, String::as_str).to_owned()
    }
}

fn renames(value: &Value) -> Result<HashMap<String, String>, ValueError> {
    let Value::Object(entries) = value else { return Err("must be an object".into()) };
    let mut renames = HashMap::new();
    for (from, to) in entries {
        let to: media::Label = json::parsed(to).map_err(|problem| {
            ValueError::from(format!("gives {from:?} a label that {}", problem.0))
        })?;
        if renames.insert(normalised(from), to.as_str().to_owned()).is_some() {
            return Err(format!("renames {from:?} twice once it is normalised").into());
        }
    }
    Ok(renames)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = r#"{
        "acme": {"event_types": {"Scene Cut": "shot change"}, "object_labels": {"car": "vehicle"}},
        "*": {"event_types": {"keyframe_keep": "kept"}}
    }"#;

    #[test]
    fn a_tenant_has_its_own_words_and_the_rest_share_some() {
        let maps = Arc::new(LabelMaps::parse(MAPS.as_bytes()).expect("valid"));
        let of = |tenant: Option<&str>| {
            let (maps, tenant) = (Arc::clone(&maps), tenant.map(str::to_owned));
            TenantLabels { maps, tenant }
        };
        let cases = [
            (Some("acme"), EventType::SceneCut, "shot change"),
            (Some("acme"), EventType::KeyframeKeep, "keyframe_keep"),
            (Some("other"), EventType::SceneCut, "scene_cut"),
            (Some("other"), EventType::KeyframeKeep, "kept"),
            (None, EventType::KeyframeKeep, "kept"),
        ];
        for (tenant, event_type, expected) in cases {
            assert_eq!(of(tenant).event_type(event_type).as_str(), expected, "{tenant:?}");
        }
        assert_eq!(of(Some("acme")).object_label("Car"), "vehicle");
        assert_eq!(of(None).object_label("Car"), "Car");
        let none = TenantLabels::default();
        assert_eq!(none.event_type(EventType::SceneCut), EventType::SceneCut);
    }

    #[test]
    fn a_file_that_says_something_else_is_refused() {
        let cases = [
            "[]",
            r#"{"a": 1}"#,
            r#"{"a": {"event_types": []}}"#,
            r#"{"a": {"event_types": {"x": 1}}}"#,
            r#"{"a": {"event_types": {"x": ""}}}"#,
            r#"{"a": {"event_types": {"x y": "1", "X_Y": "2"}}}"#,
            r#"{"a": {"labels": {}}}"#,
            r#"{"a": {}, "a": {}}"#,
        ];
        for case in cases {
            assert!(LabelMaps::parse(case.as_bytes()).is_err(), "{case}");
        }
    }
}
