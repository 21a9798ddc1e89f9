//! JSON of payloads from the lists of their members, including the types of `media` that are payloads.

use media::{GateConfig, Marker, Zones};

use super::json::{JsonField, JsonObjectReader, JsonObjectWriter, JsonPayload};
use crate::event::*;

macro_rules! write_field {
    ($object:ident, $value:expr, $name:ident $(defaulted)?) => {
        $object.field(stringify!($name), &$value)
    };
    ($object:ident, $value:expr, $name:ident optional) => {
        $object.optional(stringify!($name), &$value)
    };
    ($object:ident, $value:expr, $name:ident flat) => {
        JsonPayload::write(&$value, $object)
    };
}

macro_rules! read_field {
    ($fields:ident, $name:ident flat) => {
        JsonPayload::read($fields)?
    };
    ($fields:ident, $name:ident defaulted) => {
        $fields.get::<Option<_>>(stringify!($name))?.unwrap_or(Self::default().$name)
    };
    ($fields:ident, $name:ident $(optional)?) => {
        $fields.get(stringify!($name))?
    };
}

/// Lists the members of a payload: `@optional` ones may be absent, `@flat` ones have members themselves, and
/// `@defaulted` ones are missing in older logs, where their value does not matter.
macro_rules! json_payload {
    ($type:ident { $($(($constant:ident = $text:literal),)? $(@$mark:ident)? $name:ident),* $(,)? }) => {
        impl JsonPayload for $type {
            fn write(&self, _object: &mut JsonObjectWriter) {$(
                $(_object.field(stringify!($constant), &$text.to_owned());)?
                write_field!(_object, self.$name, $name $($mark)?);
            )*}

            fn read(_fields: &JsonObjectReader<'_>) -> Result<$type, &'static str> {
                Ok($type { $($name: read_field!(_fields, $name $($mark)?),)* })
            }
        }
    };
}

pub(crate) use {json_payload, read_field, write_field};

json_payload!(Marker {
    marker_id, run_id, stream_id, event_type, status, start_frame, end_frame, start_pts_ms,
    end_pts_ms, confidence, supersedes_marker_id, @optional analysis_id, @optional origin,
    @optional beside,
});

json_payload!(GateConfig {
    keepalive_frames, @optional keepalive_ms, scene_cut, @defaulted activity_on,
    @defaulted activity_off, luma_shift, flicker, ghosting, noise,
});

impl JsonPayload for Zones {
    fn write(&self, object: &mut JsonObjectWriter) {
        object.optional("zones", &self.zones);
        object.optional("activity_zones_only", &self.only);
    }

    fn read(fields: &JsonObjectReader<'_>) -> Result<Zones, &'static str> {
        Ok(Zones { zones: fields.get("zones")?, only: fields.get("activity_zones_only")? })
    }
}
/// Optional zones.
impl JsonPayload for Option<Zones> {
    fn write(&self, object: &mut JsonObjectWriter) {
        if let Some(Zones { zones, only }) = self {
            object.field("zones", zones);
            object.optional("activity_zones_only", only);
        }
    }

    fn read(fields: &JsonObjectReader<'_>) -> Result<Option<Zones>, &'static str> {
        fields.has("zones").then(|| JsonPayload::read(fields)).transpose()
    }
}

macro_rules! object_fields {
    ($($type:ty),*) => { $(impl JsonField for $type {
        fn write(&self, out: &mut Vec<u8>) {
            out.extend(JsonObjectWriter::of(self));
        }

        fn read(text: &str) -> Option<Self> {
            // As in every field, the caller does not need the reason.
            JsonPayload::read(&JsonObjectReader::parse(text).ok()?).ok()
        }
    })* };
}
object_fields!(SemanticOutcome, GateConfig);
