//! The members of every payload, in the order of the wire contract: one entry a kind.

use media::{GateConfig, Marker, Zones};

use super::json::{JsonField, JsonObjectReader, JsonObjectWriter, JsonPayload};
use crate::event::*;

macro_rules! write_field {
    ($object:ident, $value:expr, $name:ident) => {
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
    ($fields:ident, $name:ident $(optional)?) => {
        $fields.get(stringify!($name))?
    };
}

/// Lists the members of a payload: `@optional` is absent when none, `@flat` has members itself.
macro_rules! payload {
    ($type:ident { $($(@$mark:ident)? $name:ident),* $(,)? }) => {
        impl JsonPayload for $type {
            fn write(&self, object: &mut JsonObjectWriter) {
                $(write_field!(object, self.$name, $name $($mark)?);)*
            }

            fn read(fields: &JsonObjectReader<'_>) -> Result<$type, &'static str> {
                Ok($type { $($name: read_field!(fields, $name $($mark)?),)* })
            }
        }
    };
}

payload!(RunCreated { request_id, mode, model, principal_key, tenant_id });
payload!(IngestReceived {
    request_id, ingest, @optional decoded_frames, @optional source_uri,
    @optional sampling_policy, @optional sample_fps,
});
payload!(IngestStarted { request_id, job_id, ingest });
payload!(FramesDecoded {
    request_id, source_uri, stream_id, sampling_policy, source_fps, sample_fps, decoded_frames,
    width, height, pixel_format, @optional decoder, @optional decoder_fallback, @optional truncated,
    @optional reason, @optional gate, @flat zones, @optional wall_start_ms, signals,
});
payload!(Marker {
    marker_id,
    run_id,
    stream_id,
    event_type,
    status,
    start_frame,
    end_frame,
    start_pts_ms,
    end_pts_ms,
    confidence,
    supersedes_marker_id,
    @optional analysis_id,
    @optional origin,
    @optional beside,
});
payload!(AnalysisGenerated {
    request_id,
    stream_id,
    frames,
    window_size,
    segment_ms,
    sampling_policy,
    sample_fps,
    mode,
    model,
    markers,
    @optional analysis_id,
    @optional gate,
    @flat zones,
});
impl JsonPayload for GateConfig {
    fn write(&self, object: &mut JsonObjectWriter) {
        object.field("keepalive_frames", &self.keepalive_frames);
        object.optional("keepalive_ms", &self.keepalive_ms);
        for (name, threshold) in [
            ("scene_cut", self.scene_cut),
            ("activity_on", self.activity_on),
            ("activity_off", self.activity_off),
            ("luma_shift", self.luma_shift),
            ("flicker", self.flicker),
            ("ghosting", self.ghosting),
            ("noise", self.noise),
        ] {
            object.field(name, &threshold);
        }
    }

    fn read(fields: &JsonObjectReader<'_>) -> Result<GateConfig, &'static str> {
        // Older logs have no activity, and so no threshold of it that matters.
        let default = GateConfig::default();
        let activity_on: Option<_> = fields.get("activity_on")?;
        let activity_off: Option<_> = fields.get("activity_off")?;
        Ok(GateConfig {
            keepalive_frames: fields.get("keepalive_frames")?,
            keepalive_ms: fields.get("keepalive_ms")?,
            scene_cut: fields.get("scene_cut")?,
            activity_on: activity_on.unwrap_or(default.activity_on),
            activity_off: activity_off.unwrap_or(default.activity_off),
            luma_shift: fields.get("luma_shift")?,
            flicker: fields.get("flicker")?,
            ghosting: fields.get("ghosting")?,
            noise: fields.get("noise")?,
        })
    }
}
impl JsonPayload for Zones {
    fn write(&self, object: &mut JsonObjectWriter) {
        object.optional("zones", &self.zones);
        object.optional("activity_zones_only", &self.only);
    }

    fn read(fields: &JsonObjectReader<'_>) -> Result<Zones, &'static str> {
        Ok(Zones { zones: fields.get("zones")?, only: fields.get("activity_zones_only")? })
    }
}
/// Zones that may be none at all.
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
payload!(ActivityEpisode {
    request_id, stream_id, @optional session_id, start_frame, @optional end_frame, start_pts_ms,
    @optional end_pts_ms, peak_score, peak_frame, region, zones,
});
payload!(TokenCounts { prompt_tokens, completion_tokens, thinking_tokens, total_tokens });
payload!(SemanticChunkInferred {
    request_id, stream_id, chunk_index, provider, provider_fallback_used, semantic_fallback_used,
    semantic_error, event_type, object_label, summary, description, confidence, raw_output,
    @optional output, @flat tokens, inference_latency_ms, @optional tier, @optional model, @optional attempts,
    @optional prompt_version, @optional start_pts_ms, @optional end_pts_ms,
    @optional reused_from_seq, @optional index_name, @optional truncated,
});
payload!(SemanticChunkGenerated {
    request_id, stream_id, chunk_index, chunk_frames, process_ms, source_span_ms, lag_ms,
    index_name, @flat tokens, inference_latency_ms,
});
payload!(SemanticFallbackActivated { request_id, stream_id, reason });
payload!(InferenceCompleted {
    request_id,
    provider,
    model,
    fallback_used,
    prompt_bytes,
    output_bytes,
    @optional prompt_tokens,
    @optional completion_tokens,
    @optional thinking_tokens,
    @optional total_tokens,
    @optional inference_latency_ms,
    @optional tier,
    @optional attempts,
});
payload!(SemanticOutcome { requested, chunks_asked, chunks_failed, error, fallback_used });
payload!(RunCompleted {
    request_id, stream_id, frames, markers, index_name, semantic, @optional reason,
});
payload!(RunFailed { @optional request_id, reason });
payload!(RequestMarkerPayload { request_id });
payload!(RunLabelled { request_id, label });
payload!(RunDeleted { @optional request_id, @optional reclaim });
payload!(TokenBudgetLow { request_id, principal_key, day, used_tokens, limit_tokens });
payload!(SourceReconnected {
    request_id,
    stream_id,
    frame_index,
    pts_ms,
    gap_ms,
    attempts,
    reason,
});
payload!(FindingPayload {
    @optional session_id, frame_index, pts_ms, @optional end_pts_ms, confidence, description,
    @optional summary, @optional event_type, @optional object_label, @optional semantic_error,
    @optional provider, @optional model, @optional total_tokens, @optional completion_tokens,
    @optional inference_latency_ms, @optional attempts, @optional prompt_version,
    @optional reused_from_seq, @optional index_name, @optional truncated,
});

macro_rules! object_fields {
    ($($type:ty),*) => { $(impl JsonField for $type {
        fn write(&self, out: &mut Vec<u8>) {
            out.extend(JsonObjectWriter::of(self));
        }

        fn read(text: &str) -> Option<Self> {
            // As in every field, what is wrong in it does not matter to the caller.
            JsonPayload::read(&JsonObjectReader::parse(text).ok()?).ok()
        }
    })* };
}
object_fields!(SemanticOutcome, GateConfig);

impl JsonPayload for SessionRunCreated {
    fn write(&self, object: &mut JsonObjectWriter) {
        object.field("principal_key", &self.principal_key);
        object.field("session_id", &self.session_id);
        object.field("source", &"whip".to_owned());
        object.optional("tenant_id", &self.tenant_id);
    }

    fn read(fields: &JsonObjectReader<'_>) -> Result<SessionRunCreated, &'static str> {
        Ok(SessionRunCreated {
            principal_key: fields.get("principal_key")?,
            session_id: fields.get("session_id")?,
            tenant_id: fields.get("tenant_id")?,
        })
    }
}

impl JsonPayload for KeyframeStored {
    fn write(&self, object: &mut JsonObjectWriter) {
        object.field("frame_index", &self.frame_index);
        object.field("pts_ms", &self.pts_ms);
        object.field("event_type", &self.event_type);
        object.optional("reason", &self.reason);
        object.field("description", &self.description);
        object.field("image_ref", &self.image_ref);
        object.field("image_media_type", &"image/jpeg".to_owned());
        object.field("image_bytes", &self.image_bytes);
        object.field("image_sha256", &self.image_sha256);
    }

    fn read(fields: &JsonObjectReader<'_>) -> Result<KeyframeStored, &'static str> {
        Ok(KeyframeStored {
            frame_index: fields.get("frame_index")?,
            pts_ms: fields.get("pts_ms")?,
            event_type: fields.get("event_type")?,
            reason: fields.get("reason")?,
            description: fields.get("description")?,
            image_ref: fields.get("image_ref")?,
            image_bytes: fields.get("image_bytes")?,
            image_sha256: fields.get("image_sha256")?,
        })
    }
}
