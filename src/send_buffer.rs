//! Send buffers in memory that near peers can map.

use homespun_engine::buffer::SendBuffer;
use homespun_engine::error::Error;

use crate::domain::Domain;

impl Domain {
    /// Allocates a send buffer of zeros. In the domains `shm` and `auto`, near peers (processes of the same
    /// user on this host) can map it: they copy a message from 16 KiB on once, straight from the buffer,
    /// without a system call. In the domain `tcp`, and for far peers, it is like any other memory.
    ///
    /// A buffer in shared memory takes whole pages, one more page, and a descriptor. So allocate few large
    /// buffers, and send parts of them ([`Bytes::slice`](crate::Bytes::slice)). A peer keeps the memory
    /// mapped until the buffer is dropped.
    ///
    /// ```
    /// use homespun::flags::{BindFlags, InfoFlags};
    /// use homespun::{AvAttr, BytesMut, CqAttr, Fabric, FabricAddress};
    ///
    /// # let fabric = Fabric::new();
    /// # let info = &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None)?[0];
    /// # let domain = fabric.domain(info)?;
    /// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
    /// # let endpoint = domain.endpoint(info)?;
    /// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
    /// # endpoint.bind_av(&av)?;
    /// # endpoint.enable()?;
    /// # let own = av.insert(&[endpoint.name()?]).remove(0)?;
    /// let mut buffer = domain.allocate_send_buffer(1 << 20)?;
    /// buffer.get_mut().expect("no message uses it").fill(7);
    ///
    /// // The endpoint sends to itself.
    /// endpoint.recv(BytesMut::zeroed(buffer.len()), FabricAddress::UNSPECIFIED, 1)?;
    /// endpoint.send(buffer.bytes(), own, 2)?;
    /// let mut ended = 0;
    /// while ended < 2 {
    ///     ended += usize::from(cq.read().expect("no failure").is_some());
    /// }
    /// assert!(buffer.get_mut().is_some(), "the message has ended, and its completion was dropped");
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error, such as ENOMEM or EMFILE.
    pub fn allocate_send_buffer(&self, len_bytes: usize) -> Result<SendBuffer, Error> {
        self.shared.allocate_send_buffer(len_bytes)
    }
}
