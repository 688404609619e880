//! The client against small fake servers in the same thread.

mod ahead;
mod behind_the_end;
mod copies;
mod cuts_elsewhere;
mod distributions;
mod fake_data;
mod fake_meta;
mod faults;
mod files;
mod growing;
mod lists;
mod locks;
mod missing;
mod names;
mod outages;
mod power;
mod shown;
mod two_clients;
mod unresponsive;
mod unsent;

use crate::{Client, File, NewInode, Options};
use fake_data::FakeData;
use fake_meta::{FakeMeta, META};
use std::sync::Arc;
use vazao_meter::{Clock, ManualClock};
use vazao_model::GroupId;
use vazao_model::distribution::Distribution;
use vazao_model::ids::ROOT;
use vazao_wire::inline::InlineTransport;
use vazao_wire::proto;
use vazao_wire::service::Service;

const KIB: u64 = 1024;
const UNIT: u64 = 64 * KIB;

pub(crate) struct Cluster {
    clock: Arc<ManualClock>,
    transport: Arc<InlineTransport>,
    meta: Arc<FakeMeta>,
    data: Vec<Arc<FakeData>>,
}

impl Cluster {
    /// A metadata service and `count` data servers `n1`, `n2`, … with target 1, 2, …
    pub(crate) fn new(count: u32) -> Cluster {
        Cluster::with_unit(count, UNIT)
    }

    fn with_unit(count: u32, unit_bytes: u64) -> Cluster {
        Cluster::with_distribution(count, Distribution::SimpleStripe { unit_bytes })
    }

    /// Files are laid out so, over as many targets as that takes.
    fn with_distribution(count: u32, distribution: Distribution) -> Cluster {
        let clock = Arc::new(ManualClock::default());
        let transport = InlineTransport::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let node = |id: u32| proto::Node {
            id,
            name: format!("n{id}"),
            address: format!("data:{id}"),
            roles: vec![2],
            state: 1,
            ..Default::default()
        };
        let target = |id: u32| proto::Target { id, node: id, state: 1, ..Default::default() };
        let group = |id: u32| proto::Group {
            id: GroupId::FIRST + id,
            epoch: 1,
            members: vec![id],
            ..Default::default()
        };
        let map = proto::ClusterMap {
            cluster_id: 7,
            epoch: 1,
            nodes: (1..=count).map(node).collect(),
            targets: (1..=count).map(target).collect(),
            groups: (1..=count).step_by(2).map(group).collect(),
            ..Default::default()
        };
        let meta = Arc::new(FakeMeta::new(map, distribution));
        transport.serve(META, Arc::clone(&meta) as Arc<dyn Service>);
        let data: Vec<Arc<FakeData>> = (1..=count).map(|_| Arc::default()).collect();
        for (index, server) in data.iter().enumerate() {
            transport.serve(&format!("data:{}", index + 1), Arc::clone(server) as Arc<dyn Service>);
        }
        Cluster { clock, transport, meta, data }
    }

    fn options() -> Options {
        Options { background: false, seed: 1, name: "test".into(), ..Options::default() }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Cluster::options())
    }

    fn client_with(&self, options: Options) -> Client {
        Client::open(Arc::clone(&self.transport) as _, vec![META.to_owned()], options).expect("opens")
    }

    /// Counters of clients are wanted from now on.
    pub(crate) fn watch(&self) {
        self.meta.state.lock().is_watched = true;
    }

    /// The names under which clients have told them.
    pub(crate) fn reports(&self) -> Vec<String> {
        self.meta.state.lock().reports.clone()
    }

    /// All objects are lost.
    pub(crate) fn lose_objects(&self) {
        self.data.iter().for_each(|server| server.state.lock().objects.clear());
    }

    /// Bytes held by all data servers.
    fn object_count(&self) -> usize {
        self.data.iter().map(|d| d.state.lock().objects.len()).sum()
    }

    fn data_requests(&self, method: vazao_wire::Method) -> usize {
        self.data.iter().map(|d| d.count(method)).sum()
    }
}

pub(crate) fn create(client: &Client, name: &str) -> File {
    client.create_file(ROOT, name.as_bytes(), &NewInode::default(), true).expect("creates").1
}

/// Bytes that differ from their neighbours' and from a shifted copy of themselves.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |x: &mut u64| {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        (*x >> 32) as u8
    };
    (0..length).map(|_| next(&mut x)).collect()
}

fn read_all(file: &File) -> Vec<u8> {
    let size = file.attributes().expect("has attributes").size as usize;
    let mut bytes = vec![0xEE; size + 10];
    let read = file.read_at(&mut bytes, 0).expect("reads");
    assert_eq!(read, size);
    bytes.truncate(read);
    bytes
}
