//! The mappings of this process, as `/proc/self/smaps` of `proc(5)` lists them.

use std::fs;
use std::io;
use std::ops::Range;

use homespun_engine::error::{Error, SystemRequest};

/// One mapping of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) addresses: Range<usize>,
    /// Whether it is a shared mapping of a file that has a name.
    pub(super) is_of_file: bool,
    /// Whether this is a DAX mapping: its bytes are durable once they have left the processor's caches. The
    /// mapping was made with `MAP_SYNC` of `mmap(2)`, or is of a memory device.
    pub(super) is_dax: bool,
}

/// The name prefixes of shared mappings that have no file on a device.
const NO_FILES: [&str; 3] = ["/dev/zero ", "/memfd:", "/SYSV"];

/// The name prefix of devices that are memory.
const MEMORY_DEVICES: &str = "/dev/dax";

/// Returns the current mappings of this process, ordered by address.
///
/// # Errors
///
/// The system's error.
pub(super) fn read_mappings() -> Result<Vec<Mapping>, Error> {
    // Without `smaps` nothing tells which mappings have `MAP_SYNC`. This is safe, since `msync` makes any
    // file durable.
    let text = fs::read_to_string("/proc/self/smaps").or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => fs::read_to_string("/proc/self/maps"),
        _ => Err(error),
    });
    let text = text.map_err(|error| SystemRequest::MappingList.refused(error))?;
    Ok(parse_mappings(&text))
}

fn parse_mappings(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) = parse_mapping_head(line) {
            mappings.push(mapping);
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && flags.split_whitespace().any(|flag| flag == "sy")
            && let Some(mapping) = mappings.last_mut()
        {
            mapping.is_dax = true;
        }
    }
    mappings
}

/// Parses the first line of a mapping: addresses, permissions, offset, device, inode, and perhaps a name.
/// Returns `None` for any other line.
fn parse_mapping_head(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut next = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (begin, end) = next().split_once('-')?;
    let [begin, end] = [begin, end].map(|address| usize::from_str_radix(address, 16).ok());
    let permissions = next();
    let [_offset, _device, inode] = [next(), next(), next()];
    let name = rest.trim_start();
    let is_named = name.starts_with('/') && !NO_FILES.iter().any(|prefix| name.starts_with(prefix));
    let is_of_file = permissions.ends_with('s') && inode.parse::<u64>().ok()? != 0 && is_named;
    let is_dax = is_of_file && name.starts_with(MEMORY_DEVICES);
    Some(Mapping { addresses: begin?..end?, is_of_file, is_dax })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0c8a00000-55d0c8a02000 r--p 00000000 fe:00 1234                       /usr/bin/cat
Size:                  8 kB
VmFlags: rd mr mw me sd
7f0000000000-7f0000010000 rw-s 00001000 fe:00 77                         /srv/a log.bin
Size:                 64 kB
VmFlags: rd wr sh mr mw me ms sd
7f0000010000-7f0000020000 rw-s 00000000 103:01 78                        /mnt/pmem/pool
VmFlags: rd wr sh mr mw me ms sy sd
7f0000020000-7f0000030000 rw-s 00000000 00:06 79                         /dev/dax0.0
VmFlags: rd wr sh mr mw me ms
7f0000030000-7f0000040000 rw-p 00000000 fe:00 80                         /srv/private
7f0000040000-7f0000050000 rw-s 00000000 00:01 81                         /dev/zero (deleted)
7f0000050000-7f0000060000 rw-s 00000000 00:01 82                         /memfd:shared (deleted)
7f0000060000-7f0000070000 rw-s 00000000 00:01 83                         /SYSV00000000 (deleted)
7f0000070000-7f0000080000 rw-p 00000000 00:00 0
7f0000080000-7f0000090000 rw-p 00000000 00:00 0                          [heap]
7f0000090000-7f00000a0000 rw-s 00000000 fe:00 84                         /srv/gone (deleted)
";

    #[test]
    fn smaps_parser_distinguishes_file_and_dax_mappings() {
        let found: Vec<(bool, bool)> =
            parse_mappings(SMAPS).iter().map(|mapping| (mapping.is_of_file, mapping.is_dax)).collect();
        let [file, dax, no] = [(true, false), (true, true), (false, false)];
        assert_eq!(found, [no, file, dax, dax, no, no, no, no, no, no, file]);
        assert_eq!(parse_mappings(SMAPS)[1].addresses, 0x7f00_0000_0000..0x7f00_0001_0000);
    }

    #[test]
    fn mappings_of_this_process_include_its_stack() {
        let on_the_stack = 0_u8;
        let address = std::ptr::from_ref(&on_the_stack).addr();
        let found = read_mappings().unwrap();
        assert!(found.iter().any(|mapping| mapping.addresses.contains(&address) && !mapping.is_of_file));
    }
}
