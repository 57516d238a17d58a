//! Handles of a party's objects, with the library's calls. The party is in this process or in another.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::info::Info;
use homespun::{
    Address, AddressVector, Bytes, BytesMut, Completion, CompletionError, CompletionQueue, CqFormat, Domain,
    Error, FabricAddress, ReadError, SegmentMut, Tag, TagMatch,
};

use super::atomic_call::{AtomicBy, AtomicCall};
use super::call::{
    AddressForm, ConnectionCall, Direction, QueueName, ReceiveBy, RefusedForm, RemoteAnswer, RemoteCall,
    RemoteReceive, RemoteSend, SendBy,
};
use super::driven_queues::DrivenQueues;
use super::ended::{Ended, poll_completion};
use super::flush_call::FlushCall;
use super::raw::{Post, RawBuffer};
use super::remote_party::RemoteParty;
use super::rma_call::RmaCall;

/// A party's endpoint.
#[derive(Debug)]
pub struct Endpoint {
    /// `None` while the handle is being dropped.
    place: Option<EndpointPlace>,
    /// The queues to drive while the endpoint closes: closing waits for the endpoint's peers.
    queues: Arc<DrivenQueues>,
}

#[derive(Debug)]
enum EndpointPlace {
    Here {
        endpoint: homespun::Endpoint,
        /// The domain that allocates send buffers, if the party sends from such buffers.
        buffers_of: Option<Domain>,
    },
    There {
        remote: Arc<RemoteParty>,
        /// `None` if the endpoint has connections, and gets its name late.
        name: Option<Address>,
        info: Box<Info>,
    },
}

/// A party's completion queue.
#[derive(Debug, Clone)]
pub enum Queue {
    /// In this process.
    Here(CompletionQueue),
    /// In another process, or behind the C interface.
    There {
        /// What answers the calls.
        remote: Arc<RemoteParty>,
        /// The queue among those of the party.
        name: QueueName,
        /// The number of entries that the queue has room for.
        depth_entries: usize,
        /// The format of the queue's entries.
        format: CqFormat,
    },
}

/// A party's address vector.
#[derive(Debug)]
pub enum Vector {
    /// In this process.
    Here(AddressVector),
    /// In another process, or behind the C interface.
    There(Arc<RemoteParty>),
}

/// The buffer of a posted receive.
#[derive(Debug)]
pub enum ReceiveBuffer {
    /// In this process.
    Here(RawBuffer),
    /// In another process, or behind the C interface.
    There {
        /// What answers the calls.
        remote: Arc<RemoteParty>,
        /// The context of the receive.
        context: u64,
    },
}

impl Endpoint {
    /// With `buffers_of`, long messages are sent from send buffers of this domain.
    pub(super) fn new_local(
        endpoint: homespun::Endpoint,
        buffers_of: Option<Domain>,
        queues: Arc<DrivenQueues>,
    ) -> Endpoint {
        Endpoint { place: Some(EndpointPlace::Here { endpoint, buffers_of }), queues }
    }

    pub(super) fn new_remote(
        remote: Arc<RemoteParty>,
        name: Option<Address>,
        info: Info,
        queues: Arc<DrivenQueues>,
    ) -> Endpoint {
        let place = EndpointPlace::There { remote, name, info: Box::new(info) };
        Endpoint { place: Some(place), queues }
    }

    /// The library's own object, for a party in this process.
    #[track_caller]
    pub fn expect_local(&self) -> &homespun::Endpoint {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => endpoint,
            EndpointPlace::There { .. } => panic!("the party answers calls: the test must say `native`"),
        }
    }

    /// The attributes of the endpoint.
    pub fn info(&self) -> &Info {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => endpoint.info(),
            EndpointPlace::There { info, .. } => info,
        }
    }

    /// `fi_getname(3)`.
    pub fn name(&self) -> Result<Address, Error> {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => endpoint.name(),
            EndpointPlace::There { name: Some(name), .. } => Ok(*name),
            EndpointPlace::There { remote, .. } => remote.call_for_address(ConnectionCall::Name),
        }
    }

    /// `fi_getpeer(3)`.
    pub fn peer(&self) -> Result<Address, Error> {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => endpoint.peer(),
            EndpointPlace::There { remote, .. } => remote.call_for_address(ConnectionCall::Peer),
        }
    }

    /// Makes a call for the endpoint's connection.
    pub(super) fn connection_call(
        &self,
        here: impl FnOnce(&homespun::Endpoint) -> Result<(), Error>,
        there: impl FnOnce() -> ConnectionCall,
    ) -> Result<(), Error> {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => here(endpoint),
            EndpointPlace::There { remote, .. } => remote.call_for_result(&RemoteCall::Connection(there())),
        }
    }

    /// `fi_send(3)`.
    pub fn send(&self, message: Bytes, to: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_send(SendBy::Single, vec![message], to, None, None, context)
    }

    /// `fi_sendv(3)`.
    pub fn sendv(&self, pieces: Vec<Bytes>, to: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_send(SendBy::Vector, pieces, to, None, None, context)
    }

    /// `fi_senddata(3)`.
    pub fn senddata(&self, message: Bytes, data: u64, to: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_send(SendBy::Single, vec![message], to, None, Some(data), context)
    }

    /// `fi_tsend(3)`.
    pub fn tsend(&self, message: Bytes, to: FabricAddress, tag: Tag, context: u64) -> Result<(), Error> {
        self.post_send(SendBy::Single, vec![message], to, Some(tag), None, context)
    }

    /// `fi_tsendv(3)`.
    pub fn tsendv(&self, pieces: Vec<Bytes>, to: FabricAddress, tag: Tag, context: u64) -> Result<(), Error> {
        self.post_send(SendBy::Vector, pieces, to, Some(tag), None, context)
    }

    /// `fi_tsenddata(3)`.
    pub fn tsenddata(
        &self,
        message: Bytes,
        data: u64,
        to: FabricAddress,
        tag: Tag,
        context: u64,
    ) -> Result<(), Error> {
        self.post_send(SendBy::Single, vec![message], to, Some(tag), Some(data), context)
    }

    /// `fi_sendmsg(3)`, or with a tag `fi_tsendmsg(3)`.
    pub fn sendmsg(&self, send: SendMsg) -> Result<(), Error> {
        let SendMsg { buffers, to, tag, data, context, flags } = send;
        self.post_send_call(RemoteSend {
            by: SendBy::Message,
            buffers,
            to,
            tag,
            data,
            context,
            flags: Some(flags),
        })
    }

    /// Sends from raw memory that nothing else uses.
    pub fn send_from_raw_memory(&self, pieces: &[Bytes], post: Post) -> Result<(), Error> {
        let Post { peer: to, tag, data, context, flags } = post;
        let tag = tag.map(Tag);
        self.post_send_call(RemoteSend {
            by: SendBy::Raw,
            buffers: pieces.to_vec(),
            to,
            tag,
            data,
            context,
            flags,
        })
    }

    /// Calls `fi_inject(3)`, with data `fi_injectdata(3)`, and with a tag `fi_tinject(3)` or
    /// `fi_tinjectdata(3)`.
    pub fn inject(
        &self,
        message: &[u8],
        to: FabricAddress,
        tag: Option<Tag>,
        data: Option<u64>,
    ) -> Result<(), Error> {
        self.post_send(SendBy::Inject, vec![Bytes::copy_from_slice(message)], to, tag, data, 0)
    }

    /// `fi_recv(3)`.
    pub fn recv(&self, buffer: BytesMut, from: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_receive(ReceiveBy::Single, vec![buffer], from, None, context)
    }

    /// `fi_recvmsg(3)` with `FI_MULTI_RECV`.
    pub fn recv_multi(&self, buffer: BytesMut, from: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_receive(ReceiveBy::Multi, vec![buffer], from, None, context)
    }

    /// `fi_recvv(3)`.
    pub fn recvv(&self, buffers: Vec<BytesMut>, from: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_receive(ReceiveBy::Vector, buffers, from, None, context)
    }

    /// `fi_trecv(3)`.
    pub fn trecv(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        tagged: impl Into<TagMatch>,
        context: u64,
    ) -> Result<(), Error> {
        self.post_receive(ReceiveBy::Single, vec![buffer], from, Some(tagged.into()), context)
    }

    /// `fi_trecvv(3)`.
    pub fn trecvv(
        &self,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        tagged: impl Into<TagMatch>,
        context: u64,
    ) -> Result<(), Error> {
        self.post_receive(ReceiveBy::Vector, buffers, from, Some(tagged.into()), context)
    }

    /// `fi_recvmsg(3)`, or with a tag `fi_trecvmsg(3)`.
    pub fn recvmsg(&self, receive: RecvMsg) -> Result<(), Error> {
        let RecvMsg { buffers, from, tagged, context, flags } = receive;
        self.make(RemoteCall::Receive(RemoteReceive {
            by: ReceiveBy::Message,
            buffers,
            from,
            tagged,
            context,
            flags,
        }))
    }

    /// Posts a receive into pieces of raw memory of these lengths. No other operation of this endpoint may
    /// have the same context.
    pub fn receive_into_raw_memory(
        &self,
        lens_bytes: &[usize],
        ignore: u64,
        post: Post,
    ) -> Result<ReceiveBuffer, Error> {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => {
                RawBuffer::post_receive(endpoint, lens_bytes, ignore, post).map(ReceiveBuffer::Here)
            }
            EndpointPlace::There { remote, .. } => {
                remote.call_for_result(&RemoteCall::ReceiveRaw {
                    lens_bytes: lens_bytes.to_vec(),
                    ignore,
                    post,
                })?;
                Ok(ReceiveBuffer::There { remote: remote.clone(), context: post.context })
            }
        }
    }

    /// Accesses a region of a peer.
    pub fn rma(&self, call: RmaCall) -> Result<(), Error> {
        self.make(RemoteCall::Rma(call))
    }

    /// Flushes a range of a region of a peer.
    pub fn flush(&self, call: FlushCall) -> Result<(), Error> {
        self.make(RemoteCall::Flush(call))
    }

    /// Posts an atomic operation on a region of a peer. If the results go to raw memory, returns that
    /// memory. In that case no other operation of this endpoint may have the same context.
    pub fn atomic(&self, call: AtomicCall) -> Result<Option<ReceiveBuffer>, Error> {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => Ok(call.post(endpoint)?.map(ReceiveBuffer::Here)),
            EndpointPlace::There { remote, .. } => {
                let (context, is_raw) = (call.context, call.by == AtomicBy::Raw && call.kind.fetches());
                remote.call_for_result(&RemoteCall::Atomic(call))?;
                Ok(is_raw.then(|| ReceiveBuffer::There { remote: remote.clone(), context }))
            }
        }
    }

    /// `fi_cancel(3)`.
    pub fn cancel(&self, context: u64) -> Result<(), Error> {
        self.make(RemoteCall::Cancel { context })
    }

    /// The default flags of sends.
    pub fn tx_op_flags(&self) -> OpFlags {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => endpoint.tx_op_flags(),
            EndpointPlace::There { remote, .. } => {
                match remote.call(&RemoteCall::OpFlags(Direction::Transmit)) {
                    RemoteAnswer::Flags(flags) => flags,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Replaces the default flags of sends.
    pub fn set_tx_op_flags(&self, flags: OpFlags) -> Result<(), Error> {
        self.make(RemoteCall::SetOpFlags(Direction::Transmit, flags))
    }

    /// Replaces the default flags of receives.
    pub fn set_rx_op_flags(&self, flags: OpFlags) -> Result<(), Error> {
        self.make(RemoteCall::SetOpFlags(Direction::Receive, flags))
    }

    /// `FI_OPT_MIN_MULTI_RECV`.
    pub fn min_multi_recv_bytes(&self) -> usize {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => endpoint.min_multi_recv_bytes(),
            EndpointPlace::There { remote, .. } => match remote.call(&RemoteCall::MinMultiRecv) {
                RemoteAnswer::Size(bytes) => bytes,
                other => panic!("{other:?}"),
            },
        }
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`.
    pub fn set_min_multi_recv_bytes(&self, bytes: usize) {
        self.make(RemoteCall::SetMinMultiRecv { bytes }).expect("any number will do");
    }

    fn post_send(
        &self,
        by: SendBy,
        buffers: Vec<Bytes>,
        to: FabricAddress,
        tag: Option<Tag>,
        data: Option<u64>,
        context: u64,
    ) -> Result<(), Error> {
        self.post_send_call(RemoteSend { by, buffers, to, tag, data, context, flags: None })
    }

    pub(super) fn post_send_call(&self, send: RemoteSend) -> Result<(), Error> {
        match self.place() {
            EndpointPlace::Here { endpoint, buffers_of: None } => send.post(endpoint),
            EndpointPlace::Here { endpoint, buffers_of: Some(domain) } => {
                send.into_buffer_of(domain)?.post(endpoint)
            }
            EndpointPlace::There { remote, .. } => remote.call_for_result(&RemoteCall::Send(send)),
        }
    }

    fn post_receive(
        &self,
        by: ReceiveBy,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        tagged: Option<TagMatch>,
        context: u64,
    ) -> Result<(), Error> {
        let flags = OpFlags::empty();
        self.make(RemoteCall::Receive(RemoteReceive { by, buffers, from, tagged, context, flags }))
    }

    /// Makes a call that the endpoint accepts or refuses.
    fn make(&self, call: RemoteCall) -> Result<(), Error> {
        match self.place() {
            EndpointPlace::Here { endpoint, .. } => call.make(endpoint),
            EndpointPlace::There { remote, .. } => remote.call_for_result(&call),
        }
    }

    fn place(&self) -> &EndpointPlace {
        self.place.as_ref().expect("it is used before it is dropped")
    }
}

impl Deref for Endpoint {
    type Target = homespun::Endpoint;

    fn deref(&self) -> &homespun::Endpoint {
        self.expect_local()
    }
}

impl Deref for Queue {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        self.expect_local()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let is_here = match &place {
            EndpointPlace::Here { .. } => true,
            EndpointPlace::There { .. } if thread::panicking() => return,
            EndpointPlace::There { remote, .. } => remote.is_here(),
        };
        let close = || match place {
            EndpointPlace::Here { endpoint, .. } => drop(endpoint),
            EndpointPlace::There { remote, .. } => remote.call_if_alive(&RemoteCall::CloseEndpoint),
        };
        if !is_here {
            return close();
        }
        thread::scope(|scope| {
            let closing = scope.spawn(close);
            while !closing.is_finished() {
                self.queues.progress();
                thread::yield_now();
            }
        });
    }
}

impl Queue {
    /// The library's own object, for a party in this process.
    #[track_caller]
    pub fn expect_local(&self) -> &CompletionQueue {
        match self {
            Queue::Here(cq) => cq,
            Queue::There { .. } => panic!("the party answers calls: the test must say `native`"),
        }
    }

    /// Whether the queue is in this process, perhaps behind the C interface.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Queue::Here(_) => true,
            Queue::There { remote, .. } => remote.is_here(),
        }
    }

    /// The format of the queue's entries.
    pub fn format(&self) -> CqFormat {
        match self {
            Queue::Here(cq) => cq.format(),
            Queue::There { format, .. } => *format,
        }
    }

    /// The number of entries that the queue has room for.
    pub fn depth_entries(&self) -> usize {
        match self {
            Queue::Here(cq) => cq.depth_entries(),
            Queue::There { depth_entries, .. } => *depth_entries,
        }
    }

    /// Drives the endpoints of the queue once, without reading an entry.
    pub fn progress(&self) {
        match self {
            Queue::Here(cq) => cq.progress(),
            Queue::There { remote, .. } => remote.progress(),
        }
    }

    /// `fi_cq_read(3)` of one entry.
    pub fn read(&self) -> Result<Option<Completion>, ReadError> {
        Ok(self.read_from()?.map(|(completion, _)| completion))
    }

    /// `fi_cq_readfrom(3)` of one entry.
    pub fn read_from(&self) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        match self {
            Queue::Here(cq) => cq.read_from(),
            Queue::There { .. } => {
                let mut read = None;
                self.read_each(1, |completion, source| read = Some((completion, source)))?;
                Ok(read)
            }
        }
    }

    /// As [`CompletionQueue::read_each`]. If the queue is in another process, reads all entries before it
    /// calls `take`.
    pub fn read_each(
        &self,
        max: usize,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        let (remote, name) = match self {
            Queue::Here(cq) => return cq.read_each(max, take),
            Queue::There { remote, name, .. } => (remote, *name),
        };
        match remote.call(&RemoteCall::ReadEach(name, max)) {
            RemoteAnswer::Read(None) => Ok(None),
            RemoteAnswer::Read(Some(entries)) => {
                let count = entries.len();
                for entry in entries {
                    let (completion, source) = Ended::from(entry).expect("an error ends the batch");
                    take(completion, source);
                }
                Ok(Some(count))
            }
            RemoteAnswer::ReadFailed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// Reads a completion or an error entry, if there is one.
    pub(super) fn poll_completion(&self) -> Option<Ended> {
        match self {
            Queue::Here(cq) => poll_completion(cq),
            Queue::There { remote, name, .. } => expect_ended_answer(remote.call(&RemoteCall::Poll(*name))),
        }
    }

    /// `fi_cq_strerror(3)`.
    pub fn strerror(&self, prov_errno: i32) -> String {
        match self {
            Queue::Here(cq) => cq.strerror(prov_errno).to_owned(),
            Queue::There { remote, .. } => match remote.call(&RemoteCall::Strerror(prov_errno)) {
                RemoteAnswer::Text(text) => text,
                other => panic!("{other:?}"),
            },
        }
    }

    /// `fi_cq_readerr(3)`.
    pub fn read_error(&self) -> Result<Option<CompletionError>, ReadError> {
        match self {
            Queue::Here(cq) => cq.read_error(),
            Queue::There { remote, name, .. } => match remote.call(&RemoteCall::ReadError(*name)) {
                RemoteAnswer::Ended(ended) => {
                    Ok(ended.map(|ended| Ended::from(ended).expect_err("an error")))
                }
                RemoteAnswer::ReadFailed(error) => Err(error),
                other => panic!("{other:?}"),
            },
        }
    }
}

impl Vector {
    /// The library's own object, for a party in this process.
    #[track_caller]
    pub fn expect_local(&self) -> &AddressVector {
        match self {
            Vector::Here(av) => av,
            Vector::There(_) => panic!("the party answers calls: the test must say `native`"),
        }
    }

    /// `fi_av_insert(3)`, with the outcome for each address.
    pub fn insert(&self, addresses: &[Address]) -> Vec<Result<FabricAddress, Error>> {
        let remote = match self {
            Vector::Here(av) => return av.insert(addresses),
            Vector::There(remote) => remote,
        };
        match remote
            .call(&RemoteCall::Insert(addresses.iter().map(|&address| AddressForm(address)).collect()))
        {
            RemoteAnswer::Inserted(inserted) => inserted
                .into_iter()
                .map(|result| result.map(FabricAddress).map_err(|RefusedForm(error)| error))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    /// `fi_av_remove(3)`.
    pub fn remove(&self, addresses: &[FabricAddress]) {
        match self {
            Vector::Here(av) => av.remove(addresses),
            Vector::There(remote) => {
                let addresses = addresses.iter().map(|address| address.0).collect();
                remote.call_for_result(&RemoteCall::Remove(addresses)).expect("nothing is refused");
            }
        }
    }

    /// The lowest entry with this address.
    pub fn reverse_lookup(&self, address: &Address) -> Option<FabricAddress> {
        match self {
            Vector::Here(av) => av.reverse_lookup(address),
            Vector::There(remote) => match remote.call(&RemoteCall::ReverseLookup(AddressForm(*address))) {
                RemoteAnswer::Found(found) => found.map(FabricAddress),
                other => panic!("{other:?}"),
            },
        }
    }
}

impl ReceiveBuffer {
    /// Returns the received bytes. The caller has read the completion. Panics if memory beyond the buffer
    /// was written.
    #[track_caller]
    pub fn into_message(self, completion: &Completion) -> Vec<u8> {
        self.into_filled_bytes(completion.context, completion.len_bytes)
    }

    /// As [`into_message`](Self::into_message), but for a released multi-receive buffer that is filled up to
    /// `used_bytes`.
    #[track_caller]
    pub fn into_filled_bytes(self, context: u64, used_bytes: usize) -> Vec<u8> {
        let (remote, next_own_context) = match self {
            ReceiveBuffer::Here(room) => return room.into_message(context, used_bytes),
            ReceiveBuffer::There { remote, context } => (remote, context),
        };
        assert_eq!(context, next_own_context, "the completion of another operation");
        expect_bytes_answer(remote.call(&RemoteCall::Taken { context, len_bytes: used_bytes }))
    }

    /// Returns a message in a multi-receive buffer. The caller has read the completion of the message.
    #[track_caller]
    pub fn message_at(&self, place: SegmentMut) -> Vec<u8> {
        match self {
            ReceiveBuffer::Here(room) => room.message_at(place),
            ReceiveBuffer::There { remote, context } => {
                expect_bytes_answer(remote.call(&RemoteCall::Within { context: *context, place }))
            }
        }
    }

    /// Returns the whole memory. Call it after the endpoint was closed.
    #[track_caller]
    pub fn memory_after_close(&self) -> Vec<u8> {
        match self {
            ReceiveBuffer::Here(room) => room.memory_after_close(),
            ReceiveBuffer::There { remote, context } => {
                expect_bytes_answer(remote.call(&RemoteCall::Contents { context: *context }))
            }
        }
    }
}

/// The end of an operation in a party's answer.
pub(super) fn expect_ended_answer(answer: RemoteAnswer) -> Option<Ended> {
    match answer {
        RemoteAnswer::Ended(ended) => ended.map(Ended::from),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn expect_bytes_answer(answer: RemoteAnswer) -> Vec<u8> {
    match answer {
        RemoteAnswer::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}
