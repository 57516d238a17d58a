//! Endpoints that cannot be enabled for lack of memory leave nothing behind.

use std::thread;

use homespun::flags::{BindFlags, Caps, CounterEvents, MrAccess};
use homespun::info::{RxAttr, SHARED_CONTEXT};
use homespun::{
    AvAttr, CounterAttr, CqAttr, Errno, FabricAddress, Misuse, MrAttr, OperationError, WaitObject,
};

use homespun_suite::payload::marked_buffer;
use homespun_suite::poll_completion;
use homespun_suite::seccomp::fail_system_calls_of_thread;
use homespun_suite::{Deadline, Net, TransportKind, Turns};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// Shows fi_endpoint/critical-error-disables.
#[test]
fn failed_enable_removes_the_endpoint_from_its_receive_context() {
    for transport in [TransportKind::Tcp4, TransportKind::Shm4, TransportKind::Auto4] {
        let net = Net::new(&transport, Turns::Alternate);
        let domain = net.open_other_domain();
        let mut info = net.info().clone();
        info.ep.rx_ctx_cnt = SHARED_CONTEXT;
        assert!(info.caps.contains(Caps::RMA_EVENT), "counters of regions drive its endpoints");
        let context =
            domain.shared_receive_context(&RxAttr { caps: info.rx.caps, ..RxAttr::default() }).unwrap();
        // A counter with waiters, to which each endpoint of the domain may report.
        let attr = CounterAttr { wait: WaitObject::Unspec, ..CounterAttr::default() };
        let counter = domain.open_counter(&attr).unwrap();
        let attr = MrAttr { access: MrAccess::REMOTE_WRITE, ..MrAttr::default() };
        let region = domain.register(8, &attr).unwrap();
        region.bind_counter(&counter, CounterEvents::REMOTE_WRITE).unwrap();

        let (cq, av) =
            (domain.open_cq(&CqAttr::default()).unwrap(), domain.open_av(&AvAttr::default()).unwrap());
        let endpoint = domain.endpoint(&info).unwrap();
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
        endpoint.bind_av(&av).unwrap();
        endpoint.bind_shared_receive_context(&context).unwrap();
        // Create the endpoint's transport before memory is short.
        endpoint.name().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                fail_system_calls_of_thread(&[libc::SYS_epoll_ctl], libc::ENOMEM);
                assert_eq!(endpoint.enable().unwrap_err().errno(), Errno::ENOMEM);
            });
        });

        let refused = context.recv(marked_buffer(8), FabricAddress(0), 1).unwrap_err();
        assert_eq!(refused.error, Misuse::NoAddressVector.into(), "the context has no endpoint");
        context.recv(marked_buffer(8), ANY, 1).unwrap();
        context.cancel(1).unwrap();
        endpoint.enable().unwrap();
        let deadline = Deadline::new();
        let failed = loop {
            match poll_completion(&cq) {
                Some(ended) => break ended.unwrap_err(),
                None => deadline.yield_or_panic("the end of the receive"),
            }
        };
        assert_eq!((failed.error, failed.completion.context), (OperationError::Cancelled, 1));
    }
}
