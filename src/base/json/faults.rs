//! Faults of what a caller sent, all in one answer, and the reader of declared types.

use std::ops::ControlFlow;

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, MergeWithError, ValueKind, ValuePointerRef,
};
use serde_json::Value;

use super::{Detail, Problem};

/// Most faults kept; of the rest the number is added.
const DETAILS_MAX: usize = 32;

/// Faults of the fields of one value, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Faults {
    details: Vec<Detail>,
    /// Faults that are not kept.
    more: usize,
}

impl Faults {
    /// Notes a fault of `field`.
    pub fn refuse(&mut self, field: impl Into<String>, problem: impl Into<Problem>) {
        if self.details.len() < DETAILS_MAX {
            self.details.push(Detail::new(field, problem.into().0));
        } else {
            self.more += 1;
        }
    }

    /// Takes over the faults of a part.
    pub(super) fn absorb(&mut self, other: Faults) {
        for Detail { field, message } in other.details {
            self.refuse(field, message);
        }
        self.more += other.more;
    }

    /// Value that `build` makes where nothing was refused.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Vec<Detail>> {
        match build().filter(|_| self.details.is_empty()) {
            Some(value) => Ok(value),
            None => Err(self.told()),
        }
    }

    fn told(mut self) -> Vec<Detail> {
        if self.more > 0 {
            self.details.push(Detail::new("body", format!("and {} more", self.more)));
        }
        self.details
    }
}

/// Reads a declared type, or tells every fault of it.
pub fn read<T: Deserr<Faults>>(value: &Value) -> Result<T, Vec<Detail>> {
    read_at(value, ValuePointerRef::Origin).map_err(Faults::told)
}

/// Reads a declared type out of the value that lies there.
pub(super) fn read_at<T: Deserr<Faults>>(
    value: &Value,
    at: ValuePointerRef<'_>,
) -> Result<T, Faults> {
    T::deserialize_from_value(value.clone().into_value(), at)
}

/// Reads by `read` a value that is a field of its own; null is as good as none.
pub fn leaf<T, V: IntoValue>(
    value: deserr::Value<V>,
    at: ValuePointerRef<'_>,
    read: impl FnOnce(&Value) -> Result<T, Problem>,
) -> Result<T, Faults> {
    let value = <Value as Deserr<Faults>>::deserialize_from_value(value, at)?;
    let found = if value.is_null() { Err("is required".into()) } else { read(&value) };
    found.map_err(|problem| fault(at, problem))
}

fn fault(at: ValuePointerRef<'_>, problem: Problem) -> Faults {
    Faults { details: vec![Detail::new(path_of(at), problem.0)], more: 0 }
}

fn path_of(at: ValuePointerRef<'_>) -> String {
    match at {
        ValuePointerRef::Origin => "body".to_owned(),
        ValuePointerRef::Key { key, prev: ValuePointerRef::Origin } => key.to_owned(),
        ValuePointerRef::Key { key, prev } => format!("{}.{key}", path_of(*prev)),
        ValuePointerRef::Index { index, prev } => format!("{}[{index}]", path_of(*prev)),
    }
}

impl MergeWithError<Faults> for Faults {
    fn merge(
        before: Option<Faults>,
        other: Faults,
        _: ValuePointerRef<'_>,
    ) -> ControlFlow<Faults, Faults> {
        let mut all = before.unwrap_or_default();
        all.absorb(other);
        ControlFlow::Continue(all)
    }
}

impl DeserializeError for Faults {
    fn error<V: IntoValue>(
        before: Option<Faults>,
        error: ErrorKind<'_, V>,
        at: ValuePointerRef<'_>,
    ) -> ControlFlow<Faults, Faults> {
        let found = match error {
            ErrorKind::MissingField { field } => fault(at.push_key(field), "is required".into()),
            ErrorKind::UnknownKey { key, .. } => {
                fault(at.push_key(key), "is not a known field".into())
            }
            ErrorKind::IncorrectValueKind { actual: deserr::Value::Null, .. }
                if !at.is_origin() && at.last_field().is_some() =>
            {
                fault(at, "is required".into())
            }
            ErrorKind::IncorrectValueKind { accepted, .. } => fault(at, expected(accepted).into()),
            ErrorKind::Unexpected { msg } => fault(at, msg.into()),
            ErrorKind::UnknownValue { accepted, .. } => {
                fault(at, format!("must be one of {}", accepted.join(", ")).into())
            }
            ErrorKind::BadSequenceLen { expected, .. } => {
                fault(at, format!("must be an array of {expected}").into())
            }
        };
        Faults::merge(before, found, at)
    }
}

fn expected(accepted: &[ValueKind]) -> &'static str {
    match accepted {
        [ValueKind::Boolean] => "must be true or false",
        [ValueKind::Map] => "must be an object",
        [ValueKind::Sequence] => "must be an array",
        [ValueKind::String] => "must be a string",
        _ => "must be a number",
    }
}
