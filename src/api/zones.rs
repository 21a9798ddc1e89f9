//! Zones: parts of the picture that a caller watches.

use media::{Label, Score, Zone, Zones};
use utoipa::{
    PartialSchema,
    openapi::{ArrayBuilder, ObjectBuilder, RefOr, Schema, Type},
};

use super::prelude::*;
use crate::base::json::{List, Object, score};

pub type ZoneName = BoundedText<1, { Zone::NAME_BYTES_MAX }>;

/// A watched zone of the picture; unknown fields are refused.
#[derive(ToSchema)]
#[schema(as = Zone)]
pub struct ZoneFields {
    /// Name in events, without control characters; unique among the zones.
    #[schema(inline, value_type = ZoneName)]
    name: String,
    /// Corners in order, as fractions of the picture's width and height from the top left; the last
    /// is joined to the first. Must contain the centre of at least one of the 64 x 40 cells.
    #[schema(inline, value_type = Vec<Corner>, min_items = 3, max_items = 32)]
    polygon: Vec<(Score, Score)>,
}

/// Corner of a zone, two fractions.
struct Corner;

impl PartialSchema for Corner {
    fn schema() -> RefOr<Schema> {
        let share = ObjectBuilder::new().schema_type(Type::Number);
        let share = share.minimum(Some(0.0)).maximum(Some(1.0));
        ArrayBuilder::new().items(share).min_items(Some(2)).max_items(Some(2)).into()
    }
}

impl ToSchema for Corner {}

declared!(ZoneFields { name: required name, polygon: required polygon }; closed |object| {
    if let (Some(name), Some(polygon)) = (&name, &polygon) {
        let zone = Zone { name: name.clone(), polygon: polygon.clone() };
        if zone.cells().iter().all(|row| *row == 0) {
            object.refuse("polygon", "holds the middle of no cell of the picture: it is too small");
        }
    }
});

pub type ZoneList = List<ZoneFields, 0, { Zone::MAX }>;

/// A zone that was watched.
#[derive(Serialize, ToSchema)]
pub struct WatchedZone {
    name: String,
    /// Corners in order, as given; empty for recordings of an older server.
    #[schema(inline, value_type = Vec<Vec<f64>>, max_items = 32)]
    polygon: Vec<[f64; 2]>,
}

/// Zones of a recording.
#[derive(Serialize, ToSchema)]
pub struct WatchedZones {
    #[schema(value_type = schema_types::Label)]
    stream_id: String,
    zones: Vec<WatchedZone>,
    /// True if motion outside of the zones is ignored.
    activity_zones_only: bool,
}

impl WatchedZones {
    /// Creates the record of the zones of the newest recording of `stream`.
    pub fn of(stream: &StreamId, Zones { zones, only }: &Zones) -> WatchedZones {
        let zone = |Zone { name, polygon }: &Zone| WatchedZone {
            name: name.clone(),
            polygon: polygon.iter().map(|(x, y)| [x.as_f64(), y.as_f64()]).collect(),
        };
        WatchedZones {
            stream_id: stream.as_str().to_owned(),
            zones: zones.iter().map(zone).collect(),
            activity_zones_only: *only,
        }
    }
}

/// Adds faults of `zones` and `activity_zones_only`: duplicate names, or the flag without zones.
pub fn check(
    object: &mut Object<'_>,
    zones: &Option<Option<ZoneList>>,
    only: &Option<Option<bool>>,
) {
    let Some(zones) = zones else { return };
    let zones = zones.as_ref().map_or(&[][..], |List(zones)| zones);
    for (at, zone) in zones.iter().enumerate() {
        if zones[..at].iter().any(|other| other.name == zone.name) {
            object.refuse(&format!("zones[{at}].name"), "is that of a zone before");
        }
    }
    if *only == Some(Some(true)) && zones.is_empty() {
        object.refuse("activity_zones_only", "needs zones");
    }
}

pub fn zones(zones: Option<ZoneList>, only: Option<bool>) -> Zones {
    let zones = zones.into_iter().flat_map(|List(zones)| zones);
    let zones = zones.map(|ZoneFields { name, polygon }| Zone { name, polygon }).collect();
    Zones { zones, only: only.unwrap_or(false) }
}

fn name(value: &Value) -> Result<String, ValueError> {
    let BoundedText(name) = ZoneName::read(value)?;
    parsed::<Label>(value).map(|_| name)
}

fn polygon(value: &Value) -> Result<Vec<(Score, Score)>, ValueError> {
    let (least, most) = (Zone::CORNERS_MIN, Zone::CORNERS_MAX);
    let corners = value.as_array().filter(|corners| (least..=most).contains(&corners.len()));
    let corners = corners.ok_or_else(|| {
        ValueError::from(format!("must be an array of {least} to {most} corners"))
    })?;
    let corner = |(at, corner): (usize, &Value)| {
        match corner.as_array().map(Vec::as_slice) {
            Some([x, y]) => score(x).and_then(|x| Ok((x, score(y)?))).ok(),
            _ => None,
        }
        .ok_or_else(|| {
            format!("has a corner, number {at}, that is not two numbers in [0, 1]").into()
        })
    };
    corners.iter().enumerate().map(corner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::{Declared, FieldError, Form};
    use serde_json::json;

    struct Watched {
        zones: Option<ZoneList>,
        activity_zones_only: Option<bool>,
    }

    declared!(Watched { zones, activity_zones_only }; closed |object| {
        check(object, &zones, &activity_zones_only);
    });

    fn read(body: Value) -> Result<Zones, Vec<String>> {
        let read = Watched::take(&body, Form::Body);
        let read = read.map(|it| zones(it.zones, it.activity_zones_only));
        read.map_err(|faults| {
            Vec::<FieldError>::from(faults).iter().map(FieldError::to_string).collect()
        })
    }

    #[test]
    fn zones_are_read_or_refused_by_name() {
        let left = json!([[0, 0], [0.5, 0], [0.5, 1], [0, 1]]);
        let found = read(json!({ "zones": [{ "name": "door", "polygon": left }] }));
        let score = Score::from_millionths;
        let polygon = vec![
            (score(0), score(0)),
            (score(500_000), score(0)),
            (score(500_000), score(1_000_000)),
            (score(0), score(1_000_000)),
        ];
        let zone = Zone { name: "door".to_owned(), polygon };
        assert_eq!(found, Ok(Zones { zones: vec![zone], only: false }));
        assert_eq!(read(json!({})), Ok(Zones::default()));
        let many = |count: usize| {
            (0..count).map(|at| json!({ "name": format!("z{at}"), "polygon": left })).collect()
        };
        let most: Vec<Value> = many(16);
        let found = read(json!({ "zones": most, "activity_zones_only": true }));
        assert!(found.is_ok_and(|zones| zones.only && zones.zones.len() == 16));
        let named = |name: Value| json!({ "zones": [{ "name": name, "polygon": left }] });
        let cornered = |polygon: Value| json!({ "zones": [{ "name": "a", "polygon": polygon }] });
        let corners = |count: usize| vec![json!([0.5, 0.5]); count];
        let array = "zones must be an array of 0 to 16 objects";
        let [second, third] = [
            "zones[0].polygon has a corner, number 1,",
            "zones[0].polygon has a corner, number 2,",
        ];
        let rows = [
            (json!({ "zones": many(17) as Vec<Value> }), array),
            (json!({ "zones": {} }), array),
            (json!({ "zones": [1] }), "zones[0] must be an object"),
            (json!({ "zones": [{ "polygon": left }] }), "zones[0].name is required"),
            (json!({ "zones": [{ "name": "a" }] }), "zones[0].polygon is required"),
            (named(json!("")), "zones[0].name must be a string of 1 to 64 bytes"),
            (named(json!("a".repeat(65))), "zones[0].name must be a string of 1 to 64 bytes"),
            (named(json!(7)), "zones[0].name must be a string of 1 to 64 bytes"),
            (named(json!("a\n")), "zones[0].name "),
            (cornered(json!(corners(2))), "zones[0].polygon must be an array of 3 to 32 corners"),
            (cornered(json!(corners(33))), "zones[0].polygon must be an array of 3 to 32 corners"),
            (cornered(json!([[0, 0], [1, 0], [1]])), third),
            (cornered(json!([[0, 0], [1.5, 0], [1, 1]])), second),
            (cornered(json!([[0, 0], [1, 0], ["1", 1]])), third),
            (cornered(json!(corners(3))), "zones[0].polygon holds the middle of no cell"),
            (
                json!({ "zones": [{ "name": "a", "polygon": left, "colour": 1 }] }),
                "zones[0].colour is not a known field",
            ),
            (
                json!({ "zones": [{ "name": "a", "polygon": left }, { "name": "a", "polygon": left }] }),
                "zones[1].name is that of a zone before",
            ),
            (json!({ "activity_zones_only": true }), "activity_zones_only needs zones"),
            (json!({ "activity_zones_only": 1 }), "activity_zones_only must be true or false"),
        ];
        for (body, expected) in rows {
            let problems = read(body.clone()).expect_err(expected);
            assert!(problems[0].starts_with(expected), "{body}: {problems:?}");
        }
    }
}
