//! What every number of one of HTTP/3's registries has: its value, and a name where we know it.

/// Gives a `struct Name(u64)` that has `const fn name(self) -> Option<&'static str>` its number, and its
/// name to those who print it; `what` stands before the number of one that has no name.
macro_rules! registered {
    ($name:ident, $what:literal) => {
        impl $name {
            /// As it came off the wire.
            #[inline]
            pub const fn from_u64(number: u64) -> Self {
                Self(number)
            }

            /// The number on the wire.
            #[inline]
            pub const fn as_u64(self) -> u64 {
                self.0
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!($what, " {:#x}"), self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub(super) use registered;
