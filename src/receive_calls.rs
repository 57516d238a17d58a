//! The calls that receive into owned memory, for all objects to which receives are posted.

/// Gives an object the calls of `fi_msg(3)` and `fi_tagged(3)` that receive into owned memory. The
/// documentation of three of these calls differs between objects, so the user of the macro passes it.
macro_rules! receive_calls {
    (
        $object:ty,
        $(#[$recv:meta])* recv,
        $(#[$recv_into:meta])* recv_into,
        $(#[$recvmsg:meta])* recvmsg,
    ) => {
        impl $object {
            $(#[$recv])*
            pub fn recv(
                &self,
                buffer: bytes::BytesMut,
                from: $crate::FabricAddress,
                context: u64,
            ) -> Result<(), $crate::Rejected<bytes::BytesMut>> {
                self.post_owned_receive(buffer, from, None, context, self.rx_op_flags())
            }

            /// Receives a message into several buffers in order: `fi_recvv`.
            ///
            /// # Errors
            ///
            /// As [`recv`](Self::recv).
            pub fn recvv(
                &self,
                buffers: Vec<bytes::BytesMut>,
                from: $crate::FabricAddress,
                context: u64,
            ) -> Result<(), $crate::Rejected<Vec<bytes::BytesMut>>> {
                self.post_owned_receive(buffers, from, None, context, self.rx_op_flags())
            }

            /// Receives messages into `buffer[..buffer.len()]` until little room is left there: `fi_recvmsg`
            /// with `FI_MULTI_RECV`. [`RecvMsg`](crate::RecvMsg) describes such buffers. Endpoints that
            /// share a receive context share its buffers.
            ///
            /// # Errors
            ///
            /// As [`recv`](Self::recv).
            pub fn recv_multi(
                &self,
                buffer: bytes::BytesMut,
                from: $crate::FabricAddress,
                context: u64,
            ) -> Result<(), $crate::Rejected<bytes::BytesMut>> {
                let flags = self.rx_op_flags() | $crate::OpFlags::MULTI_RECV;
                self.post_owned_receive(buffer, from, None, context, flags)
            }

            /// Receives a message whose tag is among `tags`, a [`Tag`](crate::Tag) or a
            /// [`TagMatch`](crate::TagMatch): `fi_trecv`.
            ///
            /// # Errors
            ///
            /// As [`recv`](Self::recv).
            pub fn trecv(
                &self,
                buffer: bytes::BytesMut,
                from: $crate::FabricAddress,
                tags: impl Into<$crate::TagMatch>,
                context: u64,
            ) -> Result<(), $crate::Rejected<bytes::BytesMut>> {
                self.post_owned_receive(buffer, from, Some(tags.into()), context, self.rx_op_flags())
            }

            /// Receives a tagged message into several buffers in order: `fi_trecvv`.
            ///
            /// # Errors
            ///
            /// As [`recv`](Self::recv).
            pub fn trecvv(
                &self,
                buffers: Vec<bytes::BytesMut>,
                from: $crate::FabricAddress,
                tags: impl Into<$crate::TagMatch>,
                context: u64,
            ) -> Result<(), $crate::Rejected<Vec<bytes::BytesMut>>> {
                self.post_owned_receive(buffers, from, Some(tags.into()), context, self.rx_op_flags())
            }

            $(#[$recv_into])*
            pub fn recv_into(
                &self,
                buffer: $crate::ReusableBuffer,
                from: $crate::FabricAddress,
                context: u64,
            ) -> Result<(), $crate::Rejected<$crate::ReusableBuffer>> {
                self.post_owned_receive(buffer, from, None, context, self.rx_op_flags())
            }

            /// As [`recv_into`](Self::recv_into), for a message with one of these tags: `fi_trecv`.
            ///
            /// # Errors
            ///
            /// As [`recv_into`](Self::recv_into).
            pub fn trecv_into(
                &self,
                buffer: $crate::ReusableBuffer,
                from: $crate::FabricAddress,
                tags: impl Into<$crate::TagMatch>,
                context: u64,
            ) -> Result<(), $crate::Rejected<$crate::ReusableBuffer>> {
                self.post_owned_receive(buffer, from, Some(tags.into()), context, self.rx_op_flags())
            }

            $(#[$recvmsg])*
            pub fn recvmsg(
                &self,
                receive: $crate::RecvMsg,
            ) -> Result<(), $crate::Rejected<$crate::RecvMsg>> {
                let $crate::RecvMsg { buffers, from, tagged, context, flags } = receive;
                self.post_owned_receive(buffers, from, tagged, context, flags).map_err(|rejected| {
                    rejected.map(|buffers| $crate::RecvMsg { buffers, from, tagged, context, flags })
                })
            }
        }
    };
}

pub(crate) use receive_calls;
