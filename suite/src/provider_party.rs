//! A party behind the C interface of any libfabric provider. It carries out the calls of the test, as
//! [`party_server`](super::party_server) does for a party of homespun's own library.

mod connections;
mod names;
mod opening;
mod posted;
mod posting;
mod regions;

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use homespun::flags::{Caps, CompletionFlags, OpFlags};
use homespun::info::MrMode;
use homespun::transport::LinkError;
use homespun::{
    Completion, CompletionError, CounterEvents, CqFormat, Errno, FabricAddress, OperationError, ReadError,
    Tag,
};
use homespun_host::abi::domain::{FidAv, FidDomain, FidMr};
use homespun_host::abi::endpoint::{FiOpsEp, FidEp};
use homespun_host::abi::eq::{FiCqErrEntry, FiCqTaggedEntry, FidCntr, FidCq};
use homespun_host::abi::fid::Fid;
use homespun_host::abi::{
    FI_GETOPSFLAG, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_RECV, FI_SETOPSFLAG, FI_TRANSMIT,
};
use homespun_host::{Libfabric, Object, counter_attr};
use libc::c_int;

use self::connections::Connections;
use self::names::{bytes_of_name, name_from_bytes};
use self::opening::Opening;
use self::posted::{Entry, Posted};
use self::posting::{ANY, Poster, check};
use super::answering::{PartyServer, WAITING_ROUNDS};
use super::call::{
    AddressForm, Direction, EndpointCall, Opened, QueueCall, QueueName, ReceiveBy, RemoteAnswer, RemoteCall,
    VectorCall,
};
use super::ended::Ended;
use super::form::{EndedForm, NameForm};
use super::provider::Provider;
use super::raw::{Piece, RawBuffer};
use super::setup::Setup;

/// How long a party repeats a call that another provider answers with EAGAIN, which it may do at any time.
const EAGAIN_PATIENCE: Duration = Duration::from_secs(3);

/// The pause before such a repetition.
const EAGAIN_PAUSE: Duration = Duration::from_millis(1);

/// Why a party cannot be asked for something.
enum Refused {
    /// The provider does not have it.
    NotOffered(String),
    /// The provider has refused the call.
    Errno(Errno),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused::Errno(errno)
    }
}

/// A completion queue and the format of its entries.
#[derive(Debug)]
struct ReadQueue {
    cq: Object<FidCq>,
    format: CqFormat,
}

/// Counters, with the event that each counts.
type Counters = Vec<(CounterEvents, Object<FidCntr>)>;

/// A region.
#[derive(Debug)]
struct RegisteredPiece {
    /// `None` once it is closed.
    mr: Option<Object<FidMr>>,
    piece: Piece,
    counters: Counters,
}

/// The party.
#[derive(Debug)]
struct ProviderParty {
    opening: Opening,
    /// Whether the provider offers these completion levels.
    levels: HashMap<OpFlags, bool>,
    caps: Caps,
    mr_mode: MrMode,
    ep: Option<Object<FidEp>>,
    cq: ReadQueue,
    receive_cq: Option<ReadQueue>,
    /// `None` for a side of connections.
    av: Option<Object<FidAv>>,
    domain: Object<FidDomain>,
    connections: Option<Connections>,
    counters: Counters,
    posted: Posted,
    /// The memory of raw receives and fetches, by context.
    rooms: BTreeMap<u64, RawBuffer>,
    regions: Vec<RegisteredPiece>,
    /// The names in the address vector.
    names: BTreeMap<u64, NameForm>,
    drives_itself: bool,
}

/// Opens a party behind the C interface, or a side. Returns what the provider does not have, if it fails.
pub(super) fn open(
    provider: &Provider,
    setup: &Setup,
    is_side: bool,
) -> Result<(Box<dyn PartyServer>, Opened), String> {
    let libfabric = Libfabric::load(&provider.libfabric).map_err(|error| error.to_string())?;
    match (Opening { libfabric, provider: provider.clone(), setup: setup.clone(), is_side }).open() {
        Ok((party, opened)) => Ok((Box::new(party), opened)),
        Err(Refused::NotOffered(what)) => Err(what),
        Err(Refused::Errno(errno)) => panic!("an endpoint that was offered is refused: {errno}"),
    }
}

impl PartyServer for ProviderParty {
    fn drives_itself(&self) -> bool {
        self.drives_itself
    }

    fn progress(&self) {
        for queue in [Some(&self.cq), self.receive_cq.as_ref()].into_iter().flatten() {
            // What a read answers, the next one answers again.
            let _ = queue.progress();
        }
        self.connections.iter().for_each(Connections::progress);
    }

    fn execute_call(&mut self, call: RemoteCall) -> RemoteAnswer {
        self.execute_patiently(call).unwrap_or_else(|refused| match refused {
            Refused::NotOffered(what) => RemoteAnswer::NotOffered(what),
            Refused::Errno(errno) => RemoteAnswer::Refused(errno),
        })
    }
}

fn unknown(what: &str) -> Result<RemoteAnswer, Refused> {
    Err(Refused::NotOffered(format!("{what}: the kit does not ask for it")))
}

fn open_counter(domain: &Object<FidDomain>) -> Result<Object<FidCntr>, Refused> {
    // SAFETY: no attribute is a pointer that is not null.
    unsafe { domain.open_counter(counter_attr()) }.map_err(|errno| not_offered("counters", errno))
}

/// An error of a call for something that a provider need not have.
fn not_offered(what: &str, errno: Errno) -> Refused {
    match errno {
        Errno::ENODATA | Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL => {
            Refused::NotOffered(format!("{what} ({errno})"))
        }
        errno => Refused::Errno(errno),
    }
}

impl ProviderParty {
    /// Executes a call. Repeats a post for a while if another provider says to. What homespun answers with
    /// EAGAIN is a matter of tests.
    fn execute_patiently(&mut self, call: RemoteCall) -> Result<RemoteAnswer, Refused> {
        let inner = if let RemoteCall::At(_, call) = &call { call } else { &call };
        let is_post = matches!(inner, RemoteCall::Endpoint(call) if is_post(call));
        if !is_post || self.opening.provider.is_homespun() {
            return self.execute(call);
        }
        let begin = Instant::now();
        loop {
            let executed = self.execute(call.clone());
            let is_patient = begin.elapsed() < EAGAIN_PATIENCE;
            if !is_patient || !matches!(executed, Err(Refused::Errno(Errno::EAGAIN))) {
                return executed;
            }
            self.progress();
            thread::sleep(EAGAIN_PAUSE);
        }
    }

    fn execute(&mut self, call: RemoteCall) -> Result<RemoteAnswer, Refused> {
        match call {
            RemoteCall::Open { .. } | RemoteCall::RunTest(_) => panic!("the party is open"),
            RemoteCall::At(number, call) => return self.execute_at(number, *call),
            RemoteCall::Connection(call) => return self.connections()?.execute(call),
            RemoteCall::StartDriving => self.drives_itself = true,
            RemoteCall::Progress => self.progress(),
            RemoteCall::CloseEndpoint => self.ep = None,
            RemoteCall::Endpoint(call) => return self.execute_at_endpoint(call),
            RemoteCall::Queue(name, call) => return Ok(self.execute_at_queue(name, call)),
            RemoteCall::Vector(call) => return self.execute_at_vector(call),
            RemoteCall::Register(spec) => return self.register(spec),
            RemoteCall::Region(number, call) => return self.execute_at_region(number, call),
            RemoteCall::Counted(event) => return Ok(read_counter(&self.counters, event)),
            RemoteCall::Buffer(context, call) => {
                return Ok(RemoteAnswer::Bytes(call.make(&self.rooms[&context])));
            }
            RemoteCall::RefuseCopies(_) | RemoteCall::Fork { .. } | RemoteCall::ForkCaller { .. } => {
                return unknown("what homespun promises after forks and seccomp filters");
            }
        }
        Ok(RemoteAnswer::Done)
    }

    fn execute_at_endpoint(&mut self, call: EndpointCall) -> Result<RemoteAnswer, Refused> {
        match call {
            EndpointCall::Send(send) => {
                self.need_message(send.post.tag.is_some(), false, None)?;
                self.need_flags(send.post.flags.unwrap_or_default())?;
                self.poster().send(send)?;
            }
            EndpointCall::Receive(receive) => {
                let is_many = receive.by == ReceiveBy::Multi || receive.flags.contains(OpFlags::MULTI_RECV);
                self.need_message(receive.tagged.is_some(), is_many, Some(receive.from))?;
                self.poster().receive(receive)?;
            }
            EndpointCall::ReceiveRaw { lens_bytes, ignore, post } => {
                let is_many = post.flags.is_some_and(|flags| flags.contains(OpFlags::MULTI_RECV));
                self.need_message(post.tag.is_some(), is_many, Some(post.peer))?;
                let pieces = self.poster().receive_raw(&lens_bytes, ignore, post)?;
                self.keep_room(post.context, pieces);
            }
            EndpointCall::Rma(call) => {
                self.need(Caps::RMA)?;
                self.need_flags(call.flags)?;
                self.poster().access(call)?;
            }
            EndpointCall::Flush(_) => return unknown("flushes"),
            EndpointCall::Atomic(call) => {
                self.need(Caps::ATOMIC)?;
                self.need_flags(call.flags)?;
                if !self.opening.provider.is_homespun() {
                    // Without this question, sockets and rxm of libfabric 2.6 crash their target.
                    let most = self.poster().max_atomic_count(&call).map_err(|_| Errno::EOPNOTSUPP)?;
                    let count = call.element_count();
                    if count > most {
                        return Err(Refused::NotOffered(format!("atomic operations on {count} elements")));
                    }
                }
                let context = call.context;
                if let Some(pieces) = self.poster().atomic(call)? {
                    self.keep_room(context, pieces);
                }
            }
            EndpointCall::Cancel(context) => self.poster().cancel(context)?,
            EndpointCall::TxOpFlags => {
                let flags = self.control_op_flags(FI_GETOPSFLAG, Direction::Transmit, OpFlags::empty())?;
                return Ok(RemoteAnswer::Flags(flags));
            }
            EndpointCall::SetOpFlags(direction, flags) => {
                self.control_op_flags(FI_SETOPSFLAG, direction, flags)?;
                if direction == Direction::Receive {
                    self.posted.takes_many_by_default = flags.contains(OpFlags::MULTI_RECV);
                }
            }
            EndpointCall::MinMultiRecv => return Ok(RemoteAnswer::Size(self.min_multi_recv()?)),
            EndpointCall::SetMinMultiRecv(bytes) => self.set_min_multi_recv(bytes)?,
        }
        Ok(RemoteAnswer::Done)
    }

    /// Keeps the memory of a raw operation.
    fn keep_room(&mut self, context: u64, pieces: Vec<Piece>) {
        let keeps_rest = self.opening.provider.is_homespun();
        self.rooms.insert(context, RawBuffer { pieces, context, keeps_rest });
    }

    fn execute_at_queue(&mut self, name: QueueName, call: QueueCall) -> RemoteAnswer {
        match call {
            QueueCall::Poll => RemoteAnswer::Ended(self.poll(name).map(EndedForm::from)),
            QueueCall::Next => {
                let ended = (0..WAITING_ROUNDS).find_map(|_| {
                    let ended = self.poll(name);
                    if ended.is_none() {
                        self.progress();
                        thread::yield_now();
                    }
                    ended
                });
                RemoteAnswer::Ended(ended.map(EndedForm::from))
            }
            QueueCall::ReadEach(max) => self.read_each(name, max),
            QueueCall::ReadError => match self.read_error(name) {
                Ok(failed) => RemoteAnswer::Ended(failed.map(EndedForm::Failed)),
                Err(error) => RemoteAnswer::ReadFailed(error),
            },
            QueueCall::Strerror(number) => RemoteAnswer::Text(self.cq.strerror(number)),
        }
    }

    fn execute_at_vector(&mut self, call: VectorCall) -> Result<RemoteAnswer, Refused> {
        let av = self.av.as_ref().expect("the party has no connections");
        match call {
            VectorCall::Insert(addresses) => {
                let inserted = addresses.iter().map(|AddressForm(address)| {
                    let inserted = av.insert(&bytes_of_name(NameForm::of(address)));
                    if let Ok(entry) = inserted {
                        self.names.insert(entry, NameForm::of(address));
                    }
                    inserted.map_err(Errno::raw)
                });
                Ok(RemoteAnswer::Inserted(inserted.collect()))
            }
            VectorCall::Remove(mut addresses) => {
                let av = av.as_ptr();
                // SAFETY: the vector is open, and the call reads as many addresses.
                let removed =
                    unsafe { ((*(*av).ops).remove)(av, addresses.as_mut_ptr(), addresses.len(), 0) };
                check(removed as isize)?;
                self.names.retain(|entry, _| !addresses.contains(entry));
                Ok(RemoteAnswer::Done)
            }
            // The C interface has no such call: a C program remembers what it has inserted.
            VectorCall::ReverseLookup(AddressForm(address)) => {
                let wanted = NameForm::of(&address);
                let found = self.names.iter().find(|(_, name)| **name == wanted);
                Ok(RemoteAnswer::Found(found.map(|(entry, _)| *entry)))
            }
        }
    }

    /// Checks that the endpoint was granted these capabilities.
    fn need(&self, caps: Caps) -> Result<(), Refused> {
        let lacking = caps - self.caps;
        if lacking.is_empty() { Ok(()) } else { Err(Refused::NotOffered(format!("{lacking:?}"))) }
    }

    /// Checks that the endpoint has such messages, and may be told from whom it receives.
    fn need_message(
        &self,
        is_tagged: bool,
        is_many: bool,
        from: Option<FabricAddress>,
    ) -> Result<(), Refused> {
        // A connection has one source, whatever a receive says.
        let is_free = self.opening.provider.is_homespun() || self.connections.is_some();
        let is_directed = from.is_some_and(|from| from != FabricAddress::UNSPECIFIED) && !is_free;
        self.need(if is_tagged { Caps::TAGGED } else { Caps::MSG })?;
        self.need(if is_many { Caps::MULTI_RECV } else { Caps::empty() })?;
        self.need(if is_directed { Caps::DIRECTED_RECV } else { Caps::empty() })
    }

    /// Checks that the provider offers the fence and the completion level of these flags.
    fn need_flags(&mut self, flags: OpFlags) -> Result<(), Refused> {
        if flags.contains(OpFlags::FENCE) {
            self.need(Caps::FENCE)?;
        }
        if flags.contains(OpFlags::COMMIT_COMPLETE) && !self.opening.provider.is_homespun() {
            self.need(Caps::RMA_PMEM)?;
        }
        let level = flags & OpFlags::LEVELS;
        let opening = &self.opening;
        let is_offered =
            level.is_empty() || *self.levels.entry(level).or_insert_with(|| opening.offers_level(level));
        if is_offered { Ok(()) } else { Err(Refused::NotOffered(format!("{level:?}"))) }
    }

    fn poster(&mut self) -> Poster<'_> {
        let ep = self.ep.as_ref().expect("nothing is asked of a closed endpoint").as_ptr();
        Poster { ep, posted: &mut self.posted }
    }

    fn queue(&self, name: QueueName) -> &ReadQueue {
        match name {
            QueueName::First => &self.cq,
            QueueName::Receive => self.receive_cq.as_ref().expect("a queue of its own for receives"),
        }
    }

    fn poll(&mut self, name: QueueName) -> Option<Ended> {
        match self.read(name) {
            Ok(read) => read.map(Ok),
            Err(ReadError::ErrorAvailable) => {
                let failed =
                    self.read_error(name).expect("it is not overrun").expect("an error was announced");
                Some(Err(failed))
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn read_each(&mut self, name: QueueName, max: usize) -> RemoteAnswer {
        if max == 0 {
            let read = unless_empty(self.queue(name).progress().map(|()| Vec::new()));
            return read.map_or_else(RemoteAnswer::ReadFailed, RemoteAnswer::Read);
        }
        let mut entries = Vec::new();
        while entries.len() < max {
            match self.read(name) {
                Ok(Some(read)) => entries.push(EndedForm::from(Ok(read))),
                Ok(None) if entries.is_empty() => return RemoteAnswer::Read(None),
                Err(error) if entries.is_empty() => return RemoteAnswer::ReadFailed(error),
                Ok(None) | Err(_) => break,
            }
        }
        RemoteAnswer::Read(Some(entries))
    }

    fn read(&mut self, name: QueueName) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        let reads_source = self.caps.contains(Caps::SOURCE);
        let mut source = ANY;
        // SAFETY: both calls read one entry.
        let read = unsafe {
            self.queue(name).cq.read_entry(|cq, entry| {
                let ops = &*(*cq).ops;
                if reads_source {
                    (ops.readfrom)(cq, entry, 1, &raw mut source)
                } else {
                    (ops.read)(cq, entry, 1)
                }
            })
        };
        let Some(entry) = unless_empty(read)? else { return Ok(None) };
        let flags = CompletionFlags::from_bits_retain(entry.flags);
        let has_payload =
            flags.intersects(CompletionFlags::MSG | CompletionFlags::TAGGED | CompletionFlags::READ);
        let completion = self.completion_of(&entry, has_payload, false);
        Ok(Some((completion, FabricAddress(source))))
    }

    fn completion_of(
        &mut self,
        entry: &FiCqTaggedEntry,
        has_payload: bool,
        is_cancelled: bool,
    ) -> Completion {
        let mut flags = CompletionFlags::from_bits_retain(entry.flags);
        if !self.opening.provider.is_homespun() {
            // Bits that `fi_cq(3)` does not define mean nothing. It leaves open whether a tagged message
            // is reported as an untagged one, too, and whether a send has the flag of its data.
            flags &= CompletionFlags::all();
            for (kind, further) in [
                (CompletionFlags::TAGGED, CompletionFlags::MSG),
                (CompletionFlags::SEND, CompletionFlags::REMOTE_CQ_DATA),
            ] {
                if flags.contains(kind) {
                    flags.remove(further);
                }
            }
        }
        let (context, buffer) = self.posted.context_and_buffer(Entry {
            op_context: entry.op_context,
            // A write of a peer takes a receive, but does not fill it.
            len_bytes: if flags.contains(CompletionFlags::REMOTE_WRITE) { 0 } else { entry.len },
            buf: entry.buf.cast(),
            // No page promises the flag in the error of a cancelled buffer, which takes no more messages.
            is_released: is_cancelled || flags.contains(CompletionFlags::MULTI_RECV),
            has_payload,
        });
        Completion { context, flags, len_bytes: entry.len, data: entry.data, tag: Tag(entry.tag), buffer }
    }

    fn read_error(&mut self, name: QueueName) -> Result<Option<CompletionError>, ReadError> {
        let mut data = [0_u8; 256];
        let read = self.queue(name).cq.read_error_entry(&mut data);
        let Some(entry) = unless_empty(read)? else { return Ok(None) };
        let FiCqErrEntry { op_context, flags, len, buf, data: remote_data, tag, .. } = entry;
        let success = FiCqTaggedEntry { op_context, flags, len, buf, data: remote_data, tag };
        let errno = Errno::new(entry.err);
        let completion = self.completion_of(&success, len > 0, errno == Errno::ECANCELED);
        let error = match errno {
            Errno::ETRUNC => OperationError::Truncated { overflow_bytes: entry.olen as u64 },
            Errno::ECANCELED => OperationError::Cancelled,
            Errno::ENOMSG => OperationError::NoMessage,
            Errno::EADDRNOTAVAIL => OperationError::UnknownSource,
            errno => OperationError::Link(LinkError::System(errno)),
        };
        let peer = (error == OperationError::UnknownSource)
            .then(|| Box::new(name_from_bytes(&data[..entry.err_data_size.min(data.len())]).into_address()));
        Ok(Some(CompletionError { completion, error, source: FabricAddress::UNSPECIFIED, peer }))
    }

    /// `fi_control(3)` of the default flags of one direction. Returns them.
    fn control_op_flags(
        &self,
        command: c_int,
        direction: Direction,
        flags: OpFlags,
    ) -> Result<OpFlags, Refused> {
        let direction = match direction {
            Direction::Transmit => FI_TRANSMIT,
            Direction::Receive => FI_RECV,
        };
        let mut flags = flags.bits() | direction;
        let ep = self.ep.as_ref().expect("an open endpoint");
        // SAFETY: both commands take flags.
        match check(unsafe { ep.control(command, (&raw mut flags).cast()) } as isize) {
            Ok(()) => {}
            Err(Errno::ENOSYS) => return Err(Refused::NotOffered("default flags by fi_control".to_owned())),
            Err(errno) => return Err(errno.into()),
        }
        Ok(OpFlags::from_bits_retain(flags & !direction))
    }

    fn min_multi_recv(&self) -> Result<usize, Refused> {
        let ep = self.ep.as_ref().expect("an open endpoint");
        // SAFETY: the endpoint is open, and the option is a size.
        let bytes = unsafe { size_option((*ep.as_ptr()).ops, ep.as_fid(), FI_OPT_MIN_MULTI_RECV) };
        bytes.map_err(|errno| not_offered("FI_OPT_MIN_MULTI_RECV", errno))
    }

    fn set_min_multi_recv(&self, bytes: usize) -> Result<(), Refused> {
        let ep = self.ep.as_ref().expect("an open endpoint");
        let (option, value, size) = (FI_OPT_MIN_MULTI_RECV, (&raw const bytes).cast(), size_of::<usize>());
        // SAFETY: as for `min_multi_recv`.
        let result: c_int =
            unsafe { ((*(*ep.as_ptr()).ops).setopt)(ep.as_fid(), FI_OPT_ENDPOINT, option, value, size) };
        check(result as isize).map_err(|errno| not_offered("FI_OPT_MIN_MULTI_RECV", errno))
    }
}

/// `fi_getopt(3)` of an option that is a size.
///
/// # Safety
///
/// The endpoint is open, and the vtable is its own.
unsafe fn size_option(ops: *const FiOpsEp, fid: *mut Fid, option: c_int) -> Result<usize, Errno> {
    let (mut value, mut size) = (0_usize, size_of::<usize>());
    // SAFETY: the caller promises an open endpoint, and there is room for a size.
    let result =
        unsafe { ((*ops).getopt)(fid, FI_OPT_ENDPOINT, option, (&raw mut value).cast(), &raw mut size) };
    check(result as isize)?;
    Ok(value)
}

/// Whether the call posts an operation.
fn is_post(call: &EndpointCall) -> bool {
    use EndpointCall::{Atomic, Flush, Receive, ReceiveRaw, Rma, Send};
    matches!(call, Send(_) | Receive(_) | ReceiveRaw { .. } | Rma(_) | Flush(_) | Atomic(_))
}

impl ReadQueue {
    /// `fi_cq_strerror(3)`.
    fn strerror(&self, prov_errno: i32) -> String {
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is open, and the text that it returns stays valid while it is copied.
        unsafe {
            let text = ((*(*cq).ops).strerror)(cq, prov_errno, ptr::null(), ptr::null_mut(), 0);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }

    /// Drives the endpoints of the queue, without reading an entry.
    fn progress(&self) -> Result<(), Errno> {
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is open, and no entry is asked for.
        check(unsafe { ((*(*cq).ops).read)(cq, ptr::null_mut(), 0) })
    }
}

/// What a read answers; `None` if the queue is empty.
fn unless_empty<T>(read: Result<T, Errno>) -> Result<Option<T>, ReadError> {
    match read {
        Ok(entry) => Ok(Some(entry)),
        Err(Errno::EAGAIN) => Ok(None),
        Err(errno) => Err(read_error_of(errno)),
    }
}

fn read_error_of(errno: Errno) -> ReadError {
    match errno {
        Errno::EAVAIL => ReadError::ErrorAvailable,
        Errno::EOVERRUN => ReadError::Overrun,
        errno => panic!("fi_cq_read answers {errno}"),
    }
}

fn read_counter(counters: &[(CounterEvents, Object<FidCntr>)], event: CounterEvents) -> RemoteAnswer {
    let found = counters.iter().find(|(counted, _)| *counted == event);
    let counter = found.expect("a counter of this event").1.as_ptr();
    // SAFETY: the counter is open.
    unsafe {
        let ops = &*(*counter).ops;
        RemoteAnswer::Counted(((ops.read)(counter), (ops.readerr)(counter)))
    }
}
