//! The networks over which the tests run.

use homespun::Fabric;
use homespun_suite::{Backend, Net, TransportKind, Turns};

use crate::backend::ChannelProvider;

pub(crate) fn choppy_loopback(turns: Turns) -> Net {
    Net::faulty_loopback(0x5eed, turns)
}

pub(crate) fn example_backend(turns: Turns) -> Net {
    let install = |fabric: Fabric| fabric.with_provider(ChannelProvider::new());
    Net::new(&TransportKind::Backend(Backend { domain: "channel", install }), turns)
}

pub(crate) fn tcp4(turns: Turns) -> Net {
    Net::new(&TransportKind::Tcp4, turns)
}

pub(crate) fn tcp6(turns: Turns) -> Net {
    Net::new(&TransportKind::Tcp6, turns)
}

pub(crate) fn shm4(turns: Turns) -> Net {
    Net::new(&TransportKind::Shm4, turns)
}

/// All endpoints send long messages from memory that their peers map.
pub(crate) fn shm4_buffers(turns: Turns) -> Net {
    shm4(turns).sending_from_buffers()
}

pub(crate) fn shm6(turns: Turns) -> Net {
    Net::new(&TransportKind::Shm6, turns)
}

pub(crate) fn auto4(turns: Turns) -> Net {
    Net::new(&TransportKind::Auto4, turns)
}

/// The first and the third endpoint are near each other. Both are far from the second.
pub(crate) fn mixed4(turns: Turns) -> Net {
    Net::new(&TransportKind::MIXED4, turns)
}
