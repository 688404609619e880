//! A working thread over the device: receives requests and has them answered, by itself or asynchronously.
//!
//! It has two buffers, allocated once and touched only as far as requests are long. All threads read the same
//! descriptor; giving each its own (`clone_fd`) made no clear difference when it was measured.

use super::abi;
use super::answer::answer;
use super::asynchronous::{self, Begin};
use super::device::{Device, DeviceError, REQUEST_BYTES_MIN};
use super::lent::{Afterwards, Received, Spare};
use super::reply::Reply;
use super::request::{self, Request};
use super::serve::Server;
use super::worker_pool::WorkerPool;
use std::sync::Arc;
use vazao_client::SharedBytes;

/// Bytes of a request besides the data of a write.
const REQUEST_EXTRA_BYTES: usize = 4096;

/// Bytes of a write in front of its data, which are received so that the data begin on a page boundary.
const WRITE_FIELDS_BYTES: usize = abi::IN_HEADER_BYTES + 40;

/// A write of fewer bytes is copied when it is answered: sending it from where it is would need a receive buffer more.
const KEPT_BYTES_MIN: usize = 256 * 1024;

/// What a thread works with.
#[derive(Debug)]
pub(crate) struct Buffers {
    request: Received,
    reply: Reply,
}

/// How long receive buffers are, and the ones that are not in use.
#[derive(Debug)]
pub(crate) struct Memory {
    data_bytes: usize,
    spare: Arc<Spare>,
}

impl Memory {
    /// For requests and answers with data of at most `request_bytes_max` bytes.
    pub(crate) fn new(request_bytes_max: u32) -> Memory {
        Memory { data_bytes: request_bytes_max as usize, spare: Arc::default() }
    }

    fn receive(&self, server: &Server) -> Received {
        let length = (self.data_bytes + REQUEST_EXTRA_BYTES).max(REQUEST_BYTES_MIN);
        self.spare.take(length, WRITE_FIELDS_BYTES, |length| server.send_buffer(length))
    }
}

/// Serves requests until the file system is unmounted.
pub(crate) fn serve(
    device: &Arc<Device>,
    server: &Arc<Server>,
    worker_pool: &WorkerPool<Buffers>,
    memory: &Memory,
) -> Result<(), DeviceError> {
    let mut buffers = None;
    while worker_pool.take_turn(&mut buffers) {
        let mut is_reading = true;
        while is_reading {
            let Buffers { request, reply } = buffers.get_or_insert_with(|| Buffers {
                request: memory.receive(server),
                reply: Reply::with_capacity(memory.data_bytes),
            });
            let received = device.receive(request.as_mut());
            let Ok(Some(length)) = received else {
                server.end();
                worker_pool.leave();
                worker_pool.dismiss();
                return received.map(|_| ());
            };
            let leave = || {
                is_reading = false;
                worker_pool.leave();
            };
            if length < KEPT_BYTES_MIN {
                reply.afterwards = Afterwards::possible(None);
                serve_one(device, server, request.as_ref().get(..length).unwrap_or_default(), reply, leave);
            } else {
                let kept: SharedBytes = Arc::new(std::mem::replace(request, memory.receive(server)));
                reply.afterwards = Afterwards::possible(Some(Arc::clone(&kept)));
                serve_one(device, server, (*kept).as_ref().get(..length).unwrap_or_default(), reply, leave);
            }
        }
    }
    Ok(())
}

/// Serves one request, and then does what was left of it. `leave` is called before anything that may block: another
/// thread then has to read the device.
fn serve_one(
    device: &Arc<Device>,
    server: &Arc<Server>,
    request: &[u8],
    reply: &mut Reply,
    leave: impl FnOnce(),
) {
    let Ok((header, body)) = request::header(request) else {
        return tracing::error!("a request of {} bytes without a whole header", request.len());
    };
    let mut leave = Some(leave);
    let mut leave = || leave.take().into_iter().for_each(|leave| leave());
    let mut alone = match asynchronous::begin(device, server, &header, body) {
        Begin::Begun => return,
        Begin::Alone(alone) => Some(alone),
        Begin::Not => None,
    };
    if !server.in_flight.is_busy() {
        leave();
    }
    let begin = |request: &Request<'_>| {
        if alone.is_none() {
            match asynchronous::begin_decoded(device, server, &header, request) {
                Begin::Begun => return true,
                Begin::Alone(entered) => alone = Some(entered),
                Begin::Not => {}
            }
        }
        leave();
        false
    };
    if answer(server, &header, body, reply, begin) && !device.send(reply.finish()) {
        server.take_back(reply);
    }
    drop(std::mem::take(&mut reply.afterwards));
}
