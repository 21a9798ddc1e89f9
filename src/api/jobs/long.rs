//! Job answers too long to be held in memory: written to a file as they are produced, and sent from
//! that file.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    BoxError, Extension,
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::header;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;

use super::record::JobAnswer;
use crate::{
    api::{App, files::FileBody},
    record::runner::Writing,
    runs::registry::JobOrder,
};

/// Stores the body of `response` for as long as its job is recorded; returns an equivalent response.
pub async fn keep(app: &Arc<App>, order: &JobOrder, response: Response) -> Response {
    let (parts, mut body) = response.into_parts();
    let (runner, (run, job)) = (Arc::clone(&app.runner), (order.run, order.id));
    let begun = app.blocking(move || runner.begin_answer(run, job)).await;
    let begun = begun.map_err(io::Error::other).flatten();
    let kept = match begun {
        Ok(writing) => written(app, writing, &mut body).await,
        Err(error) => Err((error, VecDeque::new())),
    };
    let mut bodies = kept.unwrap_or_else(|(error, bodies)| {
        tracing::error!(%job, %error, "what a job came to could not be kept");
        bodies
    });
    bodies.push_back(body);
    Response::from_parts(parts, Body::new(Joined(bodies)))
}

/// Writes all of `body` to the file; returns bodies that replay what was read, also after an error.
async fn written(
    app: &Arc<App>,
    mut writing: Writing,
    body: &mut Body,
) -> Result<VecDeque<Body>, (io::Error, VecDeque<Body>)> {
    let taken = |writing: &Writing, unwritten: Bytes| {
        let file = writing.file();
        let file = file.map(|(file, bytes)| Body::new(FileBody::new(file, 0..bytes)));
        file.into_iter().chain([Body::from(unwritten)]).collect::<VecDeque<_>>()
    };
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map(Frame::into_data) else {
            let runner = Arc::clone(&app.runner);
            let bodies = taken(&writing, Bytes::new());
            drop(app.blocking(move || runner.drop_answer(&writing)).await);
            return Err((io::Error::other("it could not be made to its end"), bodies));
        };
        let Ok(bytes) = bytes else { continue };
        let part = bytes.clone();
        let wrote = app.blocking(move || {
            let wrote = writing.write(&part);
            (writing, wrote)
        });
        let Ok((back, wrote)) = wrote.await else {
            return Err((io::Error::other("a write panicked"), VecDeque::new()));
        };
        writing = back;
        if let Err(error) = wrote {
            let runner = Arc::clone(&app.runner);
            let bodies = taken(&writing, bytes);
            drop(app.blocking(move || runner.drop_answer(&writing)).await);
            return Err((error, bodies));
        }
    }
    let (bodies, runner) = (taken(&writing, Bytes::new()), Arc::clone(&app.runner));
    match app.blocking(move || runner.keep_answer(writing)).await {
        Ok(Ok(())) => Ok(bodies),
        Ok(Err(error)) => Err((error, bodies)),
        Err(_) => Err((io::Error::other("a write panicked"), bodies)),
    }
}

/// Returns the answer about a job whose result is in a file.
pub fn with_result(answer: &JobAnswer, file: File, bytes: u64) -> Response {
    let text = serde_json::to_string(answer);
    let text = text.expect("our own types with string keys are writable");
    // `result` and `error` are both null and come last.
    let before = text.strip_suffix(NOTHING).unwrap_or(&text).to_owned() + r#","result":"#;
    let body = FileBody::new(file, 0..bytes);
    let holds = body.holds();
    let bodies = [Body::from(before), Body::new(body), Body::from(r#","error":null}"#)];
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (Extension(holds), kind, Body::new(Joined(bodies.into()))).into_response()
}

const NOTHING: &str = r#","result":null,"error":null}"#;

/// Bodies sent one after the other.
struct Joined(VecDeque<Body>);

impl HttpBody for Joined {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while let Some(body) = self.0.front_mut() {
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(frame) => return Poll::Ready(Some(frame.map_err(BoxError::from))),
                None => drop(self.0.pop_front()),
            }
        }
        Poll::Ready(None)
    }
}
