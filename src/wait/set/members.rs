//! The members of a wait set, and the wait for any of them.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use homespun_engine::transport::Armed;

use super::{WaitSetMember, WaitSetShared};
use crate::sync::Ordering;
use crate::wait::{Awaited, Waiter};

/// The members of a set.
#[derive(Default)]
pub(super) struct SetMembers {
    next: u64,
    /// Each member, with its number. `None` for a member that is being opened.
    all: Vec<(u64, Option<Weak<dyn WaitSetMember>>)>,
}

/// The condition that any member has an event.
pub(super) struct AnyMember<'a> {
    set: &'a WaitSetShared,
    /// The number of reports when the thread began to wait. If this is `None`, reports to other threads do
    /// not end the wait.
    reports_before: Option<u64>,
    present: RefCell<Present>,
    /// Whether the last check has found a member with an event.
    is_found: Cell<bool>,
}

/// The members at one moment.
#[derive(Default)]
struct Present {
    members: Vec<Arc<dyn WaitSetMember>>,
    /// Whether a member is being opened. The descriptor of this member may already wake sleepers of the set,
    /// but the member cannot be armed yet.
    is_incomplete: bool,
}

impl SetMembers {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a member that is being opened, and returns its number.
    pub(super) fn add_opening_member(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.push((number, None));
        number
    }

    pub(super) fn attach(&mut self, number: u64, member: Weak<dyn WaitSetMember>) {
        if let Some((_, vacant)) = self.all.iter_mut().find(|(known, _)| *known == number) {
            *vacant = Some(member);
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.all.retain(|(known, _)| *known != number);
    }

    fn present_members(&self) -> Present {
        let mut present = Present { members: Vec::with_capacity(self.all.len()), is_incomplete: false };
        for (_, member) in &self.all {
            match member {
                Some(member) => present.members.extend(member.upgrade()),
                None => present.is_incomplete = true,
            }
        }
        present
    }
}

impl<'a> AnyMember<'a> {
    pub(super) fn new(set: &'a WaitSetShared, reports_before: Option<u64>) -> AnyMember<'a> {
        AnyMember { set, reports_before, present: RefCell::default(), is_found: Cell::new(false) }
    }

    /// Returns `Some` if the last check has found a member with an event.
    pub(super) fn take_found_flag(&self) -> Option<()> {
        self.is_found.take().then_some(())
    }

    /// Calls `act` for each member, without a lock of the set: `act` may make a pass, a pass may drop
    /// buffers of the application, and their destructors may call any function of this library.
    fn for_each(&self, mut act: impl FnMut(&Waiter, &dyn Awaited)) {
        self.present.borrow().members.iter().for_each(|member| member.with_awaited(&mut act));
    }

    /// Marks the events of all members as reported to this thread. Returns whether there were any.
    fn report_ready_members(&self) -> bool {
        let mut has_reported = false;
        self.for_each(|_, awaited| {
            if awaited.poll_ready() {
                // Count the report before marking the event. A thread that finds the mark then sees the new
                // count.
                self.set.reports.fetch_add(1, Ordering::SeqCst);
                awaited.mark_reported();
                has_reported = true;
            }
        });
        has_reported
    }

    /// Whether another thread has got a report since this thread began to wait.
    fn was_reported_elsewhere(&self) -> bool {
        self.reports_before.is_some_and(|before| self.set.report_count() != before)
    }
}

impl Awaited for AnyMember<'_> {
    /// Makes a pass for each current member.
    fn progress(&self) {
        let present = self.set.members.lock().present_members();
        // This may drop the last handle of a member that was closed meanwhile.
        drop(self.present.replace(present));
        self.for_each(|_, awaited| awaited.progress());
    }

    /// Arms all members, without progress. The caller checks the members only after this, since progress of
    /// one member could disarm an endpoint of another.
    fn arm(&self) -> Armed {
        let mut is_armed = !self.present.borrow().is_incomplete;
        self.for_each(|waiter, awaited| is_armed &= waiter.arm_member(awaited));
        if is_armed {
            return Armed::Asleep { look_again_after: None };
        }
        self.disarm();
        Armed::Ready
    }

    fn fire_due_works(&self) {
        self.for_each(|_, awaited| awaited.fire_due_works());
    }

    fn disarm(&self) {
        self.for_each(|waiter, _| waiter.disarm_member());
    }

    fn poll_ready(&self) -> bool {
        let is_found = self.report_ready_members() | self.was_reported_elsewhere();
        self.is_found.set(is_found);
        is_found
    }
}
