//! An endpoint for tagged messages in lockstep: at most one posted send and one posted receive are in
//! flight.

use std::ffi::c_int;
use std::mem;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::time::Duration;

use homespun::Errno;
use homespun::flags::{Caps, InfoFlags, Mode};
use homespun_fi::abi::domain::FidAv;
use homespun_fi::abi::endpoint::FidEp;
use homespun_fi::abi::eq::{FiCqAttr, FiCqTaggedEntry, FidCq};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_GETWAIT, FI_RECV, FI_TRANSMIT, FI_WAIT_FD, FI_WAIT_NONE,
    FI_WAIT_UNSPEC,
};
use libc::c_void;

use crate::info::InfoList;
use crate::library::{Libfabric, check_result};
use crate::object::Object;
use crate::open::{av_attr, cq_attr};

/// How the application waits for completions: the wait object of `fi_cq_open(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitObject {
    /// `FI_WAIT_NONE`: the application polls the queue.
    None,
    /// `FI_WAIT_FD`: the application sleeps on a file descriptor.
    Descriptor,
    /// `FI_WAIT_UNSPEC`: the application sleeps in `fi_cq_sread(3)`, and the provider chooses how.
    Unspecified,
}

/// A call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno} ({errno:?})")]
pub struct CallError {
    /// The name of the C function.
    pub call: &'static str,
    /// The error number that the function returned.
    pub errno: Errno,
}

/// A completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The send has completed.
    Sent,
    /// The receive has completed: a message has arrived.
    Received {
        /// The length of the message.
        len_bytes: usize,
        /// The tag of the message.
        tag: u64,
    },
}

/// How the endpoint has accepted a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The message was injected (`fi_tinject(3)`), so there is no completion.
    Injected,
    /// The send was posted. [`Completion::Sent`] follows.
    Posted,
}

/// An enabled reliable endpoint with one peer. It owns the buffers of its messages.
///
/// A post fails with `EBUSY` while another message of the same direction is in flight. The buffers are freed
/// after the endpoint was closed. They leak if libfabric refuses to close the endpoint.
#[derive(Debug)]
pub struct Lockstep {
    /// `None` only during drop.
    ep: Option<Object<FidEp>>,
    cq: Object<FidCq>,
    av: Object<FidAv>,
    fabric: Object<FidFabric>,
    peer: u64,
    inject_max_bytes: usize,
    /// The queue's descriptor, if it has one.
    descriptor: Option<RawFd>,
    outgoing: Buffer,
    incoming: Buffer,
}

/// A handle that ends the sleep of another thread in [`Lockstep::sread_one`].
#[derive(Debug, Clone)]
pub struct WakeHandle(Object<FidCq>);

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// The memory of one message.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    /// The memory that `FI_CONTEXT2` requires. Its address identifies the operation of a completion.
    context: Box<[u64; 8]>,
    is_in_flight: bool,
}

impl Libfabric {
    /// The provider's first info for tagged messages between reliable unconnected endpoints. If the
    /// provider's addresses are IP addresses, the info is for the loopback interface. `None` if the provider
    /// offers no such endpoint.
    pub fn tagged_info(&self, provider: &str) -> Result<Option<InfoList>, CallError> {
        const FI_EP_RDM: u32 = 3;
        let name = std::ffi::CString::new(provider);
        let Ok(name) = name else { return Ok(None) };
        let mut hints = self.empty_hints();
        hints.set_provider_name(&name);
        hints.first_mut().caps = (Caps::MSG | Caps::TAGGED).bits();
        hints.first_mut().mode = (Mode::CONTEXT | Mode::CONTEXT2).bits();
        hints.ep_attr_mut().r#type = FI_EP_RDM;
        let source = InfoFlags::SOURCE.bits();
        // A provider with an address format of its own refuses an IP address, so the second attempt has no
        // node. The provider `shm` takes an IP address for a name, so it gets only the second attempt.
        let places = [(Some(c"127.0.0.1"), source), (None, 0)];
        let places = if provider == "shm" { &places[1..] } else { &places[..] };
        for (node, flags) in places {
            match self.getinfo(*node, None, *flags, Some(&hints)) {
                Ok(infos) => return Ok(Some(infos)),
                Err(Errno::ENODATA) => {}
                Err(errno) => return Err(CallError { call: "fi_getinfo", errno }),
            }
        }
        Ok(None)
    }
}

impl Lockstep {
    /// Opens an endpoint for messages of at most this length.
    pub fn open(
        libfabric: Libfabric,
        info: &InfoList,
        wait_object: WaitObject,
        message_max_bytes: usize,
    ) -> Result<Lockstep, CallError> {
        let fabric = libfabric.open_fabric(info).map_err(to_call_error("fi_fabric"))?;
        let domain = fabric.open_domain(info).map_err(to_call_error("fi_domain"))?;
        // SAFETY: no attribute is a pointer.
        let av = unsafe { domain.open_av(av_attr()) }.map_err(to_call_error("fi_av_open"))?;
        let wait_obj = match wait_object {
            WaitObject::None => FI_WAIT_NONE,
            WaitObject::Descriptor => FI_WAIT_FD,
            WaitObject::Unspecified => FI_WAIT_UNSPEC,
        };
        let attr = FiCqAttr { wait_obj, ..cq_attr(FI_CQ_FORMAT_TAGGED) };
        // SAFETY: as above.
        let cq = unsafe { domain.open_cq(attr) }.map_err(to_call_error("fi_cq_open"))?;
        let descriptor = (wait_object == WaitObject::Descriptor).then(|| wait_fd(&cq)).transpose()?;
        let ep = domain.open_endpoint(info).map_err(to_call_error("fi_endpoint"))?;
        ep.bind(&av, 0).map_err(to_call_error("fi_ep_bind"))?;
        ep.bind(&cq, FI_TRANSMIT | FI_RECV).map_err(to_call_error("fi_ep_bind"))?;
        ep.enable().map_err(to_call_error("fi_enable"))?;
        // SAFETY: every info of a list has the attributes.
        let inject_max_bytes = unsafe { (*info.first().tx_attr).inject_size };
        Ok(Lockstep {
            ep: Some(ep),
            cq,
            av,
            fabric,
            peer: FI_ADDR_UNSPEC,
            inject_max_bytes,
            descriptor,
            outgoing: Buffer::new(message_max_bytes),
            incoming: Buffer::new(message_max_bytes),
        })
    }

    /// `fi_getname(3)`: the address of this endpoint.
    pub fn address(&self) -> Result<Vec<u8>, CallError> {
        self.ep().name().map_err(to_call_error("fi_getname"))
    }

    /// Makes the endpoint at this address the peer. Must be called only once.
    pub fn set_peer(&mut self, address: &[u8]) -> Result<(), CallError> {
        self.peer = self.av.insert(address).map_err(to_call_error("fi_av_insert"))?;
        Ok(())
    }

    /// `fi_trecv(3)`: posts a receive for a message with this tag. Returns false if the caller has to read
    /// the queue and try again (`EAGAIN`).
    pub fn try_post_receive(&mut self, tag: u64) -> Result<bool, CallError> {
        let call = "fi_trecv";
        self.incoming.fail_if_in_flight(call)?;
        let (buf, len, context) = self.incoming.as_raw_parts();
        let ep = self.ep().as_ptr();
        // SAFETY: the endpoint is open. The buffer and the context stay in place until the operation
        // completes or the endpoint is closed.
        let result =
            unsafe { ((*(*ep).tagged).recv)(ep, buf, len, ptr::null_mut(), FI_ADDR_UNSPEC, tag, 0, context) };
        self.incoming.is_in_flight = accepted_or_eagain(call, result)?;
        Ok(self.incoming.is_in_flight)
    }

    /// Sends a message with this tag: by `fi_tinject(3)` if the provider injects messages of this length,
    /// else by `fi_tsend(3)`. If the length exceeds the buffer, the message is as long as the buffer.
    /// Returns `None` if the caller has to read the queue and try again (`EAGAIN`). Fails with `ENOTCONN`
    /// before [`set_peer`](Self::set_peer).
    pub fn try_send(&mut self, len_bytes: usize, tag: u64) -> Result<Option<Accepted>, CallError> {
        self.outgoing.fail_if_in_flight("fi_tsend")?;
        if self.peer == FI_ADDR_UNSPEC {
            return Err(CallError { call: "fi_tsend", errno: Errno::ENOTCONN });
        }
        let (buf, max_bytes, context) = self.outgoing.as_raw_parts();
        let len = len_bytes.min(max_bytes);
        let ep = self.ep().as_ptr();
        if len <= self.inject_max_bytes {
            // SAFETY: the endpoint is open, and the call copies the buffer before it returns.
            let result = unsafe { ((*(*ep).tagged).inject)(ep, buf, len, self.peer, tag) };
            return Ok(accepted_or_eagain("fi_tinject", result)?.then_some(Accepted::Injected));
        }
        // SAFETY: as for a receive.
        let result =
            unsafe { ((*(*ep).tagged).send)(ep, buf, len, ptr::null_mut(), self.peer, tag, context) };
        self.outgoing.is_in_flight = accepted_or_eagain("fi_tsend", result)?;
        Ok(self.outgoing.is_in_flight.then_some(Accepted::Posted))
    }

    /// `fi_cq_read(3)`: reads one completion, if there is one. If an operation has failed, returns its
    /// error, and the operation is no longer in flight.
    pub fn read(&mut self) -> Result<Option<Completion>, CallError> {
        // SAFETY: the call reads one entry.
        let read = unsafe { self.cq.read_entry(|cq, entry| ((*(*cq).ops).read)(cq, entry, 1)) };
        self.completion_of("fi_cq_read", read)
    }

    /// `fi_cq_sread(3)`: sleeps until there is a completion, and reads it. Returns `None` after `timeout`,
    /// or earlier if the sleep is interrupted.
    pub fn sread_one(&mut self, timeout: Duration) -> Result<Option<Completion>, CallError> {
        let timeout_ms = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: as for `read`. There is no condition.
        let read = unsafe {
            self.cq.read_entry(|cq, entry| ((*(*cq).ops).sread)(cq, entry, 1, ptr::null(), timeout_ms))
        };
        self.completion_of("fi_cq_sread", read)
    }

    /// A handle with which another thread ends a sleep in [`sread_one`](Self::sread_one).
    pub fn wake_handle(&self) -> WakeHandle {
        WakeHandle(self.cq.clone())
    }

    /// `fi_trywait(3)`: whether the caller may sleep on the descriptor now. If not, the caller has to read
    /// the queue first.
    pub fn try_wait(&self) -> Result<bool, CallError> {
        let fabric = self.fabric.as_ptr();
        let mut fids = [self.cq.as_fid()];
        // SAFETY: the fabric and the queue are open, and `fids` has one element.
        let result = unsafe { ((*(*fabric).ops).trywait)(fabric, fids.as_mut_ptr(), 1) };
        accepted_or_eagain("fi_trywait", result as isize)
    }

    /// The queue's descriptor. It is readable when there is a completion to read or progress to make. `None`
    /// unless the endpoint was opened with [`WaitObject::Descriptor`].
    pub fn cq_wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the queue, and stays open as long as the queue does.
        self.descriptor.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    fn ep(&self) -> &Object<FidEp> {
        self.ep.as_ref().expect("it is taken only by drop")
    }

    fn completion_of(
        &mut self,
        call: &'static str,
        read: Result<FiCqTaggedEntry, Errno>,
    ) -> Result<Option<Completion>, CallError> {
        let entry = match read {
            Ok(entry) => entry,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ETIMEDOUT) => return Ok(None),
            Err(Errno::EAVAIL) => return Err(self.take_error_entry()),
            Err(errno) => return Err(CallError { call, errno }),
        };
        match self.mark_message_of_context_ended(entry.op_context) {
            Some(Direction::In) => Ok(Some(Completion::Received { len_bytes: entry.len, tag: entry.tag })),
            Some(Direction::Out) => Ok(Some(Completion::Sent)),
            None => Err(CallError { call, errno: Errno::EINVAL }),
        }
    }

    /// Marks the message with this context as no longer in flight, and returns its direction. `None` if
    /// neither message has this context.
    fn mark_message_of_context_ended(&mut self, context: *mut c_void) -> Option<Direction> {
        for (direction, buffer) in [(Direction::In, &mut self.incoming), (Direction::Out, &mut self.outgoing)]
        {
            if ptr::eq(context, buffer.as_raw_parts().2) {
                buffer.is_in_flight = false;
                return Some(direction);
            }
        }
        None
    }

    /// Reads the error entry of the queue.
    fn take_error_entry(&mut self) -> CallError {
        let errno = match self.cq.read_error_entry(&mut []) {
            Ok(entry) => {
                self.mark_message_of_context_ended(entry.op_context);
                Errno::new(entry.err)
            }
            Err(errno) => errno,
        };
        CallError { call: "completion", errno }
    }
}

impl WakeHandle {
    /// `fi_cq_signal(3)`: ends the sleep.
    pub fn wake(&self) -> Result<(), CallError> {
        let cq = self.0.as_ptr();
        // SAFETY: the queue is open. Any thread may make this call while another one reads the queue.
        let result = unsafe { ((*(*cq).ops).signal)(cq) };
        check_result(result).map_err(to_call_error("fi_cq_signal"))
    }
}

impl Drop for Lockstep {
    fn drop(&mut self) {
        if let Some(Err(_)) = self.ep.take().map(Object::close) {
            // The open endpoint may still use the buffers.
            mem::forget(mem::replace(&mut self.outgoing, Buffer::new(0)));
            mem::forget(mem::replace(&mut self.incoming, Buffer::new(0)));
        }
    }
}

impl Buffer {
    fn new(len_bytes: usize) -> Buffer {
        Buffer { bytes: vec![0; len_bytes], context: Box::new([0; 8]), is_in_flight: false }
    }

    fn as_raw_parts(&mut self) -> (*mut c_void, usize, *mut c_void) {
        (self.bytes.as_mut_ptr().cast(), self.bytes.len(), (&raw mut *self.context).cast())
    }

    fn fail_if_in_flight(&self, call: &'static str) -> Result<(), CallError> {
        if self.is_in_flight { Err(CallError { call, errno: Errno::EBUSY }) } else { Ok(()) }
    }
}

/// The descriptor of a queue with `FI_WAIT_FD`, from `fi_control(3)`.
fn wait_fd(cq: &Object<FidCq>) -> Result<RawFd, CallError> {
    let mut descriptor = -1;
    // SAFETY: for a queue with this wait object the command takes a pointer to a descriptor.
    let result = unsafe { cq.control(FI_GETWAIT, (&raw mut descriptor).cast()) };
    let checked = check_result(if descriptor < 0 && result == 0 { -libc::EINVAL } else { result });
    checked.map(|()| descriptor).map_err(to_call_error("fi_control"))
}

fn to_call_error(call: &'static str) -> impl Fn(Errno) -> CallError {
    move |errno| CallError { call, errno }
}

/// Converts the result of a call. Returns false if the caller has to try again.
fn accepted_or_eagain(call: &'static str, result: isize) -> Result<bool, CallError> {
    match c_int::try_from(result).map_or(Err(Errno::EIO), check_result) {
        Ok(()) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(errno) => Err(CallError { call, errno }),
    }
}
