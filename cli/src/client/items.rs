//! Streams the items of an array in a JSON response.

use std::{
    fmt,
    io::{BufReader, Read},
};

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::error::CliError;

/// Bytes that are read at once.
const PIECE: usize = 1 << 16;

/// Reason that a response was not read to its end.
pub enum Stopped {
    /// The response ended early.
    Cut,
    /// The response is not valid JSON of the expected form.
    Json(serde_json::Error),
    /// The callback failed.
    Taker(CliError),
}

/// Passes each item of the array `list` to `take`, with the fields that precede the array; returns all other fields.
pub fn each<T: DeserializeOwned>(
    answer: impl Read,
    list: &str,
    mut take: impl FnMut(&Map<String, Value>, T) -> Result<(), CliError>,
) -> Result<Map<String, Value>, Stopped> {
    let mut refused = None;
    let mut take = |head: &Map<String, Value>, item: T| match take(head, item) {
        Ok(()) => true,
        Err(error) => {
            refused = Some(error);
            false
        }
    };
    let answer = BufReader::with_capacity(PIECE, answer);
    let fields = Fields { list, take: &mut take };
    let read = serde_json::Deserializer::from_reader(answer).deserialize_map(fields);
    read.map_err(|error| match refused {
        Some(refused) => Stopped::Taker(refused),
        None if error.is_eof() || error.is_io() => Stopped::Cut,
        None => Stopped::Json(error),
    })
}

/// Takes an item and the fields before the array; returns false to stop.
type Take<'a, T> = &'a mut dyn FnMut(&Map<String, Value>, T) -> bool;

/// Visitor of the response's object.
struct Fields<'a, T> {
    list: &'a str,
    take: Take<'a, T>,
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Fields<'_, T> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut head = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == self.list {
                fields.next_value_seed(Items { head: &head, take: &mut *self.take })?;
            } else {
                head.insert(name, fields.next_value()?);
            }
        }
        Ok(head)
    }
}

/// Visitor of the array.
struct Items<'a, T> {
    head: &'a Map<String, Value>,
    take: Take<'a, T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Items<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, list: D) -> Result<(), D::Error> {
        list.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Items<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<T>()? {
            if !(self.take)(self.head, item) {
                return Err(A::Error::custom("an item was not taken"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    /// Returns the fields before the array, the items, and the way in which reading ended.
    fn read(answer: &str) -> (String, Vec<String>, &'static str) {
        let (mut before, mut items) = (String::new(), Vec::new());
        let read = each(answer.as_bytes(), "it", |head, item: Box<RawValue>| {
            before = Value::Object(head.clone()).to_string();
            items.push(item.get().to_owned());
            if item.get() == "\"no more\"" { Err(CliError::Interrupted) } else { Ok(()) }
        });
        let ended = match read {
            Ok(_) => "whole",
            Err(Stopped::Cut) => "cut",
            Err(Stopped::Json(_)) => "odd",
            Err(Stopped::Taker(_)) => "refused",
        };
        (before, items, ended)
    }

    #[test]
    fn a_list_is_read_item_by_item_up_to_where_it_breaks() {
        let rows: [(&str, &str, &[&str], &str); 11] = [
            ("{}", "", &[], "whole"),
            (r#"{"it":[]}"#, "", &[], "whole"),
            (
                r#" {"a" : 12 , "it" : [ 1 , {"b":[2]} ] , "c" : {} } "#,
                r#"{"a":12}"#,
                &["1", r#"{"b":[2]}"#],
                "whole",
            ),
            (r#"{"it":["]},","\""],"it2":null}"#, "{}", &[r#""]},""#, r#""\"""#], "whole"),
            (r#"{"it":[1,"no more",3]}"#, "{}", &["1", "\"no more\""], "refused"),
            (r#"{"it":[1,{"a":2"#, "{}", &["1"], "cut"),
            (r#"{"it":[1]"#, "{}", &["1"], "cut"),
            ("", "", &[], "cut"),
            (r#"{"it":[1 2]}"#, "{}", &["1"], "odd"),
            (r#"{"it":{}}"#, "", &[], "odd"),
            ("<html>", "", &[], "odd"),
        ];
        for (answer, before, items, ended) in rows {
            let found = read(answer);
            assert_eq!((found.0.as_str(), found.2), (before, ended), "{answer}");
            assert_eq!(found.1, items, "{answer}");
        }
    }
}
