//! Names of models: a curated model has the service's id and its publisher's name.

use std::fmt;

/// Returns the curated id of a name, which may be the id itself or the publisher's name.
type Curated = Box<dyn Fn(&str) -> Option<&'static str> + Send + Sync>;

/// Catalog of model names.
pub(crate) struct Names(Curated);

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

impl Names {
    pub fn new(curated: impl Fn(&str) -> Option<&'static str> + Send + Sync + 'static) -> Names {
        Names(Box::new(curated))
    }

    /// Returns the curated id of `name`; `None` if the model is not curated.
    pub fn curated(&self, name: &str) -> Option<&'static str> {
        (self.0)(name)
    }

    /// Returns true if both names denote the same model.
    pub fn is_same(&self, one: &str, other: &str) -> bool {
        one == other || self.curated(one).is_some_and(|id| self.curated(other) == Some(id))
    }
}
