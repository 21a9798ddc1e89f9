//! Properties of reading any multipart form.

#[path = "../../src/api/upload/form.rs"]
#[allow(unused)]
mod parser;

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{body::Body, extract::Request};
use bytes::Bytes;
use http_body::Frame;
use parser::MultipartForm;

/// Stand-ins for what the server's reader takes from the module around it.
pub const FORM_BYTES_MAX: u64 = 1 << 20;
pub struct App;

#[derive(Debug, PartialEq)]
pub enum ApiError {
    Plain(http::StatusCode, String),
}

pub type ApiResult<T> = Result<T, ApiError>;

/// A body that comes in pieces.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// Names and bytes of the parts of a form.
type Parts = Vec<(Option<String>, String, Vec<u8>)>;

async fn read(bytes: &[u8], piece: usize) -> ApiResult<Parts> {
    let pieces = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
    let request = Request::builder().header("content-type", "multipart/form-data; boundary=x");
    let request = request.body(Body::new(Pieces(pieces))).expect("a request");
    let mut form = MultipartForm::open(request, &Arc::new(App)).await?;
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

/// A form with the boundary `x`.
///
/// In pieces it says what the whole says. Returns the number of its parts, none where it is refused.
pub fn form(bytes: &[u8]) -> Option<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let [whole, pieces] = [usize::MAX, 7].map(|piece| runtime.block_on(read(bytes, piece)).ok());
    assert_eq!(whole, pieces);
    whole.map(|parts| parts.len())
}
