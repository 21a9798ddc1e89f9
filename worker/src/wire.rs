//! The byte form of protocol values: little endian, lengths in front, nothing implied.
//!
//! Reading never panics, never reads past the message, and allocates no more than the message
//! justifies, whatever the bytes say. Knows single values; `protocol` knows the messages.

use media::{
    Activity, CellBox, Codec, ErrorKind, Extent, PixelLayout, Rate, Rotation, Sample, SampleRange,
    Score, Signal, Subsampling, Timebase, Timestamp, Zone, Zones, escaped,
};

/// Reason that bytes are not a message of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The message ends inside a value.
    #[error("a message ends inside its {0}")]
    Short(&'static str),
    /// A value outside its type's range.
    #[error("a message holds no valid {0}")]
    Invalid(&'static str),
    /// Bytes after the last value.
    #[error("a message has {0} bytes too many")]
    Trailing(usize),
    /// A message for another build.
    #[error("a message of protocol version {0}")]
    Version(u8),
    /// A message that announces more than the bound.
    #[error("a message of {0} bytes is over the limit")]
    TooLong(u32),
    /// The message needs a file descriptor, and none came.
    #[error("a message came without its file descriptor")]
    NoDescriptor,
    /// A message that makes no sense now.
    #[error("an unexpected {0} message")]
    Unexpected(&'static str),
}

/// Longest text of a worker that is passed on: more than a URL that it may ask for.
pub(crate) const TOLD_BYTES_MAX: usize = 16 << 10;

/// Rest of a message.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// A worker says it: its text is cut and escaped, whatever becomes of it.
    is_told: bool,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, is_told: false }
    }

    /// As [`Reader::new`], of a worker's message.
    pub fn told(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, is_told: true }
    }

    pub fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], ProtocolError> {
        let (head, rest) = self.bytes.split_at_checked(len).ok_or(ProtocolError::Short(what))?;
        self.bytes = rest;
        Ok(head)
    }

    fn text(&mut self) -> Result<String, ProtocolError> {
        let len = u32::get(self)? as usize;
        let text = str::from_utf8(self.take(len, "bytes")?);
        let text = text.map_err(|_| ProtocolError::Invalid("text"))?;
        Ok(match self.is_told {
            true => escaped(&text[..text.floor_char_boundary(TOLD_BYTES_MAX)]).into_owned(),
            false => text.to_owned(),
        })
    }

    pub fn byte(&mut self, what: &'static str) -> Result<u8, ProtocolError> {
        Ok(self.take(1, what)?[0])
    }

    /// Everything has been read.
    pub fn finish(self) -> Result<(), ProtocolError> {
        match self.bytes {
            [] => Ok(()),
            rest => Err(ProtocolError::Trailing(rest.len())),
        }
    }
}

/// A value with a byte form.
///
/// `u8` has none on purpose: a `Vec<u8>` is one run of bytes, any other `Vec` is value by value.
pub(crate) trait Wire: Sized {
    /// Most of them in one list.
    const LIST_MAX: u32 = u32::MAX;
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut Reader<'_>) -> Result<Self, ProtocolError>;
}

macro_rules! wire_integers {
    ($($kind:ty),*) => {$(
        impl Wire for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(from: &mut Reader<'_>) -> Result<$kind, ProtocolError> {
                let bytes = from.take(size_of::<$kind>(), stringify!($kind))?;
                Ok(<$kind>::from_le_bytes(bytes.try_into().expect("take gives what is asked")))
            }
        }
    )*};
}

wire_integers!(u16, u32, u64, i32, i64);

/// Byte form of a struct: its fields in the order given.
macro_rules! wire_struct {
    ($kind:ty { $($field:ident),* $(,)? }) => {
        impl $crate::wire::Wire for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($crate::wire::Wire::put($field, out);)*
            }

            fn get(
                from: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::ProtocolError> {
                Ok(Self { $($field: $crate::wire::Wire::get(from)?),* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Byte form of an enum: a tag byte, then the variant's values in order.
macro_rules! wire_enum {
    ($kind:ident, $what:literal, {
        $($tag:literal => $variant:ident $(($inner:ident))? $({ $($field:ident),* })?),* $(,)?
    }) => {
        impl $crate::wire::Wire for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($kind::$variant $(($inner))? $({ $($field),* })? => {
                        out.push($tag);
                        $($crate::wire::Wire::put($inner, out);)?
                        $($($crate::wire::Wire::put($field, out);)*)?
                    })*
                }
            }

            fn get(from: &mut $crate::wire::Reader<'_>) -> Result<$kind, $crate::wire::ProtocolError> {
                match from.byte($what)? {
                    $($tag => {
                        $(let $inner = $crate::wire::Wire::get(from)?;)?
                        $($(let $field = $crate::wire::Wire::get(from)?;)*)?
                        Ok($kind::$variant $(($inner))? $({ $($field),* })?)
                    })*
                    _ => Err($crate::wire::ProtocolError::Invalid($what)),
                }
            }
        }
    };
}
pub(crate) use wire_enum;

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(from: &mut Reader<'_>) -> Result<bool, ProtocolError> {
        match from.byte("flag")? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ProtocolError::Invalid("flag")),
        }
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<usize, ProtocolError> {
        usize::try_from(u64::get(from)?).map_err(|_| ProtocolError::Invalid("size"))
    }
}

impl Wire for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }

    fn get(from: &mut Reader<'_>) -> Result<Vec<u8>, ProtocolError> {
        let len = u32::get(from)?;
        Ok(from.take(len as usize, "bytes")?.to_vec())
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(from: &mut Reader<'_>) -> Result<String, ProtocolError> {
        from.text()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Option<T>, ProtocolError> {
        Ok(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut Reader<'_>) -> Result<Vec<T>, ProtocolError> {
        let count = u32::get(from)?;
        if count > T::LIST_MAX {
            return Err(ProtocolError::Invalid("list"));
        }
        // Grows with what is really there: `count` alone reserves nothing.
        (0..count).map(|_| T::get(from)).collect::<Result<Vec<T>, ProtocolError>>()
    }
}

wire_enum!(Codec, "codec", {
    0 => H264,
    1 => H265,
    2 => Vp8,
    3 => Vp9,
    4 => Av1,
    5 => Mpeg4,
    6 => Mjpeg,
});
wire_enum!(Rotation, "rotation", {
    0 => None,
    1 => Quarter,
    2 => Half,
    3 => ThreeQuarters,
});
wire_enum!(Subsampling, "subsampling", {
    0 => Gray,
    1 => Yuv420,
    2 => Yuv422,
    3 => Yuv440,
    4 => Yuv411,
    5 => Yuv444,
});
wire_enum!(SampleRange, "sample range", {
    0 => Limited,
    1 => Full,
});
wire_enum!(ErrorKind, "error kind", {
    0 => InvalidInput,
    1 => Unauthenticated,
    2 => Forbidden,
    3 => NotFound,
    4 => Conflict,
    5 => Unsupported,
    6 => Exhausted,
    7 => Unavailable,
    8 => Cancelled,
    9 => DataLoss,
    10 => Internal,
});

wire_struct!(PixelLayout { subsampling, sample, interleaved_chroma, range });
wire_struct!(Timestamp { ticks, timebase });
wire_struct!(Signal {
    frame_index,
    source_frame_index,
    pts_ms,
    perceptual_hash,
    luma_mean,
    flicker_score,
    ghosting_score,
    noise_variance_score,
    scene_score,
    activity,
});
wire_struct!(Activity { score, region, zones });

impl Wire for Zones {
    fn put(&self, out: &mut Vec<u8>) {
        let Zones { zones, only } = self;
        zones.put(out);
        only.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Zones, ProtocolError> {
        let zones = Zones { zones: Wire::get(from)?, only: Wire::get(from)? };
        let fits = zones.zones.len() <= Zone::MAX;
        if fits { Ok(zones) } else { Err(ProtocolError::Invalid("number of zones")) }
    }
}

impl Wire for Zone {
    fn put(&self, out: &mut Vec<u8>) {
        let Zone { name, polygon } = self;
        name.put(out);
        (polygon.len() as u32).put(out);
        for (x, y) in polygon {
            x.put(out);
            y.put(out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Zone, ProtocolError> {
        let (name, corners) = (String::get(from)?, u32::get(from)? as usize);
        if name.len() > Zone::NAME_BYTES_MAX
            || !(Zone::CORNERS_MIN..=Zone::CORNERS_MAX).contains(&corners)
        {
            return Err(ProtocolError::Invalid("zone"));
        }
        let mut corner = || Ok((Score::get(from)?, Score::get(from)?));
        let polygon = (0..corners).map(|_| corner()).collect::<Result<_, ProtocolError>>()?;
        Ok(Zone { name, polygon })
    }
}

impl Wire for CellBox {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.left, self.top, self.right, self.bottom]);
    }

    fn get(from: &mut Reader<'_>) -> Result<CellBox, ProtocolError> {
        match *from.take(4, "box of cells")? {
            [left, top, right @ ..=CellBox::COLUMNS, bottom @ ..=CellBox::ROWS] => {
                Ok(CellBox { left, top, right, bottom })
            }
            _ => Err(ProtocolError::Invalid("box of cells")),
        }
    }
}

impl Wire for Sample {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Sample::U8 => out.extend([0, 0]),
            Sample::U16 { shift } => out.extend([1, *shift]),
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Sample, ProtocolError> {
        match (from.byte("sample")?, from.byte("sample")?) {
            (0, 0) => Ok(Sample::U8),
            (1, shift @ 0..=8) => Ok(Sample::U16 { shift }),
            _ => Err(ProtocolError::Invalid("sample")),
        }
    }
}

impl Wire for Score {
    fn put(&self, out: &mut Vec<u8>) {
        self.millionths().put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Score, ProtocolError> {
        let millionths = u32::get(from)?;
        if millionths > Score::SCALE {
            return Err(ProtocolError::Invalid("score"));
        }
        Ok(Score::from_millionths(millionths))
    }
}

/// Two positive numbers that a checked constructor joins.
macro_rules! wire_pair {
    ($kind:ident, $what:literal, |$value:ident| ($first:expr, $second:expr)) => {
        impl Wire for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                let $value = self;
                $first.put(out);
                $second.put(out);
            }

            fn get(from: &mut Reader<'_>) -> Result<$kind, ProtocolError> {
                let (first, second) = (u32::get(from)?, u32::get(from)?);
                $kind::new(first, second).ok_or(ProtocolError::Invalid($what))
            }
        }
    };
}

wire_pair!(Extent, "extent", |extent| (extent.width, extent.height));
wire_pair!(Rate, "rate", |rate| (rate.num(), rate.den()));
wire_pair!(Timebase, "timebase", |timebase| (timebase.num(), timebase.den()));
