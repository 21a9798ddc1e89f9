//! Implementation of serde's traits for types with invariants.

/// Implements serde's traits for a type that derives them with `#[serde(remote = "Self")]`. Deserialization
/// fails if the check does not hold, so that every value is valid.
#[macro_export]
macro_rules! serde_checked {
    ($kind:ty, |$value:ident| $is_valid:expr) => {
        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                <$kind>::serialize(self, to)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $kind {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let $value = <$kind>::deserialize(from)?;
                match $is_valid {
                    true => Ok($value),
                    false => Err(::serde::de::Error::custom(stringify!($kind))),
                }
            }
        }
    };
}
