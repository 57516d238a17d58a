//! Domains without locks: `FI_THREAD_DOMAIN`.

use homespun_engine::error::{Argument, Error, Misuse};

use crate::domain::Domain;
use crate::fabric::Fabric;
use crate::info::{Info, Progress, Threading};
use crate::lock::{Locking, Serialised};

impl Fabric {
    /// Opens a domain whose endpoints and completion queues take no locks. The application serialises its
    /// calls ([`Threading::Domain`], with manual progress). Each post and each poll saves an atomic
    /// exchange. Otherwise see [`domain`](Self::domain).
    ///
    /// # Errors
    ///
    /// As [`domain`](Self::domain). [`Misuse::Invalid`] if the info does not have [`Threading::Domain`], or
    /// asks for automatic data progress, since that needs a thread.
    ///
    /// # Safety
    ///
    /// While endpoints, completion queues and counters of this domain exist, no two threads may be inside
    /// calls on them at the same time, whichever handles they use. Each such call must *happen before* the
    /// next, as if a mutex were held during each of them. These actions count as such calls, too:
    ///
    /// - dropping the last handle of an endpoint;
    /// - dropping a memory region of the domain, or binding a counter to it;
    /// - formatting a completion queue by `Debug`;
    /// - binding a queue or a counter to an endpoint that is already enabled.
    ///
    /// These calls are exempt, since they synchronise by themselves:
    ///
    /// - all calls on the domain itself, on address vectors and on event queues;
    /// - [`Endpoint::info`](crate::Endpoint::info), [`name`](crate::Endpoint::name),
    ///   [`set_name`](crate::Endpoint::set_name), binding objects to an endpoint before it is enabled, and
    ///   enabling the endpoint;
    /// - [`CompletionQueue::signal`](crate::CompletionQueue::signal);
    /// - changes of a counter: [`add`](crate::Counter::add), [`add_error`](crate::Counter::add_error),
    ///   [`set`](crate::Counter::set) and [`set_error`](crate::Counter::set_error).
    ///
    /// In debug builds a call panics if it finds another thread inside a call.
    ///
    /// ```
    /// use homespun::Fabric;
    /// use homespun::info::{Info, Threading};
    ///
    /// let fabric = Fabric::new();
    /// let mut hints = Info::default();
    /// hints.domain.threading = Some(Threading::Domain);
    /// let info = &fabric.getinfo(None, None, Default::default(), Some(&hints))?[0];
    /// // SAFETY: this thread alone uses the domain, and all that is opened from it.
    /// let domain = unsafe { fabric.domain_unsynchronised(info)? };
    /// # Ok::<(), homespun::Error>(())
    /// ```
    pub unsafe fn domain_unsynchronised(&self, info: &Info) -> Result<Domain, Error> {
        if info.domain.threading != Some(Threading::Domain) {
            return Err(Misuse::Invalid(Argument::UnlockedThreading).into());
        }
        if info.domain.data_progress == Some(Progress::Auto) {
            return Err(Misuse::Invalid(Argument::UnlockedProgress).into());
        }
        // SAFETY: the caller promises that no two threads are inside calls that take these locks. Of the
        // exempt calls, only enabling an endpoint takes one: the endpoint's. No other call can hold that
        // lock, since no queue drives the endpoint yet. The list in which a queue later finds the endpoint
        // is synchronised.
        let promise = unsafe { Serialised::promise() };
        self.open_domain(info, Locking::Omitted(promise))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Barrier, mpsc};
    use std::thread;
    use std::time::Duration;

    use homespun_engine::buffer::{Segment, SegmentMut};
    use homespun_engine::flags::{BindFlags, InfoFlags};

    use super::*;
    use crate::endpoint::{RecvMsg, SendMsg};
    use crate::lock::counting;
    use crate::tag::Tag;
    use crate::{AddressVector, AvAttr, CompletionQueue, CqAttr, Endpoint, FabricAddress, WaitObject};

    /// The time limit for the messages. Without a limit, a thread that waits for a lock would never end.
    const PATIENCE: Duration = Duration::from_secs(60);

    const MESSAGES: u64 = 1000;

    const LEN_BYTES: usize = 8;

    struct Party {
        endpoint: Endpoint,
        cq: CompletionQueue,
        av: AddressVector,
    }

    impl Party {
        fn open(domain: &Domain, info: &Info) -> Party {
            let cq = domain.open_cq(&CqAttr::default()).expect("a queue");
            let av = domain.open_av(&AvAttr::default()).expect("an address vector");
            let endpoint = domain.endpoint(info).expect("an endpoint");
            endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("its first queue");
            endpoint.bind_av(&av).expect("its first address vector");
            endpoint.enable().expect("it has all that it needs");
            Party { endpoint, cq, av }
        }

        /// Takes all locks of the endpoint, the vector and the queue, except each
        /// [`Lock`](crate::lock::Lock).
        fn hold_other_locks(&self) -> impl Sized + '_ {
            (self.endpoint.lock_setup(), self.av.lock_table(), self.cq.shared().lock_endpoint_list_for_test())
        }
    }

    /// Sends tagged and untagged messages. Some are posted, some injected.
    fn send_messages(from: &Party, to: &Party, messages: u64) {
        let (message, mut room) = ([7; LEN_BYTES], [0; LEN_BYTES]);
        let any = FabricAddress::UNSPECIFIED;
        for number in 0..messages {
            let tag = (number % 2 == 0).then_some(number);
            let into = [SegmentMut { address: room.as_mut_ptr(), len_bytes: LEN_BYTES }];
            let tagged = tag.map(|tag| Tag(tag).into());
            let flags = to.endpoint.rx_op_flags();
            let receive = RecvMsg { buffers: &into[..], from: any, tagged, context: number, flags };
            // SAFETY: no other code uses `room` until the completion is read, below.
            unsafe { to.endpoint.post_receive(&receive).expect("room for a receive") };
            let is_injected = number % 4 < 2;
            if is_injected {
                from.endpoint
                    .inject(&message, FabricAddress(0), tag.map(Tag), None)
                    .expect("room for a send");
            } else {
                let of = [Segment { address: message.as_ptr(), len_bytes: LEN_BYTES }];
                let post = SendMsg {
                    buffers: &of[..],
                    to: FabricAddress(0),
                    tag: tag.map(Tag),
                    data: None,
                    context: 0,
                    flags: from.endpoint.uncommitted_op_flags(),
                };
                // SAFETY: `message` lives until the completion is read, below.
                unsafe { from.endpoint.post_send(&post).expect("room for a send") };
                while from.cq.read().expect("a success").is_none() {}
            }
            let received = loop {
                match to.cq.read() {
                    Ok(Some(received)) => break received,
                    _ => from.cq.progress(),
                }
            };
            assert_eq!((received.context, received.len_bytes), (number, LEN_BYTES));
        }
    }

    fn exchange_and_assert_no_lock_taken(name: &str) {
        let fabric = Fabric::new();
        let mut hints = Info::default();
        hints.domain.name = Some(name.into());
        hints.domain.threading = Some(Threading::Domain);
        let info =
            &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, Some(&hints)).expect("a domain")[0];
        // SAFETY: only this thread uses the domain and its objects.
        let domain = unsafe { fabric.domain_unsynchronised(info) }.expect("a domain");
        let (left, right) = (Party::open(&domain, info), Party::open(&domain, info));
        for (one, other) in [(&left, &right), (&right, &left)] {
            one.av.insert(&[other.endpoint.name().expect("it has a name")]).remove(0).expect("an address");
        }
        // Fill the endpoints' caches of their address vectors.
        send_messages(&left, &right, 10);
        send_messages(&right, &left, 10);
        let held = (left.hold_other_locks(), right.hold_other_locks());
        let before = counting::lock_attempts_of_thread();
        send_messages(&left, &right, MESSAGES);
        send_messages(&right, &left, MESSAGES);
        assert_eq!(counting::lock_attempts_of_thread() - before, 0, "locks that were taken");
        drop(held);
    }

    #[test]
    fn small_messages_in_unsynchronised_domain_take_no_lock() {
        for domain in ["shm", "tcp"] {
            let (done, is_done) = mpsc::channel();
            let exchange = thread::spawn(move || {
                exchange_and_assert_no_lock_taken(domain);
                done.send(()).expect("the test waits");
            });
            match is_done.recv_timeout(PATIENCE) {
                Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    exchange.join().expect("messages that take no lock");
                }
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("{domain}: a thread waits for a lock"),
            }
        }
    }

    /// One thread reads a queue while another enables endpoints that are bound to it.
    #[test]
    fn endpoints_are_enabled_while_their_queue_is_read() {
        let fabric = Fabric::new();
        let mut hints = Info::default();
        (hints.domain.name, hints.domain.threading) = (Some("shm".into()), Some(Threading::Domain));
        let info =
            &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, Some(&hints)).expect("a domain")[0];
        // SAFETY: one thread reads the queue. Meanwhile the other thread only binds objects and enables
        // endpoints.
        let domain = unsafe { fabric.domain_unsynchronised(info) }.expect("a domain");
        let polled = domain.open_cq(&CqAttr::default()).expect("a queue");
        let slept_on = CqAttr { wait: WaitObject::Fd, ..CqAttr::default() };
        let slept_on = domain.open_cq(&slept_on).expect("a queue with descriptors");
        let av = domain.open_av(&AvAttr::default()).expect("an address vector");
        let (done, both) = (AtomicBool::new(false), Barrier::new(2));
        let endpoints: Vec<Endpoint> = thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(polled.read(), Ok(None));
                }
            });
            both.wait();
            let enabled = (0..200).map(|_| {
                let endpoint = domain.endpoint(info).expect("an endpoint");
                endpoint.bind_cq(&polled, BindFlags::TRANSMIT).expect("it has none");
                endpoint.bind_cq(&slept_on, BindFlags::RECV).expect("it has none");
                endpoint.bind_av(&av).expect("it has none");
                endpoint.enable().expect("all is there");
                endpoint
            });
            let enabled = enabled.collect();
            done.store(true, Ordering::Relaxed);
            enabled
        });
        drop(endpoints);
    }

    #[test]
    fn unsynchronised_domain_requires_domain_threading_and_manual_progress() {
        let fabric = Fabric::new();
        let offered = |threading, progress| {
            let mut hints = Info::default();
            hints.domain.threading = Some(threading);
            hints.domain.data_progress = Some(progress);
            fabric.getinfo(None, None, InfoFlags::default(), Some(&hints)).expect("a domain").remove(0)
        };
        // SAFETY: the test makes no call on the domains.
        let open = |info: &Info| unsafe { fabric.domain_unsynchronised(info) };
        assert!(open(&offered(Threading::Domain, Progress::Manual)).is_ok());
        for threading in [Threading::Safe, Threading::Fid, Threading::Endpoint, Threading::Completion] {
            let refused = open(&offered(threading, Progress::Manual));
            assert!(
                matches!(refused, Err(Error::Misuse(Misuse::Invalid(Argument::UnlockedThreading)))),
                "{threading:?}"
            );
        }
        let refused = open(&offered(Threading::Domain, Progress::Auto));
        assert!(matches!(refused, Err(Error::Misuse(Misuse::Invalid(Argument::UnlockedProgress)))));
    }
}
