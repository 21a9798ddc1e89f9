//! Zones of the picture as options, sent to a server or used locally.

use media::{Score, Zone, Zones};
use serde_json::{Value, json};

use crate::error::CliError;

/// Zones that are watched.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Zones")]
pub struct ZoneArgs {
    /// Name a part of the picture, by its corners as distances from the left and from the top, 0 to 1: what moves
    /// there is reported with the name; up to 16
    #[arg(long = "zone", value_name = "NAME=X,Y;X,Y;X,Y..", value_parser = zone)]
    zones: Vec<Zone>,
    /// Ignore what moves outside of the zones
    #[arg(long, requires = "zones")]
    zones_only: bool,
}

impl ZoneArgs {
    /// Returns the zones, after checking their number and names.
    pub fn zones(&self) -> Result<Zones, CliError> {
        if self.zones.len() > Zone::MAX {
            return Err(CliError::Usage(format!("{} zones at most", Zone::MAX)));
        }
        let names: std::collections::HashSet<_> = self.zones.iter().map(|it| &it.name).collect();
        if names.len() < self.zones.len() {
            return Err(CliError::Usage("two zones have one name".to_owned()));
        }
        Ok(Zones { zones: self.zones.clone(), only: self.zones_only })
    }

    /// Returns `zones` and `activity_zones_only` for the body of a request, as far as they are given.
    pub fn fields(&self) -> Result<[Option<Value>; 2], CliError> {
        let Zones { zones, only } = self.zones()?;
        let corner = |(x, y): &(Score, Score)| json!([x.as_f64(), y.as_f64()]);
        let field = |zone: &Zone| {
            let polygon: Value = zone.polygon.iter().map(corner).collect();
            json!({ "name": zone.name, "polygon": polygon })
        };
        let zones = (!zones.is_empty()).then(|| zones.iter().map(field).collect());
        Ok([zones, only.then(|| true.into())])
    }
}

fn zone(text: &str) -> Result<Zone, String> {
    // A name may contain the equals sign.
    let (name, corners) = text.rsplit_once('=').ok_or("needs NAME=X,Y;X,Y;X,Y")?;
    if name.is_empty() {
        return Err("needs a name before the =".to_owned());
    }
    if name.len() > Zone::NAME_BYTES_MAX || name.contains(char::is_control) {
        let most = Zone::NAME_BYTES_MAX;
        return Err(format!("needs a name of at most {most} bytes without control characters"));
    }
    let side = |text: &str| text.trim().parse().ok().and_then(|side| Score::from_f64(side).ok());
    let corner = |text: &str| {
        let found = text.split_once(',').and_then(|(x, y)| Some((side(x)?, side(y)?)));
        found.ok_or_else(|| format!("{text:?} is no corner: two numbers in 0 to 1"))
    };
    let polygon: Vec<_> = corners.split(';').map(corner).collect::<Result<_, _>>()?;
    if !(Zone::CORNERS_MIN..=Zone::CORNERS_MAX).contains(&polygon.len()) {
        return Err(format!("needs {} to {} corners", Zone::CORNERS_MIN, Zone::CORNERS_MAX));
    }
    let zone = Zone { name: name.to_owned(), polygon };
    if zone.cells().iter().all(|row| *row == 0) {
        return Err("holds the middle of no cell of the picture: it is too small".to_owned());
    }
    Ok(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_a_name_and_its_corners() {
        let many = vec!["0,0"; Zone::CORNERS_MAX + 1].join(";");
        let rows = [
            ("door=0,0;0.5,0;0.5,1", Ok(("door", 3))),
            ("a=b=0,0; 1,0 ;1,1;0,1", Ok(("a=b", 4))),
            ("door", Err("NAME=")),
            ("=0,0;1,0;1,1", Err("name")),
            (&format!("{}=0,0;1,0;1,1", "a".repeat(65)), Err("at most 64 bytes")),
            ("a\x1b[31m=0,0;1,0;1,1", Err("control characters")),
            ("door=0,0;1,0", Err("3 to 32 corners")),
            (&format!("door={many}"), Err("3 to 32 corners")),
            ("door=0,0;1.5,0;1,1", Err("1.5,0")),
            ("door=0,0;0,0;0,0", Err("too small")),
            ("door=0,0;1;1,1", Err("\"1\" is no corner")),
        ];
        for (text, expected) in rows {
            match (zone(text), expected) {
                (Ok(zone), Ok((name, corners))) => {
                    assert_eq!((&*zone.name, zone.polygon.len()), (name, corners), "{text}");
                }
                (Err(told), Err(part)) => assert!(told.contains(part), "{text}: {told}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn zones_are_sent_as_the_server_takes_them() {
        let square = zone("yard=0,0;1,0;1,0.25").expect("a zone");
        let args = |zones| ZoneArgs { zones, zones_only: true };
        let fields = args(vec![square.clone()]).fields().expect("one zone");
        let zones = json!([{ "name": "yard", "polygon": [[0.0, 0.0], [1.0, 0.0], [1.0, 0.25]] }]);
        assert_eq!(fields, [Some(zones), Some(json!(true))]);
        assert_eq!(ZoneArgs::default().fields().expect("no zones"), [None, None]);
        assert!(args(vec![square.clone(); 2]).zones().is_err(), "one name twice");
        let many = (0..17).map(|at| Zone { name: at.to_string(), ..square.clone() });
        assert!(args(many.collect()).zones().is_err(), "17 zones");
    }
}
