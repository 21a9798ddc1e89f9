//! The list in a JSON answer, item by item as it comes.

use std::{
    fmt,
    io::{BufReader, Read},
};

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

use crate::error::CliError;

/// Reason for which an answer was not read to its end.
pub enum Stopped {
    /// It is not what it should be, or was cut short.
    Json(serde_json::Error),
    /// The receiver of an item takes no more.
    Taker(CliError),
}

/// Hands each item of the list under `list` to `take`, with the fields that came before the list.
pub fn each<T: DeserializeOwned>(
    answer: impl Read,
    list: &'static str,
    mut take: impl FnMut(&Map<String, Value>, T) -> Result<(), CliError>,
) -> Result<(), Stopped> {
    let mut refused = None;
    let mut take = |head: &Map<String, Value>, item| match take(head, item) {
        Ok(()) => true,
        Err(error) => {
            refused = Some(error);
            false
        }
    };
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, answer));
    let object = Object { list, take: &mut take, item: std::marker::PhantomData };
    let read = json.deserialize_map(object).and_then(|()| json.end());
    match (refused, read) {
        (Some(error), _) => Err(Stopped::Taker(error)),
        (None, read) => read.map_err(Stopped::Json),
    }
}

struct Object<'a, F, T> {
    list: &'static str,
    take: &'a mut F,
    item: std::marker::PhantomData<T>,
}

impl<'de, F, T> Visitor<'de> for Object<'_, F, T>
where
    F: FnMut(&Map<String, Value>, T) -> bool,
    T: DeserializeOwned,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut head = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == self.list {
                fields.next_value_seed(Items { head: &head, take: self.take, item: self.item })?;
            } else {
                let value = fields.next_value()?;
                head.insert(name, value);
            }
        }
        Ok(())
    }
}

struct Items<'a, F, T> {
    head: &'a Map<String, Value>,
    take: &'a mut F,
    item: std::marker::PhantomData<T>,
}

impl<'de, F, T> DeserializeSeed<'de> for Items<'_, F, T>
where
    F: FnMut(&Map<String, Value>, T) -> bool,
    T: DeserializeOwned,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, F, T> Visitor<'de> for Items<'_, F, T>
where
    F: FnMut(&Map<String, Value>, T) -> bool,
    T: DeserializeOwned,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            if !(self.take)(self.head, item) {
                return Err(A::Error::custom("no more is wanted"));
            }
        }
        Ok(())
    }
}
