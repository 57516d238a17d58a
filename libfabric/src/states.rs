//! The state of objects on which other objects depend: fabrics, domains and endpoints.

use std::sync::Arc;

use homespun::info::Version;
use homespun::{ConnectionRequest, Domain, Endpoint, Fabric};
use parking_lot::Mutex;

use crate::abi::domain::FidDomain;
use crate::abi::endpoint::FidEp;
use crate::abi::fabric::FidFabric;
use crate::abi::{FI_CLASS_DOMAIN, FI_CLASS_EP, FI_CLASS_FABRIC};
use crate::object::{Dependents, Lease, State};

/// The state behind a `struct fid_fabric`.
pub(crate) struct FabricState {
    pub(crate) fabric: Fabric,
    /// The name of the fabric, as the application sees it.
    pub(crate) name: String,
    /// The version that the application passed to `fi_getinfo`. It determines the length of the
    /// application's structures.
    pub(crate) api_version: Version,
    pub(crate) dependents: Dependents,
}

/// The state behind a `struct fid_domain`.
pub(crate) struct DomainState {
    pub(crate) domain: Domain,
    /// The name of the domain, as the application sees it.
    pub(crate) name: String,
    /// The fabric's `api_version`.
    pub(crate) api_version: Version,
    pub(crate) dependents: Dependents,
    _fabric: Lease,
}

/// The state behind a `struct fid_ep`.
pub(crate) struct EndpointState {
    /// A handle of the endpoint. The endpoint closes when this handle and those of all aliases are
    /// dropped. This must be the first field, because the endpoint must close before the leases
    /// below are dropped.
    pub(crate) endpoint: Endpoint,
    /// The connection request for which the endpoint was opened, until the application accepts it.
    pub(crate) request: Arc<Mutex<Option<ConnectionRequest>>>,
    /// The leases of the objects bound to the endpoint.
    bound: Arc<Mutex<Vec<Lease>>>,
    /// Counts the aliases of the endpoint. Each alias holds a lease of it.
    pub(crate) dependents: Dependents,
    /// The lease of the domain, or of the original endpoint if this is an alias.
    _parent: Lease,
}

impl DomainState {
    pub(crate) fn new(domain: Domain, name: String, fabric: &FabricState) -> DomainState {
        let (api_version, _fabric) = (fabric.api_version, fabric.dependents.lease());
        DomainState { domain, name, api_version, dependents: Dependents::default(), _fabric }
    }
}

impl EndpointState {
    pub(crate) fn new(
        endpoint: Endpoint,
        request: Option<ConnectionRequest>,
        domain: &DomainState,
    ) -> EndpointState {
        EndpointState {
            endpoint,
            request: Arc::new(Mutex::new(request)),
            bound: Arc::default(),
            dependents: Dependents::default(),
            _parent: domain.dependents.lease(),
        }
    }

    /// Returns the state of an alias whose handle is `endpoint`.
    pub(crate) fn new_alias_state(&self, endpoint: Endpoint) -> EndpointState {
        EndpointState {
            endpoint,
            request: self.request.clone(),
            bound: self.bound.clone(),
            dependents: Dependents::default(),
            _parent: self.dependents.lease(),
        }
    }

    /// Adds the lease of an object that was bound to the endpoint.
    pub(crate) fn add_bound_lease(&self, bound: Lease) {
        self.bound.lock().push(bound);
    }
}

// SAFETY: `struct fid_fabric` begins with a `struct fid`.
unsafe impl State for FabricState {
    type Front = FidFabric;
    const CLASS: usize = FI_CLASS_FABRIC;
}

// SAFETY: `struct fid_domain` begins with a `struct fid`.
unsafe impl State for DomainState {
    type Front = FidDomain;
    const CLASS: usize = FI_CLASS_DOMAIN;
}

// SAFETY: `struct fid_ep` begins with a `struct fid`.
unsafe impl State for EndpointState {
    type Front = FidEp;
    const CLASS: usize = FI_CLASS_EP;
}
