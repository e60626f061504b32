//! Setters of configuration structs: named as the field, by value.
//!
//! For the structs of this crate that may get more fields and so cannot be written out elsewhere.
//! Never anything that has to check its value: that is a method of its own.

/// A setter for each of these fields, of its name.
macro_rules! setters {
    ($($field:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets the field `", stringify!($field), "`.")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*
    };
}

pub(crate) use setters;
