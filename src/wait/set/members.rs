//! The members of a wait set, as a thread waits for all of them.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use homespun_engine::transport::Armed;

use super::{Member, WaitSetShared};
use crate::sync::Ordering;
use crate::wait::{Awaited, Waiter};

/// Which objects are members.
#[derive(Default)]
pub(super) struct SetMembers {
    next: u64,
    /// Each with its number. `None` while it is being opened.
    all: Vec<(u64, Option<Weak<dyn Member>>)>,
}

/// The event that any member has something to report.
pub(super) struct AnyMember<'a> {
    set: &'a WaitSetShared,
    /// How many reports there were when the thread came, if one to another thread concerns it too.
    reports_before: Option<u64>,
    present: RefCell<Present>,
    /// Whether the last check has found a member with an event.
    is_found: Cell<bool>,
}

/// The members at one moment.
#[derive(Default)]
struct Present {
    members: Vec<Arc<dyn Member>>,
    /// Whether there is one more, which is being opened: its descriptor is watched, and it cannot be armed.
    is_incomplete: bool,
}

impl SetMembers {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of a member that is being opened.
    pub(super) fn admit(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.push((number, None));
        number
    }

    pub(super) fn attach(&mut self, number: u64, member: Weak<dyn Member>) {
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

    /// `Some` if the last check has found a member with an event.
    pub(super) fn take_found(&self) -> Option<()> {
        self.is_found.take().then_some(())
    }

    /// Nothing of the set is locked meanwhile, since a pass drops buffers of the application's that do
    /// whatever they like.
    fn for_each(&self, mut act: impl FnMut(&Waiter, &dyn Awaited)) {
        self.present.borrow().members.iter().for_each(|member| member.with_awaited(&mut act));
    }

    /// Reports all members that have an event. Returns whether there is one.
    fn report_ready_members(&self) -> bool {
        let mut has_reported = false;
        self.for_each(|_, awaited| {
            if awaited.check_ready() {
                // First, so that another thread that finds no report to make finds that this one was made.
                self.set.reports.fetch_add(1, Ordering::SeqCst);
                awaited.mark_reported();
                has_reported = true;
            }
        });
        has_reported
    }

    /// Whether a member was reported to another thread since this one came.
    fn was_reported_elsewhere(&self) -> bool {
        self.reports_before.is_some_and(|before| self.set.report_count() != before)
    }
}

impl Awaited for AnyMember<'_> {
    /// Of those that are members now.
    fn progress(&self) {
        let present = self.set.members.lock().present_members();
        // This may drop the last handle of a member that was closed meanwhile.
        drop(self.present.replace(present));
        self.for_each(|_, awaited| awaited.progress());
    }

    /// All members before the next look, not one after the other: progress of one may be that of an endpoint
    /// that was armed for another.
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

    fn check_ready(&self) -> bool {
        let is_found = self.report_ready_members() | self.was_reported_elsewhere();
        self.is_found.set(is_found);
        is_found
    }
}
