//! Images of live video that a scripted backend is shown, and its answers.

use base64::{Engine, prelude::BASE64_STANDARD};
use scripted_model::{Seen, Step};
use serde_json::json;

use super::picture::Picture;

pub fn pictures(seen: &Seen) -> Vec<Picture> {
    let question = seen.json();
    let contents = question["messages"].as_array().into_iter().flatten();
    let parts = contents.filter_map(|message| message["content"].as_array()).flatten();
    let jpegs = parts.filter_map(|part| {
        part["image_url"]["url"].as_str()?.strip_prefix("data:image/jpeg;base64,")
    });
    jpegs.map(|jpeg| Picture::of(&BASE64_STANDARD.decode(jpeg).expect("base64"))).collect()
}

pub fn scenes(seen: &Seen) -> String {
    let shown = pictures(seen);
    let scenes = shown.iter().map(|picture| picture.scene().expect("a scene"));
    let mut scenes: Vec<char> = scenes.collect();
    scenes.dedup();
    scenes.into_iter().collect()
}

/// An answer by the default schema.
pub fn finding(description: &str, confidence: f64) -> String {
    let finding = json!({
        "event_type": "Wall Painted", "object_label": "Wall", "summary": "a wall",
        "description": description, "confidence": confidence,
    });
    finding.to_string()
}

/// A reply with [`finding`].
pub fn says(description: &str, confidence: f64) -> Step {
    Step::chat(&finding(description, confidence))
}
