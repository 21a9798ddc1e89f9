//! Macro for enums whose variants have wire names.

/// Declares an enum with the wire and settings name of each variant.
#[macro_export]
macro_rules! named {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        pub enum $name { $($(#[$of])* $variant,)* }

        impl $name {
            /// All variants.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$variant),*];

            /// Returns the name of the variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// Returns the variant called `name`; `None` if there is none.
            pub fn from_name(name: &str) -> Option<$name> {
                $name::ALL.into_iter().find(|one| one.as_str() == name)
            }
        }
    };
}
