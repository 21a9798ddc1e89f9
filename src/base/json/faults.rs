//! Faults of what a caller sent, all in one answer.

use super::{Detail, Problem};

/// Most faults kept; of the rest the number is added.
const DETAILS_MAX: usize = 32;

/// Faults of one value, in the order in which they were found; a path is empty where it is the value itself.
#[derive(Debug, Default)]
pub struct Faults {
    kept: Vec<(String, Problem)>,
    /// Faults that are not kept.
    more: usize,
}

impl Faults {
    /// Notes a fault of `field`.
    pub fn refuse(&mut self, field: impl Into<String>, problem: impl Into<Problem>) {
        if self.kept.len() < DETAILS_MAX {
            self.kept.push((field.into(), problem.into()));
        } else {
            self.more += 1;
        }
    }

    /// The part called `name`; `None` after its faults are taken over.
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

    /// Value that `build` makes where nothing was refused.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Faults> {
        build().filter(|_| self.kept.is_empty()).ok_or(self)
    }
}

impl From<Problem> for Faults {
    fn from(problem: Problem) -> Faults {
        Faults { kept: vec![(String::new(), problem)], more: 0 }
    }
}

impl From<Faults> for Vec<Detail> {
    fn from(Faults { kept, more }: Faults) -> Vec<Detail> {
        let named = |path: String| if path.is_empty() { "body".to_owned() } else { path };
        let details = kept.into_iter().map(|(path, Problem(text))| Detail::new(named(path), text));
        let more = (more > 0).then(|| Detail::new("body", format!("and {more} more")));
        details.chain(more).collect()
    }
}
