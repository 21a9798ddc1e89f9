//! Tests of accepted schemas, rejected schemas with reasons, and the validation of answers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{DEPTH_MAX, OutputSchema, SCHEMA_BYTES_MAX};

fn refused(schema: Value) -> String {
    OutputSchema::compile(schema).err().map(|error| error.to_string()).unwrap_or_default()
}

fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({"type": "array"}), |inner, _| json!({"items": inner}))
}

/// Returns `count` definitions, each of which refers to the next by `schema`, and one that allows all.
fn chained(count: usize, schema: fn(Value) -> Value) -> Value {
    let link = |n: usize| (format!("a{n}"), schema(json!({"$ref": format!("#/$defs/a{}", n + 1)})));
    (0..count).map(link).chain([(format!("a{count}"), json!({}))]).collect()
}

#[test]
fn schemas_that_could_cost_much_are_refused_by_name() {
    let doubling = chained(40, |next| json!({"allOf": [next, next]}));
    let chain = chained(1500, |next| next);
    let patterns: Value = (0..65).map(|n| (format!("^a{n}"), json!({}))).collect();
    let twin = json!({"$anchor": "n"});
    let swap = json!({"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}});
    let often = vec![json!({"$ref": "#/$defs/p"}); 17];
    let cases = [
        ("not an object", json!(true), "must be a JSON object"),
        ("too long", json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}), "bytes long; at most"),
        ("too deep", nested(DEPTH_MAX + 1), "deeper than 32"),
        ("remote $ref", json!({"$ref": "https://example.com/s.json"}), "must not use $ref at /:"),
        (
            "file $ref",
            json!({"items": {"$ref": "file:///etc/passwd"}}),
            "must not use $ref at /items",
        ),
        ("relative $ref", json!({"$ref": "other.json#/a"}), "must not use $ref"),
        ("no such anchor", json!({"$ref": "#name"}), "not there, at /"),
        ("two anchors", json!({"$ref": "#n", "$defs": {"a": twin, "b": twin}}), "not there, at /"),
        ("a bad escape", json!({"$ref": "#/definitions/a%2"}), "must not use $ref"),
        ("an escape that is no text", json!({"$ref": "#/%ff"}), "must not use $ref"),
        (
            "itself through an anchor",
            json!({"$anchor": "q", "allOf": [{"$ref": "#q"}]}),
            "recursive",
        ),
        (
            "moved base",
            json!({"$defs": {"a": {"$id": "http://x/"}}}),
            "must not use $id at /$defs/a",
        ),
        ("dynamic", json!({"$dynamicRef": "#x"}), "must not use $dynamicRef"),
        ("unknown dialect", json!({"$schema": "http://x/schema"}), "must not use $schema"),
        ("nothing there", json!({"$ref": "#/$defs/none"}), "not there, at /"),
        ("nothing there below", json!({"items": {"$ref": "#/$defs/none"}}), "not there, at /items"),
        ("itself", json!({"$ref": "#"}), "recursive"),
        ("itself through allOf", json!({"allOf": [{"$ref": "#"}]}), "recursive"),
        ("two that swap", json!({"$ref": "#/$defs/a", "$defs": swap}), "recursive"),
        ("doubling", json!({"$ref": "#/$defs/a0", "$defs": doubling}), "recursive"),
        (
            "doubling a level",
            json!({"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}),
            "recursive",
        ),
        ("a long chain", json!({"$ref": "#/$defs/a0", "$defs": chain}), "recursive"),
        ("many patterns", json!({"patternProperties": patterns}), "more than 64 patterns"),
        (
            "a pattern that a text meets often",
            json!({"allOf": often, "$defs": {"p": {"pattern": "a"}}}),
            "recursive",
        ),
        ("huge pattern", json!({"pattern": "(a{1000}){1000}"}), "has a pattern at /pattern that"),
        (
            "look-around",
            json!({"properties": {"a": {"pattern": "(?=a)b"}}}),
            "has a pattern at /properties/a/pattern that",
        ),
        (
            "a name that is no pattern",
            json!({"patternProperties": {"(": {}}}),
            "has a pattern at /patternProperties/( that",
        ),
        ("not a schema", json!({"type": "strnig"}), "not a usable JSON Schema"),
    ];
    for (name, schema, expected) in cases {
        let said = refused(schema);
        assert!(said.contains(expected), "{name}: {said:?}");
    }
}

#[test]
fn schemas_of_every_day_are_taken() {
    let wide: Value = (0..1500).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let cases = [
        ("empty", json!({})),
        (
            "draft 7",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
        ),
        (
            "definitions",
            json!({"properties": {"a": {"$ref": "#/definitions/a"}},
            "definitions": {"a": {"type": "string", "pattern": "^[a-z]{1,8}$"}}}),
        ),
        (
            "an escape in a reference",
            json!({"$ref": "#/definitions/a%20b%7E1", "definitions": {"a b/": {"type": "string"}}}),
        ),
        (
            "an anchor",
            json!({"items": {"$ref": "#q"}, "$defs": {"a": {"$anchor": "q", "type": "string"}}}),
        ),
        (
            "a tree",
            json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
            "left": {"$ref": "#/$defs/n"}, "right": {"$ref": "#/$defs/n"}}}}}),
        ),
        (
            "properties with the names of keywords",
            json!({"properties": {
            "$ref": {"type": "string"}, "$id": {"type": "string"}, "pattern": {"type": "string"}}}),
        ),
        ("as deep as may be", nested(DEPTH_MAX)),
        (
            "patterns",
            json!({"properties": {
            "id": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
            "at": {"pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$"},
            "to": {"pattern": r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$"}, "who": {"pattern": r"^\p{L}+$"},
            "choice": {"anyOf": vec![json!({"pattern": "^[a-z_]+$"}); 16]}}}),
        ),
        ("wide", json!({"properties": wide})),
    ];
    for (name, schema) in cases {
        let compiled = OutputSchema::compile(schema.clone());
        assert_eq!(compiled.err(), None, "{name}");
    }
}

#[test]
fn an_answer_is_held_against_all_of_it() {
    let schema = json!({"type": "object", "required": ["label", "confidence"], "properties": {
        "label": {"type": "string", "pattern": "^[a-z_]+$"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1}}});
    let schema = OutputSchema::compile(schema).expect("a usable schema");
    let told = |answer: Value| schema.validate(&answer).err().map(|wrong| wrong.to_string());
    assert_eq!(told(json!({"label": "a_car", "confidence": 0.5})), None);
    let said = told(json!({"label": "A car", "confidence": 2})).unwrap_or_default();
    assert!(said.contains("/label: ") && said.contains("/confidence: "), "{said}");
    let said = told(json!([])).unwrap_or_default();
    assert!(said.starts_with("/: "), "{said}");
}

#[test]
fn violations_stay_short_however_long_the_answer_is() {
    let schema = OutputSchema::compile(json!({"items": {"type": "string"}})).expect("usable");
    let many = schema.validate(&json!(vec![1; 100_000])).expect_err("numbers are no strings");
    assert!(many.to_string().len() < 300, "{many}");
    let few = schema.validate(&json!(vec![1; 100])).expect_err("numbers are no strings");
    assert_eq!(few.to_string().matches("; ").count(), 4, "{few}");
    let long = OutputSchema::compile(json!({"const": 1})).expect("usable");
    let said = long.validate(&json!("é".repeat(100_000))).expect_err("not 1").to_string();
    assert!(said.chars().count() <= 201, "{} chars", said.chars().count());
}

#[test]
fn patterns_are_held_against_bounded_text_only() {
    let schema = json!({"additionalProperties": {"pattern": "^[01]*$"}});
    let schema = OutputSchema::compile(schema).expect("usable");
    let bits = "01".repeat(8 << 10);
    let told = |answer: Value| schema.validate(&answer).err().map(|wrong| wrong.to_string());
    assert_eq!(told(json!({"a": bits})), None);
    for long in [json!({"a": bits, "b": bits}), json!({"a": {&*bits: [bits]}})] {
        let said = told(long).unwrap_or_default();
        assert!(said.contains("more than 32768 bytes of text"), "{said}");
    }
}

#[test]
fn a_deep_answer_is_refused_before_it_is_walked() {
    let schema = OutputSchema::compile(json!({"items": {"$ref": "#"}})).expect("usable");
    let deep = |levels| (0..levels).fold(json!([]), |inner, _| json!([inner]));
    assert_eq!(schema.validate(&deep(DEPTH_MAX - 1)), Ok(()));
    let said = schema.validate(&deep(DEPTH_MAX)).expect_err("too deep").to_string();
    assert!(said.contains("deeper than 32"), "{said}");
}

/// Generates a schema of four definitions that refer to one another at random.
fn tangled() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..4_u8).prop_map(|n| json!({"$ref": format!("#/$defs/d{n}")})),
        Just(json!({"type": "array"})),
        Just(json!({"type": "string", "pattern": "^(a|aa)+$"})),
        Just(json!(true)),
    ];
    let schema = leaf.prop_recursive(3, 12, 3, |inner| {
        let keyword = prop::sample::select(vec![
            "allOf",
            "anyOf",
            "oneOf",
            "items",
            "not",
            "contains",
            "unevaluatedItems",
            "properties",
            "additionalProperties",
        ]);
        proptest::collection::vec((keyword, proptest::collection::vec(inner, 1..3)), 1..3).prop_map(
            |parts| {
                let part = |(keyword, schemas): (&str, Vec<Value>)| {
                    let value = match keyword {
                        "allOf" | "anyOf" | "oneOf" => json!(schemas),
                        "properties" => json!({"a": schemas[0], "b": schemas[schemas.len() - 1]}),
                        _ => schemas[0].clone(),
                    };
                    (keyword.to_owned(), value)
                };
                parts.into_iter().map(part).collect::<Value>()
            },
        )
    });
    proptest::collection::vec(schema, 4).prop_map(|defs| {
        let named = defs.into_iter().enumerate().map(|(n, def)| (format!("d{n}"), def));
        json!({"$ref": "#/$defs/d0", "$defs": named.collect::<Value>()})
    })
}

proptest! {
    /// An accepted schema validates the deepest answer without exhausting the stack or the time.
    #[test]
    fn a_tangle_that_is_taken_can_be_applied(schema in tangled()) {
        let deep = (1..DEPTH_MAX).fold(json!(["a"]), |inner, n| match n % 2 {
            0 => json!([inner, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"]),
            _ => json!({"a": inner, "b": []}),
        });
        if let Ok(schema) = OutputSchema::compile(schema)
            && let Err(violations) = schema.validate(&deep)
        {
            prop_assert!(!violations.to_string().is_empty());
        }
    }
}
