//! Names of models: a curated one has the service's id and that under which its makers publish it.

use std::fmt;

/// Gives the curated id of a name, its own or its makers'.
type Curated = Box<dyn Fn(&str) -> Option<&'static str> + Send + Sync>;

/// Catalog of the names of models.
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

    /// The curated id of `name`; `None` for the name of another model.
    pub fn curated(&self, name: &str) -> Option<&'static str> {
        (self.0)(name)
    }

    /// Both name one model.
    pub fn is_same(&self, one: &str, other: &str) -> bool {
        one == other || self.curated(one).is_some_and(|id| self.curated(other) == Some(id))
    }
}
