//! `struct fi_info` both ways.

mod read;
mod write;

pub(crate) use read::{Extent, read, string};
pub(crate) use write::write_list;

#[cfg(test)]
mod tests;
