//! Enumerations with the numbers and names that an RFC gives them.

/// An enumeration of lines `Variant = number, "NAME", "meaning";`.
macro_rules! numbered {
    (
        $(#[$about:meta])*
        $name:ident { $($variant:ident = $number:literal, $text:literal, $meaning:literal;)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`: ", $meaning, ".")] $variant = $number,)+
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The one with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// Its number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Its name in the RFC.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }
        }

        impl $crate::xdr::encode::Encode for $name {
            fn encode(&self, out: &mut $crate::xdr::encode::Writer<'_>) {
                self.number().encode(out);
            }
        }
    };
}

pub(crate) use numbered;
