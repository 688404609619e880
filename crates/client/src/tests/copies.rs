//! Files with copies: where changes and reads go, and who is asked when a member is dead, silent, late or damaged.

use super::*;
use crate::OpenMode;
use parking_lot::Mutex;
use std::time::Duration;
use vazao_model::{Code, InodeId, ObjectId};
use vazao_wire::Method;
use vazao_wire::inline::Fate;
use vazao_wire::interrupt::{Interrupt, interruptible};
use vazao_wire::service::{Answer, Deferred, Fault, Request, Responder};

const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };
const LENGTH: usize = 3 * UNIT as usize;
const GROUP: u32 = GroupId::FIRST + 500;

/// `count` data servers, which all are members of one placement group.
fn cluster(count: u32) -> Cluster {
    let cluster = Cluster::new(count);
    let group = proto::Group { id: GROUP, epoch: 1, members: (1..=count).collect(), agreed: true };
    cluster.meta.state.lock().map.groups = vec![group];
    for server in &cluster.data {
        let others = cluster.data.iter().filter(|other| !Arc::ptr_eq(other, server));
        *server.others.lock() = others.map(Arc::downgrade).collect();
        server.state.lock().boot = 77;
    }
    cluster
}

/// The same with a file on it.
fn cluster_with_file(count: u32) -> (Cluster, InodeId) {
    let cluster = cluster(count);
    let client = cluster.client();
    let inode = write(&client, "f");
    cluster.forget();
    (cluster, inode)
}

fn write(client: &Client, name: &str) -> InodeId {
    let file = create(client, name);
    file.write_at(&pattern(1, LENGTH), 0).expect("written");
    file.close().expect("closed");
    client.lookup(ROOT, name.as_bytes()).expect("is there").inode
}

impl Cluster {
    fn forget(&self) {
        self.data.iter().for_each(|server| server.state.lock().counts.clear());
    }

    fn asked(&self, method: Method) -> Vec<usize> {
        self.data.iter().map(|server| server.count(method)).collect()
    }

    /// The members of the group from now on.
    fn change_members(&self, members: &[u32]) {
        let mut state = self.meta.state.lock();
        state.map.epoch += 1;
        let epoch = state.map.epoch;
        state.map.groups[0] = proto::Group { id: GROUP, epoch, members: members.to_vec(), agreed: true };
    }

    /// Which server a client that knows nothing asks for the beginning of a file.
    fn preferred(&self, inode: InodeId) -> usize {
        let before = self.asked(Method::Read);
        read(self, &self.client(), inode);
        let asked = self.asked(Method::Read);
        (0..asked.len()).find(|index| asked[*index] > before[*index]).expect("one was asked")
    }
}

/// Reads a thousand bytes that have to be right; the seconds that it took.
fn read(cluster: &Cluster, client: &Client, inode: InodeId) -> f64 {
    let started_ns = cluster.clock.now_ns();
    let file = client.open_file(inode, READ).expect("opens");
    let mut bytes = [0; 1000];
    assert_eq!(file.read_at(&mut bytes, 0).expect("another one has it"), 1000);
    assert!(bytes == pattern(1, LENGTH)[..1000]);
    (cluster.clock.now_ns() - started_ns) as f64 / 1e9
}

/// Reads that went to each server beside and instead of another one.
fn hedged_and_other(client: &Client) -> (u64, u64) {
    let servers = client.statistics().servers;
    (servers.iter().map(|s| s.hedged).sum(), servers.iter().map(|s| s.other_copy).sum())
}

/// A server whose answers take a while.
struct Slow {
    server: Arc<FakeData>,
    clock: Arc<ManualClock>,
    delay: Duration,
    late: Mutex<Vec<(u64, Deferred, Answer)>>,
}

impl Slow {
    fn begin(cluster: &Cluster, index: usize, delay: Duration) {
        let (server, clock) = (Arc::clone(&cluster.data[index]), Arc::clone(&cluster.clock));
        let slow = Arc::new(Slow { server, clock, delay, late: Mutex::default() });
        cluster.transport.serve(&format!("data:{}", index + 1), Arc::clone(&slow) as Arc<dyn Service>);
        cluster.transport.set_idle(Some(Arc::new(move || {
            let now_ns = slow.clock.now_ns();
            let due: Vec<_> = slow.late.lock().extract_if(.., |(due_ns, ..)| *due_ns <= now_ns).collect();
            due.into_iter().for_each(|(_, deferred, answer)| deferred.finish(answer));
        })));
    }
}

/// Keeps an answer.
struct Kept(Option<Answer>);

impl Responder for Kept {
    fn reply(&mut self, message: &[u8]) {
        self.0 = Some(Ok((message.to_vec(), Vec::new())));
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        let mut attachment = vec![0; length];
        fill(&mut attachment).expect("filled");
        self.0 = Some(Ok((message.to_vec(), attachment)));
        true
    }

    fn fail(&mut self, fault: &Fault) {
        self.0 = Some(Err(fault.clone()));
    }

    fn defer(&mut self) -> Deferred {
        panic!("a fake server answers at once")
    }
}

impl Service for Slow {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        if matches!(request.method, Method::Ping | Method::StatObject) {
            // They need no disk.
            return self.server.handle(request, responder);
        }
        let mut kept = Kept(None);
        self.server.handle(request, &mut kept);
        let due_ns = self.clock.now_ns() + self.delay.as_nanos() as u64;
        self.late.lock().push((due_ns, responder.defer(), kept.0.expect("answered")));
    }
}

#[test]
fn changes_and_syncs_go_to_the_primary_and_reads_to_one_member_for_each_region() {
    let cluster = cluster(3);
    let client = cluster.client();
    let inodes: Vec<InodeId> = (0..40).map(|n| write(&client, &n.to_string())).collect();
    let file = client.open_file(inodes[0], OpenMode { read: true, write: true, truncate: false }).unwrap();
    file.write_at(&pattern(1, 100), 0).unwrap();
    file.sync().unwrap();
    file.set_length(1000).unwrap();
    for method in [Method::Write, Method::SyncObjects, Method::TruncateObject] {
        let asked = cluster.asked(method);
        assert!(asked[0] > 0 && asked[1..] == [0, 0], "{method:?}: {asked:?}");
    }
    cluster.forget();
    for inode in &inodes {
        let before = cluster.asked(Method::Read);
        for _ in 0..4 {
            read(&cluster, &cluster.client(), *inode);
        }
        let more = |index: usize| cluster.asked(Method::Read)[index] > before[index];
        assert_eq!((0..3).filter(|index| more(*index)).count(), 1, "a region has one place in page caches");
    }
    let asked = cluster.asked(Method::Read);
    assert!(asked.iter().all(|count| *count >= 4), "files are spread over all members: {asked:?}");
}

/// All slots were read from members of the same rank: of three copies on four servers two had most of the work.
#[test]
fn the_slots_of_a_file_are_read_from_all_servers_alike_and_from_those_that_are_left() {
    let cluster = cluster(4);
    let members = [[1, 2, 4], [1, 3, 2], [2, 3, 1], [3, 1, 2]];
    let group = |(members, id): (&[u32; 3], u32)| proto::Group {
        id,
        epoch: 1,
        members: members.to_vec(),
        agreed: true,
    };
    cluster.meta.state.lock().map.groups = members.iter().zip(GROUP..).map(group).collect();
    let client = cluster.client();
    let bytes = pattern(1, 4 * UNIT as usize);
    let files: Vec<InodeId> = (0..12)
        .map(|n| {
            let file = create(&client, &n.to_string());
            file.write_at(&bytes, 0).expect("written");
            file.close().expect("closed");
            client.lookup(ROOT, n.to_string().as_bytes()).expect("is there").inode
        })
        .collect();
    let asked = |client: &Client, inode: InodeId| {
        cluster.forget();
        assert!(read_all(&client.open_file(inode, READ).expect("opens")) == bytes);
        cluster.asked(Method::Read)
    };
    for inode in &files {
        assert_eq!(asked(&client, *inode), [1, 1, 1, 1]);
    }
    // The fourth server is in one group only.
    cluster.transport.stop("data:4");
    let client = cluster.client();
    asked(&client, files[0]);
    for inode in &files {
        let mut asked = asked(&client, *inode);
        asked.sort_unstable();
        assert_eq!(asked, [0, 1, 1, 2]);
    }
    assert!(hedged_and_other(&client).1 <= 1, "it is asked once");
}

/// How long large reads took at first counted as distance: one that had just had several of them was not read from any
/// more.
#[test]
fn a_member_next_door_is_read_from_also_after_answers_that_took_long() {
    for (distance_ns, is_left) in [(100_000, false), (0, true)] {
        let cluster = cluster(2);
        cluster.transport.set_distance(distance_ns);
        let client = cluster.client();
        let inodes: Vec<InodeId> = (0..20).map(|n| write(&client, &n.to_string())).collect();
        let client = cluster.client();
        let read_all = || {
            inodes.iter().for_each(|inode| {
                read(&cluster, &client, *inode);
            })
        };
        cluster.forget();
        Slow::begin(&cluster, 0, Duration::from_millis(15));
        read_all();
        let before = cluster.asked(Method::Read);
        assert!(before[0] > 0 && before[1] > 0, "{before:?}");
        read_all();
        assert_eq!(cluster.asked(Method::Read)[0] == before[0], is_left, "{distance_ns}");
    }
}

#[test]
fn a_dead_member_costs_readers_nothing_and_the_call_fails_only_when_all_are_dead() {
    let (cluster, inode) = cluster_with_file(3);
    let client = cluster.client();
    for dead in 1..=2 {
        cluster.transport.stop(&format!("data:{dead}"));
        assert!(read(&cluster, &client, inode) < 0.01);
        assert!(read(&cluster, &cluster.client(), inode) < 0.01, "nor one that knows nothing");
    }
    cluster.transport.stop("data:3");
    let file = client.open_file(inode, READ).unwrap();
    let started_ns = cluster.clock.now_ns();
    let error = file.read_at(&mut [0; 1000], 0).expect_err("all are dead");
    assert_eq!(error.code, Code::Unreachable);
    assert!(error.to_string().contains("could not be reached for"), "{error}");
    let seconds = (cluster.clock.now_ns() - started_ns) as f64 / 1e9;
    assert!((29.0..31.0).contains(&seconds), "one of them may be back: {seconds}");
    // Known to be out only once all are.
    let say = |index: usize| {
        let mut state = cluster.meta.state.lock();
        (state.map.nodes[index].state, state.map.nodes[index].silent_ms) = (2, 60_000);
    };
    let failed_at_once = || {
        let client = cluster.client();
        let file = client.open_file(inode, READ).unwrap();
        let started_ns = cluster.clock.now_ns();
        file.read_at(&mut [0; 1000], 0).expect_err("dead");
        cluster.clock.now_ns() - started_ns < 100_000_000
    };
    (0..2).for_each(say);
    assert!(!failed_at_once());
    say(2);
    assert!(failed_at_once());
}

#[test]
fn a_silent_member_holds_a_read_up_for_less_than_a_second_and_the_next_ones_not_at_all() {
    let (cluster, inode) = cluster_with_file(2);
    let first = cluster.preferred(inode);
    let silent = format!("data:{}", first + 1);
    cluster.transport.set_fates(Some(Box::new(move |address, _| {
        if address == silent { Fate::LoseRequest } else { Fate::Deliver }
    })));
    let client = cluster.client();
    let seconds = read(&cluster, &client, inode);
    assert!((0.02..0.9).contains(&seconds), "{seconds}");
    assert_eq!(hedged_and_other(&client), (0, 1), "no reads before it have earned a hedge");
    assert!(read(&cluster, &client, inode) < 0.01, "it is avoided now");
    let mut parts = [[0u8; 500], [0u8; 500]];
    let [a, b] = &mut parts;
    let file = client.open_file(inode, READ).unwrap();
    cluster.clock.advance(Duration::from_secs(5));
    let started_ns = cluster.clock.now_ns();
    let read = file.read_list(&mut [(0, &mut a[..]), (70_000, &mut b[..])]).expect("lists too");
    assert_eq!(read, [500, 500]);
    assert!(cluster.clock.now_ns() - started_ns < 900_000_000);
    cluster.clock.advance(Duration::from_secs(5));
    let started_ns = cluster.clock.now_ns();
    assert_eq!(
        file.seek(crate::Seek::Hole, 0).expect("holes too"),
        Some(pattern(1, LENGTH).iter().position(|b| *b == 0).unwrap() as u64)
    );
    assert!(cluster.clock.now_ns() - started_ns < 900_000_000);
}

/// While one is silent the other holds no leases for a moment, until their group goes on without the silent one. A read
/// that had asked both waited for the silent one alone, for 15 s.
#[test]
fn a_member_that_cannot_answer_for_a_moment_is_asked_again_while_the_other_one_is_silent() {
    let (cluster, inode) = cluster_with_file(2);
    let first = cluster.preferred(inode);
    let silent = format!("data:{}", first + 1);
    cluster.transport.set_fates(Some(Box::new(move |address, _| {
        if address == silent { Fate::LoseRequest } else { Fate::Deliver }
    })));
    cluster.data[1 - first].fail_next(Method::Read, Code::Unavailable, 8);
    let seconds = read(&cluster, &cluster.client(), inode);
    assert!((0.5..2.5).contains(&seconds), "{seconds}");
}

#[test]
fn a_late_member_has_another_one_asked_beside_it_for_one_read_in_twenty_at_most() {
    let (cluster, inode) = cluster_with_file(2);
    let first = cluster.preferred(inode);
    let client = cluster.client();
    // Reads that nothing was read ahead of.
    let read_at = |n: u64| {
        let file = client.open_file(inode, READ).unwrap();
        let started_ns = cluster.clock.now_ns();
        let mut bytes = [0; 500];
        file.read_at(&mut bytes, n * 7919 % 190_000).unwrap();
        assert!(bytes == pattern(1, LENGTH)[(n * 7919 % 190_000) as usize..][..500]);
        (cluster.clock.now_ns() - started_ns) / 1_000_000
    };
    Slow::begin(&cluster, first, Duration::from_micros(100));
    (0..25).for_each(|n| assert!(read_at(n) < 20));
    assert_eq!(hedged_and_other(&client), (0, 0));
    Slow::begin(&cluster, first, Duration::from_millis(300));
    let ms = read_at(25);
    assert!((20..30).contains(&ms), "{ms}");
    assert_eq!(hedged_and_other(&client), (1, 0));
    // The next one has to wait. Then it counts as slow, and is tried once a second.
    let ms = read_at(26);
    assert!((295..305).contains(&ms), "{ms}");
    assert_eq!(hedged_and_other(&client), (1, 0));
    (27..400).for_each(|n| assert!(read_at(n) < 20));
    let reads: u64 = client.statistics().servers.iter().map(|s| s.copy_reads).sum();
    assert_eq!((hedged_and_other(&client), reads), ((1, 0), 400));
    Slow::begin(&cluster, first, Duration::from_micros(100));
    let asked = || cluster.data[first].count(Method::Read);
    let before = asked();
    read_at(400);
    assert_eq!(asked(), before);
    cluster.clock.advance(Duration::from_secs(1));
    (401..500).for_each(|n| assert!(read_at(n) < 20));
    assert_eq!(asked(), before + 99, "it is as good as before");
}

#[test]
fn damaged_bytes_are_read_from_another_member_and_reported_to_the_one_that_has_them() {
    let (cluster, inode) = cluster_with_file(2);
    let first = cluster.preferred(inode);
    cluster.data[first].state.lock().flips = 1;
    let client = cluster.client();
    assert!(read(&cluster, &client, inode) < 0.01);
    assert_eq!(hedged_and_other(&client), (0, 1));
    let reported = cluster.asked(Method::ReportDamage);
    assert_eq!((reported[first], reported[1 - first]), (1, 0));
    // In lists, too.
    cluster.data[first].state.lock().flips = 2;
    let (mut a, mut b) = ([0; 500], [0; 500]);
    let file = client.open_file(inode, READ).unwrap();
    file.read_list(&mut [(0, &mut a[..]), (70_000, &mut b[..])]).expect("another one has it");
    assert!(a == pattern(1, LENGTH)[..500] && b == pattern(1, LENGTH)[70_000..70_500]);
    // All are damaged.
    cluster.data.iter().for_each(|server| server.state.lock().flips = 100);
    let error = client.open_file(inode, READ).unwrap().read_at(&mut [0; 1000], 0).expect_err("damaged");
    assert_eq!(error.code, Code::Corrupt);
    assert!(error.to_string().contains("is damaged: checksum mismatch; restore the file"), "{error}");
}

#[test]
fn an_object_that_one_member_lacks_is_read_from_another_one() {
    let (cluster, inode) = cluster_with_file(2);
    let first = cluster.preferred(inode);
    let objects = std::mem::take(&mut cluster.data[first].state.lock().objects);
    let client = cluster.client();
    assert!(read(&cluster, &client, inode) < 0.01);
    let reported = cluster.asked(Method::ReportDamage);
    assert_eq!((reported[first], reported[1 - first]), (1, 0));
    let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
    let hole = pattern(1, LENGTH).iter().position(|byte| *byte == 0).expect("a zero") as u64;
    assert_eq!(file.seek(crate::Seek::Hole, 0).unwrap(), Some(hole), "holes are found in the other's");
    // None has it.
    cluster.lose_objects();
    let error = client.open_file(inode, READ).unwrap().read_at(&mut [0; 1000], 0).expect_err("lost");
    assert_eq!(error.code, Code::Corrupt);
    assert!(error.to_string().contains("is missing on target t"), "{error}");
    drop(objects);
}

#[test]
fn a_member_that_refuses_has_another_one_asked_at_once() {
    let codes = [
        Code::Corrupt,
        Code::Io,
        Code::TargetFailed,
        Code::Hung,
        Code::Unavailable,
        Code::Overloaded,
        Code::WrongTarget,
        Code::WrongEpoch,
        Code::Disconnected,
    ];
    for code in codes {
        let (cluster, inode) = cluster_with_file(2);
        let first = cluster.preferred(inode);
        cluster.data[first].fail_next(Method::Read, code, 1_000);
        let client = cluster.client();
        let maps = cluster.meta.count(Method::GetClusterMap);
        let seconds = read(&cluster, &client, inode);
        assert!(seconds < 0.001, "{code:?}: {seconds}");
        assert_eq!(hedged_and_other(&client), (0, 1), "{code:?}");
        assert_eq!(cluster.meta.count(Method::GetClusterMap), maps, "{code:?}");
        // Both: as with one copy, but one that may answer later is waited for.
        cluster.data[1 - first].fail_next(Method::Read, Code::Unavailable, 3);
        read(&cluster, &client, inode);
        cluster.data[1 - first].fail_next(Method::Read, Code::Io, 1_000);
        cluster.data[first].fail_no_more();
        cluster.data[first].fail_next(Method::Read, Code::Corrupt, 1_000);
        let error = client.open_file(inode, READ).unwrap().read_at(&mut [0; 1000], 0).expect_err("both");
        assert!(matches!(error.code, Code::Io | Code::Corrupt), "{error}");
    }
}

#[test]
fn a_change_that_the_primary_does_not_answer_is_passed_on_by_another_member() {
    for fate in [Fate::LoseRequest, Fate::LoseAnswer, Fate::BreakAfter] {
        let (cluster, inode) = cluster_with_file(2);
        let client = cluster.client();
        let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
        cluster.data.iter().for_each(|server| server.state.lock().attempts.clear());
        cluster.transport.set_fates(Some(Box::new(
            move |address, _| {
                if address == "data:1" { fate } else { Fate::Deliver }
            },
        )));
        let started_ns = cluster.clock.now_ns();
        file.write_at(&pattern(5, 1000), 0).unwrap();
        file.flush().unwrap();
        let seconds = (cluster.clock.now_ns() - started_ns) as f64 / 1e9;
        assert!(seconds < 1.1, "{fate:?}: {seconds}");
        assert_eq!(cluster.data[1].count(Method::Write), 1);
        let last = cluster.data[1].state.lock().attempts.last().copied();
        assert_eq!(last, Some(1), "{fate:?}: it says that it is the second attempt");
        let object = |server: &Arc<FakeData>| {
            let state = server.state.lock();
            let object: &Vec<u8> = state.objects.values().next().expect("one");
            object[..1000].to_vec()
        };
        assert!(cluster.data.iter().all(|server| object(server) == pattern(5, 1000)));
    }
}

/// Each change and each sync waited for the silent one anew, until the map named another primary.
#[test]
fn a_primary_that_was_silent_holds_up_one_change_and_none_after_it() {
    let (cluster, inode) = cluster_with_file(2);
    let client = cluster.client();
    let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
    let seconds = |change: &dyn Fn()| {
        let started_ns = cluster.clock.now_ns();
        change();
        (cluster.clock.now_ns() - started_ns) as f64 / 1e9
    };
    let change_and_sync = || {
        file.write_at(&pattern(5, 1000), 0).unwrap();
        file.sync().unwrap();
    };
    assert!(seconds(&change_and_sync) < 0.01);
    cluster.transport.set_fates(Some(Box::new(move |address, _| {
        if address == "data:1" { Fate::LoseRequest } else { Fate::Deliver }
    })));
    let first = seconds(&change_and_sync);
    assert!((0.4..1.1).contains(&first), "{first}");
    let next = seconds(&|| (0..4).for_each(|_| change_and_sync()));
    assert!(next < 0.01, "{next}");
    // It is there again: it leads.
    cluster.transport.set_fates(None);
    cluster.forget();
    cluster.clock.advance(Duration::from_secs(6));
    change_and_sync();
    assert_eq!(cluster.asked(Method::SyncObjects), [1, 0]);
}

/// The primary waits for a member that is silent, or its disk is slow: the change was sent anew after 2 s, to a member
/// that was silent as well, and waited for that one for as long again.
#[test]
fn a_primary_that_takes_long_and_is_there_is_waited_for_and_its_work_is_not_done_twice() {
    let (cluster, inode) = cluster_with_file(2);
    let client = cluster.client();
    let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
    cluster.forget();
    cluster.data.iter().for_each(|server| server.state.lock().attempts.clear());
    Slow::begin(&cluster, 0, Duration::from_millis(3_000));
    let started_ns = cluster.clock.now_ns();
    file.write_at(&pattern(5, 1000), 0).unwrap();
    file.flush().unwrap();
    let seconds = (cluster.clock.now_ns() - started_ns) as f64 / 1e9;
    assert!((2.99..3.01).contains(&seconds), "{seconds}");
    assert_eq!(cluster.asked(Method::Write), [1, 0]);
    assert!(cluster.data[0].count(Method::Ping) > 2, "it is asked whether it is there");
    // Its disk does not answer at all: the others go on without it.
    Slow::begin(&cluster, 0, Duration::from_secs(600));
    file.write_at(&pattern(6, 1000), 0).unwrap();
    file.flush().unwrap();
    assert_eq!(cluster.asked(Method::Write)[1], 1);
}

/// A read that waited for a member when the map came in which its group goes on without that one waited for it alone,
/// for 15 s.
#[test]
fn a_read_leaves_a_silent_member_when_its_group_goes_on_with_one() {
    let (cluster, inode) = cluster_with_file(2);
    let first = cluster.preferred(inode);
    let silent = format!("data:{}", first + 1);
    let client = cluster.client();
    let file = client.open_file(inode, READ).expect("opens");
    cluster.transport.set_fates(Some(Box::new(move |address, _| {
        if address == silent { Fate::LoseRequest } else { Fate::Deliver }
    })));
    cluster.change_members(&[2 - first as u32]);
    let map = cluster.meta.state.lock().map.clone();
    let (core, clock) = (Arc::downgrade(&client.core), Arc::clone(&cluster.clock));
    let started_ns = cluster.clock.now_ns();
    cluster.transport.set_idle(Some(Arc::new(move || {
        if clock.now_ns() >= started_ns + 200_000_000
            && let Some(core) = core.upgrade()
        {
            core.servers.install_map(map.clone()).expect("of this volume");
        }
    })));
    assert_eq!(file.read_at(&mut [0; 1000], 0).expect("the other one has it"), 1000);
    let seconds = (cluster.clock.now_ns() - started_ns) as f64 / 1e9;
    assert!((0.2..0.5).contains(&seconds), "{seconds}");
}

/// What was under way to the only member of a group, as this client knew it, waited for that one for as long as it was
/// frozen, 5 s and more: another one had caught up and counted, in a map that the client did not have yet.
#[test]
fn what_waits_for_the_only_member_looks_for_others_that_count_by_now() {
    let (cluster, inode) = cluster_with_file(2);
    let seconds = |of: &dyn Fn(&Client)| {
        cluster.change_members(&[1]);
        let client = cluster.client();
        of(&client);
        cluster.forget();
        cluster.change_members(&[1, 2]);
        cluster.clock.advance(Duration::from_secs(1));
        cluster.transport.set_fates(Some(Box::new(|address, _| {
            if address == "data:1" { Fate::LoseRequest } else { Fate::Deliver }
        })));
        let started_ns = cluster.clock.now_ns();
        of(&client);
        cluster.transport.set_fates(None);
        (cluster.clock.now_ns() - started_ns) as f64 / 1e9
    };
    let first = seconds(&|client| _ = read(&cluster, client, inode));
    assert!((0.4..0.9).contains(&first), "{first}");
    assert_eq!(cluster.asked(Method::Read), [0, 1]);
    let second = seconds(&|client| {
        let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
        file.write_at(&pattern(1, 1000), 0).unwrap();
        file.flush().unwrap();
    });
    assert!((0.4..1.2).contains(&second), "{second}");
    assert_eq!(cluster.asked(Method::Write)[1], 1);
}

/// One that has no other to go to is waited for, be it silent: its work is not done twice.
#[test]
fn the_only_member_is_waited_for_however_silent_it_is() {
    let (cluster, inode) = cluster_with_file(2);
    cluster.change_members(&[1]);
    let client = cluster.client();
    let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
    cluster.forget();
    Slow::begin(&cluster, 0, Duration::from_millis(3_000));
    file.write_at(&pattern(5, 1000), 0).unwrap();
    file.flush().unwrap();
    let asked = [Method::Write, Method::Ping].map(|method| cluster.data[0].count(method));
    assert_eq!((asked, file.read_at(&mut [0; 1000], 0).expect("late")), ([1, 0], 1000));
    assert_eq!(cluster.asked(Method::Read), [3, 0], "each stripe once");
    // Nor is a disk that is slow asked again and again for the same.
    cluster.forget();
    Slow::begin(&cluster, 0, Duration::from_secs(10));
    file.write_at(&pattern(6, 1000), 0).unwrap();
    file.flush().unwrap();
    assert_eq!(cluster.asked(Method::Write), [1, 0]);
}

/// The waits in which members are looked for are shorter than what a signal may not cut short, and none of them saw it.
#[test]
fn a_signal_ends_a_read_that_waits_for_the_only_member() {
    let (cluster, inode) = cluster_with_file(2);
    cluster.change_members(&[1]);
    let client = cluster.client();
    let file = client.open_file(inode, READ).expect("opens");
    cluster.transport.set_fates(Some(Box::new(|address, _| {
        if address == "data:1" { Fate::LoseRequest } else { Fate::Deliver }
    })));
    let (signal, started_ns) = (Arc::new(Interrupt::default()), cluster.clock.now_ns());
    signal.raise();
    let read = interruptible(&signal, || file.read_at(&mut [0; 1000], 0));
    assert_eq!(read.expect_err("a signal").code, Code::Interrupted);
    let seconds = (cluster.clock.now_ns() - started_ns) as f64 / 1e9;
    assert!((0.25..1.0).contains(&seconds), "{seconds}");
}

/// Pauses between rounds grew to a second each, while the members were without leases for a moment.
#[test]
fn members_that_cannot_answer_for_a_moment_are_asked_again_at_short_intervals() {
    let (cluster, inode) = cluster_with_file(2);
    let client = cluster.client();
    let refuse = |method| {
        for server in &cluster.data {
            server.fail_no_more();
            server.fail_next(method, Code::Unavailable, 14);
        }
    };
    refuse(Method::Read);
    let seconds = read(&cluster, &client, inode);
    assert!((0.3..1.2).contains(&seconds), "{seconds}");
    let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
    refuse(Method::Write);
    let started_ns = cluster.clock.now_ns();
    file.write_at(&pattern(5, 1000), 0).unwrap();
    file.flush().unwrap();
    let seconds = (cluster.clock.now_ns() - started_ns) as f64 / 1e9;
    assert!((0.3..1.2).contains(&seconds), "{seconds}");
}

#[test]
fn a_new_primary_that_lost_nothing_is_synced_and_nothing_is_written_again() {
    let (cluster, inode) = cluster_with_file(3);
    let client = cluster.client();
    let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
    file.write_at(&pattern(5, 1000), 0).unwrap();
    file.flush().unwrap();
    let writes = || cluster.data.iter().map(|server| server.count(Method::Write)).sum::<usize>();
    let before = writes();
    cluster.transport.stop("data:1");
    cluster.change_members(&[2, 3]);
    // Both refuse until they hold leases.
    cluster.data[1].fail_next(Method::SyncObjects, Code::Unavailable, 3);
    cluster.data[2].fail_next(Method::SyncObjects, Code::Unavailable, 3);
    file.sync().expect("synced");
    assert_eq!(writes(), before, "the group has lost nothing");
    assert_eq!(cluster.data[1].state.lock().synced.len(), 1);
    file.write_at(&pattern(6, 1000), 0).unwrap();
    file.sync().expect("by the new one");
    assert_eq!(cluster.asked(Method::Write)[1..], [1, 0]);
    // A number that is another one says that the group did lose something.
    file.write_at(&pattern(7, 1000), 0).unwrap();
    file.flush().unwrap();
    cluster.data.iter().for_each(|server| server.state.lock().boot = 78);
    assert_eq!(file.sync().expect_err("lost").code, Code::Io);
}

#[test]
fn a_primary_whose_target_fails_is_waited_for_until_the_group_goes_on_without_it() {
    let (cluster, inode) = cluster_with_file(2);
    let client = cluster.client();
    let file = client.open_file(inode, OpenMode { read: true, write: true, truncate: false }).unwrap();
    cluster.data[0].fail_next(Method::Write, Code::TargetFailed, 1_000);
    // It passes on what the primary says.
    cluster.data[1].fail_next(Method::Write, Code::TargetFailed, 5);
    let (meta, count) = (Arc::clone(&cluster.meta), std::sync::atomic::AtomicUsize::new(0));
    cluster.transport.set_fates(Some(Box::new(move |_, method| {
        let is_write = method == Method::Write;
        if is_write && count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 9 {
            let mut state = meta.state.lock();
            state.map.epoch += 1;
            state.map.groups[0].members = vec![2];
        }
        Fate::Deliver
    })));
    file.write_at(&pattern(5, 1000), 0).unwrap();
    file.flush().expect("the group goes on");
}

/// A request to sync objects of several groups could not be passed on by a member of only one of them.
#[test]
fn groups_of_several_members_are_synced_one_by_one() {
    let cluster = cluster(2);
    let second = proto::Group { id: GROUP + 1, epoch: 1, members: vec![1, 2], agreed: true };
    cluster.meta.state.lock().map.groups.push(second);
    let client = cluster.client();
    let file = create(&client, "f");
    file.write_at(&pattern(1, LENGTH), 0).unwrap();
    file.sync().unwrap();
    assert_eq!(cluster.asked(Method::SyncObjects), [2, 0]);
    let synced: Vec<ObjectId> = cluster.data[0].state.lock().synced.clone();
    assert_eq!(synced.len(), 2);
}

#[test]
fn objects_of_groups_of_several_members_are_not_read_past_their_servers() {
    let cluster = cluster(2);
    let client = cluster.client();
    let servers = &client.core.servers;
    assert!(servers.only_place(GroupId(GROUP)).is_none());
    // It may not be the one any more that counts.
    cluster.change_members(&[1]);
    client.core.meta.refresh_map(u64::MAX).expect("there is one");
    assert!(servers.only_place(GroupId(GROUP)).is_none());
    assert_eq!(servers.only_place(GroupId(2)).map(|(target, _)| target.0), Some(2));
}

/// The time for which a silent member was waited for counted as its usual one: each silence was longer than the last.
#[test]
fn a_member_that_is_silent_again_and_again_is_waited_for_no_longer_each_time() {
    let (cluster, inode) = cluster_with_file(2);
    let first = cluster.preferred(inode);
    let silent = format!("data:{}", first + 1);
    let client = cluster.client();
    Slow::begin(&cluster, first, Duration::from_micros(100));
    read(&cluster, &client, inode);
    cluster.transport.set_fates(Some(Box::new(move |address, _| {
        if address == silent { Fate::LoseRequest } else { Fate::Deliver }
    })));
    for _ in 0..10 {
        cluster.clock.advance(Duration::from_secs(5));
        let seconds = read(&cluster, &client, inode);
        assert!((0.02..0.5).contains(&seconds), "{seconds}");
    }
}
