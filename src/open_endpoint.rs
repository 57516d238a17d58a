//! Opening an endpoint with all objects that it needs, in one step.

use homespun_engine::error::{Argument, Error, Misuse};
use homespun_engine::flags::{BindFlags, CounterEvents};

use crate::av::{AddressVector, AvAttr};
use crate::counter::Counter;
use crate::cq::{CompletionQueue, CqAttr};
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::fabric::Fabric;
use crate::hints::Hints;
use crate::info::Info;
use crate::wait::WaitObject;

/// An enabled endpoint and its objects, as [`EndpointBuilder::open`] returns them.
#[derive(Debug, Clone)]
pub struct OpenEndpoint {
    /// The endpoint, enabled.
    pub endpoint: Endpoint,
    /// The queue for its sends and receives.
    pub cq: CompletionQueue,
    /// The vector that holds its peers.
    pub av: AddressVector,
    /// The domain of all three.
    pub domain: Domain,
}

/// Opens an endpoint without connections, binds the objects that it needs, and enables it. An application
/// with other needs calls [`Domain::endpoint`], [`Endpoint::bind_cq`], [`Endpoint::bind_av`] and
/// [`Endpoint::enable`].
///
/// If no queue is given, `open` opens one queue for both directions, with a wait object
/// ([`WaitObject::Unspec`]). If no vector is given, it opens an empty one. If several calls set the queue,
/// or the vector, the last call counts.
///
/// Two endpoints of one domain that share a queue:
///
/// ```
/// use homespun::{CqAttr, Fabric, Hints};
///
/// let fabric = Fabric::new();
/// let info = fabric.info(&Hints::new().domain("shm"))?;
/// let domain = fabric.domain(&info)?;
/// let first = domain.endpoint_builder(&info).cq_attr(CqAttr::default()).open()?;
/// let second = domain.endpoint_builder(&info).cq(&first.cq).open()?;
/// assert_ne!(first.endpoint.name()?, second.endpoint.name()?);
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is opened before `open` is called"]
pub struct EndpointBuilder {
    domain: Domain,
    info: Info,
    cq: Part<CompletionQueue, CqAttr>,
    av: Part<AddressVector, AvAttr>,
    counters: Vec<(Counter, CounterEvents)>,
}

/// An object that the endpoint needs: an open object, or the attributes of a new one.
#[derive(Debug, Clone)]
enum Part<O, A> {
    Open(O),
    New(A),
}

impl<O, A> Part<O, A> {
    fn open_if_new(self, open: impl FnOnce(&A) -> Result<O, Error>) -> Result<O, Error> {
        match self {
            Part::Open(object) => Ok(object),
            Part::New(attr) => open(&attr),
        }
    }
}

impl Fabric {
    /// Opens the best endpoint that meets these hints, with its own domain, queue and address vector. The
    /// call combines [`info`](Self::info), [`domain`](Self::domain) and [`EndpointBuilder`].
    ///
    /// ```
    /// use homespun::{Caps, Fabric, Hints, OpenEndpoint};
    ///
    /// let hints = Hints::new().caps(Caps::TAGGED).domain("shm");
    /// let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(&hints)?;
    /// let own = av.insert_one(endpoint.name()?)?;
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info) and [`EndpointBuilder::open`].
    pub fn open_endpoint(&self, hints: &Hints) -> Result<OpenEndpoint, Error> {
        let info = self.info(hints)?;
        self.domain(&info)?.endpoint_builder(&info).open()
    }
}

impl Domain {
    /// Returns a builder that opens an endpoint with all objects that it needs.
    pub fn endpoint_builder(&self, info: &Info) -> EndpointBuilder {
        EndpointBuilder {
            domain: self.clone(),
            info: info.clone(),
            cq: Part::New(CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() }),
            av: Part::New(AvAttr::default()),
            counters: Vec::new(),
        }
    }
}

impl EndpointBuilder {
    /// Reports sends and receives to this queue.
    pub fn cq(mut self, cq: &CompletionQueue) -> EndpointBuilder {
        self.cq = Part::Open(cq.clone());
        self
    }

    /// Reports sends and receives to a new queue with these attributes. With `CqAttr::default()` no thread
    /// can wait for the queue: set [`CqAttr::wait`], or call [`cq_size`](Self::cq_size) instead.
    pub fn cq_attr(mut self, attr: CqAttr) -> EndpointBuilder {
        self.cq = Part::New(attr);
        self
    }

    /// Reports sends and receives to a new queue of this size ([`CqAttr::size_entries`]). Threads can wait
    /// for the queue.
    pub fn cq_size(self, size_entries: usize) -> EndpointBuilder {
        self.cq_attr(CqAttr { size_entries, wait: WaitObject::Unspec, ..CqAttr::default() })
    }

    /// Finds peers in this vector.
    pub fn av(mut self, av: &AddressVector) -> EndpointBuilder {
        self.av = Part::Open(av.clone());
        self
    }

    /// Finds peers in a new vector with these attributes.
    pub fn av_attr(mut self, attr: AvAttr) -> EndpointBuilder {
        self.av = Part::New(attr);
        self
    }

    /// Counts these events with this counter. The counters of earlier calls remain.
    pub fn counter(mut self, counter: &Counter, events: CounterEvents) -> EndpointBuilder {
        self.counters.push((counter.clone(), events));
        self
    }

    /// Opens the objects that were not given, binds all objects to a new endpoint, and enables it.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] if the info is for connected endpoints
    /// ([`EndpointType::Msg`](crate::info::EndpointType::Msg)), which also need an event queue and a peer.
    /// Otherwise the errors of the single steps. After an error, the objects that `open` opened are closed
    /// again.
    pub fn open(self) -> Result<OpenEndpoint, Error> {
        let EndpointBuilder { domain, info, cq, av, counters } = self;
        if info.endpoint_type().is_connected() {
            return Err(Misuse::Invalid(Argument::PeerNeeded).into());
        }
        let cq = cq.open_if_new(|attr| domain.open_cq(attr))?;
        let av = av.open_if_new(|attr| domain.open_av(attr))?;
        let endpoint = domain.endpoint(&info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        for (counter, events) in &counters {
            endpoint.bind_counter(counter, *events)?;
        }
        endpoint.enable()?;
        Ok(OpenEndpoint { endpoint, cq, av, domain })
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use homespun_engine::errno::Errno;

    use super::*;
    use crate::av::FabricAddress;
    use crate::counter::CounterAttr;
    use crate::cq::OperationKind;
    use crate::info::EndpointType;

    fn make_hints() -> Hints {
        Hints::new().node("127.0.0.1").source()
    }

    #[test]
    fn open_endpoint_exchanges_messages_with_defaults() {
        let opened = Fabric::new().open_endpoint(&make_hints()).expect("an endpoint");
        let own = opened.av.insert_one(opened.endpoint.name().expect("a name")).expect("an address");
        opened.endpoint.recv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, 1).expect("room");
        opened.endpoint.send(Bytes::from_static(b"hello"), own, 2).expect("room");
        let mut kinds = [(); 2].map(|()| {
            let entry = opened.cq.sread_entry(None).expect("a wait object").expect("an entry");
            entry.into_result().expect("a success").kind()
        });
        kinds.sort_by_key(|kind| *kind == OperationKind::Receive);
        assert_eq!(kinds, [OperationKind::Send, OperationKind::Receive]);
    }

    #[test]
    fn builder_binds_the_given_objects() {
        let fabric = Fabric::new();
        let info = fabric.info(&make_hints()).expect("an info");
        let domain = fabric.domain(&info).expect("a domain");
        let counter = domain.open_counter(&CounterAttr::default()).expect("a counter");
        let first = domain.endpoint_builder(&info).cq_attr(CqAttr::default()).open().expect("an endpoint");
        assert_eq!(first.cq.wait_object(), WaitObject::None);
        let events = CounterEvents::SEND;
        let builder = domain.endpoint_builder(&info).cq(&first.cq).av(&first.av).counter(&counter, events);
        let second = builder.open().expect("an endpoint");
        let to = second.av.insert_one(first.endpoint.name().expect("a name")).expect("an address");
        assert_eq!(first.av.len(), 1, "both have one vector");
        first.endpoint.recv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, 1).expect("room");
        second.endpoint.send(Bytes::from_static(b"hello"), to, 2).expect("room");
        let mut ended = Vec::new();
        while ended.len() < 2 {
            ended.extend(first.cq.read().expect("a success").map(|completion| completion.context));
        }
        assert_eq!(counter.read(), 1);
        assert_eq!(first.cq.close().expect_err("two endpoints are bound to it").errno(), Errno::EBUSY);
    }

    #[test]
    fn builder_uses_the_queue_of_the_last_call() {
        let fabric = Fabric::new();
        let info = fabric.info(&make_hints()).expect("an info");
        let builder = fabric.domain(&info).expect("a domain").endpoint_builder(&info);
        let first = builder.clone().cq_size(8).cq_attr(CqAttr::default()).open().expect("an endpoint");
        assert_eq!(first.cq.wait_object(), WaitObject::None);
        let second = builder.clone().cq(&first.cq).cq_size(8).open().expect("an endpoint");
        assert_eq!(second.cq.wait_object(), WaitObject::Unspec, "a queue of its own");
        let third = builder.cq_size(8).cq(&first.cq).open().expect("an endpoint");
        assert_eq!(third.cq.wait_object(), WaitObject::None, "the queue of the first");
    }

    #[test]
    fn builder_of_a_connected_endpoint_is_refused() {
        let fabric = Fabric::new();
        let refused = fabric.open_endpoint(&make_hints().ep_type(EndpointType::Msg));
        assert_eq!(refused.expect_err("it has no peer").errno(), Errno::EINVAL);
    }
}
