//! Receive contexts that endpoints share: `fi_srx_context` of `fi_endpoint(3)`.

use super::prelude::*;
use crate::deadline::run_while_driving;

/// Message lengths. The first is sent in one piece, and the second in several. The sender may only announce
/// the longer ones.
pub(crate) const LENS_BYTES: [usize; 4] = [8, 3000, 20_000, 400_000];

/// An endpoint of the context, and its queue.
pub(crate) struct Member {
    pub(crate) endpoint: Endpoint,
    pub(crate) cq: CompletionQueue,
}

/// A context, the endpoints that share it, and their common objects.
pub(crate) struct Sharers<'a> {
    pub(crate) net: &'a Net,
    pub(crate) domain: Domain,
    pub(crate) info: Info,
    pub(crate) av: AddressVector,
    pub(crate) context: SharedReceiveContext,
    pub(crate) members: Vec<Member>,
}

impl<'a> Sharers<'a> {
    /// Opens a context with this number of enabled endpoints.
    pub(crate) fn new(net: &'a Net, members: usize) -> Sharers<'a> {
        let mut sharers = Sharers::open_empty(net, &RxAttr { caps: net.info().rx.caps, ..RxAttr::default() });
        (0..members).for_each(|_| sharers.add_member());
        sharers
    }

    /// Opens a context with this number of enabled endpoints, and a [peer](Self::open_peer).
    pub(crate) fn with_peer(net: &'a Net, members: usize) -> (Sharers<'a>, Party) {
        let sharers = Sharers::new(net, members);
        let (peer, _) = sharers.open_peer();
        (sharers, peer)
    }

    pub(crate) fn open_empty(net: &'a Net, attr: &RxAttr) -> Sharers<'a> {
        let domain = net.open_other_domain();
        let mut info = net.info().clone();
        info.ep.rx_ctx_cnt = SHARED_CONTEXT;
        let av = domain.open_av(&AvAttr::default()).unwrap();
        let context = domain.shared_receive_context(attr).unwrap();
        Sharers { net, domain, info, av, context, members: Vec::new() }
    }

    /// Adds an endpoint.
    pub(crate) fn add_member(&mut self) {
        self.add_member_with_cq(&CqAttr::default(), BOTH);
    }

    pub(crate) fn add_member_with_cq(&mut self, cq: &CqAttr, flags: BindFlags) {
        let cq = self.domain.open_cq(cq).unwrap();
        self.add_member_with_queues(cq, flags, None);
    }

    /// Adds an endpoint to the context. Binds `cq` with these flags, and `receives`, if given, for receives.
    /// Other members may have the same queues.
    pub(crate) fn add_member_with_queues(
        &mut self,
        cq: CompletionQueue,
        flags: BindFlags,
        receives: Option<&CompletionQueue>,
    ) {
        let endpoint = self.open_unbound_endpoint();
        endpoint.bind_cq(&cq, flags).unwrap();
        receives.into_iter().for_each(|receives| endpoint.bind_cq(receives, BindFlags::RECV).unwrap());
        endpoint.bind_shared_receive_context(&self.context).unwrap();
        endpoint.enable().unwrap();
        self.members.push(Member { endpoint, cq });
    }

    /// Opens an endpoint without a context or queue.
    pub(crate) fn open_unbound_endpoint(&self) -> Endpoint {
        let endpoint = self.domain.endpoint(&self.info).unwrap();
        endpoint.bind_av(&self.av).unwrap();
        endpoint
    }

    /// Opens a peer. In its address vector, each member has the member's index. Returns the peer, and the
    /// peer's fabric address in the members' vector.
    pub(crate) fn open_peer(&self) -> (Party, FabricAddress) {
        let peer = self.net.open_party();
        for member in &self.members {
            peer.insert(member.endpoint.name().unwrap());
        }
        let name = self.av.insert_one(peer.endpoint.name().unwrap()).unwrap();
        (peer, name)
    }

    /// Waits until the next operation of a member has ended. Drives all parties meanwhile.
    #[track_caller]
    pub(crate) fn next_ended(&self, at: usize) -> Ended {
        poll_until("a completion", || {
            let ended = poll_completion(&self.members[at].cq);
            if ended.is_none() {
                self.progress_except(at);
            }
            ended
        })
    }

    /// Waits until operations of a member with these contexts have failed, in any order, and checks each
    /// failure.
    #[track_caller]
    fn expect_failures(&self, at: usize, contexts: &[u64], check: impl Fn(&CompletionError)) {
        let mut expected = BTreeSet::from_iter(contexts);
        for _ in contexts {
            let failed = self.next_ended(at).expect_err("it cannot succeed");
            check(&failed);
            assert!(expected.remove(&failed.completion.context), "{failed:?}");
        }
    }

    /// Waits for a member's next completion. Panics unless a receive has succeeded.
    #[track_caller]
    pub(crate) fn next_receive_completion(&self, at: usize) -> Completion {
        let (completion, _) = self.next_ended(at).expect("no receive fails");
        assert!(completion.flags.contains(CompletionFlags::RECV), "{completion:?}");
        completion
    }

    pub(crate) fn progress_except(&self, at: usize) {
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != at);
        others.for_each(|(_, member)| member.cq.progress());
        self.net.progress();
    }

    /// Drives all parties for 100 passes, without reading.
    pub(crate) fn drive_repeatedly(&self) {
        for _ in 0..100 {
            self.members.iter().for_each(|member| member.cq.progress());
            self.net.progress();
        }
    }

    /// Posts receives of the context, with these contexts and buffers of this length.
    #[track_caller]
    pub(crate) fn post_receives(&self, contexts: impl IntoIterator<Item = u64>, len_bytes: usize) {
        for context in contexts {
            self.context.recv(marked_buffer(len_bytes), ANY, context).unwrap();
        }
    }

    /// Waits for the completions of receives with these contexts, in this order.
    #[track_caller]
    pub(crate) fn expect_in_order(&self, at: usize, contexts: impl IntoIterator<Item = u64>) {
        for context in contexts {
            assert_eq!(self.next_receive_completion(at).context, context);
        }
    }

    /// Sends a message to a member, and waits until it has arrived.
    #[track_caller]
    pub(crate) fn deliver(&self, from: &Party, to: usize, message: Bytes, tag: Option<u64>) {
        let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
        let (buffers, to, tag) = (vec![message], FabricAddress(to as u64), tag.map(Tag));
        from.endpoint.sendmsg(SendMsg { buffers, to, tag, flags, ..SendMsg::default() }).unwrap();
        let sent = poll_until("a message to be delivered", || {
            self.members.iter().for_each(|member| member.cq.progress());
            from.poll_completion()
        });
        assert!(sent.unwrap().0.flags.contains(CompletionFlags::SEND));
    }
}

/// Closes a party while all others make progress.
fn close_with_progress<T: Send + 'static>(sharers: &Sharers<'_>, closing: T) {
    run_while_driving(move || drop(closing), || sharers.drive_repeatedly());
}

/// Shows fi_endpoint/shared-context-count, fi_endpoint/shared-receives, fi_endpoint/one-shared-direction.
#[over(one_process, automatic)]
fn receives_posted_before_binding_serve_every_endpoint(net: &Net) {
    let mut sharers = Sharers::open_empty(net, &RxAttr::default());
    sharers.post_receives(0..8, LENS_BYTES[3]);
    (0..2).for_each(|_| sharers.add_member());
    let (peer, _) = sharers.open_peer();
    let (mut contexts, mut identity) = (Vec::new(), 0);
    for len_bytes in LENS_BYTES {
        for to in [1, 0] {
            identity += 1;
            peer.endpoint.send(payload(identity, len_bytes), FabricAddress(to), 99).unwrap();
            let completion = sharers.next_receive_completion(to as usize);
            assert!(received_bytes(&completion.buffer) == payload(identity, len_bytes));
            contexts.push(completion.context);
        }
    }
    assert_eq!(contexts, (0..8).collect::<Vec<_>>(), "the earliest is taken");
}

#[over(one_process, automatic)]
fn directed_receive_fails_when_the_last_link_to_its_source_ends(net: &Net) {
    let mut sharers = Sharers::new(net, 2);
    let (peer, name) = sharers.open_peer();
    sharers.context.recv(marked_buffer(8), name, 1).unwrap();
    sharers.context.trecv(marked_buffer(8), name, Tag(7), 2).unwrap();
    sharers.context.recv(marked_buffer(8), ANY, 3).unwrap();
    // Both endpoints have a link to the peer.
    (0..2).for_each(|to| sharers.deliver(&peer, to, payload(1, 8), Some(9)));
    let second = sharers.members.remove(1);
    close_with_progress(&sharers, second);
    sharers.drive_repeatedly();
    assert!(poll_completion(&sharers.members[0].cq).is_none(), "the peer is heard at the other endpoint");
    close_with_progress(&sharers, peer);
    sharers.expect_failures(0, &[1, 2], |failed| {
        assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
    });
    sharers.context.cancel(3).expect("it accepts messages of others");
}

#[over(one_process, automatic)]
fn directed_receive_fails_when_no_endpoint_reaches_its_source(net: &Net) {
    let sharers = Sharers::new(net, 2);
    let vacancy = net.reserve_vacant_address();
    let absent = sharers.av.insert_one(vacancy.address).unwrap();
    sharers.context.recv(marked_buffer(8), absent, 1).unwrap();
    sharers.context.trecv(marked_buffer(8), absent, Tag(7), 2).unwrap();
    sharers.context.recv(marked_buffer(8), ANY, 3).unwrap();
    sharers.drive_repeatedly();
    // A receive does not connect to a peer that was never lost.
    assert_eq!(poll_completion(&sharers.members[0].cq), None);
    sharers.members[1].endpoint.send(payload(1, 8), absent, 4).unwrap();
    let is_refused = |failed: &CompletionError| assert_eq!(failed.errno(), Errno::ECONNREFUSED, "{failed:?}");
    sharers.expect_failures(1, &[4], is_refused);
    sharers.expect_failures(0, &[1, 2], is_refused);
    // For a receive that is posted later, the endpoint whose send was refused connects again.
    sharers.context.recv(marked_buffer(8), absent, 5).unwrap();
    sharers.expect_failures(0, &[5], is_refused);
    // Once the peer has opened, a receive waits for its messages.
    let address = vacancy.address;
    drop(vacancy);
    let source = net.open_party_with(Setup { at: Some(address), ..Setup::default() });
    sharers.context.recv(marked_buffer(8), absent, 5).unwrap();
    source.insert(sharers.members[0].endpoint.name().unwrap());
    sharers.deliver(&source, 0, payload(6, 8), None);
    // The oldest receive that accepts the message matches it.
    assert_eq!(sharers.next_receive_completion(0).context, 3);
    sharers.deliver(&source, 0, payload(7, 8), None);
    assert_eq!(sharers.next_receive_completion(0).context, 5);
}

#[over(one_process, automatic)]
fn cancelled_receive_is_reported_by_the_first_endpoint(net: &Net) {
    let (sharers, peer) = Sharers::with_peer(net, 2);
    sharers.post_receives([1, 2, 3], 8);
    sharers.context.cancel(2).unwrap();
    let failed = sharers.next_ended(0).unwrap_err();
    assert_eq!((failed.error, failed.completion.context), (OperationError::Cancelled, 2));
    assert!(matches!(failed.completion.buffer, Buffer::Received(_)), "the buffer comes back");
    assert!(matches!(sharers.context.cancel(2), Err(Error::Misuse(Misuse::NotFound(_)))));
    assert!(matches!(sharers.members[1].endpoint.cancel(1), Err(Error::Misuse(Misuse::NotFound(_)))));
    for (to, context) in [(1, 1), (0, 3)] {
        sharers.deliver(&peer, to, payload(1, 8), None);
        sharers.expect_in_order(to, [context]);
    }
}

#[over(one_process, automatic)]
fn peek_finds_messages_of_any_endpoint(net: &Net) {
    let (sharers, peer) = Sharers::with_peer(net, 2);
    let look = |context, flags| RecvMsg { tagged: Some(Tag(7).into()), context, flags, ..RecvMsg::default() };
    sharers.context.recvmsg(look(1, OpFlags::PEEK)).unwrap();
    let failed = sharers.next_ended(0).unwrap_err();
    assert_eq!((failed.error, failed.completion.context), (OperationError::NoMessage, 1));

    sharers.deliver(&peer, 1, payload(1, 30), Some(7));
    sharers.deliver(&peer, 1, payload(2, 31), Some(7));
    sharers.deliver(&peer, 0, payload(3, 32), Some(7));
    sharers.context.recvmsg(look(2, OpFlags::PEEK | OpFlags::CLAIM)).unwrap();
    let found = sharers.next_receive_completion(1);
    assert_eq!((found.context, found.len_bytes), (2, 30));
    sharers.context.trecv(marked_buffer(40), ANY, Tag(7), 3).unwrap();
    let taken = sharers.next_receive_completion(1);
    // The claimed message is left alone.
    assert_eq!((taken.context, received_bytes(&taken.buffer)), (3, payload(2, 31).to_vec()));
    let buffers = vec![marked_buffer(40)];
    sharers.context.recvmsg(RecvMsg { buffers, ..look(2, OpFlags::CLAIM) }).unwrap();
    assert!(received_bytes(&sharers.next_receive_completion(1).buffer) == payload(1, 30));
    sharers.context.recvmsg(look(4, OpFlags::PEEK | OpFlags::DISCARD)).unwrap();
    assert_eq!(sharers.next_receive_completion(0).len_bytes, 32);
    sharers.context.recvmsg(look(5, OpFlags::PEEK)).unwrap();
    assert_eq!(sharers.next_ended(0).unwrap_err().error, OperationError::NoMessage);
    let refused = sharers.context.recvmsg(look(6, OpFlags::CLAIM)).unwrap_err();
    assert_eq!(refused.errno(), Errno::ENOENT);
}
