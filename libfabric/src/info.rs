//! `struct fi_info` both ways.

mod read;
mod write;

pub(crate) use read::{Extent, read, read_rx_attr, read_tx_attr, string};
pub(crate) use write::{InfoList, write_list, write_named};

#[cfg(test)]
mod tests;
