//! JSON objects written and read member by member, and the JSON form of each type of member.
//!
//! Frame rates are read back to the nearest millionth of a frame per second, everything else exactly.

use std::{collections::HashMap, fmt::Display, io::Write, str::FromStr};

use media::{
    Activity, AnalysisId, BlobHash, CellBox, EventType, FrameRate, JobId, Label, MarkerId,
    MarkerOrigin, MarkerStatus, RequestId, RunId, Score, Seq, SessionId, Signal, StreamId,
    WallTime, Zone,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::signal_record::{RegionRecord, SignalRecord};
use crate::event::*;

/// Payload that is written to a `JsonObjectWriter` and read from a `JsonObjectReader`.
pub(crate) trait JsonPayload: Sized {
    fn write(&self, object: &mut JsonObjectWriter);
    fn read(fields: &JsonObjectReader<'_>) -> Result<Self, &'static str>;
}

pub(crate) struct JsonObjectWriter(Vec<u8>);

impl JsonObjectWriter {
    pub(crate) fn of(payload: &impl JsonPayload) -> Vec<u8> {
        let mut object = JsonObjectWriter(vec![b'{']);
        payload.write(&mut object);
        object.0.push(b'}');
        object.0
    }

    pub(crate) fn field(&mut self, name: &str, value: &impl JsonField) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        put_text(&mut self.0, name);
        self.0.push(b':');
        value.write(&mut self.0);
    }

    pub(crate) fn optional(&mut self, name: &str, value: &impl JsonField) {
        if !value.is_absent() {
            self.field(name, value);
        }
    }
}

/// Members of a JSON object being read.
pub(crate) struct JsonObjectReader<'a>(HashMap<String, &'a RawValue>);

impl<'a> JsonObjectReader<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<JsonObjectReader<'a>, &'static str> {
        serde_json::from_str(text).map(JsonObjectReader).map_err(|_| "(no JSON object)")
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn get<T: JsonField>(&self, name: &'static str) -> Result<T, &'static str> {
        T::read(self.0.get(name).map_or("null", |value| value.get())).ok_or(name)
    }
}

/// Value of one member.
pub(crate) trait JsonField: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(text: &str) -> Option<Self>;
    fn is_absent(&self) -> bool {
        false
    }
}

fn put(out: &mut Vec<u8>, value: impl Display) {
    write!(out, "{value}").expect("a vector takes bytes");
}

fn put_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("a vector takes bytes");
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_json(out, text);
}

fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    // The caller needs no reason: the text is not a value of this type.
    serde_json::from_str(text).ok()
}

macro_rules! json_fields {
    ($($name:ty),*) => { $(impl JsonField for $name {
        fn write(&self, out: &mut Vec<u8>) { put_json(out, self); }
        fn read(text: &str) -> Option<Self> { parse(text) }
    })* };
}
json_fields!(String, u64, u32, i64, Vec<u16>, Vec<String>);

macro_rules! id_fields {
    ($($name:ty),*) => { $(impl JsonField for $name {
        fn write(&self, out: &mut Vec<u8>) { put(out, format_args!("\"{self}\"")); }
        fn read(text: &str) -> Option<Self> { parse_as(&parse::<String>(text)?) }
    })* };
}
id_fields!(RequestId, RunId, SessionId, JobId, MarkerId, AnalysisId, BlobHash);

macro_rules! name_fields {
    ($($name:ty: $read:expr;)*) => { $(impl JsonField for $name {
        fn write(&self, out: &mut Vec<u8>) { put_text(out, self.as_str()); }
        fn read(text: &str) -> Option<Self> { $read(&parse::<String>(text)?) }
    })* };
}
name_fields! {
    StreamId: parse_as;
    Label: parse_as;
    EventType: |name: &str| Some(EventType::from_name(name));
    MarkerStatus: MarkerStatus::from_name;
    MarkerOrigin: MarkerOrigin::from_name;
    SamplingPolicy: SamplingPolicy::from_name;
    Pass: Pass::from_name;
}

fn parse_as<T: FromStr>(text: &str) -> Option<T> {
    // As in `parse`: the caller needs no reason.
    text.parse().ok()
}

macro_rules! number_fields {
    ($($name:ident { $number:tt }),*) => { $(impl JsonField for $name {
        fn write(&self, out: &mut Vec<u8>) { put(out, self.$number); }
        fn read(text: &str) -> Option<Self> { Some($name { $number: parse(text)? }) }
    })* };
}
number_fields!(Seq { 0 }, WallTime { epoch_ms });

impl JsonField for bool {
    fn write(&self, out: &mut Vec<u8>) {
        put(out, self);
    }

    fn read(text: &str) -> Option<bool> {
        if text == "null" { Some(false) } else { parse(text) }
    }

    fn is_absent(&self) -> bool {
        !self
    }
}

impl<T: JsonField> JsonField for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write(out),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn read(text: &str) -> Option<Option<T>> {
        if text == "null" { Some(None) } else { T::read(text).map(Some) }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl JsonField for Score {
    /// One to six decimals, as a double of this value prints.
    fn write(&self, out: &mut Vec<u8>) {
        let (whole, mut part) =
            (self.millionths() / Score::SCALE, self.millionths() % Score::SCALE);
        let mut digits = 6;
        while digits > 1 && part.is_multiple_of(10) {
            part /= 10;
            digits -= 1;
        }
        put(out, format_args!("{whole}.{part:0digits$}"));
    }

    fn read(text: &str) -> Option<Score> {
        parse::<f64>(text).and_then(|value| Score::from_f64(value).ok())
    }
}

impl JsonField for CellBox {
    fn write(&self, out: &mut Vec<u8>) {
        put_json(out, &RegionRecord::from(*self));
    }

    fn read(text: &str) -> Option<CellBox> {
        parse::<RegionRecord>(text)?.cells()
    }
}

/// Zone; older logs contain only its name.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ZoneRow {
    Whole { name: String, polygon: Vec<[f64; 2]> },
    Name(String),
}

impl ZoneRow {
    fn zone(self) -> Option<Zone> {
        // As in a signal: the caller does not need to know the invalid corner.
        let score = |value| Score::from_f64(value).ok();
        let (name, polygon) = match self {
            ZoneRow::Whole { name, polygon } => (name, polygon),
            ZoneRow::Name(name) => (name, Vec::new()),
        };
        let corners = polygon.into_iter().map(|[x, y]| Some((score(x)?, score(y)?)));
        Some(Zone { name, polygon: corners.collect::<Option<_>>()? })
    }
}

/// Zones; absent if there are none.
impl JsonField for Vec<Zone> {
    fn write(&self, out: &mut Vec<u8>) {
        let row = |Zone { name, polygon }: &Zone| {
            let polygon = polygon.iter().map(|(x, y)| [x.as_f64(), y.as_f64()]).collect();
            ZoneRow::Whole { name: name.clone(), polygon }
        };
        put_json(out, &self.iter().map(row).collect::<Vec<_>>());
    }

    fn read(text: &str) -> Option<Vec<Zone>> {
        let rows: Option<Vec<ZoneRow>> = parse(text)?;
        rows.unwrap_or_default().into_iter().map(ZoneRow::zone).collect()
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl JsonField for FrameRate {
    fn write(&self, out: &mut Vec<u8>) {
        put_json(out, &self.as_f64());
    }

    fn read(text: &str) -> Option<FrameRate> {
        FrameRate::nearest(parse(text)?)
    }
}

impl JsonField for JsonText {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_str().as_bytes());
    }

    fn read(text: &str) -> Option<JsonText> {
        JsonText::parse(text)
    }
}

impl JsonText {
    /// Returns `text` if it is one valid JSON value.
    pub fn parse(text: impl AsRef<str>) -> Option<JsonText> {
        parse::<Box<RawValue>>(text.as_ref()).map(|value| JsonText(value.get().into()))
    }
}

impl JsonField for Signals {
    /// A column is written as `null`, which the record replaces by a reference.
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Signals::Inline(signals) => {
                out.push(b'[');
                for (position, signal) in signals.iter().enumerate() {
                    put_signal(out, signal, position == 0);
                }
                out.push(b']');
            }
            Signals::Column { .. } => out.extend_from_slice(b"null"),
        }
    }

    fn read(text: &str) -> Option<Signals> {
        let rows: Option<Vec<SignalRecord>> = parse(text)?;
        let signals = rows.unwrap_or_default().into_iter().map(|row| row.signal());
        signals.collect::<Option<Vec<_>>>().map(Signals::Inline)
    }
}

/// Appends `signal` to a JSON array, after a comma unless it is the `first` element.
pub(crate) fn put_signal(out: &mut Vec<u8>, signal: &Signal, first: bool) {
    if !first {
        out.push(b',');
    }
    put(out, format_args!("{{\"frame_index\":{}", signal.frame_index));
    if let Some(index) = signal.source_frame_index {
        put(out, format_args!(",\"source_frame_index\":{index}"));
    }
    put(out, format_args!(",\"pts_ms\":{}", signal.pts_ms));
    put(out, format_args!(",\"perceptual_hash\":\"{:016x}\"", signal.perceptual_hash));
    let scores = [
        (",\"luma_mean\":", Some(signal.luma_mean)),
        (",\"flicker_score\":", Some(signal.flicker_score)),
        (",\"ghosting_score\":", Some(signal.ghosting_score)),
        (",\"noise_variance_score\":", Some(signal.noise_variance_score)),
        (",\"scene_score\":", signal.scene_score),
        (",\"activity_score\":", signal.activity.map(|activity| activity.score)),
    ];
    for (name, score) in scores {
        if let Some(score) = score {
            out.extend_from_slice(name.as_bytes());
            score.write(out);
        }
    }
    if let Some(activity) = signal.activity {
        if !activity.region.is_empty() {
            out.extend_from_slice(b",\"activity_region\":");
            activity.region.write(out);
        }
        if activity.zones != 0 {
            let zones = Activity::zone_indices(activity.zones);
            out.extend_from_slice(b",\"activity_zones\":");
            zones.collect::<Vec<_>>().write(out);
        }
    }
    out.push(b'}');
}
