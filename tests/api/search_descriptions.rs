//! Fields of hits that describe their descriptions.

use serde_json::{Value, json};
use timeline::FindingKind::Vlm;

use crate::{
    api::search::{chunk, found, write},
    support::{Setup, seed},
};

#[test]
fn a_hit_carries_its_description_up_to_4_kib() {
    let dir = tempfile::tempdir().expect("a directory");
    let padded = |bytes: usize| format!("red {}", "x".repeat(bytes - 4));
    // 4096 bytes end in the middle of a character.
    let odd = format!("red{}", "é".repeat(3000));
    let far = format!("{} red", "x".repeat(9000));
    let rows = [
        (found(Vlm, &padded(4096)), padded(4096), false),
        (found(Vlm, &padded(4097)), padded(4096), true),
        (found(Vlm, &odd), format!("red{}", "é".repeat(2046)), true),
        (found(Vlm, &far), "x".repeat(4096), true),
        (found(Vlm, "a\tred \u{1}\ncar"), "a\tred \u{1}\ncar".to_owned(), false),
        (chunk("", "a red summary", None), "a red summary".to_owned(), false),
    ];
    let events = std::iter::once((1, seed::created("alice")));
    write(dir.path(), events.chain(rows.iter().map(|(event, ..)| (1, event.clone()))).collect());
    let server = Setup::new(dir.path()).start();
    let reply = server.post("/v1/search", &json!({"query": "red"})).json();
    let hits = reply["hits"].as_array().expect("an array");
    assert_eq!(hits.len(), rows.len(), "{reply}");
    for (hit, (_, description, is_truncated)) in hits.iter().zip(&rows) {
        assert_eq!(hit["description"], *description);
        let told = hit.get("description_truncated");
        assert_eq!(told, is_truncated.then_some(&Value::Bool(true)), "{hit}");
        assert!(hit["snippet"].as_str().is_some_and(|part| part.contains("red")), "{hit}");
    }
}
