//! The C interface of libfabric, written by hand: the declarations of `rdma/*.h` that a provider
//! needs.
//!
//! A structure has the fields of its C counterpart, and the C name in Rust's spelling: `struct
//! fi_tx_attr` is [`FiTxAttr`](info::FiTxAttr). The man pages describe the fields. A field that
//! libfabric added after 1.17 is declared with the version that added it.
//!
//! The plugin fills every slot of its own vtables, because the `size` in a vtable tells the host
//! how many slots there are. A structure from an application has only the fields of the version for
//! which the application was compiled.
//!
//! Sizes are asserted at compile time; the test `layout` compares every offset and constant in
//! [`struct_layouts`] and [`constants`] with the installed headers.

#![expect(missing_docs, reason = "fields and constants are the C ones and are described in the man pages")]

pub mod atomic;
pub mod collective;
pub mod constants;
pub mod domain;
pub mod endpoint;
pub mod eq;
pub mod fabric;
pub mod fid;
pub mod info;
pub mod memory;
pub mod provider;
pub mod rma;
pub mod tagged;
pub mod trigger;

pub use constants::*;

/// The offsets of the fields of one structure.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The C name, `struct` included.
    pub name: &'static str,
    /// The size in bytes.
    pub size_bytes: usize,
    /// All fields in order.
    pub fields: &'static [Field],
}

/// The offset of one field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The C name.
    pub name: &'static str,
    /// The offset from the start of the structure, in bytes.
    pub offset_bytes: usize,
    /// The version, major and minor, of the first header that has the field.
    pub since: (u16, u16),
}

/// The oldest version of libfabric that the declarations describe. Its headers have all fields that
/// are declared without `since`.
pub const BASE_VERSION: (u16, u16) = (1, 17);

/// Declares structures of the C interface, and lists each with its [`Layout`]. Checks the size of
/// each at compile time.
macro_rules! c_structs {
    ($(
        $(#[$attr:meta])*
        struct $name:ident = $c_name:literal, $size:literal bytes {
            $($(#[$field_attr:meta])* $field:ident: $ty:ty,)*
            $(+ since ($major:literal, $minor:literal) { $($new_field:ident: $new_ty:ty,)* })*
        }
    )*) => {
        $(
            #[doc = concat!("`", $c_name, "`.")]
            $(#[$attr])*
            #[derive(Debug)]
            #[repr(C)]
            pub struct $name {
                $($(#[$field_attr])* pub $field: $ty,)*
                $($(pub $new_field: $new_ty,)*)*
            }

            const _: () = assert!(size_of::<$name>() == $size, $c_name);
        )*

        /// The structures of this module.
        pub(super) const STRUCTS: &[$crate::abi::Layout] = &[$(
            $crate::abi::Layout {
                name: $c_name,
                size_bytes: size_of::<$name>(),
                fields: &[
                    $($crate::abi::Field {
                        name: stringify!($field),
                        offset_bytes: std::mem::offset_of!($name, $field),
                        since: $crate::abi::BASE_VERSION,
                    },)*
                    $($($crate::abi::Field {
                        name: stringify!($new_field),
                        offset_bytes: std::mem::offset_of!($name, $new_field),
                        since: ($major, $minor),
                    },)*)*
                ],
            },
        )*];
    };
}
use c_structs;

/// Returns the layout of every structure that this module declares.
pub fn struct_layouts() -> impl Iterator<Item = &'static Layout> {
    [
        atomic::STRUCTS,
        collective::STRUCTS,
        domain::STRUCTS,
        endpoint::STRUCTS,
        eq::STRUCTS,
        fabric::STRUCTS,
        fid::STRUCTS,
        info::STRUCTS,
        memory::STRUCTS,
        provider::STRUCTS,
        rma::STRUCTS,
        tagged::STRUCTS,
        trigger::STRUCTS,
    ]
    .into_iter()
    .flatten()
}
