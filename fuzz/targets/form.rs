//! Multipart forms of uploads: in pieces they say what the whole says.
#![no_main]

use std::{convert::Infallible, sync::Arc};

use axum::{body::Body, extract::Request};
use bytes::Bytes;
use futures_util::stream;
use upload::{ApiError, App, form::Form};

/// The server's reader of forms alone: the whole server is much more to build.
#[allow(unused)]
#[path = "../../src/api/upload"]
mod upload {
    pub const FORM_BYTES_MAX: u64 = 1 << 20;

    pub struct App;

    #[derive(Debug, PartialEq)]
    pub enum ApiError {
        Plain(http::StatusCode, String),
    }

    pub mod form;
}

/// Names and bytes of the parts of a form.
type Parts = Vec<(Option<String>, String, Vec<u8>)>;

async fn read(bytes: &[u8], piece: usize) -> Result<Parts, ApiError> {
    let pieces =
        bytes.chunks(piece).map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece)));
    let body = Body::from_stream(stream::iter(pieces.collect::<Vec<_>>()));
    let request = Request::builder().header("content-type", "multipart/form-data; boundary=x");
    let mut form = Form::open(request.body(body).expect("a request"), &Arc::new(App)).await?;
    let mut parts = Vec::new();
    while let Some(mut part) = form.next().await? {
        let (name, file) = (part.name().map(str::to_owned), part.file_name());
        let mut content = Vec::new();
        while let Some(chunk) = part.chunk().await? {
            content.extend_from_slice(&chunk);
        }
        parts.push((name, file, content));
    }
    Ok(parts)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let [whole, pieces] = [usize::MAX, 7].map(|piece| runtime.block_on(read(bytes, piece)).ok());
    assert_eq!(whole, pieces);
});
