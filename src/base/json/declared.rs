//! Declared types: structs that parse themselves from a request and report every fault at once.

use serde_json::{Map, Value};

use super::{Faults, ValueError};
use crate::base::model_catalog::Catalog;

/// Kind of request that a value comes from, with the data needed to check it.
#[derive(Clone, Copy)]
pub enum Form<'a> {
    /// A JSON body.
    Body,
    /// A JSON body that may name models of this catalog.
    Naming(&'a Catalog),
    /// A JSON body about one run.
    OfRun,
    /// A query string: every value is text, numbers too.
    Query,
}

/// A type that can be read from a request.
pub trait Declared: Sized {
    /// Reads a value, which is not null.
    fn take(value: &Value, form: Form<'_>) -> Result<Self, Faults>;

    /// Returns the value of a field that is missing or null; `None` if the field is required.
    fn absent(_is_null: bool) -> Option<Self> {
        None
    }
}

impl<T: Declared> Declared for Option<T> {
    fn take(value: &Value, form: Form<'_>) -> Result<Option<T>, Faults> {
        T::take(value, form).map(Some)
    }

    fn absent(_is_null: bool) -> Option<Option<T>> {
        Some(None)
    }
}

impl Declared for bool {
    fn take(value: &Value, _: Form<'_>) -> Result<bool, Faults> {
        value.as_bool().ok_or_else(|| ValueError::from("must be true or false").into())
    }
}

/// A required field whose value may be null.
#[derive(Debug, PartialEq, Eq)]
pub struct Nullable<T>(pub Option<T>);

impl<T: Declared> Declared for Nullable<T> {
    fn take(value: &Value, form: Form<'_>) -> Result<Nullable<T>, Faults> {
        T::take(value, form).map(|found| Nullable(Some(found)))
    }

    fn absent(is_null: bool) -> Option<Nullable<T>> {
        is_null.then_some(Nullable(None))
    }
}

/// An array of `MIN` to `MAX` objects.
#[derive(Debug, PartialEq, Eq)]
pub struct List<T, const MIN: usize, const MAX: usize>(pub Vec<T>);

impl<T: Declared, const MIN: usize, const MAX: usize> Declared for List<T, MIN, MAX> {
    fn take(value: &Value, form: Form<'_>) -> Result<List<T, MIN, MAX>, Faults> {
        let found = value.as_array().filter(|found| (MIN..=MAX).contains(&found.len()));
        let problem = || ValueError::from(format!("must be an array of {MIN} to {MAX} objects"));
        let (found, mut faults) = (found.ok_or_else(problem)?, Faults::default());
        let mut items = Vec::with_capacity(found.len());
        for (at, item) in found.iter().enumerate() {
            match T::take(item, form) {
                Ok(item) => items.push(item),
                Err(refused) => drop(faults.part::<T>(&format!("[{at}]"), Err(refused))),
            }
        }
        faults.finish(|| Some(List(items)))
    }
}

/// Two structs whose fields are read from the same object.
impl<A: Declared, B: Declared> Declared for (A, B) {
    fn take(value: &Value, form: Form<'_>) -> Result<(A, B), Faults> {
        let mut faults = Faults::default();
        let a = faults.part("", A::take(value, form));
        let b = faults.part("", B::take(value, form));
        faults.finish(|| Some((a?, b?)))
    }
}

/// Fields of an object under validation, with the faults found so far.
pub struct Object<'a> {
    fields: &'a Map<String, Value>,
    form: Form<'a>,
    known: &'static [&'static str],
    faults: Faults,
}

impl<'a> Object<'a> {
    /// Starts to read the object `value`, whose declared fields are `known`.
    pub fn of(
        value: &'a Value,
        form: Form<'a>,
        known: &'static [&'static str],
    ) -> Result<Object<'a>, ValueError> {
        let fields = value.as_object().ok_or("must be an object")?;
        Ok(Object { fields, form, known, faults: Faults::default() })
    }

    /// Reads the field `name` as `T`, the type that `of` projects to; `None` if it is invalid.
    pub fn field<S, T: Declared>(&mut self, name: &str, _of: fn(&S) -> &T) -> Option<T> {
        match self.given(name) {
            Some(value) => self.faults.part(name, T::take(value, self.form)),
            None => {
                let absent = T::absent(self.fields.contains_key(name));
                if absent.is_none() {
                    self.refuse(name, "is required");
                }
                absent
            }
        }
    }

    /// Reads the required field `name` with `read`; `None` if it is missing or invalid.
    pub fn required<T, E: Into<Faults>>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Result<T, E>,
    ) -> Option<T> {
        let Some(value) = self.given(name) else {
            self.refuse(name, "is required");
            return None;
        };
        self.faults.part(name, read(value))
    }

    /// Reads the field `name` with `read` if present; the outer `None` means that it is invalid.
    pub fn optional<T, E: Into<Faults>>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Result<T, E>,
    ) -> Option<Option<T>> {
        self.faults.part(name, self.given(name).map(read).transpose())
    }

    /// Returns the value of the field `name`, declared or not; `None` if missing or null.
    pub fn given(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Records a fault of the field `name`.
    pub fn refuse(&mut self, name: &str, problem: impl Into<ValueError>) {
        self.faults.refuse(name, problem);
    }

    /// Returns the value of `build` if no fault was recorded, else the faults.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Faults> {
        self.faults.finish(build)
    }

    /// Records a fault for every field that is not declared.
    pub fn closed(&mut self) {
        for field in self.fields.keys().filter(|field| !self.known.contains(&field.as_str())) {
            self.faults.refuse(field, "is not a known field");
        }
    }
}

/// Implements `Declared` for a struct by its fields.
///
/// A field is read by its type, or by the function after `required` or `optional`. `closed` rejects other
/// fields. The block adds checks across fields: it sees the object, and each field, `None` if it is invalid.
macro_rules! declared {
    (
        $name:ident { $($field:ident $(: $how:ident $read:expr)?),* $(,)? }
        $(; $closed:ident)? $(|$seen:ident| $rules:block)?
    ) => {
        impl $crate::base::json::Declared for $name {
            fn take(
                value: &serde_json::Value,
                form: $crate::base::json::Form<'_>,
            ) -> Result<Self, $crate::base::json::Faults> {
                let known = &[$(stringify!($field)),*];
                let mut object = $crate::base::json::Object::of(value, form, known)?;
                $(let $field = declared!(@ object $field $($how $read)?);)*
                $(object.$closed();)?
                $({
                    let $seen = &mut object;
                    $rules
                })?
                object.finish(|| Some($name { $($field: $field?),* }))
            }
        }
    };
    (@ $object:ident $field:ident) => {
        $object.field(stringify!($field), |it: &Self| &it.$field)
    };
    (@ $object:ident $field:ident $how:ident $read:expr) => {
        $object.$how(stringify!($field), $read)
    };
}
pub(crate) use declared;
