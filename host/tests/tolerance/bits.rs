//! The bits for probes of single bits. Their names are in `bits.txt`.

/// The numbers and names of the bits of a set, which is `flags`, `modes`, `orders` or `mr_modes`.
pub(crate) fn bits(set: &'static str) -> impl Iterator<Item = (u32, &'static str)> {
    include_str!("bits.txt").lines().filter_map(move |line| {
        let (number, name) = line.strip_prefix(set)?.strip_prefix(' ')?.split_once(' ').expect("a name");
        Some((number.parse().expect("a number"), name))
    })
}

/// The flags of operations, binding and registration, and the capabilities.
pub(crate) fn flags() -> impl Iterator<Item = (u32, &'static str)> {
    bits("flags")
}
