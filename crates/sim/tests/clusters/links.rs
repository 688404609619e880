//! Links between any two machines, also between servers, that are cut, one-way or flap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_sim::network::{Cut, Endpoint, Machine, Weather};
use vazao_sim::{Cluster, ClusterOptions};
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::transport::{Transport, call};
use vazao_wire::{op, proto};

const META: Machine = Machine::Server(0);
const ONE: Machine = Machine::Server(1);
const TWO: Machine = Machine::Server(2);

const CUT: Duration = Duration::from_secs(20);

fn cluster() -> Cluster {
    Cluster::new(ClusterOptions { seed: 1, data_servers: 2, down_ms_max: 500 })
}

fn cut(from: Machine, to: Machine) -> Cut {
    Cut { from, to, is_one_way: false, flapping: None, duration: CUT }
}

/// Answers everything, asks another server first where it is told to, and counts.
#[derive(Default)]
struct Answering {
    asked: AtomicU64,
    relay: Option<(Arc<Endpoint>, &'static str)>,
}

impl Service for Answering {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let relayed = self.relay.as_ref().map(|(through, to)| {
            let deadline_ns = through.clock().now_ns() + 1_000_000_000;
            through.submit(to, request.method, request.message, request.attachment, deadline_ns).wait()
        });
        match relayed {
            Some(Err(fault)) => responder.fail(&fault),
            Some(Ok(_)) | None => responder.reply(&[]),
        }
    }
}

/// Puts a service on a data server's machine, in the place of the server.
fn put(cluster: &Cluster, address: &str, relay: Option<(Arc<Endpoint>, &'static str)>) -> Arc<Answering> {
    let service = Arc::new(Answering { relay, ..Answering::default() });
    cluster.transport().serve(address, Arc::clone(&service) as _);
    service
}

fn ask(cluster: &Cluster, from: usize, address: &str) -> Result<(), Code> {
    let deadline_ns = cluster.clock().now_ns() + 1_000_000_000;
    let request = proto::PingRequest::default();
    let asked: Result<_, Fault> = call::<op::Ping>(&*cluster.endpoint(from), address, &request, deadline_ns);
    asked.map(|_| ()).map_err(|fault| fault.code)
}

#[test]
fn two_servers_part_and_everything_else_goes_on() {
    let cluster = cluster();
    cluster.cut(cut(ONE, TWO));
    cluster.clock().sleep(Duration::from_secs(1));
    let before_ns = cluster.clock().now_ns();
    assert_eq!(ask(&cluster, 1, "data2:7070"), Err(Code::Timeout));
    assert_eq!(cluster.clock().now_ns() - before_ns, 1_000_000_000, "it waits until its deadline");
    assert_eq!(ask(&cluster, 2, "data1:7070"), Err(Code::Timeout));
    for (from, address) in [(1, "meta:7070"), (2, "meta:7070"), (0, "data1:7070"), (0, "data2:7070")] {
        assert_eq!(ask(&cluster, from, address), Ok(()), "{from} asks {address}");
    }
    let map = cluster.client(1).refresh_map().expect("no link of a client is cut");
    assert_eq!(map.targets.len(), 2);
    cluster.clock().sleep(CUT);
    assert_eq!(ask(&cluster, 1, "data2:7070"), Ok(()), "the link is whole again");
}

#[test]
fn a_link_cut_one_way_takes_the_requests_of_one_server_and_the_answers_to_the_other() {
    let cluster = cluster();
    let (one, two) = (put(&cluster, "data1:7070", None), put(&cluster, "data2:7070", None));
    cluster.cut(Cut { is_one_way: true, ..cut(ONE, TWO) });
    cluster.clock().sleep(Duration::from_millis(1));
    assert_eq!(ask(&cluster, 1, "data2:7070"), Err(Code::Timeout));
    assert_eq!(two.asked.load(Ordering::Relaxed), 0, "a request that is lost does not arrive");
    assert_eq!(ask(&cluster, 2, "data1:7070"), Err(Code::Timeout));
    assert_eq!(one.asked.load(Ordering::Relaxed), 1, "a request arrives whose answer is lost");
}

#[test]
fn a_link_that_flaps_carries_some_requests_and_loses_others() {
    let cluster = cluster();
    cluster.cut(Cut { flapping: Some(Duration::from_secs(2)), ..cut(ONE, META) });
    cluster.clock().sleep(Duration::from_millis(100));
    let asked: Vec<bool> = (0..10)
        .map(|_| {
            let is_answered = ask(&cluster, 1, "meta:7070").is_ok();
            cluster.clock().sleep(Duration::from_millis(500));
            is_answered
        })
        .collect();
    assert!(asked.contains(&true) && asked.contains(&false), "{asked:?}");
}

/// What a primary will do with a client's write.
#[test]
fn a_server_asks_another_one_while_it_answers_a_client() {
    let cluster = cluster();
    let two = put(&cluster, "data2:7070", None);
    let one = put(&cluster, "data1:7070", Some((cluster.endpoint(1), "data2:7070")));
    let client = |deadline_s: u64| {
        let deadline_ns = cluster.clock().now_ns() + deadline_s * 1_000_000_000;
        let request = proto::PingRequest::default();
        call::<op::Ping>(&*cluster.endpoint(0), "data1:7070", &request, deadline_ns)
            .map_err(|fault| fault.code)
    };
    assert!(client(5).is_ok());
    cluster.cut(cut(ONE, TWO));
    cluster.clock().sleep(Duration::from_secs(1));
    assert_eq!(client(5).map(drop), Err(Code::Timeout));
    let counts = [&one, &two].map(|server| server.asked.load(Ordering::Relaxed));
    assert_eq!(counts, [2, 1]);
}

#[test]
fn a_copy_of_a_request_arrives_after_its_answer_and_after_other_requests() {
    let cluster = cluster();
    let one = put(&cluster, "data1:7070", None);
    cluster.set_weather(Weather { doubled: 1000, ..Weather::default() });
    assert_eq!(ask(&cluster, 0, "data1:7070"), Ok(()));
    assert_eq!(one.asked.load(Ordering::Relaxed), 1, "the copy is on its way");
    cluster.set_weather(Weather::default());
    (0..30).for_each(|_| assert_eq!(ask(&cluster, 0, "data1:7070"), Ok(())));
    assert_eq!(one.asked.load(Ordering::Relaxed), 1 + 1 + 30);
}
