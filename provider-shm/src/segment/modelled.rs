//! A segment for loom tests: two threads of the model share it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use loom::cell::UnsafeCell;

use crate::segment::{Area, DataArea, FRONT_BYTES, LINES, Line, MapError, line_index};
use crate::sync::{AtomicU32, AtomicU64};

/// A segment that loom checks: the producer must not write a byte of an area that the consumer may read at
/// the same time.
#[derive(Debug, Clone)]
pub(crate) struct Segment(Arc<Layout>);

#[derive(Debug, Default)]
struct Layout {
    finished_at: AtomicU64,
    room_requested: AtomicU32,
    producer_core: AtomicU32,
    consumed_lines: AtomicU64,
    consumed_bytes: AtomicU64,
    consumed_front_bytes: AtomicU64,
    wake_requested: AtomicU32,
    pulled_classes: AtomicU32,
    lines: [Line; LINES],
    main: [UnsafeCell<u8>; DataArea::LARGE.bytes()],
    front: [UnsafeCell<u8>; FRONT_BYTES],
}

// SAFETY: all fields but the areas are atomics. Loom checks that the two sides never use a byte of an area at
// the same time.
unsafe impl Send for Segment {}

impl Segment {
    /// A segment for both sides.
    #[cfg(test)]
    pub(crate) fn modelled() -> Segment {
        Segment(Arc::default())
    }

    pub(crate) fn create(_data: DataArea) -> io::Result<(Segment, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn map(_file: &OwnedFd) -> Result<Segment, MapError> {
        Err(MapError::NotARing)
    }

    pub(crate) fn data_area(&self) -> DataArea {
        DataArea::LARGE
    }

    pub(crate) fn finished_at(&self) -> &AtomicU64 {
        &self.0.finished_at
    }

    pub(crate) fn room_requested(&self) -> &AtomicU32 {
        &self.0.room_requested
    }

    pub(crate) fn producer_core(&self) -> &AtomicU32 {
        &self.0.producer_core
    }

    pub(crate) fn end_exposure(&self) {}

    pub(crate) fn has_exposure_ended(&self) -> bool {
        false
    }

    pub(crate) fn consumed_lines(&self) -> &AtomicU64 {
        &self.0.consumed_lines
    }

    pub(crate) fn consumed_bytes(&self) -> &AtomicU64 {
        &self.0.consumed_bytes
    }

    pub(crate) fn consumed_front_bytes(&self) -> &AtomicU64 {
        &self.0.consumed_front_bytes
    }

    pub(crate) fn wake_requested(&self) -> &AtomicU32 {
        &self.0.wake_requested
    }

    pub(crate) fn pulled_classes(&self) -> &AtomicU32 {
        &self.0.pulled_classes
    }

    pub(crate) fn line(&self, position: u64) -> &Line {
        &self.0.lines[line_index(position)]
    }

    pub(crate) fn prefetch_line_for_write(&self, _position: u64) {}

    pub(crate) fn prefetch_line_for_read(&self, _position: u64) {}

    /// The byte of an area at a position.
    fn byte(&self, area: Area, position: u64) -> &UnsafeCell<u8> {
        match area {
            Area::Main => &self.0.main[DataArea::LARGE.index(position)],
            Area::Front => &self.0.front[DataArea::FRONT.index(position)],
        }
    }

    pub(crate) fn write(&self, area: Area, position: u64, from: &[u8]) {
        for (&byte, position) in from.iter().zip(position..) {
            // SAFETY: loom fails the test if another thread may use this byte at the same time.
            self.byte(area, position).with_mut(|place| unsafe { *place = byte });
        }
    }

    pub(crate) fn read(&self, area: Area, position: u64, into: &mut [u8]) {
        for (byte, position) in into.iter_mut().zip(position..) {
            // SAFETY: loom fails the test if another thread may write this byte at the same time.
            self.byte(area, position).with(|place| *byte = unsafe { *place });
        }
    }

    pub(crate) fn read_and_write_back(&self, position: u64, into: &mut [u8]) {
        self.read(Area::Main, position, into);
    }
}
