//! What the strangers do.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use homespun_engine::wire::hello::Question;
use homespun_suite::hostile_peer::{HostileAddress, HostilePeer};
use rustix::process::nice;

use crate::Result;
use crate::process::{arguments, commands, raise_descriptor_limit};

/// How many connections a storm has.
const STORM_CONNECTIONS: usize = 10_000;

/// How many connections each of the attacks `Silent` and `Hello` makes.
const LINKS: usize = 2_000;

/// How many links offer messages. Each link offers at most `OFFERS_MAX` messages.
const OFFERING_LINKS: usize = 24;
const OFFERS_MAX: u64 = 5_200;

/// The length of the messages whose payload the strangers offer and never send.
const CLAIMED_BYTES: u64 = 2 << 20;

/// How many links to one endpoint a stranger has when it resets one of them: as many as the endpoint accepts
/// of one address.
const SIBLING_LINKS: usize = 64;

/// How many links claim the peer's address at the same time.
const TAKEOVER_LINKS: usize = 64;

/// How many questions a connection carries.
const QUESTIONS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Only computes, to show what a third process costs on this host.
    None,
    /// Makes many connections. A third of them says nothing, a third says hello, and a third claims the
    /// peer's address.
    Storm,
    /// Makes connections that say nothing.
    Silent,
    /// Makes connections that say hello, each as another endpoint.
    Hello,
    /// Claims the peer's address again and again, and hangs up.
    Held,
    /// Asks questions without an end.
    Questions,
    /// Offers many messages on each link, with descending numbers, and resets the links. Then starts again.
    Lose,
    /// Offers many messages on each link. Then makes links of new instances, which replace these links.
    Former,
    /// Claims the peer's address with new instances, and stays.
    Takeover,
    /// Sends messages that no receive takes, and leaves; again and again.
    Leave,
    /// Offers a long message on each link, sends no payload, and ends the links; again and again.
    Claim,
    /// Makes many links as one endpoint, and resets one of them; again and again.
    Siblings,
}

impl Attack {
    pub(crate) const ALL: [Attack; 12] = [
        Attack::None,
        Attack::Storm,
        Attack::Silent,
        Attack::Hello,
        Attack::Held,
        Attack::Questions,
        Attack::Lose,
        Attack::Former,
        Attack::Takeover,
        Attack::Leave,
        Attack::Claim,
        Attack::Siblings,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Attack::None => "none",
            Attack::Storm => "storm",
            Attack::Silent => "silent",
            Attack::Hello => "hello",
            Attack::Held => "held",
            Attack::Questions => "questions",
            Attack::Lose => "lose",
            Attack::Former => "former",
            Attack::Takeover => "takeover",
            Attack::Leave => "leave",
            Attack::Claim => "claim",
            Attack::Siblings => "siblings",
        }
    }
}

/// The strangers, and whom they attack.
struct Strangers {
    victim: SocketAddr,
    peer: SocketAddr,
    links: Vec<HostilePeer>,
    address: HostileAddress,
    next_port: u16,
    instance: u64,
}

pub(crate) fn run() -> Result<()> {
    raise_descriptor_limit()?;
    nice(19)?;
    let commands = commands();
    let arguments = arguments();
    let [name, victim, peer] = &arguments[..] else { return Err("three arguments were expected".into()) };
    let attack = Attack::ALL.into_iter().find(|attack| attack.name() == name).ok_or("an unknown attack")?;
    let (victim, peer) = (victim.parse()?, peer.parse()?);
    let address = HostileAddress::listen()?;
    let mut strangers = Strangers { victim, peer, links: Vec::new(), address, next_port: 1, instance: 0 };
    strangers.prepare(attack)?;
    println!("ready");
    while commands.try_recv().is_err() {
        strangers.go_on(attack)?;
    }
    println!("links {}", strangers.links.iter_mut().filter_map(|link| link.read().then_some(())).count());
    // Wait to be killed.
    loop {
        thread::park();
    }
}

impl Strangers {
    fn prepare(&mut self, attack: Attack) -> Result<()> {
        match attack {
            Attack::None
            | Attack::Held
            | Attack::Questions
            | Attack::Lose
            | Attack::Takeover
            | Attack::Leave
            | Attack::Claim
            | Attack::Siblings => {}
            Attack::Storm => {
                for number in 0..STORM_CONNECTIONS {
                    let link = match number % 3 {
                        0 => HostilePeer::connect(self.victim)?,
                        1 => self.say_hello()?,
                        _ => HostilePeer::claim(self.victim, self.peer, 1)?,
                    };
                    self.links.push(link);
                }
            }
            Attack::Silent => {
                for _ in 0..LINKS {
                    self.links.push(HostilePeer::connect(self.victim)?);
                }
            }
            Attack::Hello => {
                for _ in 0..LINKS {
                    let link = self.say_hello()?;
                    self.links.push(link);
                }
            }
            Attack::Former => {
                self.fill_links(Some(1), offer_newest_lowest)?;
                let offering = self.links.len();
                let claimed = self.address.address()?;
                for instance in 0..OFFERING_LINKS as u64 {
                    self.links.push(HostilePeer::claim(self.victim, claimed, 100 + instance)?);
                    self.await_each(offering, HostilePeer::is_greeted);
                }
            }
        }
        Ok(())
    }

    /// Makes one round of what the attack repeats.
    fn go_on(&mut self, attack: Attack) -> Result<()> {
        match attack {
            Attack::None => {}
            Attack::Storm | Attack::Silent | Attack::Hello => {
                thread::sleep(Duration::from_millis(10));
            }
            Attack::Held => {
                self.links.retain_mut(HostilePeer::read);
                if self.links.len() >= 128 {
                    self.links.drain(..64);
                }
                self.links.push(HostilePeer::claim(self.victim, self.peer, 1)?);
            }
            Attack::Questions => {
                let mut asking = HostilePeer::connect(self.victim)?;
                let question = Question { address: self.peer.into(), token: 1 }.to_bytes();
                asking.send_bytes(&question.repeat(QUESTIONS));
                self.links.retain_mut(HostilePeer::read);
                self.links.push(asking);
            }
            Attack::Lose => {
                self.fill_links(None, offer_newest_lowest)?;
                self.links.drain(..).for_each(HostilePeer::reset);
            }
            Attack::Leave => {
                self.fill_links(None, |link, left| link.send_messages(left as usize))?;
                self.links.clear();
            }
            Attack::Claim => {
                for _ in 0..OFFERING_LINKS {
                    let mut link = self.say_hello()?;
                    link.offer_payload(1, CLAIMED_BYTES);
                    self.links.push(link);
                }
                thread::sleep(Duration::from_millis(20));
                self.links.drain(..).for_each(HostilePeer::reset);
            }
            Attack::Takeover => {
                self.links.retain_mut(HostilePeer::read);
                if self.links.len() < TAKEOVER_LINKS {
                    self.instance += 1;
                    self.links.push(HostilePeer::claim(self.victim, self.peer, self.instance)?);
                } else {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            Attack::Siblings => {
                self.instance += 1;
                let claimed = self.address.address()?;
                for _ in 0..SIBLING_LINKS {
                    self.links.push(HostilePeer::claim(self.victim, claimed, self.instance)?);
                }
                self.await_each(0, HostilePeer::is_admitted);
                // Those that are left are up.
                self.links.retain_mut(HostilePeer::read);
                self.links.pop().ok_or("the endpoint has accepted no sibling")?.reset();
                if !self.await_ends() {
                    return Err("the siblings of a link that was reset did not end".into());
                }
            }
            Attack::Former => {
                self.address.confirm_claims();
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Connects and says hello as an endpoint at another port of this host.
    fn say_hello(&mut self) -> Result<HostilePeer> {
        self.next_port = self.next_port % u16::MAX + 1;
        let claimed = SocketAddr::new([127, 88, 0, 1].into(), self.next_port);
        Ok(HostilePeer::claim(self.victim, claimed, 1)?)
    }

    /// Makes [`OFFERING_LINKS`] links, and calls `send` for each. A link is done after [`OFFERS_MAX`]
    /// messages, or when the endpoint has granted no credit for a while. `send` sends at most as many
    /// messages as its second argument says, and returns how many.
    fn fill_links(
        &mut self,
        instance: Option<u64>,
        mut send: impl FnMut(&mut HostilePeer, u64) -> usize,
    ) -> Result<()> {
        for number in 0..OFFERING_LINKS as u64 {
            let link = match instance {
                Some(first) => HostilePeer::claim(self.victim, self.address.address()?, first + number)?,
                None => self.say_hello()?,
            };
            self.links.push(link);
            let mut left = OFFERS_MAX;
            let mut idle_rounds = 0;
            while left > 0 && idle_rounds < 20 {
                self.address.confirm_claims();
                let link = self.links.last_mut().ok_or("no link")?;
                let sent = send(link, left) as u64;
                left -= sent;
                idle_rounds = if sent == 0 { idle_rounds + 1 } else { 0 };
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Waits until each link from this place on has come so far or has ended, for about a second at most.
    fn await_each(&mut self, from: usize, has_come: impl Fn(&HostilePeer) -> bool) {
        for _ in 0..1_000 {
            self.address.confirm_claims();
            if self.links[from..].iter_mut().all(|link| !link.read() || has_come(link)) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the endpoint has ended all links, for about a second at most. Returns whether it has.
    fn await_ends(&mut self) -> bool {
        for _ in 0..1_000 {
            self.address.confirm_claims();
            self.links.retain_mut(HostilePeer::read);
            if self.links.is_empty() {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.links.clear();
        false
    }
}

/// Offers messages, the newest with the lowest number. Returns how many.
fn offer_newest_lowest(link: &mut HostilePeer, left: u64) -> usize {
    link.send_offers((1..=left).rev())
}
