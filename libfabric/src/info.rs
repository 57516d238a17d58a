//! Conversion of `struct fi_info` from C and to C.

mod read;
mod write;

pub(crate) use read::{Extent, read_info, read_rx_attr, read_string, read_tx_attr};
pub(crate) use write::{InfoList, malloc_list_for_host, malloc_request_info};

#[cfg(test)]
mod tests;
