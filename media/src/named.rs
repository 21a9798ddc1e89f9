//! Enums whose variants have names.

/// An enum with the name of each variant beside it, as it is on the wire and in settings.
#[macro_export]
macro_rules! named {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        pub enum $name { $($(#[$of])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$variant),*];

            /// Its name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// The one of this name.
            pub fn from_name(name: &str) -> Option<$name> {
                $name::ALL.into_iter().find(|one| one.as_str() == name)
            }
        }
    };
}
