//! Uses an installed libfabric from Rust, as a C application uses it.
//!
//! [`Libfabric`] loads `libfabric.so.1` at run time and resolves the functions that a C program links.
//! [`Object`] owns an object that libfabric has opened, and closes it. The inline functions of the C headers
//! call through vtables. Callers of this crate do the same, with [`Object::as_ptr`] and the types of
//! [`homespun_fi::abi`]. The layouts are those of libfabric 1.17. They are right even if a newer libfabric is
//! loaded, because it keeps the old interfaces.
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
