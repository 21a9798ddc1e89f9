//! Upload of a file, by the asynchronous client: the blocking one loses an answer that comes before the whole
//! body is sent, such as the refusal of a file that is too large.

use std::{fs::File, io::Seek, pin::pin};

use indicatif::ProgressBar;
use reqwest::{
    Body,
    multipart::{Form, Part},
};
use serde::de::DeserializeOwned;

use super::{ApiClient, ERROR_BYTES_MAX, LONG, api_error};
use crate::{error::CliError, progress};

impl ApiClient {
    /// Sends `POST path` with a multipart form that holds one file of this length; `bar` shows how much is read.
    pub fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        file: (File, u64),
        bar: &ProgressBar,
    ) -> Result<T, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| CliError::Check(format!("no HTTP client: {why}")))?;
        let body = runtime.block_on(self.send_file(path, name, file, bar))?;
        serde_json::from_slice(&body).map_err(|error| self.target.odd(error))
    }

    /// Sends the form, and returns the body of a response that is no refusal.
    async fn send_file(
        &self,
        path: &str,
        name: &str,
        (file, len): (File, u64),
        bar: &ProgressBar,
    ) -> Result<Vec<u8>, CliError> {
        // Has the position of the file that is sent; without it the bar stands still, and the upload goes on.
        let mut twin = file.try_clone().ok();
        let body = Body::from(tokio::fs::File::from_std(file));
        let part = Part::stream_with_length(body, len).file_name(name.to_owned());
        let http = self.trust.async_client(&self.target.base)?;
        let request = http
            .post(self.target.url(path)?)
            .timeout(LONG)
            .headers(self.target.headers())
            // A server without keys requires this header, which a page of another site cannot set on a form.
            .header("x-requested-with", "sightline")
            .multipart(Form::new().part("file", part));
        let mut sending = pin!(request.send());
        let sent = loop {
            tokio::select! {
                sent = &mut sending => break sent,
                () = tokio::time::sleep(progress::REDRAW) => {}
            }
            if let Some(Ok(at)) = twin.as_mut().map(Seek::stream_position) {
                bar.set_position(at);
            }
        };
        let failed = |error: reqwest::Error| self.target.unreachable(&error);
        let mut answer = sent.map_err(failed)?;
        let (status, path) = (answer.status(), answer.url().path().to_owned());
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            body.extend_from_slice(&piece);
            if body.len() as u64 > ERROR_BYTES_MAX {
                break;
            }
        }
        if status.is_success() {
            return Ok(body);
        }
        Err(self.explained((status, &path), api_error(status, &String::from_utf8_lossy(&body))))
    }
}
