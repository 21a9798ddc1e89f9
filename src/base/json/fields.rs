//! The typed reader: callers ask for fields, complaints are collected, one answer names all.

use std::{ops::RangeInclusive, str::FromStr};

use media::{ParseError, Score};
use serde_json::{Map, Value};

use super::{Declared, Detail, Faults, Form, Problem};

/// Reads the fields of one object and remembers what was wrong with them.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    prefix: String,
    asked: Vec<&'a str>,
    faults: Faults,
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which must be an object.
    pub fn of(value: &'a Value) -> Result<Fields<'a>, Vec<Detail>> {
        match value {
            Value::Object(object) => Ok(Fields::within(object, String::new())),
            _ => Err(vec![Detail::new("body", "must be an object")]),
        }
    }

    /// The fields of `object`, each called `prefix` and its key.
    pub fn within(object: &'a Map<String, Value>, prefix: String) -> Fields<'a> {
        Fields { object, prefix, asked: Vec::new(), faults: Faults::default() }
    }

    /// Notes a complaint about `field`.
    pub fn refuse(&mut self, field: &str, problem: impl Into<Problem>) {
        self.faults.refuse(format!("{}{field}", self.prefix), problem);
    }

    /// The value of `field`; `None` when it is missing or null, or was refused.
    pub fn optional<T>(
        &mut self,
        field: &'a str,
        parse: impl FnOnce(&'a Value) -> Result<T, Problem>,
    ) -> Option<T> {
        self.asked.push(field);
        let value = self.object.get(field).filter(|value| !value.is_null())?;
        match parse(value) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.refuse(field, problem);
                None
            }
        }
    }

    /// The value of `field`; `None` when it was refused, also for being missing.
    pub fn required<T>(
        &mut self,
        field: &'a str,
        parse: impl FnOnce(&'a Value) -> Result<T, Problem>,
    ) -> Option<T> {
        if self.object.get(field).is_none_or(Value::is_null) {
            self.asked.push(field);
            self.refuse(field, "is required");
            return None;
        }
        self.optional(field, parse)
    }

    /// The objects of the array `field`, each read by `read`; `None` when it is missing or refused.
    pub fn objects<T>(
        &mut self,
        field: &'a str,
        len: RangeInclusive<usize>,
        read: impl Fn(&mut Fields<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let items = self.optional(field, |value| match value {
            Value::Array(items) if len.contains(&items.len()) => Ok(items),
            _ => {
                Err(format!("must be an array of {} to {} objects", len.start(), len.end()).into())
            }
        })?;
        let mut values = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let Value::Object(object) = item else {
                self.refuse(&format!("{field}[{at}]"), "must be an object");
                continue;
            };
            let mut fields = Fields::within(object, format!("{}{field}[{at}].", self.prefix));
            values.extend(read(&mut fields));
            self.faults.part::<()>("", Err(fields.faults));
        }
        (values.len() == items.len()).then_some(values)
    }

    /// The object `field`, read by `read`; `None` when it is missing or refused.
    pub fn object<T>(
        &mut self,
        field: &'a str,
        read: impl FnOnce(&mut Fields<'a>) -> Option<T>,
    ) -> Option<T> {
        let object = self.optional(field, |value| match value {
            Value::Object(object) => Ok(object),
            _ => Err("must be an object".into()),
        })?;
        let mut fields = Fields::within(object, format!("{}{field}.", self.prefix));
        let value = read(&mut fields);
        self.faults.part::<()>("", Err(fields.faults));
        value
    }

    /// The field `field` as a declared type; `None` when it is missing or refused.
    pub fn declared<T: Declared>(&mut self, field: &'a str) -> Option<T> {
        let value = self.optional(field, Ok)?;
        self.faults.part(&format!("{}{field}", self.prefix), T::take(value, Form::Body))
    }

    /// Refuses every field that was not asked for.
    pub fn refuse_unknown(&mut self) {
        let unknown: Vec<&String> =
            self.object.keys().filter(|key| !self.asked.contains(&key.as_str())).collect();
        for field in unknown {
            self.refuse(field, "is not a known field");
        }
    }

    /// Value that `build` makes of the fields when none was refused.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Vec<Detail>> {
        self.faults.finish(build).map_err(Vec::from)
    }
}

/// An integer in `range`, written as one.
pub fn integer(range: RangeInclusive<u64>) -> impl Fn(&Value) -> Result<u64, Problem> {
    move |value| within(value.as_u64(), &range)
}

/// An integer in `range` as a query writes it: digits in a string.
pub fn digits(range: RangeInclusive<u64>) -> impl Fn(&Value) -> Result<u64, Problem> {
    move |value| {
        let text = value.as_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        within(text.and_then(|text| text.parse().ok()), &range)
    }
}

fn within(found: Option<u64>, range: &RangeInclusive<u64>) -> Result<u64, Problem> {
    found
        .filter(|found| range.contains(found))
        .ok_or_else(|| format!("must be an integer in [{}, {}]", range.start(), range.end()).into())
}

/// Any 64-bit integer, written as one.
pub fn signed(value: &Value) -> Result<i64, Problem> {
    value.as_i64().ok_or_else(|| "must be a 64-bit integer".into())
}

/// A number in `range`.
pub fn number(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Result<f64, Problem> {
    move |value| {
        value.as_f64().filter(|found| range.contains(found)).ok_or_else(|| {
            format!("must be a number in [{}, {}]", range.start(), range.end()).into()
        })
    }
}

/// A number in [0, 1].
pub fn score(value: &Value) -> Result<Score, Problem> {
    let found = value.as_f64().and_then(|found| Score::from_f64(found).ok());
    found.ok_or_else(|| "must be a number in [0, 1]".into())
}

/// True or false.
pub fn boolean(value: &Value) -> Result<bool, Problem> {
    value.as_bool().ok_or_else(|| "must be true or false".into())
}

/// A string of so many bytes.
pub fn text(bytes: RangeInclusive<usize>) -> impl Fn(&Value) -> Result<&str, Problem> {
    move |value| match value.as_str() {
        Some(found) if bytes.contains(&found.len()) => Ok(found),
        _ => Err(format!("must be a string of {} to {} bytes", bytes.start(), bytes.end()).into()),
    }
}

/// A string that says something, as `read` reads it.
pub fn said<'a, T>(
    read: impl FnOnce(&'a Value) -> Result<T, Problem>,
) -> impl FnOnce(&'a Value) -> Result<T, Problem> {
    |value| match value.as_str() {
        Some(text) if !text.is_empty() && text.trim().is_empty() => {
            Err("must hold more than white space".into())
        }
        _ => read(value),
    }
}

/// A string that is a `T`.
pub fn parsed<T: FromStr<Err = ParseError>>(value: &Value) -> Result<T, Problem> {
    let found = value.as_str().ok_or(Problem::from("must be a string"))?;
    found.parse().map_err(|error: ParseError| error.problem.into())
}

/// One of `names`, read by `read`.
pub fn name<T>(
    names: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> impl Fn(&Value) -> Result<T, Problem> {
    move |value| {
        value.as_str().and_then(&read).ok_or_else(|| format!("must be one of {names}").into())
    }
}
