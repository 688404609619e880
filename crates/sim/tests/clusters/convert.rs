//! Files that get another layout while clients read and write them.

use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use vazao_client::{Client, Convert, File, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::distribution::Pattern;
use vazao_model::ids::ROOT;
use vazao_model::{Code, InodeId, LayoutHint};
use vazao_sim::network::{End, Weather};
use vazao_sim::{Cluster, ClusterOptions};
use vazao_wire::Method;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Pending, Received, Transport};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };
const UNIT: u64 = 64 << 10;

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 977) as u8 ^ seed | 1).collect()
}

fn hint(pattern: Pattern, width: u32) -> LayoutHint {
    LayoutHint { stripe_unit_bytes: UNIT, width, pattern: Some(pattern), ..LayoutHint::default() }
}

fn how(pattern: Pattern) -> Convert {
    Convert { hint: hint(pattern, 0), is_dry_run: false, rate_bytes_max: 0 }
}

fn whole(file: &File) -> Vec<u8> {
    let mut found = vec![0; file.attributes().expect("is there").size as usize];
    assert_eq!(file.read_at(&mut found, 0).expect("is whole"), found.len());
    found
}

/// A cluster with two clients, and a file of `contents` that the first one has open.
fn start(seed: u64, contents: &[u8]) -> (Cluster, Client, Client, InodeId, File) {
    let cluster = Cluster::new(ClusterOptions { seed, data_servers: 3, down_ms_max: 500 });
    let (writer, converter) = (cluster.client(0), cluster.client(1));
    writer.set_layout_hint(ROOT, hint(Pattern::Stripe, 0)).expect("fair weather");
    let new = NewInode { mode: 0o600, ..Default::default() };
    let inode = writer.create(ROOT, b"f", &new).expect("fair weather").inode;
    let file = writer.open_file(inode, MODE).expect("fair weather");
    file.write_at(contents, 0).expect("fair weather");
    file.sync().expect("fair weather");
    (cluster, writer, converter, inode, file)
}

#[test]
fn an_open_file_is_converted_under_its_writer_and_reader() {
    let mut model = bytes(1, 700_000);
    let (cluster, writer, converter, inode, file) = start(1, &model);
    for (step, pattern) in
        (0..).zip([Pattern::Groups { groups: 3, factor: 2 }, Pattern::Local, Pattern::Stripe])
    {
        // Unreported and partly unsent when the conversion begins.
        let (at, part) = (50_000 + 70_000 * step, bytes(step as u8 + 2, 90_000));
        file.write_at(&part, at as u64).expect("writes");
        model[at..at + part.len()].copy_from_slice(&part);
        let done = converter.convert(inode, &how(pattern.clone()), &|_| true).expect("converts");
        assert!(done.is_changed && done.bytes >= 700_000 - UNIT, "{done:?}");
        assert!(whole(&file) == model, "{pattern:?}: the writer reads what it wrote");
        let tail = bytes(step as u8 + 60, 30_000);
        file.write_at(&tail, model.len() as u64).expect("writes on");
        model.extend(tail);
        file.sync().expect("all of it is there");
        let layout = writer.layout(inode).expect("asks").expect("striped");
        assert_eq!(layout.distribution.pattern(), pattern);
        let newcomer = cluster.client(10 + step as u64);
        assert!(whole(&newcomer.open_file(inode, MODE).expect("opens")) == model, "{pattern:?}");
    }
    let again = converter.convert(inode, &how(Pattern::Stripe), &|_| true).expect("nothing to do");
    assert!(!again.is_changed);
}

#[test]
fn what_is_written_while_it_is_copied_makes_it_start_over_and_is_not_lost() {
    let mut model = bytes(1, 9 << 20);
    let (_cluster, _writer, converter, inode, file) = start(2, &model);
    let writes = Cell::new(0u8);
    let once = |_| -> bool {
        if writes.get() < 1 {
            writes.set(1);
            file.write_at(&bytes(7, 5_000), 3).expect("a watched object may be written to");
            file.flush().expect("and its change reported");
        }
        true
    };
    let done = converter.convert(inode, &how(Pattern::Local), &once).expect("converts at the second attempt");
    model[3..5_003].copy_from_slice(&bytes(7, 5_000));
    assert!(done.is_changed && whole(&file) == model);
    let always = |_| {
        writes.set(writes.get().wrapping_add(1));
        file.write_at(&bytes(writes.get(), 5_000), 3).expect("writes");
        file.flush().expect("reports");
        true
    };
    let refused =
        converter.convert(inode, &how(Pattern::Stripe), &always).expect_err("it is written to all the time");
    assert_eq!(refused.code, Code::InUse, "{refused}");
    model[3..5_003].copy_from_slice(&bytes(writes.get(), 5_000));
    assert!(whole(&file) == model);
}

#[test]
fn a_dry_run_changes_nothing_and_a_small_file_has_nothing_to_convert() {
    let (_cluster, writer, converter, inode, _file) = start(3, &bytes(1, 300_000));
    let before = writer.layout(inode).expect("asks");
    let dry = Convert { is_dry_run: true, ..how(Pattern::Local) };
    let done = converter.convert(inode, &dry, &|_| true).expect("only looks");
    assert!(!done.is_changed && done.bytes >= 300_000 && done.from != done.to, "{done:?}");
    assert_eq!(writer.layout(inode).expect("asks"), before);
    let new = NewInode { mode: 0o600, ..Default::default() };
    let small = writer.create(ROOT, b"small", &new).expect("creates").inode;
    let done = converter.convert(small, &how(Pattern::Local), &|_| true).expect("has no objects");
    assert_eq!((done.is_changed, done.from), (false, None));
}

/// Kills and losses of power at random points: the file is whole, in one layout or the other.
#[test]
fn a_conversion_that_is_hit_leaves_the_file_as_it_was_or_converted() {
    for seed in 0..60 {
        let mut model = bytes(1, 400_000 + 3_001 * seed as usize);
        let (cluster, _writer, converter, inode, file) = start(seed, &model);
        let power_lost = (seed % 3) as u32 * 5;
        let weather = Weather { lost: 10, broken: 40, killed: 20, power_lost, late: 0, doubled: 0 };
        cluster.set_weather(weather);
        let patterns = [Pattern::Local, Pattern::Groups { groups: 2, factor: 1 }, Pattern::Stripe];
        for pattern in patterns {
            // Whatever comes out, no byte may be another one.
            let _ = converter.convert(inode, &how(pattern), &|_| true);
        }
        if seed % 4 == 0 {
            cluster.end(1 + seed as usize % 3, End::Kill);
        }
        cluster.heal();
        let _ = converter.tick();
        cluster.clock().sleep(std::time::Duration::from_secs(3));
        assert!(whole(&file) == model, "seed {seed}: the open file");
        let part = bytes(9, 100_000);
        file.write_at(&part, 5).expect("no seal is left");
        file.sync().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        model[5..100_005].copy_from_slice(&part);
        let newcomer = cluster.client(5).open_file(inode, MODE).expect("opens");
        assert!(whole(&newcomer) == model, "seed {seed}: from elsewhere");
    }
}

/// Runs something right before the first request of a method leaves.
struct Interposed {
    inner: Arc<dyn Transport>,
    work: Mutex<Option<(Method, Work)>>,
}

/// False: nothing of this client arrives from then on.
type Work = Box<dyn FnOnce() -> bool + Send>;

struct Nobody;

impl Pending for Nobody {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        Err(Fault::new(Code::Cancelled, "its sender was killed"))
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl Interposed {
    fn client(cluster: &Cluster) -> (Client, Arc<Interposed>) {
        let mut made = None;
        let client = cluster.client_through(20, |inner| {
            let interposed = Arc::new(Interposed { inner, work: Mutex::default() });
            made = Some(Arc::clone(&interposed));
            interposed
        });
        (client, made.expect("the client was made with it"))
    }

    fn before(&self, method: Method, work: impl FnOnce() -> bool + Send + 'static) {
        *self.work.lock() = Some((method, Box::new(work)));
    }
}

impl Transport for Interposed {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let mut waiting = self.work.lock();
        let is_it = waiting.as_ref().is_some_and(|(other, _)| *other == method || *other == Method::Ping);
        let work = if is_it { waiting.take() } else { None };
        drop(waiting);
        if work.is_some_and(|(_, work)| !work()) {
            // Ping stands for any method: a dead process stays dead.
            self.before(Method::Ping, || false);
            return Box::new(Nobody);
        }
        self.inner.submit(address, method, message, attachment, deadline_ns)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

/// The old objects were cut, or punched, after they were copied and removed: the server found nothing to do, and the
/// file had its old bytes again as soon as it was made longer.
#[test]
fn what_is_cut_or_punched_through_an_old_view_is_so_in_the_new_objects_too() {
    for (method, range) in [(Method::TruncateObject, 5_000..400_000), (Method::PunchObject, 70_000..300_000)]
    {
        let mut model = bytes(3, 400_000);
        let (cluster, _writer, converter, inode, file) = start(4, &model);
        file.close().expect("closes");
        let (client, interposed) = Interposed::client(&cluster);
        let file = client.open_file(inode, MODE).expect("opens");
        let clock = Arc::clone(&interposed.inner).clock();
        interposed.before(method, move || {
            let done = converter.convert(inode, &how(Pattern::Local), &|_| true).expect("converts");
            // Time for the old objects to be removed.
            clock.sleep(std::time::Duration::from_secs(3));
            done.is_changed
        });
        if method == Method::TruncateObject {
            file.set_length(range.start).expect("cuts");
            file.set_length(range.end).expect("makes it longer");
        } else {
            file.zero(range.clone()).expect("punches");
        }
        model[range.start as usize..range.end as usize].fill(0);
        assert!(whole(&file) == model, "{method:?}");
        let newcomer = cluster.client(5).open_file(inode, MODE).expect("opens");
        assert!(whole(&newcomer) == model, "{method:?}: from elsewhere");
    }
}

#[test]
fn writers_end_a_conversion_whose_owner_was_killed_with_the_file_sealed() {
    let mut model = bytes(3, 400_000);
    let (cluster, _writer, converter, inode, file) = start(5, &model);
    let (doomed, interposed) = Interposed::client(&cluster);
    interposed.before(Method::SwitchLayout, || false);
    doomed.convert(inode, &how(Pattern::Local), &|_| true).expect_err("it was killed");
    let started_ns = cluster.clock().now_ns();
    let part = bytes(9, 100_000);
    file.write_at(&part, 5).expect("writes");
    file.sync().expect("waits for the seal to be lifted");
    model[5..100_005].copy_from_slice(&part);
    assert!(cluster.clock().now_ns() - started_ns < 15_000_000_000, "within its deadline, and by far");
    assert!(whole(&file) == model);
    let done = converter.convert(inode, &how(Pattern::Local), &|_| true).expect("somebody else may try");
    assert!(done.is_changed && whole(&file) == model);
}

#[test]
fn a_conversion_that_is_not_wanted_any_more_leaves_nothing_behind() {
    let model = bytes(3, 9 << 20);
    let (cluster, writer, converter, inode, file) = start(6, &model);
    let before = writer.layout(inode).expect("asks");
    let given_up = converter.convert(inode, &how(Pattern::Local), &|_| false).expect_err("given up");
    assert_eq!(given_up.code, Code::Cancelled);
    assert_eq!(writer.layout(inode).expect("asks"), before);
    cluster.clock().sleep(std::time::Duration::from_secs(5));
    file.write_at(&model[..10], 0).expect("nothing is sealed");
    file.sync().expect("nor fenced");
    assert!(converter.convert(inode, &how(Pattern::Local), &|_| true).expect("converts").is_changed);
}
