//! The staging buffer of a link.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::limits::{STAGING_MAX_BYTES, STAGING_SPARE_BUFFERS};

/// Bytes that the link has taken but not yet written: hello, headers, small frames.
///
/// For the first staged byte, the link takes a buffer from [`SpareBuffers`], if there is one. After the last
/// byte, the link gives the buffer back. So an idle link has no buffer, and a busy link seldom allocates.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    bytes: VecDeque<u8>,
}

/// Empty buffers, shared by the links of a transport.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers {
    buffers: Vec<VecDeque<u8>>,
}

impl Staging {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether this many more bytes fit.
    pub(crate) fn has_room(&self, more_bytes: usize) -> bool {
        more_bytes <= STAGING_MAX_BYTES - self.bytes.len().min(STAGING_MAX_BYTES)
    }

    pub(crate) fn append(&mut self, bytes: &[u8], spare: &mut SpareBuffers) {
        if self.bytes.capacity() == 0
            && let Some(buffer) = spare.buffers.pop()
        {
            self.bytes = buffer;
        }
        self.bytes.extend(bytes);
    }

    /// The staged bytes in order. The second slice may be empty.
    pub(crate) fn as_slices(&self) -> [IoSlice<'_>; 2] {
        let (first, second) = self.bytes.as_slices();
        [IoSlice::new(first), IoSlice::new(second)]
    }

    /// Removes the first `count_bytes`, which have been written.
    pub(crate) fn consume(&mut self, count_bytes: usize, spare: &mut SpareBuffers) {
        self.bytes.drain(..count_bytes);
        if self.bytes.is_empty() && self.bytes.capacity() > 0 {
            let mut buffer = std::mem::take(&mut self.bytes);
            if spare.buffers.len() < STAGING_SPARE_BUFFERS {
                buffer.clear();
                spare.buffers.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_content(staging: &Staging) -> Vec<u8> {
        staging.as_slices().iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn staged_bytes_leave_in_order() {
        let (mut staging, mut spare) = (Staging::default(), SpareBuffers::default());
        let mut expected = VecDeque::new();
        let mut next = 0_u8;
        // The pieces have different sizes, and together are longer than the buffer, so the buffer wraps.
        for round in 0..2_000 {
            let piece: Vec<u8> = (0..round % 97)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            staging.append(&piece, &mut spare);
            expected.extend(&piece);
            let leaving = staging.len_bytes().min(round % 89);
            staging.consume(leaving, &mut spare);
            expected.drain(..leaving);
            assert_eq!(copy_content(&staging), expected.iter().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn emptied_staging_returns_its_buffer() {
        let (mut first, mut second, mut spare) =
            (Staging::default(), Staging::default(), SpareBuffers::default());
        first.append(&[1; 5_000], &mut spare);
        first.consume(5_000, &mut spare);
        assert_eq!(first.bytes.capacity(), 0);
        assert_eq!(spare.buffers.len(), 1);
        second.append(&[2], &mut spare);
        assert!(second.bytes.capacity() >= 5_000 && spare.buffers.is_empty());
        assert_eq!(copy_content(&second), [2]);
    }

    #[test]
    fn spare_buffers_are_limited() {
        let mut spare = SpareBuffers::default();
        let mut links: Vec<Staging> = (0..2 * STAGING_SPARE_BUFFERS).map(|_| Staging::default()).collect();
        for link in &mut links {
            link.append(b"x", &mut spare);
        }
        for link in &mut links {
            link.consume(1, &mut spare);
        }
        assert_eq!(spare.buffers.len(), STAGING_SPARE_BUFFERS);
    }

    #[test]
    fn has_room_ends_at_the_limit() {
        let (mut staging, mut spare) = (Staging::default(), SpareBuffers::default());
        staging.append(&[0; STAGING_MAX_BYTES - 10], &mut spare);
        assert!(staging.has_room(10) && !staging.has_room(11));
        staging.append(&[0; 28], &mut spare);
        assert!(!staging.has_room(1) && staging.has_room(0));
    }
}
