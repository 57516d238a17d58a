//! homespun as a provider of libfabric.
//!
//! An unmodified libfabric, 1.17 or 2.x, loads `libhomespun_fi.so` from a directory in
//! `FI_PROVIDER_PATH`, and then offers a provider `homespun`. The library builds without libfabric,
//! and imports no symbols from it.
//!
//! The plugin has no semantics of its own. Every call converts its arguments, calls [`homespun`],
//! and converts the result back. [`abi`] declares C's interface, `edge` wraps every call from C,
//! and `object` allocates and closes the objects. Each kind of object has a file. So has each
//! vtable with functions that are not stubs.
//!
//! Two checks exist only here, because Rust's types make them needless in a Rust program. First,
//! the plugin refuses null pointers and objects of the wrong class. Second, closing an object on
//! which another object depends fails with `-FI_EBUSY`. In Rust the dependent object keeps the
//! first object alive.

#![deny(unreachable_pub)]

pub mod abi;
mod atomic;
mod av;
mod c_misuse;
mod connection;
mod counter;
mod cq;
mod deferred_work;
mod domain;
mod edge;
mod endpoint;
mod eq;
mod error_data;
mod fabric;
mod handles;
mod host;
mod info;
mod layers;
mod log;
mod memory;
mod message;
mod mr;
mod object;
mod offered_name;
mod opened;
mod options;
mod passive_endpoint;
mod poll_set;
mod posting;
mod provider;
mod rma;
mod shared_receive_context;
mod shared_receives;
mod shared_transmit_context;
mod sockaddr;
mod states;
mod tagged;
mod text;
mod triggered;
mod unsupported;
mod wait;
mod wait_set;

pub use provider::fi_prov_ini;
