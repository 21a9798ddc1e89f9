//! Tests of strict JSON parsing and of the typed reader.

use super::*;

#[test]
fn text_is_a_value_or_malformed_or_names_its_field() {
    let invalid =
        |field: &str, message: &str| Err(JsonError::Invalid(vec![FieldError::new(field, message)]));
    let cases: [(&str, Result<Value, JsonError>); 7] = [
        (
            " \t\r\n{\"a\": [1, -2, 0.5, null, true, \"x\"]}\n",
            Ok(serde_json::json!({"a": [1, -2, 0.5, null, true, "x"]})),
        ),
        ("18446744073709551615", Ok(u64::MAX.into())),
        (r#"{"a": 1, "a": 1}"#, invalid("a", "appears twice")),
        (r#"{"a": [0, {"b": {"c": 1, "c": 2}}]}"#, invalid("a[1].b.c", "appears twice")),
        (r#"{"a": [0, 1e999]}"#, invalid("a[1]", "is out of range")),
        (r#"{"a": {"b": -1e999}}"#, invalid("a.b", "is out of range")),
        ("1e999", invalid("body", "is out of range")),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text.as_bytes()), expected, "{text}");
    }
    let malformed: [&[u8]; 18] = [
        b"",
        b"{",
        b"[1}",
        b"{\"a\":1}x",
        b"NaN",
        b"[1,]",
        b"{'a':1}",
        b"\xff",
        b"\"\xed\xa0\x80\"",
        b"\xef\xbb\xbf{}",
        b"-01",
        b" \n",
        b"{} {}",
        b"{}\0",
        b"[1 /* one */]",
        b"[\"a\nb\"]",
        b"[\"\xc0\xaf\"]",
        br#"["\udd1e\ud834"]"#,
    ];
    for bytes in malformed {
        let parsed = parse(bytes);
        assert!(matches!(parsed, Err(JsonError::Malformed(_))), "{bytes:?}: {parsed:?}");
    }
    let deep = parse("[".repeat(100_000).as_bytes());
    assert!(matches!(deep, Err(JsonError::Malformed(_))), "nesting is bounded: {deep:?}");
}

#[test]
fn values_are_counted() {
    let text = |count: usize| format!("{{\"a\": [{}]}}", vec!["0"; count - 2].join(","));
    assert!(parse(text(VALUES_MAX).as_bytes()).is_ok());
    let found = parse(text(VALUES_MAX + 1).as_bytes()).expect_err("refused").to_string();
    assert_eq!(found, "a[262142] is one value too many: at most 262144 are read");
}

#[test]
fn bounds_are_inclusive_and_types_are_not_guessed() {
    let check = |text: &str, accepted: (bool, bool)| {
        let value = super::parse(text.as_bytes()).expect("JSON");
        let integer = BoundedInt::<1, 500_000>::read(&value);
        let found = (integer.is_ok(), number(0.2..=120.0)(&value).is_ok());
        assert_eq!(found, accepted, "{text} as an integer and as a number");
    };
    check("1", (true, true));
    check("500000", (true, false));
    check("0", (false, false));
    check("500001", (false, false));
    check("1.0", (false, true));
    check("-1", (false, false));
    check("99999999999999999999", (false, false));
    check("0.2", (false, true));
    check("120", (true, true));
    check("0.19999", (false, false));
    check("120.00001", (false, false));
    for text in ["true", "\"1\"", "null", "[1]"] {
        check(text, (false, false));
    }
}

#[test]
fn an_answer_is_short_however_much_is_wrong() {
    let keys: Vec<String> = (0..1000).map(|at| format!("\"{at}\": 1")).collect();
    let long = "\u{e9}".repeat(5000);
    let text = format!("{{\"name\": 1, {}, \"a{long}\": 1}}", keys.join(", "));
    let details = Vec::<FieldError>::from(
        Named::take(&parse(text.as_bytes()).expect("JSON"), Form::Body).expect_err("refused"),
    );
    assert_eq!(details.len(), 33);
    assert_eq!(details[0].field, "name");
    assert_eq!(details[32], FieldError::new("body", "and 970 more"));
    let twice = format!("{{\"{long}\": 1, \"{long}\": 1}}");
    let Err(JsonError::Invalid(details)) = parse(twice.as_bytes()) else { panic!("refused") };
    assert_eq!(details[0].field, format!("{}\u{2026}", "\u{e9}".repeat(64)));
}

#[derive(Debug)]
struct Named {
    name: BoundedText<1, 3>,
}

declared!(Named { name }; closed);

#[derive(Debug, PartialEq)]
struct Part {
    side: BoundedInt<1, 9>,
}

declared!(Part { side }; closed);

#[derive(Debug, PartialEq)]
struct Whole {
    name: BoundedText<1, 3>,
    parts: List<Part, 1, 100>,
    given: Nullable<BoundedInt<0, 1>>,
    is_on: Option<bool>,
}

declared!(
    Whole { name, parts, given, is_on } | faults | {
        if parts.is_none() && is_on == Some(None) {
            faults.refuse("is_on", "tells of parts that are refused");
        }
    }
);

#[test]
fn every_fault_of_a_declared_type_is_told() {
    let read = |text: &str| {
        let whole = Whole::take(&parse(text.as_bytes()).expect("JSON"), Form::Body);
        whole.map_err(|faults| {
            Vec::<FieldError>::from(faults).iter().map(FieldError::to_string).collect::<Vec<_>>()
        })
    };
    let told = |text: &str| read(text).err().unwrap_or_default();
    let accepted = r#"{"name": "a", "parts": [{"side": 9}], "given": null, "other": 1}"#;
    let whole = Whole {
        name: BoundedText("a".to_owned()),
        parts: List(vec![Part { side: BoundedInt(9) }]),
        given: Nullable(None),
        is_on: None,
    };
    assert_eq!(read(accepted), Ok(whole));
    let refused =
        r#"{"name": null, "parts": [{"side": 0}, 1, {"side": 1, "top": 1}, {}], "is_on": 1}"#;
    let expected = [
        "name is required",
        "parts[0].side must be an integer in [1, 9]",
        "parts[1] must be an object",
        "parts[2].top is not a known field",
        "parts[3].side is required",
        "given is required",
        "is_on must be true or false",
    ];
    assert_eq!(told(refused), expected);
    assert_eq!(told("[]"), ["body must be an object"]);
    let long = r#"{"name": "four", "given": 1, "parts": [{"side": 1}]}"#;
    assert_eq!(told(long), ["name must be a string of 1 to 3 bytes"]);
    let beside = ["parts[0] must be an object", "is_on tells of parts that are refused"];
    assert_eq!(told(r#"{"name": "a", "given": 1, "parts": [null]}"#), beside);
    let many = format!(r#"{{"name": "a", "given": 1, "parts": [{}1]}}"#, "1,".repeat(99));
    let told = told(&many);
    assert_eq!((told.len(), &*told[32]), (33, "body and 69 more"));
}
