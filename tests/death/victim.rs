//! The process that is killed.

use std::thread;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{Again, BytesMut, Error, FabricAddress, Tag, TagMatch};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use serde::{Deserialize, Serialize};

use homespun_suite::payload::payload;
use homespun_suite::process::Channel;
use homespun_suite::seccomp::{COPIES_ACROSS, fail_system_calls_of_process, kill_at_system_calls};
use homespun_suite::{AddressForm, Net, Party, TransportKind, Turns};

/// The entry of a victim's process.
pub(crate) const ENTRY: &str = concat!(module_path!(), "::victim_process_entry");

/// A victim kills itself after this many calls, if nothing has killed it before.
const CALLS_MAX: u64 = 200;

/// The largest number of messages that a victim sends. Unexpected messages fill the survivor's memory.
const MESSAGES_MAX: u64 = 100;

/// The number of receives of each kind that stay posted.
pub(crate) const POSTED: usize = 3;

/// The maximal length of most messages.
const LEN_USUAL_MAX_BYTES: usize = 300_000;

/// The maximal length of all messages, which exceeds one copy step.
const LEN_MAX_BYTES: usize = 5 << 20;

/// The system calls that transports make for sockets, shared memory, waiting and copies between processes.
pub(crate) const SYSTEM_CALLS: [i64; 27] = [
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fstat,
    libc::SYS_fcntl,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_pidfd_open,
    libc::SYS_process_vm_readv,
];

/// The plan of one victim.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct VictimPlan {
    pub(crate) number: u64,
    pub(crate) first: FirstSender,
    /// Whether the system refuses to copy memory between processes.
    pub(crate) is_confined: bool,
    pub(crate) end: CauseOfDeath,
}

/// The side that sends first, and so makes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FirstSender {
    Victim,
    Survivor,
    Both,
}

/// The way in which the victim dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CauseOfDeath {
    /// The victim kills itself after this many library calls.
    AfterCalls(u64),
    /// The system kills the victim at the system call `SYSTEM_CALLS[which]`, once the victim has made this
    /// many library calls. The first library call opens the endpoint.
    AtSystemCall { which: usize, after_calls: u64 },
    /// The survivor kills the victim at a random moment.
    FromOutside,
}

/// The first message to a victim.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct VictimSetup {
    pub(crate) transport: TransportKind,
    pub(crate) survivor: AddressForm,
    pub(crate) life: VictimPlan,
}

struct Victim {
    party: Party,
    survivor: FabricAddress,
    life: VictimPlan,
    random: fastrand::Rng,
    calls: u64,
    /// Whether a message of the survivor has arrived.
    has_received: bool,
    messages: u64,
    /// The numbers of posted receives, untagged and tagged.
    posted: [usize; 2],
}

impl Victim {
    /// Exchanges messages until the process dies.
    fn exchange_until_death(&mut self) {
        while self.life.end == CauseOfDeath::FromOutside || self.calls < CALLS_MAX {
            self.calls += 1;
            match self.life.end {
                CauseOfDeath::AfterCalls(calls) if self.calls > calls => return,
                CauseOfDeath::AtSystemCall { which, after_calls } if self.calls == after_calls => {
                    kill_at_system_calls(&[SYSTEM_CALLS[which]]);
                }
                _ => {}
            }
            match self.random.u8(..10) {
                0..4 => self.read_completion(),
                4..7 => self.send_any_message_if_room(),
                7..9 => self.post_any_receive_if_room(),
                _ => self.party.cq.progress(),
            }
            thread::yield_now();
        }
    }

    fn read_completion(&mut self) {
        // Only the survivor is tested: an operation of a victim may end in any way.
        let Some(ended) = self.party.poll_completion() else { return };
        let completion = ended.map_or_else(|failed| failed.completion, |(completion, _)| completion);
        if completion.flags.contains(CompletionFlags::RECV) {
            self.has_received = true;
            self.posted[usize::from(completion.flags.contains(CompletionFlags::TAGGED))] -= 1;
        }
    }

    fn send_any_message_if_room(&mut self) {
        let has_to_wait = self.life.first == FirstSender::Survivor && !self.has_received;
        if has_to_wait || self.messages == MESSAGES_MAX {
            return;
        }
        let send = make_any_message(&mut self.random, self.life.number, self.messages, self.survivor);
        self.messages += u64::from(expect_accepted_or_full(self.party.endpoint.sendmsg(send)));
    }

    fn post_any_receive_if_room(&mut self) {
        let kind = usize::from(self.random.bool());
        if self.posted[kind] < POSTED {
            let receive = make_any_receive(&mut self.random, kind == 1, 1);
            self.posted[kind] += usize::from(expect_accepted_or_full(self.party.endpoint.recvmsg(receive)));
        }
    }
}

/// Returns a message of any kind and size, whose bytes and data identify it.
pub(crate) fn make_any_message(
    random: &mut fastrand::Rng,
    life: u64,
    number: u64,
    to: FabricAddress,
) -> SendMsg {
    const LENS_BYTES: [usize; 12] =
        [0, 1, 8, 100, 1000, 4096, 5000, 8193, 20_000, 65_537, 100_000, LEN_USUAL_MAX_BYTES];
    const LEVELS: [OpFlags; 4] =
        [OpFlags::empty(), OpFlags::INJECT_COMPLETE, OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE];
    let is_longest = random.u8(..60) == 0;
    let len_bytes = if is_longest { LEN_MAX_BYTES } else { LENS_BYTES[random.usize(..LENS_BYTES.len())] };
    let identity = life << 32 | number;
    SendMsg {
        buffers: vec![payload(identity, len_bytes)],
        to,
        tag: random.bool().then_some(Tag(number)),
        data: Some(identity),
        context: number,
        flags: LEVELS[random.usize(..LEVELS.len())],
    }
}

/// Returns a receive, tagged or untagged, of any message from any source. Only a few receives have room for
/// the longest messages.
pub(crate) fn make_any_receive(random: &mut fastrand::Rng, is_tagged: bool, context: u64) -> RecvMsg {
    let len_bytes = if random.u8(..8) == 0 { LEN_MAX_BYTES } else { LEN_USUAL_MAX_BYTES };
    let tagged = is_tagged.then_some(TagMatch::ANY);
    RecvMsg { buffers: vec![BytesMut::zeroed(len_bytes)], tagged, context, ..RecvMsg::default() }
}

/// Returns whether an operation was accepted. Panics for any error other than a full queue.
pub(crate) fn expect_accepted_or_full(result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::Again(Again::QueueFull)) => false,
        Err(error) => panic!("an operation was refused: {error}"),
    }
}

fn kill_self() -> ! {
    kill_process(getpid(), Signal::KILL).expect("one may kill oneself");
    loop {
        thread::park();
    }
}

#[test]
#[ignore = "an entry: other tests run it, in processes of their own"]
fn victim_process_entry() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let Some(VictimSetup { transport, survivor: AddressForm(survivor), life }) =
        channel.receive_message().expect("a test that speaks")
    else {
        return;
    };
    // Forbid core files: the kernel would write one for a process that dies at a system call.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).expect("less is always granted");
    if life.is_confined {
        fail_system_calls_of_process(&COPIES_ACROSS, libc::EPERM);
    }
    if let CauseOfDeath::AtSystemCall { which, after_calls: 0 } = life.end {
        kill_at_system_calls(&[SYSTEM_CALLS[which]]);
    }
    let net = Net::new(&transport, Turns::Alternate);
    let party = net.open_party();
    let survivor = party.av.insert(&[survivor]).remove(0).expect("an endpoint's name can be inserted");
    let name = AddressForm(party.endpoint.name().expect("an endpoint in service has a name"));
    channel.send_message(&name).expect("a test that listens");
    let random = fastrand::Rng::with_seed(life.number);
    let posted = [0; 2];
    Victim { party, survivor, life, random, calls: 0, has_received: false, messages: 0, posted }
        .exchange_until_death();
    kill_self();
}
