//! Locks between mounts: docs/semantics.md, "Consistency".

use crate::cluster::{Cluster, Mounted, errno, with_cluster};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vazao_testing::programs::WaitBounded;

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;
const UNLOCK: FlockOperation = FlockOperation::NonBlockingUnlock;

type Call = fn(&File, FlockOperation) -> rustix::io::Result<()>;

/// The two kinds of locks. Within one process fcntl(2)'s are of one owner; through two mounts they are not.
const CALLS: [(&str, Call); 2] = [("flock", |f, o| flock(f, o)), ("fcntl", |f, o| fcntl_lock(f, o))];

fn open(m: &Mounted) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(m.path("f")).expect("opened")
}

fn patiently(what: &str, mut so: impl FnMut() -> bool) {
    let clock = vazao_meter::clock::system();
    let start_ns = clock.now_ns();
    while !so() {
        assert!(clock.now_ns() - start_ns < 20_000_000_000, "waited in vain: {what}");
        clock.sleep(Duration::from_millis(2));
    }
}

/// A process that has locked the file through `m`, once it has said so.
fn holder(m: &Mounted) -> Child {
    let script = "exec 9<\"$1\"; flock 9; echo locked; exec sleep 100";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(m.path("f")).stdout(Stdio::piped());
    let mut child = command.spawn().expect("sh and flock of util-linux are there");
    let mut line = String::new();
    let output = child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("readable");
    assert_eq!(line, "locked\n");
    child
}

fn two(body: impl FnOnce(&Cluster, &Mounted, &Mounted)) {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        body(cluster, &a, &b);
        a.unmount();
        b.unmount();
    });
}

#[test]
fn a_lock_of_one_mount_excludes_the_other_until_it_is_let_go_or_closed() {
    two(|_, a, b| {
        for (kind, lock) in CALLS {
            let (fa, fb) = (open(a), open(b));
            lock(&fa, EXCLUSIVE).expect("free");
            assert_eq!(lock(&fb, EXCLUSIVE), Err(Errno::AGAIN), "{kind}");
            assert_eq!(lock(&fb, SHARED), Err(Errno::AGAIN), "{kind}");
            lock(&fa, SHARED).expect("made weaker");
            lock(&fb, SHARED).expect("both read");
            assert_eq!(lock(&fa, EXCLUSIVE), Err(Errno::AGAIN), "{kind}");
            lock(&fb, UNLOCK).expect("let go");
            lock(&fa, EXCLUSIVE).expect("alone again");
            drop(fa);
            patiently("the lock goes with its file", || lock(&fb, EXCLUSIVE).is_ok());
        }
    });
}

#[test]
fn flock_and_fcntl_do_not_see_each_other() {
    two(|_, a, b| {
        let (fa, fb) = (open(a), open(b));
        flock(&fa, EXCLUSIVE).expect("free");
        fcntl_lock(&fb, EXCLUSIVE).expect("another kind");
    });
}

#[test]
fn who_gets_a_lock_sees_what_was_written_under_it() {
    const ROUNDS: u32 = 60;
    two(|_, a, b| {
        std::fs::write(a.path("f"), "0").expect("written");
        std::thread::scope(|scope| {
            for m in [a, b, a, b] {
                scope.spawn(move || {
                    let mut file = open(m);
                    for _ in 0..ROUNDS {
                        flock(&file, FlockOperation::LockExclusive).expect("waits");
                        let mut text = String::new();
                        file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("readable");
                        let next = text.parse::<u32>().expect("a number") + 1;
                        file.rewind().and_then(|()| write!(file, "{next}")).expect("written");
                        flock(&file, FlockOperation::Unlock).expect("let go");
                    }
                });
            }
        });
        for m in [a, b] {
            assert_eq!(std::fs::read_to_string(m.path("f")).expect("readable"), (4 * ROUNDS).to_string());
        }
    });
}

#[test]
fn more_processes_wait_for_a_lock_than_the_mount_has_threads_and_hold_up_nobody() {
    const WAITING: usize = 60;
    two(|_, a, b| {
        let fa = open(a);
        flock(&fa, EXCLUSIVE).expect("free");
        let mut waiting: Vec<Child> = (0..WAITING)
            .map(|_| Command::new("flock").arg(b.path("f")).arg("true").spawn().expect("flock is there"))
            .collect();
        for number in 0..20 {
            std::fs::write(b.path(format!("other{number}")), b"x").expect("written");
        }
        assert!(waiting.iter_mut().all(|child| child.try_wait().expect("a child").is_none()));
        flock(&fa, FlockOperation::Unlock).expect("let go");
        for child in &mut waiting {
            assert!(child.wait_bounded().success());
        }
    });
}

#[test]
fn locks_of_a_killed_process_are_free_and_a_killed_waiter_is_gone_at_once() {
    two(|_, a, b| {
        let fa = open(a);
        let mut other = holder(b);
        assert_eq!(flock(&fa, EXCLUSIVE), Err(Errno::AGAIN));
        other.kill_bounded();
        patiently("its lock is free", || flock(&fa, EXCLUSIVE).is_ok());
        let mut waiter = Command::new("flock").arg(b.path("f")).arg("true").spawn().expect("flock is there");
        vazao_meter::Clock::sleep(&*vazao_meter::clock::system(), Duration::from_millis(300));
        assert!(waiter.try_wait().expect("a child").is_none(), "it waits");
        waiter.kill().expect("it waits");
        waiter.wait_bounded();
        flock(&fa, FlockOperation::Unlock).expect("let go");
        let fb = open(b);
        patiently("nobody has it in the place of who was killed", || flock(&fb, EXCLUSIVE).is_ok());
    });
}

#[test]
fn locks_outlive_an_absence_of_the_metadata_service() {
    two(|cluster, a, b| {
        let (fa, fb) = (open(a), open(b));
        flock(&fa, EXCLUSIVE).expect("free");
        cluster.stop_server(0);
        cluster.start_server(0);
        assert_eq!(flock(&fb, EXCLUSIVE), Err(Errno::AGAIN));
        flock(&fa, FlockOperation::Unlock).expect("let go");
        flock(&fb, EXCLUSIVE).expect("free");
    });
}

/// A call that waited for a server which was gone could not be ended by anything before its deadline, not even by
/// killing its process.
#[test]
fn a_process_that_waits_for_a_silent_server_can_be_killed() {
    with_cluster(|cluster| {
        let m = cluster.mount();
        std::fs::write(m.path("f"), b"x").expect("written");
        cluster.stop_server(0);
        let clock = vazao_meter::clock::system();
        let mut child =
            Command::new("stat").arg(m.path("unknown")).stderr(Stdio::null()).spawn().expect("stat");
        clock.sleep(Duration::from_millis(500));
        assert!(child.try_wait().expect("a child").is_none(), "it waits for the metadata service");
        let start_ns = clock.now_ns();
        child.kill_bounded();
        let waited_ms = (clock.now_ns() - start_ns) / 1_000_000;
        assert!(waited_ms < 15_000, "its deadline is 30 s, and it was gone only after {waited_ms} ms");
        cluster.start_server(0);
        assert_eq!(errno(std::fs::metadata(m.path("unknown"))), Errno::NOENT);
        m.unmount();
    });
}

/// A process that has the file open and sets and tests fcntl(2) locks on command.
struct Locker {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

/// Reads lines "CALL TYPE START LENGTH"; answers with what is in the lock afterwards, or the error. 5: F_GETLK, 6:
/// F_SETLK; types 0: read, 1: write, 2: unlock.
const LOCKER: &str = r#"
$| = 1; open(F, '+<', $ARGV[0]) or die $!;
while (<STDIN>) {
    my ($call, $type, $start, $length) = split;
    my $lock = pack('s s x4 q q l x4', $type, 0, $start, $length, 0);
    if (fcntl(F, $call, $lock)) { print join(' ', (unpack('s s x4 q q l', $lock))[0, 2, 3, 4]), "\n" }
    else { print 'error ', $! + 0, "\n" }
}"#;

impl Locker {
    fn new(m: &Mounted) -> Locker {
        let mut command = Command::new("perl");
        command.args(["-e", LOCKER]).arg(m.path("f")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("perl is there");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Locker { child, answers }
    }

    fn call(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{line}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("readable");
        answer.trim_end().to_owned()
    }

    fn locks(&mut self, kind: u32, start: u64, length: u64) {
        let answer = self.call(&format!("6 {kind} {start} {length}"));
        assert!(!answer.starts_with("error"), "{answer}");
    }

    /// Type, start, length and process of what is in the way of a write lock.
    fn sees(&mut self, start: u64, length: u64) -> String {
        self.call(&format!("5 1 {start} {length}"))
    }

    fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        self.child.kill_bounded();
    }
}

/// F_GETLK showed process 0 after its holder had let go of any part, also before its locks were taken back from a
/// metadata service that had been restarted; and of several locks in the way not the one that begins lowest.
#[test]
fn of_several_locks_in_the_way_the_lowest_is_shown_with_its_type_range_and_process() {
    two(|cluster, a, b| {
        std::fs::write(a.path("f"), "0").expect("written");
        let [mut first, mut second, mut asks] = [Locker::new(a), Locker::new(a), Locker::new(a)];
        let (p, q) = (first.process(), second.process());
        first.locks(1, 50, 10);
        second.locks(0, 30, 5);
        first.locks(1, 10, 10);
        assert_eq!(asks.sees(0, 0), format!("1 10 10 {p}"));
        assert_eq!(asks.sees(20, 0), format!("0 30 5 {q}"));
        // Split, and made another type in part, and joined again.
        first.locks(2, 13, 2);
        assert_eq!(asks.sees(0, 0), format!("1 10 3 {p}"));
        assert_eq!(asks.sees(13, 5), format!("1 15 5 {p}"));
        first.locks(0, 10, 1);
        assert_eq!((asks.sees(0, 0), asks.sees(11, 1)), (format!("0 10 1 {p}"), format!("1 11 2 {p}")));
        first.locks(1, 10, 10);
        assert_eq!(asks.sees(0, 0), format!("1 10 10 {p}"));
        // To the end of all files, which is length 0.
        second.locks(1, 100, 0);
        assert_eq!(asks.sees(70, 0), format!("1 100 0 {q}"));
        second.locks(2, 200, 0);
        assert_eq!((asks.sees(70, 0), asks.sees(200, 0)), (format!("1 100 100 {q}"), "2 200 0 0".to_owned()));
        // A process of another mount is none here.
        let mut elsewhere = Locker::new(b);
        assert_eq!(elsewhere.sees(0, 0), "1 10 10 0");
        cluster.stop_server(0);
        cluster.start_server(0);
        assert_eq!(asks.sees(0, 0), format!("1 10 10 {p}"));
        first.locks(2, 0, 0);
        assert_eq!(asks.sees(0, 0), format!("0 30 5 {q}"));
    });
}
