//! The enabled endpoints of a receive context.

use std::sync::{Arc, Weak};

use homespun_engine::address::Address;
use homespun_engine::error::{Argument, Error, Misuse};
use homespun_engine::shared_receiver::MemberId;
use parking_lot::Mutex;

use crate::av::{AddressVector, FabricAddress};
use crate::endpoint_pump::EndpointPump;

/// The enabled endpoints. All unconnected ones have the same address vector.
#[derive(Default)]
pub(crate) struct Members(Mutex<List>);

#[derive(Default)]
struct List {
    members: Vec<Member>,
}

struct Member {
    id: MemberId,
    pump: Weak<dyn EndpointPump>,
    /// `None` for an endpoint with connections.
    av: Option<AddressVector>,
}

impl Members {
    /// Adds an endpoint. The caller enables the endpoint next.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] if the other endpoints have another address vector. A directed receive looks its
    /// source up in one vector.
    pub(crate) fn join(
        &self,
        pump: &Arc<dyn EndpointPump>,
        av: Option<&AddressVector>,
        join: impl FnOnce() -> Result<MemberId, Error>,
    ) -> Result<MemberId, Error> {
        let mut list = self.0.lock();
        let others = list.members.iter().find_map(|member| member.av.as_ref());
        if let (Some(av), Some(others)) = (av, others)
            && !av.is_same(others)
        {
            return Err(Misuse::Invalid(Argument::OtherAddressVector).into());
        }
        let id = join()?;
        list.members.push(Member { id, pump: Arc::downgrade(pump), av: av.cloned() });
        Ok(id)
    }

    /// Removes an endpoint. The caller closes the endpoint next.
    pub(crate) fn leave(&self, pump: &Arc<dyn EndpointPump>) {
        let mut list = self.0.lock();
        let is_meant = |member: &Member| std::ptr::addr_eq(member.pump.as_ptr(), Arc::as_ptr(pump));
        let left: Vec<Member> = list.members.extract_if(.., |member| is_meant(member)).collect();
        drop(list);
        drop(left);
    }

    /// Whether there are endpoints, and all of them have connections.
    pub(super) fn has_only_connected(&self) -> bool {
        let list = self.0.lock();
        !list.members.is_empty() && list.members.iter().all(|member| member.av.is_none())
    }

    /// Returns the address of the source of a directed receive. Returns `None` if all endpoints have
    /// connections, since these ignore the source.
    ///
    /// # Errors
    ///
    /// [`Misuse::UnknownAddress`] if the vector does not have it. [`Misuse::NoAddressVector`] if there is no
    /// endpoint.
    pub(super) fn lookup_source(&self, address: FabricAddress) -> Result<Option<Address>, Error> {
        let list = self.0.lock();
        match list.members.iter().find_map(|member| member.av.as_ref()) {
            Some(av) => av.lookup(address).map(Some),
            None if list.members.is_empty() => Err(Misuse::NoAddressVector.into()),
            None => Ok(None),
        }
    }

    /// Makes these endpoints carry out the effects that other endpoints have left to them.
    pub(super) fn process_mail(&self, ids: &[MemberId]) {
        // Do not lock an endpoint with the list locked.
        let pumps = self.pumps_where(|member| ids.contains(&member.id));
        pumps.iter().for_each(|pump| pump.process_mail());
    }

    /// Runs the due works.
    pub(super) fn fire_due_works(&self) {
        self.pumps_where(|_| true).iter().for_each(|pump| pump.fire_due_works());
    }

    /// Wakes the threads that sleep until one of the endpoints wakes them.
    pub(super) fn wake_sleepers(&self) {
        self.pumps_where(|_| true).iter().for_each(|pump| pump.wake_sleepers());
    }

    /// Makes a pass over all endpoints.
    pub(super) fn progress(&self) {
        self.pumps_where(|_| true).iter().for_each(|pump| pump.progress_without_reader());
    }

    fn pumps_where(&self, is_meant: impl Fn(&Member) -> bool) -> Vec<Arc<dyn EndpointPump>> {
        let list = self.0.lock();
        let meant = list.members.iter().filter(|member| is_meant(member));
        meant.filter_map(|member| member.pump.upgrade()).collect()
    }
}
