//! Enums with names.

/// The names that the contract has for the variants of an enum, and a list of these; with
/// `Display` before it the enum is printed as its name.
#[macro_export]
macro_rules! names {
    (Display $kind:ident: $($rest:tt)+) => {
        $crate::names!($kind: $($rest)+);

        impl ::std::fmt::Display for $kind {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
    ($kind:ident: $($variant:ident $name:literal),*) => {
        impl $kind {
            /// Every one there is.
            pub const ALL: [$kind; [$($kind::$variant),*].len()] = [$($kind::$variant),*];

            /// Its name in the contract.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$variant => $name),*
                }
            }
        }
    };
}
