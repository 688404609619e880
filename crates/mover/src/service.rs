//! The mover of a daemon: what it receives, what it sends, its jobs, as a [`Service`].

use crate::engine::{Engine, Engines};
use crate::job::Queue;
use crate::job::Setup;
use crate::options::Options;
use crate::receive::{Begun, DataPort, Receiver};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use vazao_area::AreaService;
use vazao_client::Client;
use vazao_meter::{Clock, Exposition};
use vazao_model::Code;
use vazao_wire::pool::Pool;
use vazao_wire::service::{Answer, Call, Fault, Request, Responder, Service};
use vazao_wire::shell::{Shell, decode};
use vazao_wire::{Method, proto};

/// Threads for requests that are about no area in particular: jobs, measurements.
const THREADS: usize = 8;

/// Requests that wait for them.
const REQUESTS_MAX: usize = 4096;

/// Bytes that these requests hold.
const REQUEST_BYTES_MAX: usize = 128 << 20;

/// Ticks between two sweeps for abandoned parts.
const SWEEP_TICKS: u64 = 600;

/// The mover of one node.
pub struct Mover {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    pool: Pool,
    engine: Engine,
    engines: Engines,
    ticks: std::sync::atomic::AtomicU64,
}

struct Shared {
    receiver: Arc<Receiver>,
    port: DataPort,
    options: Options,
    shell: Arc<Shell>,
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover").field("node", &self.shared.options.node).finish_non_exhaustive()
    }
}

fn message(message: &impl Message) -> Answer {
    Ok((message.encode_to_vec(), Vec::new()))
}

/// What a request has done where it may wait.
type Work = Box<dyn FnOnce(&Shared) -> Answer + Send>;

impl Mover {
    /// Starts receiving, and goes on with the jobs that are written down. `client` opens a client of the daemon's own
    /// cluster; it is called when there is something to copy. Errors: a port that is taken, a directory that cannot be
    /// written.
    pub fn open(
        options: Options,
        area: Arc<AreaService>,
        client: impl Fn() -> vazao_client::Result<Client> + Send + Sync + 'static,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Arc<Mover>> {
        let engine = Engine::start(Arc::clone(&clock))?;
        let engines = Engines::new(Arc::clone(&clock));
        let receiver = Arc::new(Receiver::open(
            Arc::clone(&area),
            &options.node,
            &options.directory,
            options.copies_in_max,
            Arc::clone(&clock),
        )?);
        let port = DataPort::open(&options.listen, Arc::clone(&receiver), &engine, engines.clone())?;
        let queue = Arc::new(Queue::open(Setup {
            node: options.node.clone(),
            area,
            clock: Arc::clone(&clock),
            directory: &options.directory,
            copies_out_max: options.copies_out_max,
            copies_pair_max: options.copies_pair_max,
            open_client: Box::new(client),
            engines: engines.clone(),
        })?);
        let pool = Pool::new("copies", THREADS, REQUESTS_MAX, REQUEST_BYTES_MAX, Arc::clone(&clock));
        let shell = Shell::new("vazao_copy", clock);
        let shared = Arc::new(Shared { receiver, port, options, shell });
        Ok(Arc::new(Mover { shared, queue, pool, engine, engines, ticks: Default::default() }))
    }

    /// Background work; to be called about once a second.
    pub fn tick(&self) {
        self.shared.receiver.tick();
        let ticks = self.ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if ticks.is_multiple_of(SWEEP_TICKS) {
            self.shared.receiver.sweep();
            self.queue.sweep();
        }
    }

    /// Stops sending and receiving; all goes on after the next start. What still waits at `until_ns` for another node
    /// or for a disk that hangs is left to itself.
    pub fn close(&self, until_ns: u64) {
        let clock = self.shared.shell.clock();
        self.queue.stop(until_ns);
        self.shared.port.close();
        self.engine.stop(until_ns);
        self.engines.stop(until_ns);
        let timeout = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
        if !self.pool.stop(timeout) {
            tracing::warn!("a request about copies still waits for another node, or for a disk that hangs");
        }
    }

    /// Writes its metrics out.
    pub fn expose(&self, out: &mut Exposition) {
        let receiver = &self.shared.receiver;
        let metrics = &receiver.metrics;
        self.shared.shell.expose(&[], out);
        let (jobs, sending) = self.queue.counts();
        out.counter(
            "vazao_copy_received_bytes",
            "Bytes of copies received.",
            &[],
            metrics.received_bytes.get() as f64,
        );
        out.counter("vazao_copy_received_files", "Files received whole.", &[], metrics.files.get() as f64);
        out.counter("vazao_copy_refused", "Files told to come later.", &[], metrics.refused.get() as f64);
        out.gauge("vazao_copy_arriving", "Files that arrive.", &[], receiver.arriving() as f64);
        out.gauge("vazao_copy_sending", "Files being sent.", &[], sending as f64);
        out.gauge("vazao_copy_connections", "Data connections.", &[], self.shared.port.connections() as f64);
        out.gauge("vazao_jobs", "Jobs that are not over.", &[], jobs as f64);
    }

    fn defer(
        &self,
        call: Call,
        bytes: usize,
        responder: &mut dyn Responder,
        work: Work,
    ) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        self.pool.defer(call, bytes, responder, move || work(&shared))
    }

    fn dispatch(&self, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let bytes = request.message.len() + request.attachment.len();
        let Some((area, work)) = self.copy_work(request)? else {
            let work = self.job_work(request)?;
            return self.defer(request.call(), bytes, responder, work);
        };
        let areas = self.shared.receiver.areas();
        // A copy or an area that is not known is answered without a file system.
        let Some(area) = area.filter(|area| areas.has(area)) else {
            return self.defer(request.call(), bytes, responder, work);
        };
        let shared = Arc::clone(&self.shared);
        let work = move || work(&shared);
        areas.defer_copy(&area, request.call(), bytes, responder, work)
    }

    /// What a request about files that arrive has done, and in which area; `None` for any other request.
    fn copy_work(&self, request: &Request<'_>) -> Result<Option<(Option<String>, Work)>, Fault> {
        let receiver = &self.shared.receiver;
        let area_of =
            |begin: Option<&proto::CopyBeginRequest>| Some(begin.map_or("", |b| &b.area).to_owned());
        let attachment = || request.attachment.to_vec();
        Ok(Some(match request.method {
            Method::CopyBegin => {
                let message: proto::CopyBeginRequest = decode(request)?;
                (area_of(Some(&message)), Box::new(move |shared| begin(shared, message)))
            }
            Method::CopyBlock => {
                let (message, bytes): (proto::CopyBlockRequest, _) = (decode(request)?, attachment());
                let area = receiver.area_of(&message.copy);
                (area, Box::new(move |shared| block(shared, &message, &bytes)))
            }
            Method::CopyEnd => {
                let end: proto::CopyEndRequest = decode(request)?;
                let area = receiver.area_of(&end.copy);
                (area, Box::new(move |shared| message(&shared.receiver.end(&end)?)))
            }
            Method::CopyAbort => {
                let abort: proto::CopyAbortRequest = decode(request)?;
                let area = receiver.area_of(&abort.copy);
                let work: Work = Box::new(move |shared| {
                    shared.receiver.abort(&abort)?;
                    message(&proto::CopyAbortResponse {})
                });
                (area, work)
            }
            Method::CopyWhole => {
                let (whole, bytes): (proto::CopyWholeRequest, _) = (decode(request)?, attachment());
                let area = area_of(whole.begin.as_ref());
                let work: Work = Box::new(move |shared| {
                    let disk_ns = shared.receiver.whole(whole, &bytes)?;
                    message(&proto::CopyWholeResponse { disk_ns })
                });
                (area, work)
            }
            Method::CopyBatch => {
                let (files, bytes): (proto::CopyBatchRequest, _) = (decode(request)?, attachment());
                let area = area_of(files.files.first().and_then(|file| file.begin.as_ref()));
                (area, Box::new(move |shared| message(&shared.receiver.batch(files, &bytes)?)))
            }
            _ => return Ok(None),
        }))
    }

    fn job_work(&self, request: &Request<'_>) -> Result<Work, Fault> {
        let queue = Arc::clone(&self.queue);
        Ok(match request.method {
            Method::SubmitJob => {
                let request: proto::SubmitJobRequest = decode(request)?;
                Box::new(move |_| message(&proto::SubmitJobResponse { job: Some(queue.submit(request)?) }))
            }
            Method::ListJobs => {
                let request = decode(request)?;
                Box::new(move |_| message(&queue.list(&request)?))
            }
            Method::ControlJob => {
                let request = decode(request)?;
                Box::new(move |_| message(&proto::ControlJobResponse { job: Some(queue.control(&request)?) }))
            }
            Method::ListJobFailures => {
                let request = decode(request)?;
                Box::new(move |_| message(&queue.failures(&request)?))
            }
            Method::OpenProbe => {
                let request: proto::OpenProbeRequest = decode(request)?;
                Box::new(move |shared| {
                    let token = shared.port.admit_probe(request.to_disk.then_some(request.area))?.to_vec();
                    message(&proto::OpenProbeResponse { token, port: u32::from(shared.port.port()) })
                })
            }
            Method::RunProbe => {
                let request = decode(request)?;
                Box::new(move |shared| message(&crate::probing::run(&shared.receiver, &request)?))
            }
            other => {
                return Err(Fault::new(Code::Unsupported, format!("{} on a mover", other.name())));
            }
        })
    }
}

fn begin(shared: &Shared, request: proto::CopyBeginRequest) -> Answer {
    let is_ftp = request.is_ftp;
    let incoming = match shared.receiver.begin(request)? {
        Begun::Complete => {
            return message(&proto::CopyBeginResponse { is_complete: true, ..Default::default() });
        }
        Begun::Arriving(incoming) => incoming,
    };
    let (finished, attachment) = incoming.arrived();
    let ftp = match is_ftp {
        true => {
            let name: String = incoming.begin.copy.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("ftp://{name}@{}/{name}", shared.port.ftp()?)
        }
        false => String::new(),
    };
    let response = proto::CopyBeginResponse {
        token: incoming.token().to_vec(),
        port: u32::from(shared.port.port()),
        finished_blocks: finished as u64,
        is_complete: false,
        ftp,
    };
    Ok((response.encode_to_vec(), attachment))
}

fn block(shared: &Shared, request: &proto::CopyBlockRequest, bytes: &[u8]) -> Answer {
    let held = shared.receiver.find(&request.copy, &request.token)?;
    let started_ns = shared.shell.clock().now_ns();
    match request.zeros {
        true => held.zeros(request.offset, request.length, &mut |_| {})?,
        false if request.length != bytes.len() as u64 => {
            let why = format!("{}: {} bytes where {} were said", held.shown(), bytes.len(), request.length);
            return Err(Fault::new(Code::BadRequest, why));
        }
        false => {
            shared.receiver.metrics.received_bytes.add(request.length);
            held.write(request.offset, bytes, &request.checksums, &**shared.shell.clock(), &mut |_| {})?;
        }
    }
    message(&proto::CopyBlockResponse { disk_ns: shared.shell.clock().now_ns().saturating_sub(started_ns) })
}

impl Service for Mover {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        self.shared.shell.serve(&request, responder, |responder| self.dispatch(&request, responder));
    }
}
