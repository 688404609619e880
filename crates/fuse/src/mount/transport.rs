//! Which way the kernel's requests come, and the threads that wait for them.

use super::{End, MountError, MountOptions, Uring};
use crate::interrupts::dying::{self, Dying};
use crate::kernel::device::{Device, DeviceError};
use crate::kernel::handshake::{self, Offer};
use crate::kernel::receive::{self, Memory};
use crate::kernel::serve::Server;
use crate::kernel::uring::{self, Prepared, Queues};
use crate::kernel::worker_pool::WorkerPool;
use crate::kernel_cache::notices::Notices;
use rustix::io::Errno;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// With requests over io_uring only forgotten inodes and interrupts come over the device.
const DEVICE_THREADS_BESIDE_URING: usize = 2;

type Thread = JoinHandle<Result<(), DeviceError>>;

/// Answers the kernel's first request, starts the threads, and one that waits for them and closes the door behind the
/// last.
pub(crate) fn start(
    device: Arc<Device>,
    server: Arc<Server>,
    notices: Arc<Notices>,
    options: &MountOptions,
    end: Arc<End>,
) -> Result<(), MountError> {
    let prepared = prepare(&device, options)?;
    let offer = Offer {
        request_bytes_max: options.request_bytes_max,
        read_ahead_bytes: options.read_ahead_bytes,
        over_io_uring: prepared.is_some(),
        check_permissions: options.default_permissions,
        finds_by_number: server.door.finds_by_number(),
        trial: options.trial,
    };
    let agreed = handshake::handshake(&device, offer)?;
    let prepared = prepared.filter(|_| agreed.over_io_uring);
    if options.uring == Uring::On && prepared.is_none() {
        return Err(MountError::NoUring(format!("this kernel does not offer them{}", remedy())));
    }
    let queues = prepared.map(|prepared| begin(prepared, &device, &server, options)).transpose()?.flatten();
    let device_threads = match &queues {
        Some(queues) => {
            tracing::info!("the kernel's requests come over io_uring, in {} queues", queues.count());
            DEVICE_THREADS_BESIDE_URING
        }
        None => {
            tracing::info!("the kernel's requests come over /dev/fuse");
            options.threads.max(1)
        }
    };
    let teller = Arc::clone(&notices);
    let thread = std::thread::Builder::new().name("fuse-notify".to_owned());
    thread.spawn(move || teller.run()).map_err(MountError::Device)?;
    let ending = Arc::clone(&end);
    let close = move |server: &Server| {
        notices.end();
        ending.begin_storing();
        let lost = server.door.finish();
        lost.iter().for_each(|line| tracing::error!("not stored when the mount ended, and lost: {line}"));
        if lost.is_empty() { Ok(()) } else { Err(MountError::Unwritten(lost)) }
    };
    spawn(device, server, options.request_bytes_max, device_threads, queues, move |server, served| {
        end.reach(close(server).and(served.map_err(MountError::from)));
    })
    .map_err(MountError::Device)
}

/// What to do about a kernel that does not offer io_uring.
fn remedy() -> String {
    match std::fs::read_to_string(uring::SWITCH) {
        Ok(value) if value.trim() == "N" => format!(": write Y to {} as root", uring::SWITCH),
        Ok(_) => String::new(),
        Err(_) => ": Linux 6.14 or later does, if it was built for it".to_owned(),
    }
}

/// Everything that io_uring needs of the system, if it shall be used.
fn prepare(device: &Arc<Device>, options: &MountOptions) -> Result<Option<Prepared>, MountError> {
    let is_switched_on = || std::fs::read_to_string(uring::SWITCH).is_ok_and(|value| value.trim() == "Y");
    let is_wanted = match options.uring {
        Uring::Off => false,
        Uring::On => true,
        Uring::Auto => is_switched_on(),
    };
    if !is_wanted {
        return Ok(None);
    }
    match Prepared::new(device) {
        Ok(prepared) => Ok(Some(prepared)),
        Err(error) if options.uring == Uring::On => Err(MountError::NoUring(error.to_string())),
        Err(error) => {
            tracing::warn!("no requests over io_uring: {error}");
            Ok(None)
        }
    }
}

/// Takes places in the kernel's queues; `None` when it refuses them and goes on over the device.
fn begin(
    prepared: Prepared,
    device: &Arc<Device>,
    server: &Arc<Server>,
    options: &MountOptions,
) -> Result<Option<Arc<Queues>>, MountError> {
    let (device, server) = (Arc::clone(device), Arc::clone(server));
    let (queues, outcome) = prepared.begin(device, server, options.request_bytes_max, options.threads);
    match outcome {
        Ok(()) => Ok(Some(queues)),
        Err(errno) if options.uring == Uring::On => Err(MountError::NoUring(errno.to_string())),
        Err(errno) => {
            tracing::warn!("no requests over io_uring: the kernel refused a queue: {errno}");
            Ok(None)
        }
    }
}

/// Ends calls of killed processes for as long as the mount lives. `answers`: over the device, where any thread may
/// answer any request; a request over io_uring has its answer from the thread that holds its place.
fn release_the_dying(device: &Weak<Device>, server: &Weak<Server>, answers: bool) {
    let clock = vazao_meter::clock::system();
    let mut dying = Dying::default();
    loop {
        clock.sleep(dying::LOOK_EVERY);
        let (Some(device), Some(server)) = (device.upgrade(), server.upgrade()) else { return };
        for unique in dying.look(&server.interrupts.writers(), dying::is_killed) {
            tracing::debug!(kernel = unique, "the caller was killed; what its call waits for is left");
            server.interrupts.kill(unique);
            if answers {
                device.answer_interrupted(unique);
            }
        }
        server.expire_second_walks();
    }
}

fn spawn(
    device: Arc<Device>,
    server: Arc<Server>,
    request_bytes_max: u32,
    device_threads: usize,
    queues: Option<Arc<Queues>>,
    finish: impl FnOnce(&Server, Result<(), DeviceError>) + Send + 'static,
) -> io::Result<()> {
    let (worker_pool, memory) = (Arc::new(WorkerPool::new()), Arc::new(Memory::new(request_bytes_max)));
    let mut threads: Vec<Thread> = Vec::new();
    for number in 0..device_threads {
        let (device, server, worker_pool) =
            (Arc::clone(&device), Arc::clone(&server), Arc::clone(&worker_pool));
        let memory = Arc::clone(&memory);
        let thread = std::thread::Builder::new().name(format!("fuse-device-{number}"));
        threads.push(thread.spawn(move || receive::serve(&device, &server, &worker_pool, &memory))?);
    }
    let (devices, helped) = (Arc::downgrade(&device), Arc::downgrade(&server));
    let helpers = Arc::clone(&worker_pool);
    let help = move || {
        let (Some(device), Some(server)) = (devices.upgrade(), helped.upgrade()) else { return };
        let (worker_pool, memory) = (Arc::clone(&helpers), Arc::clone(&memory));
        let thread = std::thread::Builder::new().name("fuse-helper".to_owned());
        let work = move || receive::serve(&device, &server, &worker_pool, &memory);
        if let Err(error) = thread.spawn(work) {
            tracing::warn!("no thread to stand in for one that waits for a lock: {error}");
        }
    };
    let is_device_only = queues.is_none();
    if is_device_only {
        server.lock_waiters.make_up_with(Box::new(help));
    }
    let (dying_device, dying_server) = (Arc::downgrade(&device), Arc::downgrade(&server));
    let thread = std::thread::Builder::new().name("fuse-dying".to_owned());
    thread.spawn(move || release_the_dying(&dying_device, &dying_server, is_device_only))?;
    drop(device);
    std::thread::Builder::new().name("fuse-end".to_owned()).spawn(move || {
        let panicked = || Err(DeviceError::Device(Errno::IO));
        let mut outcome = Ok(());
        for thread in threads {
            outcome = outcome.and(thread.join().unwrap_or_else(|_| panicked()));
        }
        let served = queues.map_or(Ok(()), |queues| queues.join());
        finish(&server, outcome.and(served));
    })?;
    Ok(())
}
