//! The service and the client against one another, in one process.

mod attacks;
mod attributes;
mod behind;
mod channels;
mod hung;
mod messages;
mod names;

use crate::{AreaConfig, AreaService, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use vazao_client::Client;
use vazao_client::area::{AreaClient, ChannelOptions};
use vazao_meter::{Clock, ManualClock};
use vazao_wire::inline::{Fate, InlineTransport};
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::{Method, proto};

const META: &str = "meta:1";
const NODE: &str = "node:1";

const WRITE: ChannelOptions = ChannelOptions {
    read: true,
    write: true,
    create: true,
    exclusive: false,
    truncate: false,
    mode: 0o644,
    identity: None,
};

/// As much of a metadata service as a client of areas needs.
struct FakeMeta {
    requests: AtomicU64,
}

fn map() -> proto::ClusterMap {
    let node = proto::Node {
        id: 1,
        name: "n1".into(),
        address: NODE.into(),
        roles: vec![3],
        state: 1,
        ..Default::default()
    };
    proto::ClusterMap { cluster_id: 1, epoch: 1, nodes: vec![node], targets: vec![], ..Default::default() }
}

impl Service for FakeMeta {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        use prost::Message;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let map = Some(map());
        match request.method {
            Method::OpenSession => responder.reply(
                &proto::OpenSessionResponse {
                    session: 1,
                    lease_ms: 60_000,
                    slots: 8,
                    map,
                    ..Default::default()
                }
                .encode_to_vec(),
            ),
            Method::GetClusterMap => responder.reply(&proto::GetClusterMapResponse { map }.encode_to_vec()),
            _ => responder.fail(&Fault::from(vazao_model::Code::Unsupported)),
        }
    }
}

/// A node `n1` with an area `data`, and a client.
struct World {
    clock: Arc<ManualClock>,
    transport: Arc<InlineTransport>,
    meta: Arc<FakeMeta>,
    service: Arc<AreaService>,
    options: Options,
    client: Client,
    area: AreaClient,
    /// `data` is the area, `outside` is not.
    directory: TempDir,
}

fn config(name: &str, path: &Path, read_only: bool) -> AreaConfig {
    AreaConfig { name: name.to_owned(), path: path.to_owned(), read_only, owner: None, mounted_at: None }
}

impl World {
    /// The first answer to `lost` does not arrive, though the request is carried out.
    fn lose_first(&self, lost: Method) {
        let mut is_lost = false;
        self.transport.set_fates(Some(Box::new(move |_, method| {
            if method == lost && !std::mem::replace(&mut is_lost, true) {
                Fate::BreakAfter
            } else {
                Fate::Deliver
            }
        })));
    }

    fn new() -> World {
        World::with(Options::default())
    }

    fn with(options: Options) -> World {
        let options = Options { name: "n1".to_owned(), threads: 0, ..options };
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in ["data", "outside"] {
            std::fs::create_dir(directory.path().join(name)).expect("made");
        }
        let clock = Arc::new(ManualClock::default());
        let transport = InlineTransport::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let meta = Arc::new(FakeMeta { requests: AtomicU64::new(0) });
        transport.serve(META, Arc::clone(&meta) as Arc<dyn Service>);
        let areas = vec![config("data", &directory.path().join("data"), false)];
        let service =
            AreaService::open(areas, options.clone(), Arc::clone(&clock) as Arc<dyn Clock>).expect("opens");
        transport.serve(NODE, Arc::clone(&service) as Arc<dyn Service>);
        let client_options =
            vazao_client::Options { background: false, seed: 1, name: "test".into(), ..Default::default() };
        let client =
            Client::open(Arc::clone(&transport) as _, vec![META.to_owned()], client_options).expect("opens");
        let area = client.area("n1", "data");
        World { clock, transport, meta, service, options, client, area, directory }
    }

    /// The daemon ends and starts again.
    fn restart(&mut self) {
        let areas = vec![config("data", &self.path("data"), false)];
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        self.service = AreaService::open(areas, self.options.clone(), clock).expect("opens");
        self.transport.serve(NODE, Arc::clone(&self.service) as Arc<dyn Service>);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file below the temporary directory.
    fn put(&self, name: &str, contents: &[u8]) {
        std::fs::write(self.path(name), contents).expect("written");
    }
}
