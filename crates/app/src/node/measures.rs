//! `Measure`: counters of this node and its machine, from which a bottleneck is named.

use parking_lot::Mutex;
use prost::Message;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use vazao_disk::{Disk, WatchedDisk};
use vazao_meter::Clock;
use vazao_meter::machine::DiskWatch;
use vazao_meter::measures::{Measures, Part};
use vazao_wire::messages::measures::of_this_process;
use vazao_wire::pool::Pool;
use vazao_wire::proto;
use vazao_wire::service::{Request, Responder, Service};
use vazao_wire::shell::decode;

/// Questions that may wait: reading the kernel's files takes about a millisecond.
const WAITING_MAX: usize = 64;

/// The parts of a node that count something.
pub(crate) trait Counted: Send + Sync + 'static {
    /// Adds connections and work.
    fn fill(&self, measures: &mut Measures);
    /// What clients reported, where this node knows.
    fn clients(&self) -> Vec<proto::Measures>;
}

/// The service; filled in once the node is open.
pub(crate) struct MeasureService {
    name: String,
    clock: Arc<dyn Clock>,
    disks: Mutex<Vec<Arc<DiskWatch>>>,
    node: OnceLock<Weak<dyn Counted>>,
    pool: Pool,
}

impl MeasureService {
    /// A service of the node `name`.
    pub(crate) fn new(name: &str, clock: &Arc<dyn Clock>) -> Arc<MeasureService> {
        let pool = Pool::new("measures", 1, WAITING_MAX, 0, Arc::clone(clock));
        let (name, clock) = (name.to_owned(), Arc::clone(clock));
        Arc::new(MeasureService { name, clock, disks: Mutex::default(), node: OnceLock::new(), pool })
    }

    /// `disk`, which lies in `directory`, with what is waited for there counted.
    pub(crate) fn watch(&self, directory: &Path, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        let place = directory.display().to_string();
        let watch = Arc::new(DiskWatch::new(directory, &place, Arc::clone(&self.clock)));
        self.disks.lock().push(Arc::clone(&watch));
        Arc::new(WatchedDisk::new(disk, watch))
    }

    /// Says who counts.
    pub(crate) fn fill(&self, node: Weak<dyn Counted>) {
        let _ = self.node.set(node);
    }

    fn measures(&self) -> Measures {
        let mut measures = of_this_process(&self.name, Part::Server, self.clock.now_ns());
        let disks = self.disks.lock();
        measures.disks = disks.iter().map(|disk| disk.measures()).collect();
        drop(disks);
        if let Some(node) = self.node.get().and_then(Weak::upgrade) {
            node.fill(&mut measures);
        }
        measures
    }

    fn answer(&self, request: &proto::MeasureRequest) -> proto::MeasureResponse {
        let node = self.node.get().and_then(Weak::upgrade).filter(|_| request.with_clients);
        let clients = node.map(|node| node.clients()).unwrap_or_default();
        proto::MeasureResponse { measures: Some((&self.measures()).into()), clients }
    }
}

/// The service as the router has it: what is asked is answered by a thread of its own.
pub(crate) struct Measuring(pub(crate) Arc<MeasureService>);

impl Service for Measuring {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let asked = match decode::<proto::MeasureRequest>(&request) {
            Ok(asked) => asked,
            Err(fault) => return responder.fail(&fault),
        };
        let service = Arc::clone(&self.0);
        let work = move || Ok((service.answer(&asked).encode_to_vec(), Vec::new()));
        if let Err(fault) = self.0.pool.defer(request.call(), 0, responder, work) {
            responder.fail(&fault);
        }
    }
}
