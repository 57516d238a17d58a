//! Calls the plugin through its vtables, as a host does. The tests run over `tcp`: what operations do over
//! any transport is the subject of `host/tests/semantics.rs`.

mod atomic;
mod av;
mod connections;
mod entries;
mod host;
mod info;
mod memory;
mod objects;
mod prelude;
mod shared_contexts;
mod triggered;
mod vtables;
mod waiting;
