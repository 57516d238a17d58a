//! homespun as a provider of libfabric.
//!
//! An unmodified libfabric, 1.17 or 2.x, loads `libhomespun_fi.so` from a directory in
//! `FI_PROVIDER_PATH` and then offers a provider `homespun`. The library builds without libfabric,
//! and imports no symbols from it.
//!
//! There are no semantics here: every call converts its arguments, calls [`homespun`], and converts the
//! result back. C applications get the same features as Rust applications. [`abi`] declares C's interface,
//! `edge` wraps every call from C, and `object` allocates and closes the objects. Each kind of object has a
//! file, and so has each of its vtables that is more than stubs.
//!
//! Two checks exist only here, since Rust's types make them needless. Closing an object on which another
//! object depends fails with `-FI_EBUSY`; in Rust the dependent object keeps it alive instead. And the
//! plugin refuses null pointers and objects of the wrong class.

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
