//! Schema types of the document: ids, names and bounded values.
//!
//! Domain types know nothing of schemas: a term wraps one and reads it, writes it, or both. Bounds are types
//! that the reader shares.

use std::fmt::Display;

use media::{FrameRate, LABEL_BYTES, MarkerOrigin, MarkerStatus, Score, WallTime};
use search::FoldedPattern;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use timeline::{EventKind as TimelineEventKind, Pass as PassName, SamplingPolicy};
use utoipa::{
    Number, PartialSchema, ToSchema,
    openapi::{
        KnownFormat, ObjectBuilder, Ref, RefOr, SchemaFormat, Type,
        schema::{Schema, SchemaType},
    },
};

use crate::{
    api::{analyze::hash, events::kind, infer::TEMPERATURE, ingest::rate, search::needle},
    base::{
        json::{
            BoundedInt, BoundedText, Declared, Faults, Form, name, number as bounded, parsed,
            score, signed,
        },
        model_catalog,
    },
    deliver::webhook::Status,
    record::live::Word,
    runs::{
        lifecycle,
        registry::{JobKind as Work, JobStatus as Standing},
    },
};

/// Named schemas of the document.
macro_rules! terms {
    ($(#[doc = $doc:literal] $(#[derive($($derive:ident),*)])? $name:ident $(($type:ty $(, $read:expr)? $(; $show:expr)?))? = $schema:expr;)*) => {
        /// Returns every term, with its name.
        pub fn all() -> impl Iterator<Item = (String, RefOr<Schema>)> {
            [$((stringify!($name).to_owned(), $name::schema()),)*].into_iter()
        }

        $(
        #[doc = $doc]
        $(#[derive($($derive),*)])?
        pub struct $name $((pub $type))?;

        $(impl From<$type> for $name {
            fn from(value: $type) -> $name {
                $name(value)
            }
        }

        $(impl Declared for $name {
            fn take(value: &Value, _: Form<'_>) -> Result<$name, Faults> {
                Ok($name($read(value)?))
            }
        })?

        $(impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $show(self.0).serialize(serializer)
            }
        })?)?

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.description(Some($doc.trim())).into()
            }
        }

        impl ToSchema for $name {}
    )*};
}

terms! {
    /// Id of a request, as in the header `x-request-id`.
    RequestId(media::RequestId; Shown) = pattern("^req-[0-9a-f]{16}$");
    /// Id of a run.
    RunId(media::RunId, parsed; Shown) = pattern("^run-[0-9a-f]{32}$");
    /// Id of a live session.
    SessionId(media::SessionId; Shown) = pattern("^sess-[0-9a-f]{32}$");
    /// Id of a job of a run.
    JobId(media::JobId; Shown) = pattern("^job-[0-9a-f]{32}$");
    /// Kind of a job, by the route that requested it.
    JobKind(Work; Work::as_str) = names(Work::ALL.map(Work::as_str));
    /// Status of a job.
    JobStatus(Standing; Standing::as_str) = names(Standing::SHOWN);
    /// Id of a piece of feedback.
    FeedbackId(media::FeedbackId; Shown) = pattern("^fb-[0-9a-f]{32}$");
    /// Id of a webhook.
    WebhookId(media::WebhookId; Shown) = pattern("^wh-[0-9a-f]{32}$");
    /// Id of a marker; unique to its analysis.
    MarkerId(media::MarkerId; Shown) = pattern("^mk-[0-9a-f]{16}$");
    /// Id of an analysis of a stream.
    AnalysisId = pattern("^an-[0-9a-f]{16}$");
    /// Id of an analysis, or `all`.
    AnalysisFilter = pattern("^(all|an-[0-9a-f]{16})$");
    /// SHA-256 in hexadecimal.
    Sha256(media::BlobHash; Shown) = pattern("^[0-9a-f]{64}$");
    /// Wall-clock time in UTC.
    Timestamp(WallTime; WallTime::rfc3339) = string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    /// 1 to 128 bytes without control characters.
    Label(media::Label, parsed) = pattern(r"^[^\u0000-\u001f\u007f-\u009f]+$")
        .min_length(Some(*LABEL_BYTES.start()))
        .max_length(Some(*LABEL_BYTES.end()));
    /// 1 to 1024 bytes, not counting surrounding white space.
    SearchText(FoldedPattern, needle) = pattern(r"\S").min_length(Some(1)).max_length(Some(1024));
    /// At most 128 bytes without control characters.
    Tenant = pattern(r"^[^\u0000-\u001f\u007f-\u009f]*$").max_length(Some(*LABEL_BYTES.end()));
    /// A number in [0, 1].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    Fraction(Score, score; Score::as_f64) = number(0.0, 1.0);
    /// Frames per second.
    Fps(FrameRate, rate) = number(*FrameRate::ANALYSED.start(), *FrameRate::ANALYSED.end());
    /// A 64-bit integer.
    Int64(i64, signed) = integer(Number::Int(i64::MIN as isize), Number::Int(i64::MAX as isize));
    /// 64 bits as 16 hexadecimal digits, or as an integer.
    PerceptualHash(u64, hash) = ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![Type::String, Type::Integer]))
        .pattern(Some("^[0-9a-fA-F]{16}$"))
        .minimum(Some(Number::UInt(0)))
        .maximum(Some(Number::UInt(usize::MAX)));
    /// Start of a page: opaque, from a `Link` header.
    Cursor = pattern("^[0-9]{1,20}$");
    /// Start of a page of markers: opaque, from a `Link` header.
    MarkerCursor = pattern(r"^[0-9]{1,20}\.[0-9]{1,20}\.mk-[0-9a-f]{16}\.[0-9]{1,20}$");
    /// Start of a page of files: opaque, from a `Link` header.
    FileCursor = pattern(r"^[0-9a-f]{32}\.[0-9a-z]{1,5}$");
    /// A relative path without empty parts, `.`, `..` or control characters.
    FileName = string().min_length(Some(1));
    /// Raw bytes.
    Bytes = string().content_media_type("application/octet-stream");
    /// Media type of every still.
    Jpeg = names(["image/jpeg"]);
    /// Id of a model of `GET /v1/models`.
    ModelId = string().min_length(Some(1)).max_length(Some(128));
    /// Availability of a model.
    ModelAvailability = names(["ready", "unreachable", "name_not_served", "not_configured"]);
    /// Result of a check of `GET /v1/doctor`.
    CheckStatus = names(["ok", "advice", "problem"]);
    /// Software of a model backend.
    ProviderKind(infer::ProviderKind, name(infer::ProviderKind::ALL.map(infer::ProviderKind::as_str), infer::ProviderKind::from_name)) = names(infer::ProviderKind::ALL.map(infer::ProviderKind::as_str));
    /// Reason why a model stopped.
    FinishReason = names(["stop", "length", "content_filter", "other"]);
    /// Reason why a frame's description ended.
    FrameFinish = names(["gate", "stop", "length", "content_filter", "other"]);
    /// A sampling temperature.
    Temperature(f64, bounded(TEMPERATURE)) = number(*TEMPERATURE.start(), *TEMPERATURE.end());
    /// A still of one of the caller's runs.
    KeyframeRef = ObjectBuilder::new()
        .property("run_id", Ref::from_schema_name(RunId::name()))
        .required("run_id")
        .property("sha256", Ref::from_schema_name(Sha256::name()))
        .required("sha256");
    /// Hardware class that a model needs.
    ModelTier(model_catalog::ModelTier; model_catalog::ModelTier::as_str) = names(model_catalog::ModelTier::ALL.map(model_catalog::ModelTier::as_str));
    /// State of a run.
    RunState(lifecycle::RunState, name(lifecycle::RunState::SHOWN.map(lifecycle::RunState::as_str), lifecycle::RunState::from_shown_name); lifecycle::RunState::as_str) = names(lifecycle::RunState::SHOWN.map(lifecycle::RunState::as_str));
    /// Optional part of a run's record.
    RunInclude((), name(["summary"], |name| (name == "summary").then_some(()))) = names(["summary"]);
    /// Health of a live session.
    HealthStatus(Word; Word::as_str) = names(Word::ALL.map(Word::as_str));
    /// Status of the deliveries of a webhook.
    WebhookStatus(Status; Status::as_str) = names(Status::ALL.map(Status::as_str));
    /// Trade-off between detail and cost of an analysis.
    AnalysisMode(model_catalog::Mode, name(model_catalog::Mode::ALL.map(model_catalog::Mode::as_str), model_catalog::Mode::from_name); model_catalog::Mode::as_str) = names(model_catalog::Mode::ALL.map(model_catalog::Mode::as_str));
    /// Policy that selects the frames of a source.
    Sampling(SamplingPolicy, name(SamplingPolicy::ALL.map(SamplingPolicy::as_str), SamplingPolicy::from_name); SamplingPolicy::as_str) = names(SamplingPolicy::ALL.map(SamplingPolicy::as_str));
    /// Reason of the gate's decision about a frame; `no_trigger` means that the frame is not kept.
    GateReason(gate::SelectionReason; gate::SelectionReason::as_str) = names(gate::SelectionReason::ALL.map(gate::SelectionReason::as_str));
    /// Certainty of a marker; a finalized one replaces a provisional one.
    MarkerState(MarkerStatus, name(MarkerStatus::ALL.map(MarkerStatus::as_str), MarkerStatus::from_name); MarkerStatus::as_str) = names(MarkerStatus::ALL.map(MarkerStatus::as_str));
    /// Origin of a marker: the gate or a model.
    MarkerSource = names(MarkerOrigin::ALL.map(MarkerOrigin::as_str));
    /// Origin of the findings to list.
    OriginFilter = names(["gate", "model", "all"]);
    /// Pass that answered: the first model, or the second one, asked if the first is unsure.
    InferencePass = names(PassName::ALL.map(PassName::as_str));
    /// Kind of an event.
    EventKind(TimelineEventKind, kind; TimelineEventKind::as_str) = names(TimelineEventKind::ALL.iter().map(|kind| kind.as_str()));
    /// Any JSON value.
    AnyValue = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    /// A JSON object with arbitrary fields.
    AnyObject = ObjectBuilder::new().schema_type(Type::Object);
}

/// Serializes a value by its `Display`.
struct Shown<T>(T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn pattern(regex: &str) -> ObjectBuilder {
    string().pattern(Some(regex))
}

fn names(names: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    string().enum_values(Some(names.into_iter().map(|name| json!(name)).collect::<Vec<Value>>()))
}

fn number(min: f64, max: f64) -> ObjectBuilder {
    let (min, max) = (Number::Float(min), Number::Float(max));
    ObjectBuilder::new().schema_type(Type::Number).minimum(Some(min)).maximum(Some(max))
}

fn integer(min: Number, max: Number) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(min)).maximum(Some(max))
}

impl<const MIN: u64, const MAX: u64> PartialSchema for BoundedInt<MIN, MAX> {
    fn schema() -> RefOr<Schema> {
        integer(Number::UInt(MIN as usize), Number::UInt(MAX as usize)).into()
    }
}

impl<const MIN: u64, const MAX: u64> ToSchema for BoundedInt<MIN, MAX> {}

impl<const MIN: usize, const MAX: usize> PartialSchema for BoundedText<MIN, MAX> {
    fn schema() -> RefOr<Schema> {
        string().min_length(Some(MIN)).max_length(Some(MAX)).into()
    }
}

impl<const MIN: usize, const MAX: usize> ToSchema for BoundedText<MIN, MAX> {}
