//! What both interfaces have in common: one endpoint with its queue and its memory.

/// The length of a message, and of what is written, read and updated.
pub(crate) const LEN_BYTES: usize = 8;

/// An endpoint without locks that makes progress in calls alone, its completion queue, one peer, and memory
/// that the peer may access. A call that fails ends the process.
pub(crate) trait Node: Sized {
    /// What a node is called by its peer, and what its memory is.
    type Name: Copy;

    /// Opens a node on the loopback interface, whose memory peers may map or not.
    fn open(domain: &str, is_shareable: bool) -> Self;

    fn name(&self) -> Self::Name;

    /// Makes a node the peer of this one.
    fn meet(&mut self, peer: Self::Name);

    fn post_receive(&mut self, tag: Option<u64>);

    fn send(&mut self, tag: Option<u64>);

    fn inject(&mut self);

    fn write(&mut self);

    fn read(&mut self);

    fn fetch_add(&mut self);

    /// Reads one completion and tells whether there was one.
    fn poll_cq(&mut self) -> bool;
}
