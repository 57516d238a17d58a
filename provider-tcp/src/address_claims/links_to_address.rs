//! The links that lead, or claim to lead, to one address.

use std::time::{Duration, Instant};

use homespun_engine::source_host::SourceHost;
use homespun_engine::transport::LinkId;
use homespun_engine::wire::address_claim::ClaimStatus;
use smallvec::SmallVec;

use super::due_queue::Ticket;
use super::{Asked, NewClaim, Timer};
use crate::limits::{
    ARRIVAL_TOLERANCE_MS, CHECK_CONTESTED_FAILURES_MAX, CHECK_DELAY_DOUBLINGS, CHECK_RETRY_MS,
    CHECK_SILENT_MAX, CHECK_UNCLEAR_MAX, HELD_MAX_LINKS, LINKS_TO_ADDRESS_MAX, UNHELD_MAX_LINKS_OF_ADDRESS,
};

/// The links to one address, and the check of their claims.
#[derive(Debug, Default)]
pub(super) struct LinksToAddress {
    /// In the order in which they came.
    members: SmallVec<[Member; 2]>,
    pub(super) check: CheckState,
    /// How often the delay until the next check has doubled.
    pub(super) delay_doublings: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CheckState {
    #[default]
    Idle,
    /// The address waits in the queue for contested claims, or in the queue for background checks.
    Due { is_contested: bool, ticket: Ticket },
    /// A check is under way. If `is_renewed`, another one follows at once.
    Running { number: u64, is_renewed: bool },
    /// A check is due later.
    Waiting(Timer),
}

#[derive(Debug)]
struct Member {
    link: LinkId,
    /// The token that this side has given to an accepted link; 0 for a link that this side connects.
    token: u64,
    /// The host that an accepted link comes from.
    from: SourceHost,
    /// The place of an accepted link among all accepted connections.
    serial: Option<u64>,
    /// When the hello of an accepted link has arrived, or when this side began to connect.
    arrived_at: Instant,
    standing: Standing,
    /// The peer's stream has ended, an error has arrived, or this side closes the link.
    is_hung_up: bool,
    /// How many answers were unclear, and how many checks brought no answer.
    unclear_count: u32,
    failure_count: u32,
    /// Whether this claim is no longer checked. If another link to the address is added or comes up, checks
    /// of the claim begin again.
    is_left_alone: bool,
    since: Instant,
}

/// What is known about the address of a link's peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// This side is connecting the link.
    Connecting,
    /// This side has connected the link.
    Connected,
    /// An accepted link that waits for its proof. `is_oldest` if the claim had arrived before any of its
    /// rivals was there.
    Held { is_oldest: bool },
    /// An accepted link that is not held, although its claim is not proven.
    Unproven,
    /// An accepted link whose claim is proven.
    Proven,
}

/// What an answer means for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerdictEffect {
    /// The link stays as it is.
    Stays,
    /// The link was held, and is admitted. If too many other links are, one of them ends.
    Admitted { in_place_of: Option<LinkId> },
    /// The link ends.
    Ends,
}

impl Member {
    fn is_held(&self) -> bool {
        matches!(self.standing, Standing::Held { .. })
    }

    /// Whether the link contests other claims of the address.
    fn is_rival(&self) -> bool {
        !self.is_held() && !self.is_hung_up
    }
}

impl LinksToAddress {
    pub(super) fn insert(&mut self, link: LinkId, claim: &NewClaim, standing: Standing, since: Instant) {
        self.reset_check_counts();
        self.members.push(Member {
            link,
            token: claim.token,
            from: claim.from,
            serial: claim.serial,
            arrived_at: claim.arrived_at,
            standing,
            is_hung_up: false,
            unclear_count: 0,
            failure_count: 0,
            is_left_alone: false,
            since,
        });
    }

    pub(super) fn remove(&mut self, link: LinkId) {
        self.members.retain(|member| member.link != link);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn mark_connected(&mut self, link: LinkId) {
        self.reset_check_counts();
        if let Some(member) = self.members.iter_mut().find(|member| member.link == link) {
            member.standing = Standing::Connected;
        }
    }

    /// Lets checks of all claims begin again, because another link to the address has appeared.
    fn reset_check_counts(&mut self) {
        for member in &mut self.members {
            (member.unclear_count, member.failure_count, member.is_left_alone) = (0, 0, false);
        }
    }

    /// Records that the peer has hung up. If the link is held, returns the host that it comes from, and
    /// whether its claim is the oldest one.
    pub(super) fn mark_hung_up(&mut self, link: LinkId) -> Option<(SourceHost, bool)> {
        let member = self.members.iter_mut().find(|member| member.link == link)?;
        member.is_hung_up = true;
        match member.standing {
            Standing::Held { is_oldest } => Some((member.from, is_oldest)),
            _ => None,
        }
    }

    /// Whether a claim is older than all its rivals: the live links that are not held, and the caller's
    /// knowledge of an endpoint. If so, the claim would not have been contested, had this side read it at
    /// once.
    pub(super) fn is_claim_oldest(&self, claim: &NewClaim, reserved_since: Option<Instant>) -> bool {
        let is_before =
            |moment: Instant| claim.arrived_at <= moment + Duration::from_millis(ARRIVAL_TOLERANCE_MS);
        // A stranger may connect before a rival, and say hello after it.
        let is_older_than = |rival: &Member| {
            is_before(rival.arrived_at) && rival.serial.is_none_or(|serial| claim.serial < Some(serial))
        };
        self.members.iter().filter(|member| member.is_rival()).all(is_older_than)
            && reserved_since.is_none_or(is_before)
    }

    /// Admits a held link whose peer has hung up, without proof.
    pub(super) fn admit_as_former(&mut self, link: LinkId) {
        if let Some(member) = self.members.iter_mut().find(|member| member.link == link) {
            member.standing = Standing::Unproven;
        }
    }

    /// Whether a new claim of the address is contested: there is a live link that is not held.
    pub(super) fn is_contested(&self) -> bool {
        self.members.iter().any(Member::is_rival)
    }

    pub(super) fn has_held(&self) -> bool {
        self.members.iter().any(Member::is_held)
    }

    /// Whether another accepted link may claim the address. If all links that could have been admitted are,
    /// and all of these are proven, none may.
    pub(super) fn has_room_for_claim(&self) -> bool {
        let has_room_to_admit = self.has_room_to_admit() || self.oldest_unproven().is_some();
        self.members.len() < LINKS_TO_ADDRESS_MAX && has_room_to_admit
    }

    /// Whether few enough accepted links are not held. Links whose peers have hung up do not count.
    fn has_room_to_admit(&self) -> bool {
        let is_unheld = |member: &&Member| {
            matches!(member.standing, Standing::Unproven | Standing::Proven) && !member.is_hung_up
        };
        self.members.iter().filter(is_unheld).count() < UNHELD_MAX_LINKS_OF_ADDRESS
    }

    /// The oldest accepted link that is not held, and whose claim is not proven.
    fn oldest_unproven(&self) -> Option<LinkId> {
        let is_unproven = |member: &&Member| member.standing == Standing::Unproven && !member.is_hung_up;
        self.members.iter().find(is_unproven).map(|member| member.link)
    }

    pub(super) fn has_room_to_hold(&self) -> bool {
        let is_held = |member: &&Member| member.is_held();
        self.members.iter().filter(is_held).count() < HELD_MAX_LINKS
    }

    /// Since when the oldest held link waits.
    pub(super) fn oldest_held_since(&self) -> Option<Instant> {
        self.members.iter().find(|member| member.is_held()).map(|member| member.since)
    }

    /// The links whose claim a check asks about.
    pub(super) fn links_to_ask_about(&self) -> Asked {
        let asked = self.members.iter().filter(|member| match member.standing {
            Standing::Held { .. } => true,
            Standing::Unproven => !member.is_hung_up && !member.is_left_alone,
            Standing::Connecting | Standing::Connected | Standing::Proven => false,
        });
        asked.map(|member| (member.link, member.token)).collect()
    }

    /// Applies the answer of the endpoint at the address. Returns what the answer means for the link.
    pub(super) fn apply_verdict(&mut self, link: LinkId, token: u64, verdict: ClaimStatus) -> VerdictEffect {
        let has_proven_link = self.members.iter().any(|member| {
            member.link != link && matches!(member.standing, Standing::Connected | Standing::Proven)
        });
        let has_room_to_admit = self.has_room_to_admit();
        let oldest_unproven = self.oldest_unproven();
        let is_asked = |member: &&mut Member| (member.link, member.token) == (link, token);
        let Some(member) = self.members.iter_mut().find(is_asked) else { return VerdictEffect::Stays };
        match (member.standing, verdict) {
            (Standing::Held { .. }, ClaimStatus::Confirmed)
                if has_room_to_admit || oldest_unproven.is_some() =>
            {
                member.standing = Standing::Proven;
                let in_place_of = oldest_unproven.filter(|_| !has_room_to_admit);
                if let Some(other) = in_place_of {
                    // From now on the other link neither counts nor contests a claim.
                    self.mark_hung_up(other);
                }
                VerdictEffect::Admitted { in_place_of }
            }
            (Standing::Held { .. }, ClaimStatus::Confirmed) => VerdictEffect::Ends,
            (Standing::Unproven, ClaimStatus::Confirmed) => {
                member.standing = Standing::Proven;
                VerdictEffect::Stays
            }
            (Standing::Held { .. }, ClaimStatus::Denied) => VerdictEffect::Ends,
            (Standing::Unproven, ClaimStatus::Denied) if !member.is_hung_up => VerdictEffect::Ends,
            (Standing::Unproven, ClaimStatus::Unclear) => {
                member.unclear_count += 1;
                member.is_left_alone = member.unclear_count >= CHECK_UNCLEAR_MAX;
                if member.is_left_alone && has_proven_link {
                    VerdictEffect::Ends
                } else {
                    VerdictEffect::Stays
                }
            }
            // A denied link whose peer has hung up stays. Another endpoint may have replaced the endpoint
            // that made the link. This side still reads what the old endpoint has sent.
            _ => VerdictEffect::Stays,
        }
    }

    /// Records that a check brought no answer: the endpoint `is_silent`, or cannot be reached. If no link to
    /// the address is held or proven, the claims are soon left alone.
    pub(super) fn record_unanswered_check(&mut self, is_silent: bool) {
        let is_rival = |member: &Member| {
            matches!(member.standing, Standing::Held { .. } | Standing::Connected | Standing::Proven)
        };
        let failures_max = match (self.members.iter().any(is_rival), is_silent) {
            (true, _) => CHECK_CONTESTED_FAILURES_MAX,
            (false, true) => {
                // The endpoint may be computing, so wait for the longest delay.
                self.delay_doublings = CHECK_DELAY_DOUBLINGS;
                CHECK_SILENT_MAX
            }
            (false, false) => 1,
        };
        for member in &mut self.members {
            member.failure_count += 1;
            member.is_left_alone |= member.failure_count >= failures_max;
        }
    }

    /// Admits held links, the oldest first, until the next one is contested.
    pub(super) fn admit_uncontested(&mut self) -> SmallVec<[LinkId; 2]> {
        let mut admitted = SmallVec::new();
        while !self.is_contested()
            && let Some(link) = self.admit_oldest()
        {
            admitted.push(link);
        }
        admitted
    }

    /// Admits the oldest held link, unless another link to the address is up. A link that this side is still
    /// connecting is not up.
    pub(super) fn admit_unless_another_is_up(&mut self) -> Option<LinkId> {
        let is_up = |member: &Member| {
            !member.is_hung_up && !matches!(member.standing, Standing::Held { .. } | Standing::Connecting)
        };
        if self.members.iter().any(is_up) { None } else { self.admit_oldest() }
    }

    /// Admits the oldest held link, without proof.
    fn admit_oldest(&mut self) -> Option<LinkId> {
        let oldest = self.members.iter_mut().find(|member| member.is_held())?;
        oldest.standing = Standing::Unproven;
        Some(oldest.link)
    }

    /// The links that have been held for `timeout` or longer.
    pub(super) fn links_held_too_long(&self, now: Instant, timeout: Duration) -> SmallVec<[LinkId; 2]> {
        let is_over =
            |member: &&Member| member.is_held() && now.saturating_duration_since(member.since) >= timeout;
        self.members.iter().filter(is_over).map(|member| member.link).collect()
    }

    /// Returns the delay until the next check. Each delay is twice the previous one, up to a limit.
    pub(super) fn advance_delay(&mut self) -> Duration {
        let delay = Duration::from_millis(CHECK_RETRY_MS << self.delay_doublings);
        self.delay_doublings = (self.delay_doublings + 1).min(CHECK_DELAY_DOUBLINGS);
        delay
    }
}
