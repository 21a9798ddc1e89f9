//! Schemas of events: one envelope, and the payload of each kind.
//!
//! The timeline declares payload members without schemas; this module maps each member type to one. Payloads
//! may gain fields, so no schema refuses unknown ones. A test checks real events against them.

use media::{
    AnalysisId, BlobHash, EventType, FrameRate, GateConfig, JobId, Label, Score, SessionId,
    WallTime, Zones,
};
use timeline::{
    HasShape, JsonText, Member, MemberSink, ModeName, Pass, PayloadShape, SamplingPolicy,
    SelectionReasonName, SemanticOutcome, Signals, StillMediaType, TokenCounts,
};
use utoipa::{
    PartialSchema,
    openapi::{
        ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, Ref, RefOr, Type,
        schema::{Schema, SchemaType},
    },
};

use super::super::{
    activity::Region, markers::MarkerRecord, reason::SemanticResult, thresholds::GateThresholds,
    zones::WatchedZone,
};
use crate::api::prelude::*;

/// Named schemas of the document.
type Schemas = Vec<(String, RefOr<Schema>)>;

/// An event of a run's timeline, which names its run if `WITH_RUN`.
pub struct Envelope<const WITH_RUN: bool>;

pub type EventRecord = Envelope<false>;
pub type QueryMatch = Envelope<true>;

impl<const WITH_RUN: bool> PartialSchema for Envelope<WITH_RUN> {
    fn schema() -> RefOr<Schema> {
        let kinds = EventKind::ALL.iter().map(|kind| {
            let name =
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some([kind.as_str()]));
            let seq = described(u64::schema(), &["Position in the log of the server; a cursor"]);
            let at = &["Wall-clock time of the append, epoch milliseconds"];
            let mut envelope = ObjectBuilder::new()
                .property("seq", seq)
                .required("seq")
                .property("pts_ms", described(i64::schema(), at))
                .required("pts_ms")
                .property("kind", name)
                .required("kind");
            if WITH_RUN {
                let run = Ref::from_schema_name(schema_types::RunId::name());
                envelope = envelope.property("run_id", run).required("run_id");
            }
            envelope.property("payload", payload(*kind, &mut Vec::new())).required("payload")
        });
        kinds.fold(OneOfBuilder::new(), OneOfBuilder::item).into()
    }
}

impl<const WITH_RUN: bool> ToSchema for Envelope<WITH_RUN> {
    fn name() -> std::borrow::Cow<'static, str> {
        let name = if WITH_RUN { "QueryMatch" } else { "Event" };
        name.into()
    }

    fn schemas(schemas: &mut Schemas) {
        for kind in EventKind::ALL {
            payload(*kind, schemas);
        }
        if WITH_RUN {
            schemas.push((schema_types::RunId::name().into(), schema_types::RunId::schema()));
        }
    }
}

/// Sets `lines` as description; of a nullable schema, on the part that is not null.
fn described(mut schema: RefOr<Schema>, lines: &[&str]) -> RefOr<Schema> {
    let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
    match &mut schema {
        RefOr::Ref(reference) => reference.description = text,
        RefOr::T(Schema::OneOf(either)) => {
            either.items[0] = described(either.items[0].clone(), lines);
        }
        RefOr::T(Schema::Object(object)) if !text.is_empty() => object.description = Some(text),
        RefOr::T(Schema::Array(array)) if !text.is_empty() => array.description = Some(text),
        RefOr::T(_) => {}
    }
    schema
}

/// Returns a reference to the payload of `kind`, and adds its schemas to `schemas`.
fn payload(kind: EventKind, schemas: &mut Schemas) -> RefOr<Schema> {
    let mut names = match kind {
        EventKind::MarkerEmitted => return named::<MarkerRecord>(schemas),
        EventKind::ActivityStarted => return named::<ActivityStartedPayload>(schemas),
        EventKind::ActivityEnded => return named::<ActivityEndedPayload>(schemas),
        _ => kind.shapes().into_iter().map(|shape| shaped(&shape, schemas)),
    };
    match (names.next(), names.next()) {
        (Some(one), Some(other)) => OneOfBuilder::new().item(one).item(other).into(),
        (one, _) => one.expect("a kind that `by_hand` names is described here"),
    }
}

fn shaped(shape: &PayloadShape<Members>, schemas: &mut Schemas) -> RefOr<Schema> {
    let mut members = Members { object: Object::new(), schemas: Vec::new() };
    (shape.describe)(&mut members);
    schemas.append(&mut members.schemas);
    schemas.push((shape.name.to_owned(), described(members.object.into(), shape.doc)));
    Ref::from_schema_name(shape.name).into()
}

fn named<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
    Ref::from_schema_name(T::name()).into()
}

/// Collects the members of a payload as properties of an object.
struct Members {
    object: Object,
    schemas: Schemas,
}

/// A member type that has a schema.
trait Documented {
    fn documented(schemas: &mut Schemas) -> RefOr<Schema>;

    /// Returns the schema of a member that is omitted when `None`.
    fn present(schemas: &mut Schemas) -> RefOr<Schema> {
        Self::documented(schemas)
    }
}

impl<T: Documented> MemberSink<T> for Members {
    fn member(&mut self, Member { name, doc, is_optional }: Member) {
        let schema = if is_optional { T::present } else { T::documented };
        self.object.properties.insert(name.to_owned(), described(schema(&mut self.schemas), doc));
        if !is_optional {
            self.object.required.push(name.to_owned());
        }
    }
}

impl MemberSink<TokenCounts> for Members {
    fn member(&mut self, _: Member) {
        (TokenCounts::SHAPE.describe)(self);
    }
}

impl MemberSink<Zones> for Members {
    fn member(&mut self, zones: Member) {
        let only = &["True if motion outside of the zones is ignored."];
        self.watched(zones, only);
    }
}

impl MemberSink<Option<Zones>> for Members {
    fn member(&mut self, zones: Member) {
        let only = &["True if motion outside of them is ignored."];
        self.watched(zones, only);
    }
}

impl Members {
    fn watched(&mut self, zones: Member, only: &'static [&'static str]) {
        MemberSink::<Vec<WatchedZone>>::member(self, Member { is_optional: true, ..zones });
        let only = Member { name: "activity_zones_only", doc: only, is_optional: true };
        MemberSink::<bool>::member(self, only);
    }
}

/// Maps types to the schema of another type, inline or by name.
macro_rules! documented {
    (in place { $($type:ty as $shown:ty,)* } by name { $($named:ty as $name:ty,)* }) => {
        $(impl Documented for $type {
            fn documented(_: &mut Schemas) -> RefOr<Schema> {
                <$shown>::schema()
            }
        })*
        $(impl Documented for $named {
            fn documented(schemas: &mut Schemas) -> RefOr<Schema> {
                named::<$name>(schemas)
            }
        })*
    };
}

documented! {
    in place {
        bool as bool,
        EventType as String,
        FrameRate as f64,
        i64 as i64,
        Seq as u64,
        String as String,
        u32 as u32,
        u64 as u64,
        WallTime as i64,
    }
    by name {
        AnalysisId as schema_types::AnalysisId,
        BlobHash as schema_types::Sha256,
        GateConfig as GateThresholds,
        JobId as schema_types::JobId,
        JsonText as schema_types::AnyObject,
        Label as schema_types::Label,
        ModeName as schema_types::AnalysisMode,
        Pass as schema_types::InferencePass,
        RequestId as schema_types::RequestId,
        SamplingPolicy as schema_types::Sampling,
        Score as schema_types::Fraction,
        SelectionReasonName as schema_types::GateReason,
        SemanticOutcome as SemanticResult,
        SessionId as schema_types::SessionId,
        SignalSample as SignalSample,
        StillMediaType as schema_types::Jpeg,
        StreamId as schema_types::Label,
        WatchedZone as WatchedZone,
    }
}

impl<T: Documented> Documented for Option<T> {
    fn documented(schemas: &mut Schemas) -> RefOr<Schema> {
        let null = || ObjectBuilder::new().schema_type(Type::Null);
        match T::documented(schemas) {
            RefOr::T(Schema::Object(mut object)) => {
                if let SchemaType::Type(one) = object.schema_type {
                    object.schema_type = SchemaType::Array(vec![one, Type::Null]);
                }
                object.into()
            }
            other => OneOfBuilder::new().item(other).item(null()).into(),
        }
    }

    fn present(schemas: &mut Schemas) -> RefOr<Schema> {
        T::documented(schemas)
    }
}

impl<T: Documented> Documented for Vec<T> {
    fn documented(schemas: &mut Schemas) -> RefOr<Schema> {
        ArrayBuilder::new().items(T::documented(schemas)).into()
    }
}

impl Documented for Signals {
    fn documented(schemas: &mut Schemas) -> RefOr<Schema> {
        Vec::<SignalSample>::documented(schemas)
    }
}

/// Signals of a decoded frame.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what the timeline writes")]
struct SignalSample {
    frame_index: u64,
    #[schema(required = false)]
    source_frame_index: u64,
    pts_ms: i64,
    /// 16 hexadecimal digits.
    perceptual_hash: String,
    luma_mean: schema_types::Fraction,
    flicker_score: schema_types::Fraction,
    ghosting_score: schema_types::Fraction,
    noise_variance_score: schema_types::Fraction,
    #[schema(required = false)]
    scene_score: schema_types::Fraction,
    /// Fraction of the picture's cells that differ from 0.4 s earlier; absent from older recordings.
    #[schema(required = false)]
    activity_score: schema_types::Fraction,
    /// Bounding box of the changed cells; absent if none changed.
    #[schema(required = false)]
    activity_region: Region,
    /// Zones of the changed cells, as indexes into `zones`; absent if there are none.
    #[schema(required = false)]
    activity_zones: Vec<u32>,
}

/// An episode of activity starts.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what the timeline writes")]
struct ActivityStartedPayload {
    request_id: schema_types::RequestId,
    stream_id: schema_types::Label,
    #[schema(required = false)]
    session_id: schema_types::SessionId,
    /// First frame of the episode.
    start_frame: u64,
    start_pts_ms: i64,
    peak_score: schema_types::Fraction,
    /// Kept frame with the peak score.
    peak_frame: u64,
    /// Bounding box of the motion.
    region: Region,
    /// Names of the zones with motion.
    zones: Vec<String>,
}

/// An episode of activity ends.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what the timeline writes")]
struct ActivityEndedPayload {
    request_id: schema_types::RequestId,
    stream_id: schema_types::Label,
    #[schema(required = false)]
    session_id: schema_types::SessionId,
    /// First frame of the episode.
    start_frame: u64,
    /// Last frame with motion.
    end_frame: u64,
    start_pts_ms: i64,
    end_pts_ms: i64,
    /// Highest score of the frames kept for the episode.
    peak_score: schema_types::Fraction,
    /// Kept frame with the peak score.
    peak_frame: u64,
    /// Bounding box of all motion.
    region: Region,
    /// Names of the zones with motion.
    zones: Vec<String>,
}
