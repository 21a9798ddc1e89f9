//! Encoding of messages: postcard, behind a length and a version.
//!
//! Decoding never panics, never reads past the message, and allocates no more than the message justifies.
//! Types validate their own values; `protocol` has the messages.

use std::{borrow::Cow, fmt, marker::PhantomData};

use media::escaped;
use postcard::{
    Error,
    de_flavors::{Flavor, Slice},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
};

/// Reason that bytes are not a valid message of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WireError {
    #[error("a message cannot be read: {0:?}")]
    Malformed(#[from] Error),
    /// A value is not one that its sender may send.
    #[error("a message holds no valid {0}")]
    Invalid(&'static str),
    #[error("a message has {0} bytes too many")]
    Trailing(usize),
    #[error("a message of protocol version {0}")]
    Version(u8),
    #[error("a message of {0} bytes is over the limit")]
    TooLong(u32),
    #[error("a message came without its file descriptor")]
    NoDescriptor,
    /// The message is not valid at this point.
    #[error("an unexpected {0} message")]
    Unexpected(&'static str),
}

/// Version of the messages. A command line may start the server's program of another release, which is an error.
pub(crate) const VERSION: u8 = 4;

/// Most bytes of a message: a frame with a still of the largest picture, below 50 MB, and a view.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// Bytes of the length in front of the payload.
pub(crate) const HEADER_BYTES: usize = 4;

/// Most bytes of a worker's text that are passed on: more than a URL that it may ask for.
pub(crate) const TOLD_BYTES_MAX: usize = 16 << 10;

/// Most values of a list other than records.
pub(crate) const LIST_MAX: usize = 64;

/// Messages of one direction.
pub(crate) trait Message: Serialize + DeserializeOwned {
    /// True for a worker's messages: all their texts are truncated and escaped.
    const IS_TOLD: bool;
}

/// Appends `message` to `out`, encoded for the socket.
///
/// Refuses a message over the limit, for which the other end would close the connection.
pub(crate) fn encode(message: &impl Message, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    out.extend([0; HEADER_BYTES]);
    out.push(VERSION);
    let written = postcard::to_io(message, &mut *out).map(drop).map_err(WireError::from);
    let len = out.len() - start - HEADER_BYTES;
    let fits = match len > MESSAGE_BYTES_MAX as usize {
        true => Err(WireError::TooLong(u32::try_from(len).unwrap_or(u32::MAX))),
        false => Ok(()),
    };
    if let Err(error) = written.and(fits) {
        out.truncate(start);
        return Err(error);
    }
    out[start..start + HEADER_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(())
}

pub(crate) fn payload_len(header: [u8; HEADER_BYTES]) -> Result<usize, WireError> {
    match u32::from_le_bytes(header) {
        len if len > MESSAGE_BYTES_MAX => Err(WireError::TooLong(len)),
        len => Ok(len as usize),
    }
}

pub(crate) fn decode<T: Message>(payload: &[u8]) -> Result<T, WireError> {
    let (version, bytes) = payload.split_first().ok_or(Error::DeserializeUnexpectedEnd)?;
    if *version != VERSION {
        return Err(WireError::Version(*version));
    }
    let rest = Rest { bytes: Slice::new(bytes), is_told: T::IS_TOLD, text: String::new() };
    let mut from = postcard::Deserializer::from_flavor(rest);
    let message = T::deserialize(&mut from)?;
    match from.finalize()? {
        [] => Ok(message),
        rest => Err(WireError::Trailing(rest.len())),
    }
}

/// Unread rest of a message.
struct Rest<'a> {
    bytes: Slice<'a>,
    is_told: bool,
    /// The last text that was escaped.
    text: String,
}

impl<'a> Flavor<'a> for Rest<'a> {
    type Remainder = &'a [u8];
    type Source = &'a [u8];

    #[inline]
    fn pop(&mut self) -> Result<u8, Error> {
        self.bytes.pop()
    }

    /// Lets no list reserve more elements than there are bytes.
    fn size_hint(&self) -> Option<usize> {
        self.bytes.size_hint()
    }

    fn try_take_n(&mut self, len: usize) -> Result<&'a [u8], Error> {
        self.bytes.try_take_n(len)
    }

    /// Takes a text; runs of [`bytes`] go through `try_take_n`.
    fn try_take_n_temp<'b>(&'b mut self, len: usize) -> Result<&'b [u8], Error>
    where
        'a: 'b,
    {
        let bytes = self.try_take_n(len)?;
        if !self.is_told {
            return Ok(bytes);
        }
        let text = str::from_utf8(bytes).map_err(|_| Error::DeserializeBadUtf8)?;
        let cut = |text: &str| text.floor_char_boundary(TOLD_BYTES_MAX);
        Ok(match escaped(&text[..cut(text)]) {
            Cow::Borrowed(text) => text.as_bytes(),
            Cow::Owned(text) => {
                self.text = text;
                &self.text.as_bytes()[..cut(&self.text)]
            }
        })
    }

    fn finalize(self) -> Result<&'a [u8], Error> {
        self.bytes.finalize()
    }
}

/// Serializes bytes as one run: serde encodes a `Vec<u8>` value by value.
pub(crate) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(from).map(<[u8]>::to_vec)
    }
}

/// Reads a list of at most `MAX` values, allocating only for those that are there.
pub(crate) fn list<'de, D, T, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX} values")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = from.next_element()? {
                if values.len() == MAX {
                    return Err(A::Error::invalid_length(MAX + 1, &self));
                }
                values.push(value);
            }
            Ok(values)
        }
    }

    from.deserialize_seq(List::<T, MAX>(PhantomData))
}
