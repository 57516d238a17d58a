//! An installed libfabric, used from Rust as a C application uses it.
//!
//! [`Libfabric`] loads `libfabric.so.1` at run time and resolves the functions that a C program links.
//! [`Object`] owns any object that libfabric opens, and closes it. The inline functions of the C headers are
//! calls through the vtables of [`homespun_fi::abi`]: [`Object::as_ptr`] leads there. The layouts are those
//! of libfabric 1.17, also when a newer libfabric is loaded, which keeps its old interfaces.
//!
//! This crate tests: it compares homespun with other providers, and runs one suite over all of them.

#![deny(unreachable_pub)]

mod info;
mod library;
mod lockstep;
mod object;
mod open;

pub use homespun_fi::abi;
pub use info::InfoList;
pub use library::{API_VERSION, Libfabric, LoadError};
pub use lockstep::{Accepted, CallError, Completion, Lockstep, Signal, WaitObject};
pub use object::Object;
pub use open::{av_attr, counter_attr, cq_attr, eq_attr};
