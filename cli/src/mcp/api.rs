//! Asynchronous client of the HTTP API; dropping a call cancels its request.

use std::time::Duration;

use reqwest::{Client as Http, Method, RequestBuilder, Response};
use serde_json::Value;

use crate::{
    client::{HELD, QUICK, ServerArgs, Target, api_error, next_query},
    error::CliError,
};

pub use crate::client::run_path;

/// Most bytes of a response; a longer one is an error.
const ANSWER_BYTES: usize = 32 << 20;

/// A server, and the credentials for it.
pub struct Api {
    http: Http,
    pub target: Target,
}

/// Page of a list, and the query of the next page.
pub struct Page {
    pub value: Value,
    pub next: Option<String>,
}

impl Api {
    /// Checks the address and creates a client; connects later.
    pub fn new(args: &ServerArgs) -> Result<Api, CliError> {
        let target = Target::new(args)?;
        let http = args.trust.async_client(&target.base)?;
        Ok(Api { http, target })
    }

    /// Sends `GET path` and parses the response.
    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, CliError> {
        Ok(self.page(path, query).await?.value)
    }

    /// Like [`Api::get`], for an answer that the server may hold.
    pub async fn get_held(&self, path: &str, query: &[(&str, String)]) -> Result<Value, CliError> {
        let url = self.target.asked(path, query)?;
        self.parse(self.exchange(self.request(Method::GET, url, HELD)).await?).await
    }

    /// Fetches the first page of the list at `path`.
    pub async fn page(&self, path: &str, query: &[(&str, String)]) -> Result<Page, CliError> {
        self.page_at(self.target.asked(path, query)?).await
    }

    /// Fetches a further page of the list at `path`.
    pub async fn next_page(&self, path: &str, next: &str) -> Result<Page, CliError> {
        let mut url = self.target.url(path)?;
        url.set_query(Some(next));
        self.page_at(url).await
    }

    async fn page_at(&self, url: reqwest::Url) -> Result<Page, CliError> {
        let answer = self.exchange(self.request(Method::GET, url, QUICK)).await?;
        let next = next_query(answer.headers());
        Ok(Page { value: self.parse(answer).await?, next })
    }

    /// Sends `POST path` with a JSON body and parses the response.
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Value, CliError> {
        let request = self.request(Method::POST, self.target.url(path)?, patience).json(body);
        self.parse(self.exchange(request).await?).await
    }

    /// Sends `POST path` for an asynchronous job, and returns the job.
    pub async fn start(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        let request = self.request(Method::POST, self.target.url(path)?, QUICK).json(body);
        let request = request.header("prefer", "respond-async");
        self.parse(self.exchange(request).await?).await
    }

    /// Sends `DELETE path` and parses the response.
    pub async fn delete(&self, path: &str) -> Result<Value, CliError> {
        let request = self.request(Method::DELETE, self.target.url(path)?, HELD);
        self.parse(self.exchange(request).await?).await
    }

    /// Returns the body of `GET path`.
    pub async fn bytes(&self, path: &str, query: &[(&str, String)]) -> Result<Vec<u8>, CliError> {
        let url = self.target.asked(path, query)?;
        self.body(self.exchange(self.request(Method::GET, url, QUICK)).await?).await
    }

    fn request(&self, method: Method, url: reqwest::Url, patience: Duration) -> RequestBuilder {
        self.http.request(method, url).timeout(patience).headers(self.target.headers())
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let answer = request.send().await.map_err(|error| self.target.unreachable(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let text = self.body(answer).await?;
        Err(CliError::Api(api_error(status, &String::from_utf8_lossy(&text))))
    }

    async fn parse(&self, answer: Response) -> Result<Value, CliError> {
        let body = self.body(answer).await?;
        serde_json::from_slice(&body).map_err(|error| self.target.odd(error))
    }

    async fn body(&self, mut answer: Response) -> Result<Vec<u8>, CliError> {
        let (target, mut body) = (&self.target, Vec::new());
        while let Some(piece) = answer.chunk().await.map_err(|error| target.unreachable(&error))? {
            if body.len() + piece.len() > ANSWER_BYTES {
                return Err(target.odd(format!("it is longer than {} MiB", ANSWER_BYTES >> 20)));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}
