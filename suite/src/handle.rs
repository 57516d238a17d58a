//! Handles of a party's objects, with the library's calls. The party is in this process or in another.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::info::Info;
use homespun::{
    Address, AddressVector, Bytes, BytesMut, Completion, CompletionError, CompletionQueue, CqFormat, Domain,
    Errno, Error, FabricAddress, ReadError, SegmentMut, Tag, TagMatch,
};

use super::answering::WAITING_ROUNDS;
use super::atomic_call::AtomicCall;
use super::call::{
    AddressForm, BufferCall, ConnectionCall, Direction, EndpointCall, Opened, QueueCall, QueueName,
    ReceiveBy, RemoteAnswer, RemoteCall, RemoteReceive, RemoteSend, SendBy, VectorCall, refused_with,
};
use super::deadline::run_while_driving;
use super::driven_queues::DrivenQueues;
use super::ended::{Ended, poll_completion};
use super::flush_call::FlushCall;
use super::form::EndedForm;
use super::raw::{Post, RawBuffer};
use super::remote_party::RemoteParty;
use super::rma_call::RmaCall;

/// An object of a party: the library's own, or one that answers calls.
#[derive(Debug)]
pub enum Handle<T> {
    /// In this process.
    Here(T),
    /// In another process, or behind the C interface.
    There(Arc<RemoteParty>),
}

impl<T> Handle<T> {
    /// The library's own object, for a party in this process.
    #[track_caller]
    pub fn expect_local(&self) -> &T {
        match self {
            Handle::Here(object) => object,
            Handle::There(_) => panic!("the party answers calls: the test must say `native`"),
        }
    }

    /// Makes a call for a connection that the object accepts or refuses.
    pub(super) fn connection_call(
        &self,
        here: impl FnOnce(&T) -> Result<(), Error>,
        there: ConnectionCall,
    ) -> Result<(), Error> {
        match self {
            Handle::Here(object) => here(object),
            Handle::There(remote) => remote.call(RemoteCall::Connection(there)).result(),
        }
    }

    /// Asks for an address of the object.
    pub(super) fn address(
        &self,
        here: impl FnOnce(&T) -> Result<Address, Error>,
        there: ConnectionCall,
    ) -> Result<Address, Error> {
        match self {
            Handle::Here(object) => here(object),
            Handle::There(remote) => remote.call(RemoteCall::Connection(there)).address(),
        }
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.expect_local()
    }
}

/// A party's endpoint.
#[derive(Debug)]
pub struct Endpoint {
    /// `None` once the endpoint is closed.
    handle: Option<Handle<homespun::Endpoint>>,
    info: Info,
    /// The name of a remote endpoint without connections. An endpoint with connections gets its name late.
    name: Option<Address>,
    /// The domain that allocates send buffers, if the party sends from such buffers.
    buffers_of: Option<Domain>,
    /// The queues to drive while the endpoint closes: closing waits for the endpoint's peers.
    queues: Arc<DrivenQueues>,
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
pub type Vector = Handle<AddressVector>;

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
    pub(super) fn new_local(endpoint: homespun::Endpoint, buffers_of: Option<Domain>) -> Endpoint {
        let info = endpoint.info().clone();
        Endpoint {
            handle: Some(Handle::Here(endpoint)),
            info,
            name: None,
            buffers_of,
            queues: Arc::default(),
        }
    }

    pub(super) fn new_remote(remote: Arc<RemoteParty>, name: Option<Address>, info: Info) -> Endpoint {
        let handle = Some(Handle::There(remote));
        Endpoint { handle, info, name, buffers_of: None, queues: Arc::default() }
    }

    /// Has these queues driven while the endpoint closes.
    pub(super) fn closing_with(mut self, queues: &Arc<DrivenQueues>) -> Endpoint {
        self.queues = queues.clone();
        self
    }

    pub(super) fn handle(&self) -> &Handle<homespun::Endpoint> {
        self.handle.as_ref().expect("nothing is asked of a closed endpoint")
    }

    /// The library's own object, for a party in this process.
    #[track_caller]
    pub fn expect_local(&self) -> &homespun::Endpoint {
        self.handle().expect_local()
    }

    /// The attributes of the endpoint.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// `fi_getname(3)`.
    pub fn name(&self) -> Result<Address, Error> {
        match self.name {
            Some(name) => Ok(name),
            None => self.handle().address(homespun::Endpoint::name, ConnectionCall::Name),
        }
    }

    /// `fi_getpeer(3)`.
    pub fn peer(&self) -> Result<Address, Error> {
        self.handle().address(homespun::Endpoint::peer, ConnectionCall::Peer)
    }

    /// Makes a call that the endpoint accepts or refuses. Returns the raw memory of the operation.
    pub(super) fn post(&self, call: EndpointCall) -> Result<Option<ReceiveBuffer>, Error> {
        let remote = match self.handle() {
            Handle::Here(_) => return Ok(self.post_here(call)?.map(ReceiveBuffer::Here)),
            Handle::There(remote) => remote,
        };
        let raw_context = call.raw_context();
        remote.call(RemoteCall::Endpoint(call)).result()?;
        Ok(raw_context.map(|context| ReceiveBuffer::There { remote: remote.clone(), context }))
    }

    /// Makes a call that asks for an attribute.
    pub(super) fn ask(&self, call: EndpointCall) -> RemoteAnswer {
        match (self.handle(), call) {
            (Handle::There(remote), call) => remote.call(RemoteCall::Endpoint(call)),
            (Handle::Here(endpoint), EndpointCall::TxOpFlags) => RemoteAnswer::Flags(endpoint.tx_op_flags()),
            (Handle::Here(endpoint), _) => RemoteAnswer::Size(endpoint.min_multi_recv_bytes()),
        }
    }

    /// As [`post`](Self::post), for an endpoint of this process.
    pub(super) fn post_here(&self, call: EndpointCall) -> Result<Option<RawBuffer>, Error> {
        call.make(self.expect_local(), self.buffers_of.as_ref())
    }

    /// `fi_send(3)`.
    pub fn send(&self, message: Bytes, peer: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_send(SendBy::Single, vec![message], Post { peer, context, ..Post::default() })
    }

    /// `fi_sendv(3)`.
    pub fn sendv(&self, pieces: Vec<Bytes>, peer: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_send(SendBy::Vector, pieces, Post { peer, context, ..Post::default() })
    }

    /// `fi_senddata(3)`.
    pub fn senddata(
        &self,
        message: Bytes,
        data: u64,
        peer: FabricAddress,
        context: u64,
    ) -> Result<(), Error> {
        let post = Post { peer, data: Some(data), context, ..Post::default() };
        self.post_send(SendBy::Single, vec![message], post)
    }

    /// `fi_tsend(3)`.
    pub fn tsend(&self, message: Bytes, peer: FabricAddress, tag: Tag, context: u64) -> Result<(), Error> {
        let post = Post { peer, tag: Some(tag.0), context, ..Post::default() };
        self.post_send(SendBy::Single, vec![message], post)
    }

    /// `fi_tsenddata(3)`.
    pub fn tsenddata(
        &self,
        message: Bytes,
        data: u64,
        peer: FabricAddress,
        tag: Tag,
        context: u64,
    ) -> Result<(), Error> {
        let post = Post { peer, tag: Some(tag.0), data: Some(data), context, flags: None };
        self.post_send(SendBy::Single, vec![message], post)
    }

    /// `fi_sendmsg(3)`, or with a tag `fi_tsendmsg(3)`.
    pub fn sendmsg(&self, send: SendMsg) -> Result<(), Error> {
        let SendMsg { buffers, to: peer, tag, data, context, flags } = send;
        let tag = tag.map(|Tag(tag)| tag);
        self.post_send(SendBy::Message, buffers, Post { peer, tag, data, context, flags: Some(flags) })
    }

    /// Sends from raw memory that nothing else uses.
    pub fn send_from_raw_memory(&self, pieces: &[Bytes], post: Post) -> Result<(), Error> {
        self.post_send(SendBy::Raw, pieces.to_vec(), post)
    }

    /// Calls `fi_inject(3)`, with data `fi_injectdata(3)`, and with a tag `fi_tinject(3)` or
    /// `fi_tinjectdata(3)`.
    pub fn inject(
        &self,
        message: &[u8],
        peer: FabricAddress,
        tag: Option<Tag>,
        data: Option<u64>,
    ) -> Result<(), Error> {
        let post = Post { peer, tag: tag.map(|Tag(tag)| tag), data, ..Post::default() };
        self.post_send(SendBy::Inject, vec![Bytes::copy_from_slice(message)], post)
    }

    fn post_send(&self, by: SendBy, buffers: Vec<Bytes>, post: Post) -> Result<(), Error> {
        self.post(EndpointCall::Send(RemoteSend { by, buffers, post })).map(drop)
    }

    /// `fi_recv(3)`.
    pub fn recv(&self, buffer: BytesMut, from: FabricAddress, context: u64) -> Result<(), Error> {
        let buffers = vec![buffer];
        self.post_receive(ReceiveBy::Single, RecvMsg { buffers, from, context, ..RecvMsg::default() })
    }

    /// `fi_recvmsg(3)` with `FI_MULTI_RECV`.
    pub fn recv_multi(&self, buffer: BytesMut, from: FabricAddress, context: u64) -> Result<(), Error> {
        let buffers = vec![buffer];
        self.post_receive(ReceiveBy::Multi, RecvMsg { buffers, from, context, ..RecvMsg::default() })
    }

    /// `fi_recvv(3)`.
    pub fn recvv(&self, buffers: Vec<BytesMut>, from: FabricAddress, context: u64) -> Result<(), Error> {
        self.post_receive(ReceiveBy::Vector, RecvMsg { buffers, from, context, ..RecvMsg::default() })
    }

    /// `fi_trecv(3)`.
    pub fn trecv(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        tagged: impl Into<TagMatch>,
        context: u64,
    ) -> Result<(), Error> {
        let (buffers, tagged) = (vec![buffer], Some(tagged.into()));
        self.post_receive(ReceiveBy::Single, RecvMsg { buffers, from, tagged, context, ..RecvMsg::default() })
    }

    /// `fi_trecvv(3)`.
    pub fn trecvv(
        &self,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        tagged: impl Into<TagMatch>,
        context: u64,
    ) -> Result<(), Error> {
        let tagged = Some(tagged.into());
        self.post_receive(ReceiveBy::Vector, RecvMsg { buffers, from, tagged, context, ..RecvMsg::default() })
    }

    /// `fi_recvmsg(3)`, or with a tag `fi_trecvmsg(3)`.
    pub fn recvmsg(&self, receive: RecvMsg) -> Result<(), Error> {
        self.post_receive(ReceiveBy::Message, receive)
    }

    /// Posts a receive into pieces of raw memory of these lengths. No other operation of this endpoint may
    /// have the same context.
    pub fn receive_into_raw_memory(
        &self,
        lens_bytes: &[usize],
        ignore: u64,
        post: Post,
    ) -> Result<ReceiveBuffer, Error> {
        let call = EndpointCall::ReceiveRaw { lens_bytes: lens_bytes.to_vec(), ignore, post };
        self.post(call).map(|buffer| buffer.expect("the receive has raw memory"))
    }

    fn post_receive(&self, by: ReceiveBy, receive: RecvMsg) -> Result<(), Error> {
        let RecvMsg { buffers, from, tagged, context, flags } = receive;
        let receive = RemoteReceive { by, buffers, from, tagged, context, flags };
        self.post(EndpointCall::Receive(receive)).map(drop)
    }

    /// Accesses a region of a peer.
    pub fn rma(&self, call: RmaCall) -> Result<(), Error> {
        self.post(EndpointCall::Rma(call)).map(drop)
    }

    /// Flushes a range of a region of a peer.
    pub fn flush(&self, call: FlushCall) -> Result<(), Error> {
        self.post(EndpointCall::Flush(call)).map(drop)
    }

    /// Posts an atomic operation on a region of a peer. If the results go to raw memory, returns that
    /// memory. In that case no other operation of this endpoint may have the same context.
    pub fn atomic(&self, call: AtomicCall) -> Result<Option<ReceiveBuffer>, Error> {
        self.post(EndpointCall::Atomic(call))
    }

    /// `fi_cancel(3)`.
    pub fn cancel(&self, context: u64) -> Result<(), Error> {
        self.post(EndpointCall::Cancel(context)).map(drop)
    }

    /// The default flags of sends.
    pub fn tx_op_flags(&self) -> OpFlags {
        let RemoteAnswer::Flags(flags) = self.ask(EndpointCall::TxOpFlags) else { panic!("no flags") };
        flags
    }

    /// Replaces the default flags of sends.
    pub fn set_tx_op_flags(&self, flags: OpFlags) -> Result<(), Error> {
        self.post(EndpointCall::SetOpFlags(Direction::Transmit, flags)).map(drop)
    }

    /// Replaces the default flags of receives.
    pub fn set_rx_op_flags(&self, flags: OpFlags) -> Result<(), Error> {
        self.post(EndpointCall::SetOpFlags(Direction::Receive, flags)).map(drop)
    }

    /// `FI_OPT_MIN_MULTI_RECV`.
    pub fn min_multi_recv_bytes(&self) -> usize {
        let RemoteAnswer::Size(bytes) = self.ask(EndpointCall::MinMultiRecv) else { panic!("no size") };
        bytes
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`.
    pub fn set_min_multi_recv_bytes(&self, bytes: usize) {
        self.post(EndpointCall::SetMinMultiRecv(bytes)).expect("any number will do");
    }

    /// Closes the endpoint, unless it is closed.
    pub(super) fn close(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        let is_here = match &handle {
            Handle::Here(_) => true,
            Handle::There(_) if thread::panicking() => return,
            Handle::There(remote) => remote.is_here(),
        };
        let close = || match handle {
            Handle::Here(endpoint) => drop(endpoint),
            Handle::There(remote) => remote.call_if_alive(RemoteCall::CloseEndpoint),
        };
        if is_here {
            run_while_driving(close, || self.queues.progress());
        } else {
            close();
        }
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
        self.close();
    }
}

impl QueueCall {
    /// Makes the call to a queue of the library.
    pub(super) fn make(self, cq: &CompletionQueue) -> RemoteAnswer {
        let answer = |ended: Option<Ended>| RemoteAnswer::Ended(ended.map(EndedForm::from));
        match self {
            QueueCall::Poll => answer(poll_completion(cq)),
            QueueCall::Next => answer((0..WAITING_ROUNDS).find_map(|_| {
                poll_completion(cq).or_else(|| {
                    thread::yield_now();
                    None
                })
            })),
            QueueCall::ReadEach(max) => {
                let mut entries = Vec::new();
                let take = |completion, source| entries.push(EndedForm::Completed(completion, source));
                match cq.read_each(max, take) {
                    Ok(count) => {
                        assert_eq!(count.unwrap_or(0), entries.len());
                        RemoteAnswer::Read(count.map(|_| entries))
                    }
                    Err(error) => RemoteAnswer::ReadFailed(error),
                }
            }
            QueueCall::ReadError => match cq.read_error() {
                Ok(failed) => answer(failed.map(Err)),
                Err(error) => RemoteAnswer::ReadFailed(error),
            },
            QueueCall::Strerror(number) => RemoteAnswer::Text(cq.strerror(number).to_owned()),
        }
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

    pub(super) fn new_remote(remote: &Arc<RemoteParty>, name: QueueName, opened: &Opened) -> Queue {
        let &Opened { depth_entries, format, .. } = opened;
        Queue::There { remote: remote.clone(), name, depth_entries, format }
    }

    #[track_caller]
    fn call(&self, call: QueueCall) -> RemoteAnswer {
        match self {
            Queue::Here(cq) => call.make(cq),
            Queue::There { remote, name, .. } => remote.call(RemoteCall::Queue(*name, call)),
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
            Queue::There { remote, .. } => {
                remote.call(RemoteCall::Progress).result().expect("driving is not refused");
            }
        }
    }

    /// `fi_cq_read(3)` of one entry.
    pub fn read(&self) -> Result<Option<Completion>, ReadError> {
        Ok(self.read_from()?.map(|(completion, _)| completion))
    }

    /// `fi_cq_readfrom(3)` of one entry.
    pub fn read_from(&self) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        if let Queue::Here(cq) = self {
            return cq.read_from();
        }
        let mut read = None;
        self.read_each(1, |completion, source| read = Some((completion, source)))?;
        Ok(read)
    }

    /// As [`CompletionQueue::read_each`]. If the queue is in another process, reads all entries before it
    /// calls `take`.
    pub fn read_each(
        &self,
        max: usize,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        if let Queue::Here(cq) = self {
            return cq.read_each(max, take);
        }
        match self.call(QueueCall::ReadEach(max)) {
            RemoteAnswer::Read(entries) => Ok(entries.map(|entries| {
                let count = entries.len();
                for entry in entries {
                    let (completion, source) = Ended::from(entry).expect("an error ends the batch");
                    take(completion, source);
                }
                count
            })),
            RemoteAnswer::ReadFailed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// Reads a completion or an error entry, if there is one.
    pub(super) fn poll_completion(&self) -> Option<Ended> {
        self.call(QueueCall::Poll).ended().expect("it is not overrun")
    }

    /// As [`poll_completion`](Self::poll_completion), but a process waits for some rounds before it answers
    /// that there is none.
    pub(super) fn poll_patiently(&self) -> Option<Ended> {
        let call = if self.is_here() { QueueCall::Poll } else { QueueCall::Next };
        self.call(call).ended().expect("it is not overrun")
    }

    /// `fi_cq_strerror(3)`.
    pub fn strerror(&self, prov_errno: i32) -> String {
        self.call(QueueCall::Strerror(prov_errno)).text()
    }

    /// `fi_cq_readerr(3)`.
    pub fn read_error(&self) -> Result<Option<CompletionError>, ReadError> {
        let ended = self.call(QueueCall::ReadError).ended()?;
        Ok(ended.map(|ended| ended.expect_err("the queue reads errors alone")))
    }
}

impl VectorCall {
    /// Makes the call to a vector of the library.
    pub(super) fn make(self, av: &AddressVector) -> RemoteAnswer {
        match self {
            VectorCall::Insert(addresses) => {
                let addresses: Vec<Address> = addresses.into_iter().map(|AddressForm(it)| it).collect();
                let inserted = av.insert(&addresses).into_iter();
                RemoteAnswer::Inserted(
                    inserted
                        .map(|result| result.map(|entry| entry.0).map_err(|error| error.errno().raw()))
                        .collect(),
                )
            }
            VectorCall::Remove(addresses) => {
                av.remove(&addresses.into_iter().map(FabricAddress).collect::<Vec<_>>());
                RemoteAnswer::Done
            }
            VectorCall::ReverseLookup(AddressForm(address)) => {
                RemoteAnswer::Found(av.reverse_lookup(&address).map(|found| found.0))
            }
        }
    }
}

impl Vector {
    #[track_caller]
    fn call(&self, call: VectorCall) -> RemoteAnswer {
        match self {
            Handle::Here(av) => call.make(av),
            Handle::There(remote) => remote.call(RemoteCall::Vector(call)),
        }
    }

    /// `fi_av_insert(3)`, with the outcome for each address.
    pub fn insert(&self, addresses: &[Address]) -> Vec<Result<FabricAddress, Error>> {
        if let Handle::Here(av) = self {
            return av.insert(addresses);
        }
        let addresses = addresses.iter().map(|&address| AddressForm(address)).collect();
        let RemoteAnswer::Inserted(inserted) = self.call(VectorCall::Insert(addresses)) else {
            panic!("another answer")
        };
        let result = |result: Result<u64, i32>| {
            result.map(FabricAddress).map_err(|errno| refused_with(Errno::new(errno)))
        };
        inserted.into_iter().map(result).collect()
    }

    /// `fi_av_remove(3)`.
    pub fn remove(&self, addresses: &[FabricAddress]) {
        let addresses = addresses.iter().map(|address| address.0).collect();
        self.call(VectorCall::Remove(addresses)).result().expect("nothing is refused");
    }

    /// The lowest entry with this address.
    pub fn reverse_lookup(&self, address: &Address) -> Option<FabricAddress> {
        match self.call(VectorCall::ReverseLookup(AddressForm(*address))) {
            RemoteAnswer::Found(found) => found.map(FabricAddress),
            other => panic!("{other:?}"),
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
        self.call(BufferCall::Message { context, len_bytes: used_bytes })
    }

    /// Returns a message in a multi-receive buffer. The caller has read the completion of the message.
    #[track_caller]
    pub fn message_at(&self, place: SegmentMut) -> Vec<u8> {
        self.call(BufferCall::Within(place))
    }

    /// Returns the whole memory. Call it after the endpoint was closed.
    #[track_caller]
    pub fn memory_after_close(&self) -> Vec<u8> {
        self.call(BufferCall::Contents)
    }

    #[track_caller]
    fn call(&self, call: BufferCall) -> Vec<u8> {
        match self {
            ReceiveBuffer::Here(room) => call.make(room),
            ReceiveBuffer::There { remote, context } => {
                remote.call(RemoteCall::Buffer(*context, call)).bytes()
            }
        }
    }
}
