//! A client that is cut off for longer than its session lasts: what it wrote under locks that another client has had
//! since is given up, and whoever wrote it is told.

use std::time::Duration;
use vazao_client::{Client, File, LockPlace, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::locks::{LockKind, LockMode, LockRange};
use vazao_model::{Code, FileKind, InodeId};
use vazao_sim::network::{Cut, Machine};
use vazao_sim::{Cluster, ClusterOptions};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };
/// Longer than a session, and shorter than the deadline of a call that begins when it has ended.
const CUT: Duration = Duration::from_secs(75);
const SESSION: Duration = Duration::from_secs(61);

/// A client beyond a line, and one on the side of the metadata service.
struct Sites {
    cluster: Cluster,
    far: Client,
    near: Client,
    inode: InodeId,
}

/// What a client does after the cut, before it reports.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// The report is under way when the line is back.
    Nothing,
    /// A heartbeat has found that the session is gone.
    Heartbeat,
    /// So has a change of another directory: there is a new session, and nothing more.
    OtherChange,
}

impl Sites {
    /// `bytes`: contents of the file to begin with, which both know.
    fn new(bytes: &[u8]) -> Sites {
        let options = ClusterOptions { seed: 5, data_servers: 2, down_ms_max: 1000 };
        let cluster = Cluster::in_zones(options, &["far", "near"]);
        let (far, near) = (cluster.client_in("far", 1), cluster.client_in("near", 2));
        let inode = create(&near, "shared", FileKind::File);
        let file = near.open_file(inode, MODE).expect("it is there");
        file.write_at(bytes, 0).and_then(|()| file.sync()).expect("the line is whole");
        file.close().expect("the line is whole");
        Sites { cluster, far, near, inode }
    }

    fn place(&self) -> LockPlace {
        LockPlace { inode: self.inode, kind: LockKind::Flock, owner: 1 }
    }

    fn lock(&self, client: &Client) {
        client.lock(self.place(), LockRange::WHOLE, LockMode::Exclusive, 0, None).expect("it is free");
    }

    fn open(&self, client: &Client) -> File {
        client.open_file(self.inode, MODE).expect("it is there")
    }

    /// The far client's session has ended, and the line is still cut.
    fn cut(&self) {
        self.cluster.cut_line(CUT);
        for _ in 0..SESSION.as_secs() {
            self.cluster.clock().sleep(Duration::from_secs(1));
            self.near.tick().expect("on this side");
        }
    }

    fn go_on(&self, before: Before) {
        if !matches!(before, Before::Nothing) {
            self.cluster.clock().sleep(CUT - SESSION);
        }
        match before {
            Before::Nothing => {}
            Before::Heartbeat => self.far.tick().expect("the line is whole"),
            Before::OtherChange => drop(create(&self.far, "other", FileKind::Directory)),
        }
    }

    /// What a client that has nothing to do with it reads.
    fn contents(&self) -> Vec<u8> {
        let witness = self.cluster.client_in("near", 3);
        let file = self.open(&witness);
        let mut bytes = vec![0; file.attributes().expect("is open").size as usize];
        file.read_at(&mut bytes, 0).expect("readable");
        bytes
    }
}

fn create(client: &Client, name: &str, kind: FileKind) -> InodeId {
    let new = NewInode { kind, mode: 0o700, ..NewInode::default() };
    client.create(ROOT, name.as_bytes(), &new).expect("there is no such name").inode
}

const ALL: [Before; 3] = [Before::Nothing, Before::Heartbeat, Before::OtherChange];

/// A report that was sent again in a new session, or first sent in one that another thread had opened, laid its bytes
/// over what the next holder of the lock had written.
#[test]
fn what_was_written_under_a_lock_that_another_client_has_had_since_is_given_up() {
    for before in ALL {
        let sites = Sites::new(b"13");
        let mine = sites.open(&sites.far);
        sites.lock(&sites.far);
        mine.write_at(b"14, and more", 0).expect("into memory");
        sites.cut();
        sites.lock(&sites.near);
        let theirs = sites.open(&sites.near);
        theirs.write_at(b"15", 0).and_then(|()| theirs.flush_under_lock()).expect("it has the lock");
        sites.near.unlock(sites.place(), LockRange::WHOLE).expect("it has the lock");
        sites.go_on(before);
        let error = mine.flush().expect_err("it is lost");
        assert!(error.code == Code::Io && error.to_string().contains("lock"), "{before:?}: {error}");
        assert_eq!(sites.contents(), b"15", "{before:?}");
        let _ = mine.close();
        assert_eq!(sites.contents(), b"15", "{before:?}");
        // Its owner begins anew.
        sites.far.unlock(sites.place(), LockRange::WHOLE).expect("it lets go");
        sites.far.fetch_changes().expect("the line is whole");
        sites.lock(&sites.far);
        let again = sites.open(&sites.far);
        again.write_at(b"16", 0).and_then(|()| again.close()).expect("it has the lock");
        assert_eq!(sites.contents(), b"16", "{before:?}");
    }
}

#[test]
fn what_was_written_under_a_lock_that_no_other_client_has_had_is_reported_in_the_new_session() {
    for before in ALL {
        let sites = Sites::new(b"13");
        let mine = sites.open(&sites.far);
        sites.lock(&sites.far);
        mine.write_at(b"14", 0).expect("into memory");
        sites.cut();
        sites.go_on(before);
        mine.flush().unwrap_or_else(|error| panic!("{before:?}: {error}"));
        mine.close().expect("everything is stored");
        assert_eq!(sites.contents(), b"14", "{before:?}");
    }
}

/// Longer than what a file keeps in its inode record, so that it lies on data servers.
const STRIPED: usize = 300 << 10;

/// How the far client's change of a striped file reaches the data servers.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// A small write, which is kept in memory until it is written out.
    Buffered,
    /// A write that is sent by the program's own call.
    Direct,
}

impl Change {
    /// What is done before the line is cut.
    fn begin(self, file: &File) {
        if matches!(self, Change::Buffered) {
            file.write_at(b"14", 0).expect("into memory");
        }
    }

    /// What is sent when the lock is gone.
    fn end(self, file: &File) -> vazao_client::Result<()> {
        match self {
            Change::Buffered => file.flush(),
            Change::Direct => file.write_at(&vec![14; STRIPED], 0).and_then(|()| file.flush()),
        }
    }
}

/// Data servers know no sessions: what was sent to them again after a cut lay over what the next holder of the lock
/// had written.
#[test]
fn what_data_servers_have_yet_to_get_under_a_lock_that_is_lost_is_not_sent() {
    for before in ALL {
        for change in [Change::Buffered, Change::Direct] {
            let sites = Sites::new(&[13; STRIPED]);
            let mine = sites.open(&sites.far);
            sites.lock(&sites.far);
            change.begin(&mine);
            sites.cut();
            sites.lock(&sites.near);
            let theirs = sites.open(&sites.near);
            theirs
                .write_at(&[15; STRIPED], 0)
                .and_then(|()| theirs.flush_under_lock())
                .expect("has the lock");
            sites.near.unlock(sites.place(), LockRange::WHOLE).expect("it has the lock");
            if matches!(change, Change::Buffered) {
                sites.go_on(before);
            }
            let error = change.end(&mine).expect_err("the lock is lost");
            assert!(error.code == Code::Io && error.to_string().contains("lock"), "{before:?}: {error}");
            let is_theirs = || sites.contents() == [15; STRIPED];
            assert!(is_theirs(), "{change:?}, {before:?}: bytes of the former holder");
            let _ = mine.close();
            assert!(is_theirs(), "{change:?}, {before:?}: bytes of the former holder, from its close");
        }
    }
}

/// It cannot know whether another client has got the lock meanwhile.
#[test]
fn a_holder_that_was_not_heard_of_for_long_writes_only_when_it_knows_that_it_still_has_its_lock() {
    let options = ClusterOptions { seed: 6, data_servers: 2, down_ms_max: 1000 };
    let cluster = Cluster::new(options);
    let client = cluster.client(1);
    let open = |name| {
        let inode = create(&client, name, FileKind::File);
        let file = client.open_file(inode, MODE).expect("it is there");
        file.write_at(&[13; STRIPED], 0).and_then(|()| file.flush()).expect("all are up");
        file
    };
    let (locked, free) = (open("locked"), open("free"));
    let place = LockPlace { inode: locked.inode(), kind: LockKind::Flock, owner: 1 };
    client.lock(place, LockRange::WHOLE, LockMode::Exclusive, 0, None).expect("it is free");
    let (from, to, duration) = (Machine::Client(1), Machine::Server(0), Duration::from_secs(100));
    cluster.cut(Cut { from, to, is_one_way: false, flapping: None, duration });
    // Its heartbeats have failed for so long that its session may have ended.
    cluster.clock().sleep(Duration::from_secs(45));
    let write = |file: &File, byte| file.write_at(&[byte; STRIPED], 0).and_then(|()| file.flush());
    let error = write(&locked, 14).expect_err("the metadata service does not say");
    assert!(error.code.is_silence() && error.to_string().contains("lock is still held"), "{error}");
    // Data servers are within reach, and no lock of it can be lost; only its report is waited for.
    let error = write(&free, 14).expect_err("the metadata service takes no report");
    assert!(error.code.is_silence() && !error.to_string().contains("lock"), "{error}");
    cluster.clock().sleep(duration);
    let witness = cluster.client(2);
    let shown = |file: &File| {
        let mut shown = [0];
        let file = witness.open_file(file.inode(), MODE).expect("it is there");
        file.read_at(&mut shown, 0).expect("all are up");
        shown
    };
    assert_eq!([shown(&locked), shown(&free)], [[13], [14]]);
    // Another client never had the lock.
    write(&locked, 15).expect("the metadata service answers");
    assert_eq!(shown(&locked), [15]);
}

/// Records that were appended before a client was cut off were laid over those of the next one.
#[test]
fn records_that_were_not_stored_before_another_client_appended_are_given_up() {
    for before in ALL {
        let sites = Sites::new(b"");
        let mine = sites.open(&sites.far);
        // The end is kept only by who would hear that another client wants it.
        sites.far.fetch_changes().expect("the line is whole");
        mine.append(b"far one").expect("into memory");
        sites.cut();
        let theirs = sites.open(&sites.near);
        theirs.append(b"near").and_then(|_| theirs.flush()).expect("the end is free");
        theirs.close().expect("the end is free");
        sites.go_on(before);
        let error = mine.flush().expect_err("it is lost");
        assert_eq!(error.code, Code::Io, "{before:?}: {error}");
        assert_eq!(sites.contents(), b"near", "{before:?}");
        let _ = mine.close();
        assert_eq!(sites.contents(), b"near", "{before:?}");
    }
}

/// A client appends while the far one, which is cut off, keeps the end of the file: an error at its deadline.
/// `before`: what else happens first.
fn append_in_vain(before: impl FnOnce(&Sites)) {
    let sites = Sites::new(b"");
    let mine = sites.open(&sites.far);
    sites.far.fetch_changes().expect("the line is whole");
    mine.append(b"far one").expect("into memory");
    let theirs = sites.open(&sites.near);
    sites.cluster.cut_line(CUT);
    before(&sites);
    let before_ns = sites.cluster.clock().now_ns();
    let error = theirs.append(b"near").expect_err("the other client keeps the end");
    assert_eq!(error.code, Code::Timeout, "{error}");
    let waited = Duration::from_nanos(sites.cluster.clock().now_ns() - before_ns);
    assert!((Duration::from_secs(29)..Duration::from_secs(32)).contains(&waited), "{waited:?}");
}

/// A client without threads of its own waited for the end of a file on a clock that nothing moved, and for ever.
#[test]
fn an_append_behind_a_client_that_is_cut_off_ends_at_its_deadline() {
    append_in_vain(|_| ());
}

/// Each question about the lock had a deadline of its own, so that an append took twice as long at worst.
#[test]
fn an_append_ends_at_its_deadline_also_where_the_metadata_service_falls_silent_meanwhile() {
    append_in_vain(|sites| {
        let (from, to, duration) = (Machine::Client(2), Machine::Server(0), CUT);
        let flapping = Some(Duration::from_secs(20));
        sites.cluster.cut(Cut { from, to, is_one_way: false, flapping, duration });
        // The service is heard for another 19 s.
        sites.cluster.clock().sleep(Duration::from_secs(21));
    });
}
