//! Job answers too long to be held in memory: written to a file as they are produced, and sent from
//! that file.

use std::{fs::File, io};

use axum::{BoxError, Extension};
use http_body_util::BodyExt;

use super::record::JobDetails;
use crate::{
    api::{files::FileBody, prelude::*, send_budget::BufferedBytes},
    base::stepped_body::{joined, stepped},
    record::runner::Writing,
    runs::registry::JobOrder,
};

/// Stores the body of `response` for as long as its job is recorded; returns an equivalent response.
pub async fn keep(app: &Arc<App>, order: &JobOrder, response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let (runner, (run, job)) = (Arc::clone(&app.runner), (order.run, order.id));
    let begun = app.blocking(move || runner.begin_answer(run, job)).await;
    let (body, stored) = match begun.map_err(io::Error::other).flatten() {
        Ok((writing, file)) => written(app, writing, file, body).await,
        Err(error) => (joined([body]), Err(error)),
    };
    match stored {
        // What was read is in the file, and no longer in memory.
        Ok(holds) => _ = parts.extensions.insert(holds),
        Err(error) => tracing::error!(%job, %error, "what a job came to could not be kept"),
    }
    Response::from_parts(parts, body)
}

/// Writes all of `body` to the file; returns a body that replays it, also after an error, and what that buffers.
async fn written(
    app: &Arc<App>,
    mut writing: Writing,
    file: File,
    mut body: Body,
) -> (Body, io::Result<BufferedBytes>) {
    let mut bytes = 0;
    let replayed = |bytes| FileBody::new(file, 0..bytes);
    loop {
        let part = match body.frame().await.transpose() {
            Ok(Some(frame)) => frame.into_data().unwrap_or_default(),
            Ok(None) => break,
            Err(error) => {
                let told = io::Error::other(error.to_string());
                let ended = stepped(BoxError::from(error), |error| async { Err(error) });
                return (joined([Body::new(replayed(bytes)), ended]), Err(told));
            }
        };
        let given = part.clone();
        let wrote = app.blocking(move || writing.write(&given).map(|()| writing)).await;
        match wrote.map_err(io::Error::other).flatten() {
            Ok(back) => (writing, bytes) = (back, bytes + part.len() as u64),
            Err(error) => {
                let bodies = [Body::new(replayed(bytes)), Body::from(part), body];
                return (joined(bodies), Err(error));
            }
        }
    }
    let runner = Arc::clone(&app.runner);
    let stored = app.blocking(move || runner.keep_answer(writing)).await;
    let body = replayed(bytes);
    let holds = body.holds();
    let stored = stored.map_err(io::Error::other).flatten();
    (joined([Body::new(body)]), stored.map(|()| holds))
}

/// Returns the answer about a job whose result is in a file.
pub fn with_result(answer: &JobDetails, file: File, bytes: u64) -> Response {
    let text = serde_json::to_string(answer);
    let text = text.expect("our own types with string keys are writable");
    // `result` and `error` are both null and come last.
    let before = text.strip_suffix(NOTHING).unwrap_or(&text).to_owned() + r#","result":"#;
    let body = FileBody::new(file, 0..bytes);
    let holds = body.holds();
    let bodies = [Body::from(before), Body::new(body), Body::from(r#","error":null}"#)];
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (Extension(holds), kind, joined(bodies)).into_response()
}

const NOTHING: &str = r#","result":null,"error":null}"#;
