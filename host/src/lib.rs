//! Uses an installed libfabric from Rust, as a C application uses it.
//!
//! [`Libfabric`] loads `libfabric.so.1` at run time and resolves the functions that a C program links.
//! [`Object`] owns an object that libfabric has opened, and closes it. The inline functions of the C headers
//! call through the vtable of an object. Where this crate has no method for such a function, callers use the
//! vtable themselves, through [`Object::as_ptr`] and the types of [`homespun_fi::abi`]. These types have the
//! layouts of libfabric 1.17, also if a newer libfabric is loaded: every newer libfabric keeps the
//! interfaces of 1.17. A *provider* is here what libfabric calls one, such as `tcp;ofi_rxm` or homespun's
//! plugin.
//!
//! This crate is for tests, which compare homespun with other providers or run one suite over all of them,
//! and for `homespun bench`.

#![deny(unreachable_pub)]

mod info;
mod library;
mod lockstep;
mod object;
mod open;

pub use homespun_fi::abi;
pub use info::InfoList;
pub use library::{API_VERSION, Libfabric, LoadError};
pub use lockstep::{Accepted, CallError, Completion, Lockstep, WaitObject, WakeHandle};
pub use object::Object;
pub use open::{av_attr, counter_attr, cq_attr, eq_attr};
