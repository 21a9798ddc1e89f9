//! Place of an object store, and the environment variables of its credentials.

use std::fmt;

use object_store::{
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    path::Path,
};
use url::Url;

/// Variables that are read; others of AWS could turn off signatures, or name another endpoint.
const VARIABLES: [&str; 12] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// Reason that an object store cannot be set up.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum SetupError {
    #[error("s3://bucket or s3://bucket/prefix: {0}")]
    Place(&'static str),
    #[error("must be an http:// or https:// URL: {0}")]
    Endpoint(&'static str),
    #[error("the name of a server in an object store {0}")]
    Name(&'static str),
    #[error(
        "needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY \
         (and AWS_SESSION_TOKEN if they are temporary), or AWS_WEB_IDENTITY_TOKEN_FILE and \
         AWS_ROLE_ARN, or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or \
         AWS_CONTAINER_CREDENTIALS_FULL_URI and AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE; {0}"
    )]
    Credentials(&'static str),
    #[error("no HTTP client can be made for the object store: {0}")]
    Client(#[source] reqwest::Error),
    #[error("cannot start a thread for the object store: {0}")]
    Thread(#[source] std::io::Error),
    #[error("no client can be made for the object store: {0}")]
    Store(#[source] object_store::Error),
}

/// Place in an object store, and the store's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of all keys, without slashes at its ends; empty if keys begin with the node.
    pub prefix: String,
    /// Address of a store other than AWS.
    pub endpoint: Option<Url>,
}

/// Server that writes to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Tag of the server in keys.
    pub node: String,
    /// Unique name of the server.
    pub owner: String,
}

impl Place {
    /// Parses `s3://bucket` or `s3://bucket/prefix`.
    pub fn parse(text: &str) -> Result<Place, SetupError> {
        let rest = text.strip_prefix("s3://").ok_or(SetupError::Place("it starts with s3://"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = bucket.bytes().next().into_iter().chain(bucket.bytes().last());
        if !(3..=63).contains(&bucket.len())
            || !bucket.bytes().all(|byte| is_fit(byte) || matches!(byte, b'-' | b'.'))
            || !ends.into_iter().all(is_fit)
        {
            let problem = "a bucket is 3 to 63 lower-case letters, digits, '-' and '.'";
            return Err(SetupError::Place(problem));
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        // Keys have at most 1024 bytes; the limit of a prefix leaves room for the rest.
        if prefix.len() > 512 || !prefix.bytes().all(|byte| is_plain(byte) || byte == b'/') {
            let problem = "a prefix is at most 512 letters, digits, '-', '_', '.' and '/'";
            return Err(SetupError::Place(problem));
        }
        if prefix.starts_with('/') || Path::parse(prefix).is_err() {
            return Err(SetupError::Place("no part of a prefix is empty, \".\" or \"..\""));
        }
        Ok(Place { bucket: bucket.to_owned(), prefix: prefix.to_owned(), endpoint: None })
    }

    /// Parses the address of a store other than AWS.
    pub fn endpoint(text: &str) -> Result<Url, SetupError> {
        let url = Url::parse(text).map_err(|_| SetupError::Endpoint("it is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(SetupError::Endpoint("it has another scheme, or no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SetupError::Endpoint("it holds no credentials: those are AWS_ variables"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(SetupError::Endpoint("it ends with its path"));
        }
        Ok(url)
    }

    /// Returns the key of `name` below the prefix, for any server.
    pub(crate) fn key(&self, name: &str) -> Option<Path> {
        let separator = if self.prefix.is_empty() { "" } else { "/" };
        Path::parse(format!("{}{separator}{name}", self.prefix)).ok()
    }
}

/// Formats the place as `s3://bucket/prefix`, with its endpoint, if any, which identifies another store.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { bucket, prefix, endpoint } = self;
        let separator = if prefix.is_empty() { "" } else { "/" };
        write!(f, "s3://{bucket}{separator}{prefix}")?;
        endpoint.iter().try_for_each(|endpoint| write!(f, " at {endpoint}"))
    }
}

impl Writer {
    /// Returns an error unless tag and name are allowed in an object store.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let Writer { node, owner } = self;
        if node.is_empty() || !node.bytes().all(is_plain) || Path::parse(node).is_err() {
            return Err(SetupError::Name("has a tag of letters, digits, '-', '_' and '.'"));
        }
        if owner.trim() != owner || owner.is_empty() || owner.chars().any(char::is_control) {
            return Err(SetupError::Name("is one line that is not empty"));
        }
        if owner.len() > crate::owner::OWNER_BYTES_MAX {
            return Err(SetupError::Name("has at most 256 bytes"));
        }
        Ok(())
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Credentials and region, by their names in AWS.
#[derive(Clone)]
pub struct Credentials(Vec<(AmazonS3ConfigKey, String)>);

impl Credentials {
    /// Reads the set variables of AWS. Fails if they are incomplete, as the client would otherwise
    /// ask the instance metadata address.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Credentials, SetupError> {
        let (mut values, mut set) = (Vec::new(), Vec::new());
        for name in VARIABLES {
            // Containers unset a variable by setting it empty.
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
            let key = name.to_ascii_lowercase().parse().map_err(SetupError::Store)?;
            values.push((key, value));
            set.push(name);
        }
        complete(&set)?;
        Ok(Credentials(values))
    }

    pub(crate) fn builder(self) -> AmazonS3Builder {
        let with = |builder: AmazonS3Builder, (key, value)| builder.with_config(key, value);
        self.0.into_iter().fold(AmazonS3Builder::new(), with)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Returns an error unless the variables in `set` are complete credentials of one kind.
fn complete(set: &[&str]) -> Result<(), SetupError> {
    let has = |name: &str| set.contains(&name);
    let both = |one: &str, other: &str| match (has(one), has(other)) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        _ => Err(()),
    };
    let half = |problem| move |()| SetupError::Credentials(problem);
    if both("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        .map_err(half("one of the first two is set without the other"))?
        || has("AWS_WEB_IDENTITY_TOKEN_FILE") && has("AWS_ROLE_ARN")
        || has("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    {
        return Ok(());
    }
    let full = both("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if full.map_err(half("one of the last two is set without the other"))? {
        return Ok(());
    }
    if has("AWS_WEB_IDENTITY_TOKEN_FILE") {
        return Err(SetupError::Credentials("AWS_ROLE_ARN is missing"));
    }
    Err(SetupError::Credentials("none of them is set"))
}

#[cfg(test)]
mod tests {
    use super::{Credentials, Place};

    #[test]
    fn a_place_is_a_bucket_and_a_prefix() {
        for (place, shown, key) in [
            ("s3://footage", "s3://footage", "00a1/owner"),
            ("s3://footage/", "s3://footage", "00a1/owner"),
            ("s3://foot.age-1/a/b/", "s3://foot.age-1/a/b", "a/b/00a1/owner"),
        ] {
            let place = Place::parse(place).expect("a place");
            assert_eq!(place.to_string(), shown);
            assert_eq!(place.key("00a1/owner").expect("a key").to_string(), key);
        }
        for wrong in [
            "",
            "footage",
            "S3://footage",
            "s3://",
            "s3:///a",
            "s3://ab",
            "s3://Footage",
            "s3://footage//a",
            "s3://footage/a//b",
            "s3://footage/../a",
            "s3://footage/a?b",
            "s3://key:secret@footage/a",
            "s3://-footage",
            "s3://footage/\u{e4}",
        ] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_endpoint_holds_no_credentials() {
        assert!(Place::endpoint("http://minio:9000").is_ok());
        assert!(Place::endpoint("https://s3.example.net/base/").is_ok());
        for wrong in ["minio:9000", "ftp://minio", "http://k:s@minio", "http://minio/?a=b"] {
            assert!(Place::endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn credentials_are_of_one_kind_and_whole() {
        let told = |names: &[&str]| {
            let found = Credentials::of(|name| names.contains(&name).then(|| "x".to_owned()));
            found.map(drop).map_err(|error| error.to_string())
        };
        for whole in [
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"],
            ["AWS_REGION", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"],
            ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"],
        ] {
            assert_eq!(told(&whole), Ok(()));
        }
        for (part, says) in [
            (vec![], "none of them is set"),
            (vec!["AWS_REGION", "AWS_SKIP_SIGNATURE"], "none of them is set"),
            (vec!["AWS_ACCESS_KEY_ID"], "one of the first two"),
            (vec!["AWS_WEB_IDENTITY_TOKEN_FILE"], "AWS_ROLE_ARN is missing"),
            (vec!["AWS_CONTAINER_CREDENTIALS_FULL_URI"], "one of the last two"),
        ] {
            let error = told(&part).expect_err("no credentials");
            assert!(error.contains(says) && error.contains("set AWS_ACCESS_KEY_ID"), "{error}");
        }
        assert!(Credentials::of(|_| Some(String::new())).is_err(), "set to nothing");
    }
}
