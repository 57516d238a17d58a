//! Endpoints with connections behind the C interface: `fi_cm(3)`, and the events of `fi_eq(3)`.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::mem;
use std::ptr;
use std::slice;

use homespun::Errno;
use homespun_host::abi::domain::FidDomain;
use homespun_host::abi::endpoint::{FiOpsCm, FiOpsEp, FidEp, FidPep};
use homespun_host::abi::eq::{FiEqCmEntry, FiEqErrEntry, FidCq, FidEq};
use homespun_host::abi::fabric::FidFabric;
use homespun_host::abi::fid::Fid;
use homespun_host::abi::{FI_BACKLOG, FI_CONNECTED, FI_CONNREQ, FI_OPT_CM_DATA_SIZE, FI_PEEK, FI_SHUTDOWN};
use homespun_host::{InfoList, Libfabric, Object, eq_attr};
use libc::{c_int, c_void};

use super::names::{bytes_of_name, name_from_bytes};
use super::posting::check;
use super::{ProviderParty, Refused, size_option};
use crate::call::{AddressForm, ConnectionCall, EventForm, Origin, RemoteAnswer, RemoteCall};
use crate::form::NameForm;
use crate::setup::BOTH;

/// The room for an event with its data, in numbers.
const ROOM_WORDS: usize = 256;
const ROOM_BYTES: usize = ROOM_WORDS * size_of::<u64>();
const ENTRY_BYTES: usize = size_of::<FiEqCmEntry>();

/// A side of connections.
#[derive(Debug)]
pub(super) struct Connections {
    libfabric: Libfabric,
    info: InfoList,
    /// Whether data carries its length: a provider may pad it.
    is_padded: bool,
    objects: BTreeMap<usize, ConnectionObject>,
    /// How many objects were opened.
    count: usize,
    /// The contexts of endpoints, by their addresses.
    contexts: HashMap<usize, u64>,
    eq: Object<FidEq>,
    cq: Object<FidCq>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
}

#[derive(Debug)]
enum ConnectionObject {
    /// An endpoint, and the number of the request that it was opened for.
    Active(Object<FidEp>, Option<usize>),
    Passive(Object<FidPep>),
    Request {
        /// What the event says; its handle names the request.
        info: InfoList,
        /// The address of the passive endpoint.
        listener: usize,
        state: RequestState,
    },
}

#[derive(Debug, PartialEq)]
enum RequestState {
    New,
    /// An endpoint was opened for it.
    Taken,
    /// It was accepted or rejected. Its handle is not valid any more.
    Answered,
}

/// What the calls for active and passive endpoints need.
#[derive(Clone, Copy)]
struct Raw {
    fid: *mut Fid,
    cm: *const FiOpsCm,
    ops: *const FiOpsEp,
}

impl ProviderParty {
    pub(super) fn connections(&mut self) -> Result<&mut Connections, Refused> {
        Ok(self.connections.as_mut().expect("a side of connections"))
    }

    /// Makes a call to an object of a side.
    pub(super) fn execute_at(&mut self, number: usize, call: RemoteCall) -> Result<RemoteAnswer, Refused> {
        let connections = self.connections()?;
        match call {
            RemoteCall::CloseEndpoint => connections.close(number),
            RemoteCall::Connection(call) => return connections.execute_at(number, call),
            call => {
                self.ep = connections.objects.get(&number).and_then(|object| match object {
                    ConnectionObject::Active(ep, _) => Some(ep.clone()),
                    _ => None,
                });
                let answer = self.execute(call);
                self.ep = None;
                return answer;
            }
        }
        Ok(RemoteAnswer::Done)
    }
}

impl Connections {
    pub(super) fn open(
        libfabric: &Libfabric,
        fabric: &Object<FidFabric>,
        domain: &Object<FidDomain>,
        cq: &Object<FidCq>,
        info: &InfoList,
        is_padded: bool,
    ) -> Result<Connections, Refused> {
        Ok(Connections {
            is_padded,
            libfabric: *libfabric,
            info: info.find_copy(|_| true).expect("a list is not empty"),
            objects: BTreeMap::new(),
            count: 0,
            contexts: HashMap::new(),
            // SAFETY: no attribute is a pointer that is not null.
            eq: unsafe { fabric.open_eq(eq_attr()) }?,
            cq: cq.clone(),
            domain: domain.clone(),
            fabric: fabric.clone(),
        })
    }

    /// Drives the endpoints, as a read of an empty queue does. The next read finds the event.
    pub(super) fn progress(&self) {
        let _ = self.read(FI_PEEK);
    }

    pub(super) fn execute(&mut self, call: ConnectionCall) -> Result<RemoteAnswer, Refused> {
        let opened = match call {
            ConnectionCall::OpenEndpoint(origin) => {
                let mut info = self.info.find_copy(|_| true).expect("a list is not empty");
                let Origin::Of(number) = origin else {
                    let ep = self.domain.open_endpoint(&info)?;
                    return Ok(RemoteAnswer::Size(self.add(ConnectionObject::Active(ep, None))));
                };
                match self.objects.get_mut(&number).expect("an open object") {
                    ConnectionObject::Request { state: RequestState::Answered, .. } => {
                        return Err(Errno::EOPBADSTATE.into());
                    }
                    ConnectionObject::Request { info, state, .. } => {
                        let ep = self.domain.open_endpoint(info)?;
                        *state = RequestState::Taken;
                        ConnectionObject::Active(ep, Some(number))
                    }
                    ConnectionObject::Passive(pep) => {
                        info.first_mut().handle = pep.as_fid();
                        ConnectionObject::Active(self.domain.open_endpoint(&info)?, None)
                    }
                    ConnectionObject::Active(..) => panic!("an endpoint is opened for no other"),
                }
            }
            ConnectionCall::OpenPassive => {
                ConnectionObject::Passive(self.fabric.open_passive_endpoint(&self.info)?)
            }
            ConnectionCall::ReadEvent => return self.read_event().map(RemoteAnswer::Event),
            ConnectionCall::EventStrerror(number) => {
                let eq = self.eq.as_ptr();
                // SAFETY: the queue is open, and the text that it returns stays valid while it is copied.
                let text = unsafe {
                    CStr::from_ptr(((*(*eq).ops).strerror)(eq, number, ptr::null(), ptr::null_mut(), 0))
                };
                return Ok(RemoteAnswer::Text(text.to_string_lossy().into_owned()));
            }
            call => panic!("a call to an object of the side: {call:?}"),
        };
        Ok(RemoteAnswer::Size(self.add(opened)))
    }

    fn add(&mut self, object: ConnectionObject) -> usize {
        self.count += 1;
        self.objects.insert(self.count, object);
        self.count
    }

    fn close(&mut self, number: usize) {
        if let Some(ConnectionObject::Request { state: RequestState::New, .. }) = self.objects.get(&number) {
            // A request that waits for no answer of the application any more.
            let _ = self.execute_at(number, ConnectionCall::Reject(Vec::new()));
        }
        if let Some(object) = self.objects.remove(&number)
            && let Some(raw) = object.raw()
        {
            drop(object);
            self.contexts.remove(&raw.fid.addr());
        }
    }

    fn execute_at(&mut self, number: usize, call: ConnectionCall) -> Result<RemoteAnswer, Refused> {
        if let ConnectionCall::Reject(data) = call {
            return self.reject(number, &data);
        }
        let object = self.objects.get(&number).expect("an open object");
        let raw = object.raw().expect("an endpoint");
        let (fid, ep) = (raw.fid, raw.fid.cast::<FidEp>());
        let accepted = match (&call, object) {
            (ConnectionCall::Accept(_), ConnectionObject::Active(_, request)) => *request,
            _ => None,
        };
        // SAFETY: the endpoint is open and of the class of the call. The arguments live until the call has
        // returned.
        let result = unsafe {
            let cm = &*raw.cm;
            match call {
                ConnectionCall::Bind(context) => {
                    match object {
                        ConnectionObject::Active(ep, _) => {
                            ep.bind(&self.eq, 0)?;
                            ep.bind(&self.cq, BOTH.bits())?;
                        }
                        ConnectionObject::Passive(pep) => pep.bind(&self.eq, 0)?,
                        ConnectionObject::Request { .. } => {}
                    }
                    self.contexts.insert(fid.addr(), context);
                    0
                }
                ConnectionCall::Enable => {
                    let ConnectionObject::Active(ep, _) = object else { panic!("not an active endpoint") };
                    ep.enable()?;
                    0
                }
                ConnectionCall::Listen => (cm.listen)(fid.cast::<FidPep>()),
                ConnectionCall::SetBacklog(requests) => {
                    let mut requests = c_int::try_from(requests).unwrap_or(c_int::MAX);
                    ((*(*fid).ops).control)(fid, FI_BACKLOG, (&raw mut requests).cast())
                }
                ConnectionCall::SetName(AddressForm(name)) => {
                    let mut name = bytes_of_name(NameForm::of(&name));
                    (cm.setname)(fid, name.as_mut_ptr().cast(), name.len())
                }
                ConnectionCall::Name => return read_name(|name, len| (cm.getname)(fid, name, len)),
                ConnectionCall::Peer => return read_name(|name, len| (cm.getpeer)(ep, name, len)),
                ConnectionCall::Connect(AddressForm(to), data) => {
                    let (to, data) = (bytes_of_name(NameForm::of(&to)), self.sent_data(raw, &data)?);
                    (cm.connect)(ep, to.as_ptr().cast(), data.as_ptr().cast(), data.len())
                }
                ConnectionCall::Accept(data) => {
                    let data = self.sent_data(raw, &data)?;
                    (cm.accept)(ep, data.as_ptr().cast(), data.len())
                }
                ConnectionCall::Shutdown => (cm.shutdown)(ep, 0),
                call => panic!("no call to an endpoint: {call:?}"),
            }
        };
        check(result as isize)?;
        self.note_answered(accepted);
        Ok(RemoteAnswer::Done)
    }

    fn note_answered(&mut self, request: Option<usize>) {
        let request = request.and_then(|number| self.objects.get_mut(&number));
        if let Some(ConnectionObject::Request { state, .. }) = request {
            *state = RequestState::Answered;
        }
    }

    fn reject(&mut self, number: usize, data: &[u8]) -> Result<RemoteAnswer, Refused> {
        let (info, listener) = match self.objects.get(&number).expect("an open object") {
            ConnectionObject::Request { state: RequestState::Answered, .. } => {
                return Err(Errno::EOPBADSTATE.into());
            }
            ConnectionObject::Request { info, listener, .. } => (info, listener),
            _ => panic!("requests are rejected"),
        };
        let (handle, listener) = (info.first().handle, *listener);
        let raws = self.objects.values().filter_map(ConnectionObject::raw);
        let Some(raw) = raws.into_iter().find(|raw| raw.fid.addr() == listener) else {
            return Err(Refused::NotOffered("a rejection after the passive endpoint has closed".to_owned()));
        };
        let data = self.sent_data(raw, data)?;
        // SAFETY: the passive endpoint is open, and the handle names a request to it.
        let result =
            unsafe { ((*raw.cm).reject)(raw.fid.cast::<FidPep>(), handle, data.as_ptr().cast(), data.len()) };
        check(result as isize)?;
        self.note_answered(Some(number));
        Ok(RemoteAnswer::Done)
    }

    /// `fi_eq_read(3)`. Returns the event and its data.
    fn read(&self, flags: u64) -> Result<(u32, FiEqCmEntry, Vec<u8>), Errno> {
        let eq = self.eq.as_ptr();
        let (mut room, mut number) = ([0_u64; ROOM_WORDS], 0);
        let buf = room.as_mut_ptr();
        // SAFETY: the queue is open, and the room is as long as the call says.
        let read = unsafe { ((*(*eq).ops).read)(eq, &raw mut number, buf.cast(), ROOM_BYTES, flags) };
        check(read)?;
        // SAFETY: the room has this length, is aligned, and was zero or written, which is valid.
        let entry = unsafe { buf.cast::<FiEqCmEntry>().read() };
        let bytes = room.iter().flat_map(|word| word.to_ne_bytes());
        let data = bytes.take(read.cast_unsigned()).skip(ENTRY_BYTES).collect();
        Ok((number, entry, data))
    }

    fn read_event(&mut self) -> Result<Option<EventForm>, Refused> {
        let (number, FiEqCmEntry { fid, info }, data) = match self.read(0) {
            Ok(read) => read,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EAVAIL) => return self.read_error(),
            Err(errno) => return Err(errno.into()),
        };
        // The context of the endpoint, unless it is closed.
        let (endpoint, mut data) = (self.contexts.get(&fid.addr()).copied(), self.received_data(data));
        // The active side alone receives data.
        let is_of = |object: &ConnectionObject| object.raw().is_some_and(|raw| raw.fid == fid);
        if self.is_padded
            && let Some(ConnectionObject::Active(_, Some(_))) = self.objects.values().find(|it| is_of(it))
        {
            data.clear();
        }
        let is_request = number == FI_CONNREQ;
        // SAFETY: the info of a request belongs to the application.
        let info = is_request.then(|| unsafe { InfoList::from_raw(self.libfabric, info) }).flatten();
        // Other providers report events of endpoints that are closed.
        let Some(endpoint) = endpoint else {
            assert!(self.is_padded, "event {number} names no open endpoint");
            return self.read_event();
        };
        Ok(Some(match number {
            FI_CONNREQ => {
                let info = info.expect("a request has an info");
                let asked = info.first();
                let name_at = |address: *mut c_void, len_bytes: usize| {
                    // SAFETY: the address is null, or as long as the info says.
                    let bytes = (!address.is_null())
                        .then(|| unsafe { slice::from_raw_parts(address.cast::<u8>(), len_bytes) });
                    AddressForm(name_from_bytes(bytes.unwrap_or_default()).into_address())
                };
                let from = name_at(asked.dest_addr, asked.dest_addrlen);
                let to = name_at(asked.src_addr, asked.src_addrlen);
                let request =
                    ConnectionObject::Request { info, listener: fid.addr(), state: RequestState::New };
                let number = self.add(request);
                EventForm::Request { number, listener: endpoint, data, from, to }
            }
            FI_CONNECTED => EventForm::Connected(endpoint, data),
            FI_SHUTDOWN => EventForm::Shutdown(endpoint),
            number => panic!("event {number} is not of a connection"),
        }))
    }

    fn read_error(&mut self) -> Result<Option<EventForm>, Refused> {
        let eq = self.eq.as_ptr();
        let mut room = [0_u64; ROOM_WORDS];
        // SAFETY: all zeros are a valid entry.
        let mut entry = unsafe { mem::zeroed::<FiEqErrEntry>() };
        (entry.err_data, entry.err_data_size) = (room.as_mut_ptr().cast(), size_of_val(&room));
        // SAFETY: the queue is open, and the entry has room for the data of an error.
        check(unsafe { ((*(*eq).ops).readerr)(eq, &raw mut entry, 0) })?;
        let bytes = room.iter().flat_map(|word| word.to_ne_bytes());
        let Some(&object) = self.contexts.get(&entry.fid.addr()) else {
            assert!(self.is_padded, "the error {} names no open endpoint", entry.err);
            return self.read_event();
        };
        Ok(Some(EventForm::Failed {
            object,
            errno: Errno::new(entry.err),
            prov_errno: entry.prov_errno,
            err_data: self.received_data(bytes.take(entry.err_data_size).collect()),
        }))
    }

    /// Data as it is sent with a connection, if the endpoint carries so much.
    fn sent_data(&self, at: Raw, data: &[u8]) -> Result<Vec<u8>, Refused> {
        let len = u16::try_from(data.len()).expect("little data");
        let data = if self.is_padded { [&len.to_le_bytes(), data].concat() } else { data.to_owned() };
        at.need_room_for(&data)?;
        Ok(data)
    }

    /// Data as it was sent, without padding.
    fn received_data(&self, data: Vec<u8>) -> Vec<u8> {
        match &data[..] {
            [low, high, sent @ ..] if self.is_padded => {
                let len_bytes = usize::from(u16::from_le_bytes([*low, *high]));
                sent[..len_bytes.min(sent.len())].to_owned()
            }
            _ => data,
        }
    }
}

impl ConnectionObject {
    fn raw(&self) -> Option<Raw> {
        use ConnectionObject::{Active, Passive, Request};
        // SAFETY: the endpoints are open.
        let (fid, cm, ops) = unsafe {
            match self {
                Active(ep, _) => (ep.as_fid(), (*ep.as_ptr()).cm, (*ep.as_ptr()).ops),
                Passive(pep) => (pep.as_fid(), (*pep.as_ptr()).cm, (*pep.as_ptr()).ops),
                Request { .. } => return None,
            }
        };
        Some(Raw { fid, cm, ops })
    }
}

impl Raw {
    /// Checks that a request or an answer carries as much data.
    fn need_room_for(self, data: &[u8]) -> Result<(), Refused> {
        // SAFETY: the endpoint is open, and the option is a size.
        match unsafe { size_option(self.ops, self.fid, FI_OPT_CM_DATA_SIZE) } {
            Ok(most) if data.len() > most => {
                Err(Refused::NotOffered(format!("{} bytes with a connection", data.len())))
            }
            // Without an answer, the call itself tells.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn read_name(call: impl FnOnce(*mut c_void, *mut usize) -> c_int) -> Result<RemoteAnswer, Refused> {
    let mut name = [0_u8; 256];
    let mut len_bytes = name.len();
    check(call(name.as_mut_ptr().cast(), &raw mut len_bytes) as isize)?;
    let name = name_from_bytes(&name[..len_bytes]);
    Ok(RemoteAnswer::Address(AddressForm(name.into_address())))
}
