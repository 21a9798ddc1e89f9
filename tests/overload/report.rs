//! Figures of a test: a table for people, and JSON.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    overload::generator::{Tally, quantile_ms},
    support::setting,
};

/// Counts and latencies of a kind of requests.
pub fn figures(tally: &Tally) -> Value {
    let times = |times: &[_]| json!([quantile_ms(times, 0.5), quantile_ms(times, 0.99)]);
    json!({
        "due": tally.due(), "late_ms": times(&tally.late), "outstanding": tally.outstanding, "unsent": tally.unsent, "wrong": tally.wrong.len(),
        "taken": tally.taken.len(), "taken_ms": times(&tally.taken),
        "refused": tally.refused.len(), "refused_ms": times(&tally.refused),
    })
}

/// Prints `rows` as a table of what all of them have, and writes them where `SIGHTLINE_OVERLOAD_OUT` says.
pub fn tell(name: &str, rows: &[Value]) {
    let mut table = String::new();
    let mut heads = Vec::new();
    for row in rows.iter().filter_map(Value::as_object) {
        let names: Vec<_> = row.keys().map(String::as_str).collect();
        if names != heads {
            table += &format!("| {} |\n|{}\n", names.join(" | "), "---|".repeat(names.len()));
            heads = names;
        }
        let cells: Vec<_> = row.values().map(shown).collect();
        table += &format!("| {} |\n", cells.join(" | "));
    }
    eprintln!("overload: {name}\n{table}");
    let Some(out) = setting("SIGHTLINE_OVERLOAD_OUT") else { return };
    let out = Path::new(&out);
    fs::create_dir_all(out).expect("made");
    fs::write(out.join(format!("{name}.md")), table).expect("written");
    let json = serde_json::to_string_pretty(rows).expect("JSON");
    fs::write(out.join(format!("{name}.json")), json).expect("written");
}

fn shown(value: &Value) -> String {
    match value {
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Number(number) if number.is_f64() => {
            format!("{:.1}", number.as_f64().unwrap_or(0.0))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
