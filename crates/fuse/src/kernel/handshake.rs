//! The first request of a mount: what the kernel and the door agree on.

use super::abi::{self, capability};
use super::device::{Device, DeviceError, REQUEST_BYTES_MIN};
use super::reply::{InitAnswer, Reply};
use super::request::{self, Init, Request};
use rustix::io::Errno;

/// Read-ahead and direct requests the kernel keeps in flight: half of the threads that a mount has unless told
/// otherwise, so that a server that does not answer to read-ahead never holds up all of them.
pub(crate) const BACKGROUND_MAX: u16 = 24;

/// What the door offers in the INIT exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// Largest read or write, a multiple of the page size.
    pub(crate) request_bytes_max: u32,
    /// Wanted read-ahead.
    pub(crate) read_ahead_bytes: u32,
    /// Everything is ready for requests over io_uring.
    pub(crate) over_io_uring: bool,
    /// The kernel checks permissions.
    pub(crate) check_permissions: bool,
    /// Inodes can be found by number.
    pub(crate) finds_by_number: bool,
    /// What is different for a measurement.
    pub(crate) trial: Trial,
}

/// The kernel's settings that a measurement changes. Not for use: what a mount promises holds without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    /// Capabilities not asked for.
    without: u64,
    /// Capabilities asked for that the door does not want.
    with: u64,
    /// Read-ahead and direct requests the kernel keeps in flight; `None` for the mount's own choice.
    background_max: Option<u16>,
}

impl Trial {
    /// Takes one setting, `without=CAPABILITY`, `with=CAPABILITY` or `background=N`; false for anything else.
    pub fn set(&mut self, setting: &str) -> bool {
        let Some((what, value)) = setting.split_once('=') else { return false };
        let capability = || capability::NAMES.iter().find(|(name, _)| *name == value).map(|(_, bit)| *bit);
        match (what, capability(), value.parse()) {
            ("without", Some(bit), _) => self.without |= bit,
            ("with", Some(bit), _) => self.with |= bit,
            ("background", _, Ok(max @ 1..)) => self.background_max = Some(max),
            _ => return false,
        }
        true
    }
}

/// What the kernel and the door have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Requests come over io_uring once each core has a place.
    pub(crate) over_io_uring: bool,
}

/// The answer to the kernel's INIT.
pub(crate) fn negotiate(init: Init, offer: Offer) -> Result<InitAnswer, DeviceError> {
    if init.major != abi::MAJOR || init.minor < abi::MINOR_MIN {
        return Err(DeviceError::Version(init.major, init.minor));
    }
    let pages = offer.request_bytes_max.div_ceil(rustix::param::page_size() as u32);
    Ok(InitAnswer {
        // The kernel takes no more than it offered; mount() raises the limit afterwards where it may.
        read_ahead_bytes: offer.read_ahead_bytes.min(init.read_ahead_bytes),
        capabilities: capabilities(init.capabilities, offer),
        background_max: offer.trial.background_max.unwrap_or(BACKGROUND_MAX),
        write_bytes_max: offer.request_bytes_max,
        pages_max: u16::try_from(pages).unwrap_or(u16::MAX),
    })
}

/// What is taken of the capabilities the kernel offers.
fn capabilities(offered: u64, offer: Offer) -> u64 {
    let beyond_32 = |wanted: bool, capability: u64| {
        let needed = capability::EXTENDED | capability;
        if wanted && offered & needed == needed { needed } else { 0 }
    };
    let extended = beyond_32(offer.over_io_uring, capability::OVER_IO_URING)
        | beyond_32(true, capability::DIRECT_IO_ALLOW_MMAP);
    let unless = |is_there: bool, capability: u64| if is_there { 0 } else { capability };
    let refused = unless(offer.check_permissions, capability::OF_PERMISSIONS)
        | unless(offer.finds_by_number, capability::EXPORT_SUPPORT);
    let wanted = (capability::WANTED | offer.trial.with) & !offer.trial.without;
    offered & wanted & !refused | extended
}

/// Answers the kernel's first request.
pub(crate) fn handshake(device: &Device, offer: Offer) -> Result<Agreed, DeviceError> {
    let mut buffer = vec![0; REQUEST_BYTES_MIN];
    let length = device.receive(&mut buffer)?.ok_or(DeviceError::Device(Errno::NODEV))?;
    let (header, body) = request::header(&buffer[..length]).map_err(|_| DeviceError::NoInit)?;
    let Ok(Request::Init(init)) = request::decode(header.operation, body) else {
        return Err(DeviceError::NoInit);
    };
    let mut reply = Reply::with_capacity(64);
    reply.start(header.unique);
    let answer = negotiate(init, offer);
    match &answer {
        Ok(answer) => reply.put_init_out(*answer),
        Err(_) => reply.fail(Errno::PROTO.raw_os_error()),
    }
    device.send(reply.finish());
    answer.map(|answer| Agreed { over_io_uring: answer.capabilities & capability::OVER_IO_URING != 0 })
}
