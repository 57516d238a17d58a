//! Sends random messages from several peers into random buffers and receives, and compares the
//! result with a model in which no queue is ever full.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const SENDERS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Step {
    PostBuffer {
        len: usize,
        min_free: usize,
        from: Option<usize>,
    },
    PostPlain {
        len: usize,
        from: Option<usize>,
    },
    /// Delivers an eager message. With `begun`, only this many of its bytes arrive at first.
    Send {
        sender: usize,
        len: usize,
        begun: Option<usize>,
    },
    /// Delivers the offer of a message. If `is_pulled`, the engine can pull the message. Otherwise
    /// it must request the payload.
    Offer {
        sender: usize,
        len: usize,
        is_pulled: bool,
    },
    /// Delivers the next bytes of a message that has begun to arrive, or of a payload that was
    /// requested.
    GoOn {
        sender: usize,
        count: usize,
    },
    /// The sender's link breaks, and the sender connects again.
    Break {
        sender: usize,
    },
    Cancel {
        place: usize,
    },
    Transmit,
    /// The application reads this many completions.
    Read {
        count: usize,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let sender = 0..SENDERS;
    let from = option::weighted(0.3, 0..SENDERS);
    let len = || prop_oneof![2 => Just(0usize), 8 => 1..24usize, 2 => 24..70usize];
    prop_oneof![
        4 => (8..80usize, 0..24usize, from.clone())
            .prop_map(|(len, min_free, from)| Step::PostBuffer { len, min_free, from }),
        2 => (0..30usize, from).prop_map(|(len, from)| Step::PostPlain { len, from }),
        12 => (sender.clone(), len(), option::weighted(0.4, 0..20usize))
            .prop_map(|(sender, len, begun)| Step::Send { sender, len, begun }),
        6 => (sender.clone(), len(), any::<bool>())
            .prop_map(|(sender, len, is_pulled)| Step::Offer { sender, len, is_pulled }),
        8 => (sender.clone(), 1..40usize).prop_map(|(sender, count)| Step::GoOn { sender, count }),
        1 => sender.prop_map(|sender| Step::Break { sender }),
        1 => (0..8usize).prop_map(|place| Step::Cancel { place }),
        4 => Just(Step::Transmit),
        4 => (0..6usize).prop_map(|count| Step::Read { count }),
    ]
}

/// A message that was sent. Its index is its remote data.
#[derive(Debug, Clone)]
struct Sent {
    sender: usize,
    len: usize,
    /// Where the model has put the message: the context of the receive, the offset in its memory,
    /// and how many bytes fit.
    place: Option<(u64, usize, usize)>,
}

#[derive(Debug)]
struct Posted {
    context: u64,
    from: Option<usize>,
    /// For a multi-receive buffer: the offset at which its free room begins, and the number of free
    /// bytes below which it ends.
    buffer: Option<(usize, usize)>,
    is_used: bool,
    len: usize,
}

impl Posted {
    /// Places a message in this receive. Returns the offset and length of the message in the
    /// receive's memory, or `None` if the message must go to another receive. Also returns whether
    /// this receive ends.
    fn place_message(&mut self, base: usize, len: usize) -> (Option<(usize, usize)>, bool) {
        let Some((begin, min_free)) = self.buffer else { return (Some((0, len.min(self.len))), true) };
        let aligned = (base + begin).next_multiple_of(MULTI_RECV_ALIGN_BYTES) - base;
        let at = if aligned + len <= self.len { aligned } else { begin };
        if at + len > self.len {
            let place = (!self.is_used).then_some((begin, self.len - begin));
            return (place, true);
        }
        self.is_used = true;
        self.buffer = Some((at + len, min_free));
        (Some((at, len)), self.len - (at + len) < min_free)
    }
}

/// The messages that are arriving on a sender's link.
#[derive(Debug, Default)]
struct Line {
    /// The message whose payload is arriving, and how much of it has arrived.
    current: Option<(usize, usize)>,
    /// Messages whose payload the engine has requested.
    offered: VecDeque<usize>,
    /// Messages that the engine can pull.
    pullable: Vec<usize>,
}

struct World {
    engine: Engine,
    transport: Scripted,
    sink: Recorder,
    links: Vec<LinkId>,
    peers: Vec<PeerId>,
    lines: Vec<Line>,
    messages: Vec<Sent>,
    posted: Vec<Posted>,
    unexpected: Vec<usize>,
    /// For each context, the base address of the receive's memory, and whether the receive is a
    /// buffer.
    receives: Vec<(usize, bool)>,
    /// How many messages have failed because their sender was lost. Their completions do not
    /// identify them.
    broken: usize,
}

/// Returns byte `at` of a message.
fn message_byte(message: usize, at: usize) -> u8 {
    (message * 31 + at) as u8
}

fn message_payload(message: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| message_byte(message, at)).collect()
}

impl World {
    fn new(room: usize) -> World {
        let mut world = World {
            engine: Engine::new(untimed_config()),
            transport: Scripted::default(),
            sink: Recorder { room, ..Recorder::default() },
            links: Vec::new(),
            peers: Vec::new(),
            lines: Vec::new(),
            messages: Vec::new(),
            posted: Vec::new(),
            unexpected: Vec::new(),
            receives: Vec::new(),
            broken: 0,
        };
        world.engine.set_pull_step_max_bytes(16);
        for sender in 0..SENDERS {
            world.links.push(LinkId(sender as u32));
            world.lines.push(Line::default());
            world.bring_link_up(sender, 1);
            let peer = world.engine.intern_peer(address(sender as u16 + 10));
            world.peers.push(peer);
        }
        world
    }

    fn bring_link_up(&mut self, sender: usize, instance: u64) {
        let peer = address(sender as u16 + 10);
        self.engine.arrivals(&mut self.sink).link_event(self.links[sender], LinkEvent::up(peer, instance));
    }

    fn run_step(&mut self, step: Step) {
        match step {
            Step::PostBuffer { len, min_free, from } => self.post_receive(len, Some((0, min_free)), from),
            Step::PostPlain { len, from } => self.post_receive(len, None, from),
            Step::Send { sender, len, begun } => self.deliver_message(sender, len, begun),
            Step::Offer { sender, len, is_pulled } => self.deliver_offer(sender, len, is_pulled),
            Step::GoOn { sender, count } => self.continue_frame(sender, count),
            // While messages are kept aside, the model cannot tell whether these messages or this
            // step comes first. So the step is skipped.
            Step::Break { .. } | Step::Cancel { .. } if self.engine.receive_side.keeps_untagged_aside() => {}
            Step::Break { sender } => self.break_link(sender),
            Step::Cancel { place } => self.cancel_posted(place),
            Step::Transmit => self.transmit_and_collect(),
            Step::Read { count } => self.read_completions(count),
        }
    }

    fn post_receive(&mut self, len: usize, buffer: Option<(usize, usize)>, from: Option<usize>) {
        let memory = BytesMut::zeroed(len);
        let context = self.receives.len() as u64;
        self.receives.push((memory.as_ptr().addr(), buffer.is_some()));
        let source = from.map(|from| self.peers[from]);
        let request = ReceiveRequest {
            destination: Destination::owned(memory),
            criteria: Criteria { source, ..Criteria::any() },
            ..receive_request(0, context)
        };
        match buffer {
            Some((_, min_free)) => {
                self.engine.post_multi_receive(request, min_free, None, &mut self.sink).unwrap();
            }
            None => self.engine.post_receive(request, &mut self.sink).unwrap(),
        }
        self.posted.push(Posted { context, from, buffer, is_used: false, len });
        let mut waiting = std::mem::take(&mut self.unexpected);
        waiting.retain(|message| {
            let is_posted = self.posted.last().is_some_and(|posted| posted.context == context);
            !(is_posted && self.offer_to_receive(self.posted.len() - 1, *message))
        });
        self.unexpected = waiting;
    }

    /// In the model, offers a message to a posted receive. Returns whether the receive takes the
    /// message.
    fn offer_to_receive(&mut self, at: usize, message: usize) -> bool {
        let Sent { sender, len, .. } = self.messages[message];
        let posted = &mut self.posted[at];
        if posted.from.is_some_and(|from| from != sender) {
            return false;
        }
        let context = posted.context;
        let (place, ends) = posted.place_message(self.receives[context as usize].0, len);
        if ends {
            self.posted.remove(at);
        }
        self.messages[message].place = place.map(|(offset, fits)| (context, offset, fits));
        place.is_some()
    }

    /// In the model, a message arrives.
    fn arrive_in_model(&mut self, sender: usize, len: usize) -> usize {
        let message = self.messages.len();
        self.messages.push(Sent { sender, len, place: None });
        let mut at = 0;
        while at < self.posted.len() {
            let before = self.posted.len();
            if self.offer_to_receive(at, message) {
                return message;
            }
            // If the receive has ended without taking the message, the next receive is now at this
            // place.
            at += usize::from(self.posted.len() == before);
        }
        self.unexpected.push(message);
        message
    }

    fn message_header(&self, message: usize) -> Message {
        let len_bytes = self.messages[message].len as u64;
        Message { data: Some(message as u64), ..Message::of_len(len_bytes) }
    }

    fn deliver_message(&mut self, sender: usize, len: usize, begun: Option<usize>) {
        if self.lines[sender].current.is_some() {
            return;
        }
        let message = self.arrive_in_model(sender, len);
        let header = Header::Message(self.message_header(message));
        let bytes = message_payload(message, len);
        let mut arrivals = self.engine.arrivals(&mut self.sink);
        match begun.filter(|begun| *begun < len) {
            Some(begun) => {
                arrivals.frame_begun(self.links[sender], &header);
                arrivals.payload_arrived(self.links[sender], &bytes[..begun]);
                self.lines[sender].current = Some((message, begun));
            }
            None => arrivals.frame(self.links[sender], &header, &bytes),
        }
    }

    fn deliver_offer(&mut self, sender: usize, len: usize, is_pulled: bool) {
        if self.lines[sender].current.is_some() {
            return;
        }
        let message = self.arrive_in_model(sender, len);
        // All pulls read the same memory, so only one message can be pulled.
        let is_pulled = is_pulled && self.lines.iter().all(|line| line.pullable.is_empty());
        let remote = if is_pulled { REMOTE } else { b"" };
        let header = Header::Request {
            message: self.message_header(message),
            op: message as u64,
            remote_bytes: remote.len() as u8,
        };
        if is_pulled {
            self.transport.memory = message_payload(message, len);
            self.lines[sender].pullable.push(message);
        }
        self.engine.arrivals(&mut self.sink).frame(self.links[sender], &header, remote);
    }

    /// Records what payload the engine has requested, and which messages it has pulled.
    fn transmit_and_collect(&mut self) {
        self.engine.transmit(&mut self.transport, &mut self.sink);
        for (link, header, _) in self.transport.sent.drain(..) {
            let line = &mut self.lines[link.0 as usize % SENDERS];
            match header {
                Header::Clear { op, .. } => line.offered.push_back(op as usize),
                Header::Done { op, .. } => line.pullable.retain(|message| *message != op as usize),
                _ => {}
            }
        }
    }

    fn continue_frame(&mut self, sender: usize, count: usize) {
        let line = &mut self.lines[sender];
        let mut arrivals = self.engine.arrivals(&mut self.sink);
        let link = self.links[sender];
        let (message, from) = match line.current {
            Some(current) => current,
            None => {
                let Some(message) = line.offered.pop_front() else { return };
                let len_bytes = self.messages[message].len as u64;
                let header = Header::Data { op: message as u64, len_bytes };
                if len_bytes == 0 {
                    return arrivals.frame(link, &header, &[]);
                }
                arrivals.frame_begun(link, &header);
                (message, 0)
            }
        };
        let len = self.messages[message].len;
        let to = len.min(from + count);
        // If `count` is even, the bytes go to the engine's payload space, as far as it has room.
        let bytes = &message_payload(message, len)[from..to];
        let mut placed = 0;
        if count.is_multiple_of(2) {
            for space in &mut arrivals.payload_space(link) {
                let piece = space.len().min(bytes.len() - placed);
                space[..piece].copy_from_slice(&bytes[placed..placed + piece]);
                placed += piece;
            }
            if placed > 0 {
                arrivals.bytes_placed(link, placed);
            }
        }
        if placed < bytes.len() {
            arrivals.payload_arrived(link, &bytes[placed..]);
        }
        self.lines[sender].current = (to < len).then_some((message, to));
    }

    fn break_link(&mut self, sender: usize) {
        let line = std::mem::take(&mut self.lines[sender]);
        let lost: Vec<usize> = self.unfinished_messages(sender, &line);
        self.engine.arrivals(&mut self.sink).link_event(self.links[sender], LinkEvent::Down(RESET));
        for message in lost {
            match self.messages[message].place.take() {
                Some(_) => self.broken += 1,
                None => self.unexpected.retain(|waiting| *waiting != message),
            }
        }
        self.posted.retain(|posted| posted.from != Some(sender));
        let instance = self.links[sender].0 as u64 + 2;
        self.links[sender] = LinkId(self.links[sender].0 + SENDERS as u32);
        self.bring_link_up(sender, instance);
    }

    /// Returns the messages of a sender that have not arrived whole.
    fn unfinished_messages(&self, sender: usize, line: &Line) -> Vec<usize> {
        let fetched =
            self.engine.receive_side.offered_ops(self.links[sender]).into_iter().map(|op| op as usize);
        let mid_message = line.current.map(|(message, _)| message).into_iter();
        let mut lost: Vec<usize> = fetched.chain(mid_message).collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    fn cancel_posted(&mut self, place: usize) {
        if place < self.posted.len() {
            let posted = self.posted.remove(place);
            self.engine.cancel(posted.context, &mut self.sink).unwrap();
        }
    }

    fn read_completions(&mut self, count: usize) {
        self.sink.room += count;
        self.engine.deliver_held(&mut self.sink);
    }

    /// Delivers everything that is under way, and cancels the receives that are still posted.
    fn finish_and_cancel_all(&mut self) {
        self.read_completions(1 << 20);
        for _ in 0..400 {
            self.transmit_and_collect();
            (0..SENDERS).for_each(|sender| self.continue_frame(sender, 50));
            self.engine.deliver_held(&mut self.sink);
        }
        while !self.posted.is_empty() {
            self.cancel_posted(0);
        }
        assert_eq!(self.engine.outstanding_receives(), 0);
    }

    /// Returns the offset of a completion's memory in the memory of its receive.
    fn offset_in_receive(&self, context: u64, bytes: &[u8]) -> usize {
        bytes.as_ptr().addr() - self.receives[context as usize].0
    }

    fn check_completions(&self) {
        let mut places: Vec<Option<(u64, usize, usize)>> = vec![None; self.messages.len()];
        let mut releases = vec![0; self.receives.len()];
        let mut broken = 0;
        for ended in &self.sink.ended {
            let (Ok(completion) | Err(FailedOperation { completion, .. })) = ended;
            let context = completion.context;
            let (_, is_buffer) = self.receives[context as usize];
            assert_eq!(releases[context as usize], 0, "nothing comes after the release of {context}");
            if completion.flags.contains(RELEASED) || !is_buffer {
                releases[context as usize] += 1;
            }
            let error = ended.as_ref().err().map(|failure| &failure.error);
            if completion.flags == RELEASED || error == Some(&OperationError::Cancelled) {
                continue;
            }
            if matches!(error, Some(OperationError::Link(_))) {
                let is_release = completion.flags.contains(RELEASED) || completion.source.is_none();
                broken += usize::from(!is_release && is_buffer);
                continue;
            }
            let message = completion.data as usize;
            let (_, _, bytes) = describe_ended(ended);
            let sent = &self.messages[message];
            assert_eq!(bytes, &message_payload(message, sent.len)[..bytes.len()]);
            assert_eq!(completion.source, Some(self.peers[sent.sender]));
            assert_eq!(bytes.len() < sent.len, error.is_some(), "cut short, or not");
            assert!(places[message].is_none(), "a message is received once");
            places[message] = Some((context, self.offset_in_receive(context, bytes), bytes.len()));
        }
        // An empty message at the end of a buffer has no address of its own.
        let simple = |place: Option<(u64, usize, usize)>| {
            place.map(|(context, offset, len)| (context, if len == 0 { 0 } else { offset }, len))
        };
        for (at, (found, sent)) in places.iter().zip(&self.messages).enumerate() {
            assert_eq!(simple(*found), simple(sent.place), "message {at}: {sent:?}");
        }
        assert!(releases.iter().all(|count| *count == 1), "{releases:?}");
        assert!(broken <= self.broken);
    }
}

proptest! {
    #[test]
    fn random_messages_are_placed_once_and_buffers_released_once(
        room in 0..8usize,
        steps in vec(any_step(), 0..120),
    ) {
        let mut world = World::new(room);
        for step in steps {
            world.run_step(step);
        }
        world.finish_and_cancel_all();
        world.check_completions();
    }
}
