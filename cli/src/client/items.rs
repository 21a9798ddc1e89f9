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
    let walk = Walk { list, head: None, take: &mut take };
    let read = serde_json::Deserializer::from_reader(answer).deserialize_map(walk);
    read.map_err(|error| match refused {
        Some(refused) => Stopped::Taker(refused),
        None if error.is_eof() || error.is_io() => Stopped::Cut,
        None => Stopped::Json(error),
    })
}

/// Visitor of the response's object and, with the fields before it as `head`, of the array.
struct Walk<'a, T> {
    list: &'a str,
    head: Option<&'a Map<String, Value>>,
    /// Takes an item and the fields before the array; returns false to stop.
    take: &'a mut dyn FnMut(&Map<String, Value>, T) -> bool,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Walk<'_, T> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, list: D) -> Result<Self::Value, D::Error> {
        list.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Walk<'_, T> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.head.is_some() { "a list" } else { "an object" })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut head = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == self.list {
                let items = Walk { list: self.list, head: Some(&head), take: &mut *self.take };
                fields.next_value_seed(items)?;
            } else {
                head.insert(name, fields.next_value()?);
            }
        }
        Ok(head)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let none = Map::new();
        while let Some(item) = items.next_element::<T>()? {
            if !(self.take)(self.head.unwrap_or(&none), item) {
                return Err(A::Error::custom("an item was not taken"));
            }
        }
        Ok(none)
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
