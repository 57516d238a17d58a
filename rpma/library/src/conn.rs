//! Connections: `rpma_conn_req_connect(3)`.

use std::os::fd::AsRawFd;
use std::ptr;

use homespun_rpma::{CompletionQueue, Connection, ConnectionEvent, ReadyQueue};
use libc::c_int;

use crate::completion::{self, EarlyCompletion, LegacyCompletion};
use crate::conn_req::PrivateData;
use crate::cq::wait_error;
use crate::edge::{Failure, run};
use crate::handle::{OutParam, delete, object};
use crate::peer_cfg::PeerCfg;

/// # Safety
///
/// `conn` is null or a connection; `fd` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_get_event_fd(conn: *const Connection, fd: *mut c_int) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(fd)?) };
        place.write(connection.event_fd().as_raw_fd());
        Ok(())
    })
}

/// # Safety
///
/// `conn` is null or a connection; `event` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_next_event(conn: *mut Connection, event: *mut c_int) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { next_event(conn, event, |event| Ok(number(event))) })
}

/// Returns the next event, in librpma 0.10 to 0.13. They had no number for [`ConnectionEvent::Unreachable`],
/// and returned `RPMA_E_UNKNOWN`.
///
/// # Safety
///
/// `conn` is null or a connection; `event` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_next_event_of_0_10(
    conn: *mut Connection,
    event: *mut c_int,
) -> c_int {
    let to_number = |event| match event {
        ConnectionEvent::Unreachable => Err(Failure::EventOfLaterVersion(event)),
        _ => Ok(number(event)),
    };
    // SAFETY: the caller promises it.
    run(|| unsafe { next_event(conn, event, to_number) })
}

/// # Safety
///
/// `conn` is null or a connection; `event` is null or writable.
unsafe fn next_event(
    conn: *mut Connection,
    event: *mut c_int,
    to_number: impl FnOnce(ConnectionEvent) -> Result<c_int, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    let (connection, place) = unsafe { (object(conn)?, OutParam::new(event)?) };
    let event = connection.next_event()?;
    tracing::info!("connection {}: {event}", connection.qp_number());
    place.write(to_number(event)?);
    Ok(())
}

/// Returns the number of `enum rpma_conn_event`.
fn number(event: ConnectionEvent) -> c_int {
    match event {
        ConnectionEvent::Established => 0,
        ConnectionEvent::Closed => 1,
        ConnectionEvent::Rejected => 3,
        ConnectionEvent::Unreachable => 4,
        _ => 2,
    }
}

/// # Safety
///
/// `conn` is null or a connection; `pdata` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_get_private_data(
    conn: *const Connection,
    pdata: *mut PrivateData,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(pdata)?) };
        place.write(PrivateData::describe(connection.private_data()));
        Ok(())
    })
}

/// # Safety
///
/// `conn` is null or a connection; `pcfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_apply_remote_peer_cfg(
    conn: *mut Connection,
    pcfg: *const PeerCfg,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, config) = unsafe { (object(conn)?, object(pcfg)?) };
        connection.apply_remote_peer_config(config.to_config());
        Ok(())
    })
}

/// # Safety
///
/// `conn` is null or a connection; `qp_num` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_get_qp_num(conn: *const Connection, qp_num: *mut u32) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(qp_num)?) };
        place.write(connection.qp_number());
        Ok(())
    })
}

/// # Safety
///
/// `conn` is null or a connection; `cq_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_get_cq(
    conn: *const Connection,
    cq_ptr: *mut *mut CompletionQueue,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(cq_ptr)?) };
        place.write(ptr::from_ref(connection.completion_queue()).cast_mut());
        Ok(())
    })
}

/// Returns the queue for receives, null if there is none.
///
/// # Safety
///
/// `conn` is null or a connection; `rcq_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_get_rcq(
    conn: *const Connection,
    rcq_ptr: *mut *mut CompletionQueue,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(rcq_ptr)?) };
        let queue = connection.receive_completion_queue().map_or(ptr::null(), ptr::from_ref);
        place.write(queue.cast_mut());
        Ok(())
    })
}

/// # Safety
///
/// `conn` is null or a connection; `fd` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_get_compl_fd(conn: *const Connection, fd: *mut c_int) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(fd)?) };
        place.write(connection.completion_fd()?.as_raw_fd());
        Ok(())
    })
}

/// Waits for a completion of either queue. `flags` has no meaning yet, as in librpma.
///
/// # Safety
///
/// `conn` is null or a connection; `cq` and `is_rcq` are null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_wait(
    conn: *mut Connection,
    _flags: c_int,
    cq: *mut *mut CompletionQueue,
    is_rcq: *mut bool,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(cq)?) };
        let (queue, is_receive) = match connection.wait().map_err(wait_error)? {
            ReadyQueue::Main(queue) => (queue, false),
            ReadyQueue::Receive(queue) => (queue, true),
        };
        place.write(ptr::from_ref(queue).cast_mut());
        // SAFETY: the caller promises it. The application may not ask.
        if let Ok(place) = unsafe { OutParam::new(is_rcq) } {
            place.write(is_receive);
        }
        Ok(())
    })
}

/// # Safety
///
/// `conn` is null or a connection.
pub(crate) unsafe extern "C" fn rpma_conn_disconnect(conn: *mut Connection) -> c_int {
    // SAFETY: the caller promises it.
    run(|| Ok(unsafe { object(conn)? }.disconnect()?))
}

/// # Safety
///
/// `conn_ptr` is null or has null or a connection. No code uses it or its queues any more.
pub(crate) unsafe extern "C" fn rpma_conn_delete(conn_ptr: *mut *mut Connection) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(conn_ptr) })
}

/// The descriptor of the main queue, in librpma 0.10.
///
/// # Safety
///
/// `conn` is null or a connection; `fd` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_get_completion_fd(
    conn: *const Connection,
    fd: *mut c_int,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(fd)?) };
        place.write(connection.completion_queue().fd()?.as_raw_fd());
        Ok(())
    })
}

/// Waits for a completion of the main queue, in librpma 0.10.
///
/// # Safety
///
/// `conn` is null or a connection.
pub(crate) unsafe extern "C" fn rpma_conn_completion_wait(conn: *mut Connection) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let queue = unsafe { object(conn)? }.completion_queue().clone();
        Ok(queue.wait().map_err(wait_error)?)
    })
}

/// Reads a completion of the main queue, in librpma 0.9: `rpma_conn_completion_get@LIBRPMA_1.0`.
///
/// # Safety
///
/// `conn` is null or a connection; `cmpl` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_completion_get_of_0_9(
    conn: *mut Connection,
    cmpl: *mut EarlyCompletion,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(cmpl)?) };
        completion::read_legacy(connection.completion_queue(), place)
    })
}

/// Reads a completion of the main queue, in librpma 0.10.
///
/// # Safety
///
/// `conn` is null or a connection; `cmpl` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_completion_get(
    conn: *mut Connection,
    cmpl: *mut LegacyCompletion,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, place) = unsafe { (object(conn)?, OutParam::new(cmpl)?) };
        completion::read_legacy(connection.completion_queue(), place)
    })
}
