//! Loads the plugin as a host does and drives it through its vtables.

mod av;
mod eq;
mod host;
mod info;
mod messages;
mod objects;
mod overrun;
mod peek;
mod vtables;
