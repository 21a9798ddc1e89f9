//! Upper bound of the cost of applying a schema, computed before it is compiled.
//!
//! Counts the subschemas that a chain of nested values can meet. References that loop without descending into
//! the answer would never end; two that descend together double the work per level.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{DEPTH_MAX, PATTERNS_MAX, SchemaError, at};

/// Most subschemas that the chain may meet. Properties count once per level, so only choices (`anyOf`, ...)
/// and recursion add up to much.
const WORK_MAX: u64 = 10_000;
/// Longest chain of nested subschemas, references followed; the validator recurses along it.
const CHAIN_MAX: usize = 512;
/// Cost of a pattern in subschemas: each byte of a text may meet thousands of its states.
const PATTERN_WORK: u64 = 600;
/// Versions of JSON Schema in which only `$id` changes the base of references.
const DIALECTS: [&str; 4] = [
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// Keywords whose subschemas apply to the value itself, singly or as a list or map.
const SAME: [&str; 10] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "contentSchema",
];
/// Keywords whose subschemas apply to inner values; all of them may meet the same value.
const INSIDE: [&str; 8] = [
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "items",
];
/// Keywords whose subschemas apply to inner values, one to each.
const INSIDE_ONE: [&str; 2] = ["properties", "prefixItems"];

/// Rejects external references and unbounded cost; returns the number of patterns.
pub(super) fn check(root: &Value) -> Result<usize, SchemaError> {
    let (mut patterns, mut anchors) = (0, HashMap::new());
    keywords(root, "", &mut patterns, &mut anchors)?;
    let (known, open) = (HashMap::new(), HashSet::new());
    let mut walk = CostWalker { root, known, open, anchors };
    walk.work(root, DEPTH_MAX, "").map(|_| patterns)
}

/// Rejects references that lead out of the schema; counts the patterns of `value`, and gathers its anchors.
fn keywords<'a>(
    value: &'a Value,
    place: &str,
    patterns: &mut usize,
    anchors: &mut Anchors<'a>,
) -> Result<(), SchemaError> {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                keywords(item, &format!("{place}/{index}"), patterns, anchors)?;
            }
        }
        Value::Object(fields) => {
            if let Some(keyword) = leads_out(fields, place.is_empty()) {
                return Err(SchemaError(format!(
                    "must not use {keyword} at {}: references are # and a place or an anchor in \
                     the schema itself, dialects are draft-07, 2019-09 and 2020-12",
                    at(place)
                )));
            }
            *patterns += usize::from(fields.get("pattern").is_some_and(Value::is_string));
            let named = fields.get("patternProperties").and_then(Value::as_object);
            *patterns += named.map_or(0, Map::len);
            if *patterns > PATTERNS_MAX {
                return Err(SchemaError(format!("has more than {PATTERNS_MAX} patterns")));
            }
            if let Some(name) = fields.get("$anchor").and_then(Value::as_str) {
                let own = Some((value, place.to_owned()));
                anchors.entry(name).and_modify(|known| *known = None).or_insert(own);
            }
            for (name, field) in fields {
                keywords(field, &format!("{place}/{name}"), patterns, anchors)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the keyword of `fields` that refers elsewhere. Only strings do: a property may be named `$ref`.
fn leads_out(fields: &Map<String, Value>, at_root: bool) -> Option<&'static str> {
    let text = |keyword: &str| fields.get(keyword).and_then(Value::as_str);
    if text("$ref").is_some_and(|target| fragment(target).is_none()) {
        return Some("$ref");
    }
    if text("$schema").is_some_and(|dialect| !DIALECTS.contains(&dialect)) {
        return Some("$schema");
    }
    if !at_root && text("$id").is_some() {
        return Some("$id");
    }
    ["$dynamicRef", "$recursiveRef"].into_iter().find(|keyword| text(keyword).is_some())
}

/// Returns the percent-decoded fragment of a reference into the schema; `None` for other references.
fn fragment(target: &str) -> Option<String> {
    let mut bytes = target.strip_prefix('#')?.bytes();
    let mut decoded = Vec::with_capacity(target.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Schemas by `$anchor`, each with its place; `None` for a name used twice.
type Anchors<'a> = HashMap<&'a str, Option<(&'a Value, String)>>;

/// Computes the cost of each schema at each depth, once.
struct CostWalker<'a> {
    root: &'a Value,
    /// Known costs by node address and levels left.
    known: HashMap<(usize, usize), u64>,
    /// Subschemas on the current path; meeting one of them again is a loop.
    open: HashSet<(usize, usize)>,
    anchors: Anchors<'a>,
}

impl<'a> CostWalker<'a> {
    fn work(&mut self, node: &'a Value, levels: usize, place: &str) -> Result<u64, SchemaError> {
        let Value::Object(fields) = node else {
            return Ok(1);
        };
        let key = (std::ptr::from_ref(node).addr(), levels);
        if let Some(work) = self.known.get(&key) {
            return Ok(*work);
        }
        let too_complex = || {
            let told = "is recursive in more than one way, or repeats itself too often";
            Err(SchemaError(told.to_owned()))
        };
        if self.open.len() >= CHAIN_MAX || !self.open.insert(key) {
            return too_complex();
        }
        let work = self.work_of(fields, levels, place)?;
        self.open.remove(&key);
        if work > WORK_MAX {
            return too_complex();
        }
        self.known.insert(key, work);
        Ok(work)
    }

    /// Returns the schema that `target` refers to, and its place.
    fn resolve(&self, target: &str) -> Option<(&'a Value, String)> {
        let name = fragment(target)?;
        if name.is_empty() || name.starts_with('/') {
            return Some((self.root.pointer(&name)?, name));
        }
        self.anchors.get(&*name)?.clone()
    }

    fn work_of(
        &mut self,
        fields: &'a Map<String, Value>,
        levels: usize,
        place: &str,
    ) -> Result<u64, SchemaError> {
        let named = fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        let patterns = named + usize::from(fields.get("pattern").is_some_and(Value::is_string));
        let mut work = 1 + PATTERN_WORK * patterns as u64;
        if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
            let dangling = || {
                SchemaError(format!("has a $ref to a place that is not there, at {}", at(place)))
            };
            let (to, pointer) = self.resolve(target).ok_or_else(dangling)?;
            work += self.work(to, levels, &pointer)?;
        }
        for keyword in SAME {
            let more = self.subschemas(fields, keyword, levels, place, u64::saturating_add)?;
            work = work.saturating_add(more);
        }
        // No value lies deeper: the answer is rejected before.
        if let Some(below) = levels.checked_sub(1) {
            for keyword in INSIDE {
                // A list under `items` acts like `prefixItems`: one subschema meets each value.
                let list = keyword == "items" && fields.get(keyword).is_some_and(Value::is_array);
                let sum = if list { u64::max } else { u64::saturating_add };
                work = work.saturating_add(self.subschemas(fields, keyword, below, place, sum)?);
            }
            for keyword in INSIDE_ONE {
                let more = self.subschemas(fields, keyword, below, place, u64::max)?;
                work = work.saturating_add(more);
            }
        }
        // `unevaluated…` keywords evaluate the other keywords once more.
        let twice = fields.keys().any(|keyword| keyword.starts_with("unevaluated"));
        Ok(if twice { work.saturating_mul(2) } else { work })
    }

    fn subschemas(
        &mut self,
        fields: &'a Map<String, Value>,
        keyword: &str,
        levels: usize,
        place: &str,
        sum: fn(u64, u64) -> u64,
    ) -> Result<u64, SchemaError> {
        let Some(value) = fields.get(keyword) else {
            return Ok(0);
        };
        let place = format!("{place}/{keyword}");
        let named = matches!(
            keyword,
            "properties" | "patternProperties" | "dependentSchemas" | "dependencies"
        );
        let mut total = 0;
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    total = sum(total, self.work(item, levels, &format!("{place}/{index}"))?);
                }
            }
            Value::Object(schemas) if named => {
                for (name, schema) in schemas {
                    total = sum(total, self.work(schema, levels, &format!("{place}/{name}"))?);
                }
            }
            one => total = self.work(one, levels, &place)?,
        }
        Ok(total)
    }
}
