//! Collects the faults of a request, which are all reported in one answer.

use super::{FieldError, ValueError};

/// Maximum number of recorded faults; further ones are only counted.
const DETAILS_MAX: usize = 32;

/// Faults of one value, in the order of their discovery; an empty path means the value itself.
#[derive(Debug, Default)]
pub struct Faults {
    kept: Vec<(String, ValueError)>,
    /// Number of faults beyond the recorded ones.
    more: usize,
}

impl Faults {
    /// Records a fault of `field`.
    pub fn refuse(&mut self, field: impl Into<String>, problem: impl Into<ValueError>) {
        if self.kept.len() < DETAILS_MAX {
            self.kept.push((field.into(), problem.into()));
        } else {
            self.more += 1;
        }
    }

    /// Returns the value read for the part `name`; on an error, records its faults and returns `None`.
    pub fn part<T>(&mut self, name: &str, read: Result<T, impl Into<Faults>>) -> Option<T> {
        let Faults { kept, more } = match read {
            Ok(part) => return Some(part),
            Err(faults) => faults.into(),
        };
        for (path, problem) in kept {
            let dot =
                if name.is_empty() || path.is_empty() || path.starts_with('[') { "" } else { "." };
            self.refuse(format!("{name}{dot}{path}"), problem);
        }
        self.more += more;
        None
    }

    /// Returns the value of `build` if no fault was recorded, else the faults.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Faults> {
        build().filter(|_| self.kept.is_empty()).ok_or(self)
    }
}

impl From<ValueError> for Faults {
    fn from(problem: ValueError) -> Faults {
        Faults { kept: vec![(String::new(), problem)], more: 0 }
    }
}

impl From<Faults> for Vec<FieldError> {
    fn from(Faults { kept, more }: Faults) -> Vec<FieldError> {
        let named = |path: String| if path.is_empty() { "body".to_owned() } else { path };
        let details =
            kept.into_iter().map(|(path, ValueError(text))| FieldError::new(named(path), text));
        let more = (more > 0).then(|| FieldError::new("body", format!("and {more} more")));
        details.chain(more).collect()
    }
}
