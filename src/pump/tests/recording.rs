//! A provider whose transports record which calls the pump makes.

use std::io::IoSlice;
use std::mem;

use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, FrameHandler, Full, LinkCaps, LinkId, Provider, ProviderAttr, Sent};
use homespun_engine::wire::Header;
use parking_lot::{Mutex, MutexGuard};

use super::*;

/// A call of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    HandOver,
    Flush,
    Receive,
    Arm,
    StopAccepting,
}

/// The calls that transports have recorded.
#[derive(Debug, Default)]
pub(super) struct Calls {
    log: Mutex<Vec<Call>>,
    gate: Mutex<()>,
}

impl Calls {
    /// Returns the calls since the last call of this function.
    pub(super) fn take(&self) -> Vec<Call> {
        mem::take(&mut self.log.lock())
    }

    /// Makes every thread that receives, or stops to accept, wait until the guard is dropped.
    pub(super) fn stop_receives(&self) -> MutexGuard<'_, ()> {
        self.gate.lock()
    }

    fn record(&self, call: Call) {
        self.log.lock().push(call);
    }
}

/// Opens transports over shared memory that record their calls.
#[derive(Debug, Default)]
pub(super) struct RecordingProvider {
    pub(super) calls: Arc<Calls>,
}

pub(super) struct RecordingTransport {
    transport: <ShmProvider as Provider>::Transport,
    calls: Arc<Calls>,
}

impl Provider for RecordingProvider {
    type Transport = RecordingTransport;

    fn attr(&self) -> ProviderAttr {
        Provider::attr(&ShmProvider::new())
    }

    fn open(&self, bind: Address, instance: u64) -> Result<RecordingTransport, Errno> {
        let transport = ShmProvider::new().open(bind, instance)?;
        Ok(RecordingTransport { transport, calls: self.calls.clone() })
    }
}

impl Transport for RecordingTransport {
    fn address(&self) -> Address {
        self.transport.address()
    }

    fn caps(&self, link: LinkId) -> LinkCaps {
        LinkCaps { pull_min_bytes: usize::MAX, ..self.transport.caps(link) }
    }

    fn connect(&mut self, to: Address) -> LinkId {
        self.transport.connect(to)
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        self.transport.send_inline(link, header, payload)
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        self.transport.send(link, header, payload)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.transport.resume(link, rest)
    }

    fn flush(&mut self) {
        self.calls.record(Call::Flush);
        self.transport.flush();
    }

    fn hand_over(&mut self) {
        self.calls.record(Call::HandOver);
        self.transport.hand_over();
    }

    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        self.calls.record(Call::Receive);
        drop(self.calls.gate.lock());
        self.transport.receive(budget_frames, receiver)
    }

    fn reports_writable_links(&self) -> bool {
        self.transport.reports_writable_links()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.transport.wake_fd()
    }

    fn arm(&mut self) -> Armed {
        self.calls.record(Call::Arm);
        self.transport.arm()
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.transport.close(link, how);
    }

    fn stop_accepting(&mut self) {
        self.calls.record(Call::StopAccepting);
        drop(self.calls.gate.lock());
        self.transport.stop_accepting();
    }

    fn draining_count(&self) -> usize {
        self.transport.draining_count()
    }
}
