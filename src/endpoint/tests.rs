//! Refusals by their type: the C interface tells only the error number.

use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::errno::Errno;
use homespun_engine::error::{Error, Missing, Misuse};
use homespun_engine::flags::{BindFlags, Caps, OpFlags};

use super::*;
use crate::endpoint::{AtomicTarget, RecvMsg, SendMsg};
use crate::{AvAttr, Bytes, BytesMut, CqAttr, Domain, Fabric, FabricAddress, Hints, RemoteMemory};

/// Opens a domain, and the info of its endpoints. No other test binds to this address.
fn open_domain() -> (Domain, Info) {
    let fabric = Fabric::new();
    let info = fabric.info(&Hints::new().domain("tcp").node("127.83.14.21").source()).expect("an info");
    (fabric.domain(&info).expect("a domain"), info)
}

/// Opens an enabled endpoint. Its address vector has its own address alone.
fn open_endpoint(caps: impl FnOnce(&mut Caps)) -> Endpoint {
    let (domain, mut info) = open_domain();
    caps(&mut info.caps);
    let endpoint = domain.endpoint(&info).expect("an endpoint");
    let av = domain.open_av(&AvAttr::default()).expect("a vector");
    endpoint.bind_av(&av).expect("it is bound");
    let cq = domain.open_cq(&CqAttr::default()).expect("a queue");
    endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("it is bound");
    endpoint.enable().expect("it has all that it needs");
    av.insert_one(endpoint.name().expect("a name")).expect("an address");
    endpoint
}

#[test]
fn address_in_use_is_refused_by_its_name() {
    let (domain, info) = open_domain();
    let (first, second) = (domain.endpoint(&info).unwrap(), domain.endpoint(&info).unwrap());
    let address = first.name().expect("an address");
    second.set_name(address).expect("a name to try");
    let (errno, exhausted) = (Errno::EADDRINUSE, None);
    assert_eq!(second.name(), Err(Error::Bind { address: Box::new(address), errno, exhausted }));
}

#[test]
fn refused_posts_name_the_mistake() {
    let endpoint = open_endpoint(|_| ());
    let nowhere = FabricAddress(7);
    let unknown = Error::from(Misuse::UnknownAddress(7));
    assert_eq!(endpoint.send(Bytes::new(), nowhere, 1).unwrap_err().error, unknown);
    assert_eq!(endpoint.inject(b"", nowhere, None, None), Err(unknown.clone()));
    assert_eq!(endpoint.recv(BytesMut::new(), nowhere, 1).unwrap_err().error, unknown);
    for flag in [1 << 5, 1 << 20, 1 << 44] {
        let (flags, refused) = (OpFlags::from_bits_retain(flag), Error::from(Misuse::Flags(flag)));
        let send = SendMsg { flags, to: nowhere, ..SendMsg::default() };
        assert_eq!(endpoint.sendmsg(send).unwrap_err().error, refused);
        if flag != 1 << 5 {
            let receive = RecvMsg { flags, ..RecvMsg::default() };
            assert_eq!(endpoint.recvmsg(receive).unwrap_err().error, refused);
        }
    }
    // A read that fetches nothing.
    let (kind, op, datatype) = (AtomicKind::Base, AtomicOp::Read, Datatype::Uint32);
    let target = AtomicTarget { peer: FabricAddress(0), memory: RemoteMemory::default(), datatype, op };
    let refused = Error::from(Misuse::NoAtomic { kind, op, datatype });
    assert_eq!(endpoint.atomic(Bytes::from_static(&[0; 4]), target, 1).unwrap_err().error, refused);
    assert_eq!(endpoint.cancel(1), Err(Misuse::NotFound(Missing::Operation).into()));
}

#[test]
fn directed_receive_without_the_capability_is_refused() {
    let endpoint = open_endpoint(|caps| *caps -= Caps::DIRECTED_RECV);
    let refused = endpoint.recv(BytesMut::new(), FabricAddress(0), 1).unwrap_err().error;
    assert_eq!(refused, Misuse::NoCapability(Caps::DIRECTED_RECV).into());
}
