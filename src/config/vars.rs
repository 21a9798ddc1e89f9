//! Reads named text values with defaults; collects every error and lists every resolved value.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::base::json::ValueError;

/// Prefix of the server's own variables.
pub(super) const PREFIX: &str = "SERVICE_";

/// A variable whose value is refused, or that is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct VarError {
    /// Name of the variable.
    pub name: Cow<'static, str>,
    /// Fault of the value. The value itself is left out: it may be a secret.
    pub problem: String,
}

/// A resolved variable, secrets masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedVar {
    /// Name of the variable.
    pub name: &'static str,
    /// Value as the environment would hold it.
    pub value: String,
    /// True if the environment sets it, false if this is the default.
    pub is_set: bool,
}

impl fmt::Display for ResolvedVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.is_set { "environment" } else { "default" };
        write!(f, "{}={}  # {origin}", self.name, self.value)
    }
}

/// Reads variables one by one, and collects errors and resolved values.
pub(super) struct EnvReader {
    values: BTreeMap<String, String>,
    /// Variables that the configuration file refers to.
    mentioned: RefCell<BTreeSet<String>>,
    pub(super) errors: Vec<VarError>,
    pub(super) shown: Vec<ResolvedVar>,
}

impl EnvReader {
    pub(super) fn new(values: impl IntoIterator<Item = (String, String)>) -> EnvReader {
        EnvReader {
            values: values.into_iter().collect(),
            mentioned: RefCell::default(),
            errors: Vec::new(),
            shown: Vec::new(),
        }
    }

    pub(super) fn refuse(&mut self, name: &'static str, problem: impl Into<ValueError>) {
        self.errors.push(VarError { name: name.into(), problem: problem.into().0.into_owned() });
    }

    /// Returns true if a variable whose name begins with `name` was refused.
    pub(super) fn refused(&self, name: &str) -> bool {
        self.errors.iter().any(|error| error.name.starts_with(name))
    }

    /// Returns the value of a variable without listing it; `None` if unset or empty.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the value of a variable that a file refers to, and counts the variable as known.
    pub(super) fn mentioned(&self, name: &str) -> Option<String> {
        self.mentioned.borrow_mut().insert(name.to_owned());
        self.raw(name).map(str::to_owned)
    }

    /// Parses the value of `name`, or `default` if it is unset, empty or refused.
    pub(super) fn read<T>(
        &mut self,
        name: &'static str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, ValueError>,
    ) -> T {
        let set = self.raw(name).map(str::to_owned);
        let is_set = set.is_some();
        let value = set.unwrap_or_else(|| default.to_owned());
        let parsed = parse(&value);
        self.shown.push(ResolvedVar { name, value, is_set });
        parsed.unwrap_or_else(|problem| {
            self.refuse(name, problem);
            parse(default).expect("a default is acceptable")
        })
    }

    /// Like [`EnvReader::read`] for a URL: user and password are masked in the listing.
    pub(super) fn read_url<T>(
        &mut self,
        name: &'static str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, ValueError>,
    ) -> T {
        let parsed = self.read(name, default, parse);
        if let Some(shown) = self.shown.last_mut() {
            shown.value = without_credentials(&shown.value);
        }
        parsed
    }

    /// Like [`EnvReader::read`] for a secret: the listing shows only whether it is set.
    pub(super) fn secret(&mut self, name: &'static str) -> Option<String> {
        let value = self.raw(name).map(str::to_owned);
        let shown = if value.is_some() { "(set, hidden)" } else { "" };
        self.shown.push(ResolvedVar { name, value: shown.to_owned(), is_set: value.is_some() });
        value
    }

    /// Returns a warning for every variable with the prefix that nothing read.
    pub(super) fn unknown(&self) -> Vec<String> {
        let known: Vec<&str> = self.shown.iter().map(|shown| shown.name).collect();
        let mentioned = self.mentioned.borrow();
        let unread = |name: &&String| {
            name.starts_with(PREFIX)
                && !known.contains(&name.as_str())
                && !mentioned.contains(name.as_str())
        };
        self.values.keys().filter(unread).map(|name| warning(name, &known)).collect()
    }
}

/// Returns `url` with user and password masked.
pub(super) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority_bytes = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority_bytes].rfind('@') {
        Some(at) => format!("{scheme}://***{}", &rest[at..]),
        None => url.to_owned(),
    }
}

fn warning(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|candidate| (strsim::levenshtein(name, candidate), *candidate))
        .filter(|(distance, _)| *distance <= 3 + (name.len() - PREFIX.len()) / 8)
        .min();
    match nearest {
        Some((_, nearest)) => format!("{name} is not a setting and is ignored: meant {nearest}?"),
        None => format!("{name} is not a setting and is ignored"),
    }
}
