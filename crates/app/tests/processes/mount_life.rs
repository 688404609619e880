//! What a mount whose servers are silent costs, and how it ends.

use crate::support::{Cluster, freeze, is_alive, seconds, signal, text, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vazao_testing::programs::{RunBounded, WaitBounded};

/// Mounts need the device and, for these tests, root.
fn can_mount() -> bool {
    let possible = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !possible {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    possible
}

/// The way requests come here: over io_uring where the run asks for it (`scripts/steps/34-fuse-uring.sh`).
fn transport() -> &'static str {
    let is_uring = std::env::var_os("VAZAO_TEST_URING").is_some_and(|value| value == "on");
    if is_uring { "uring=on" } else { "uring=off" }
}

/// A mount by a process of its own; taken away, and its servers waked up, when the test ends, however it ends.
struct Mounted<'a> {
    cluster: &'a Cluster,
    place: PathBuf,
    log: PathBuf,
    pid: u32,
}

impl<'a> Mounted<'a> {
    fn new(cluster: &'a Cluster, name: &str, transport: &str) -> Mounted<'a> {
        let (place, log) = (cluster.local(name), cluster.local(&format!("{name}.log")));
        fs::create_dir(&place).expect("made");
        cluster.ok(&["mount", "vz:/", &text(&place), "-o", transport, "--log-file", &text(&log)]);
        let pid = mount_process(&place);
        Mounted { cluster, place, log, pid }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    /// `vazao umount` on its way, with what it says in a file.
    fn umount(&self, arguments: &[&str]) -> Umount {
        let said = self.place.with_extension("said");
        let mut command = self.cluster.command(&["umount"]);
        command.args(arguments).arg(&self.place).stderr(File::create(&said).expect("made"));
        Umount { child: command.spawn().expect("it starts"), said }
    }

    /// A program that has written 262,144 bytes to `name`, whose data server is stopped, and was killed.
    fn leave_behind(&self, name: &str) {
        // More than fits into its record, so that its layout is known; and whole pages, as the kernel would have to
        // read what it does not write of one. All of it is one request to the server.
        fs::write(self.path(name), vec![1; 262_144]).expect("written");
        let mut child = caller(&self.path(name), "(syswrite(F, 'x' x 262144) and sleep 100)");
        freeze(self.cluster.pid("data1"));
        // The call may have to wait for a connection to the server.
        start(&mut child);
        pause_ms(2_000);
        child.kill_bounded();
    }
}

/// A `vazao umount` that runs.
struct Umount {
    child: Child,
    said: PathBuf,
}

impl Umount {
    fn said(&self) -> String {
        fs::read_to_string(&self.said).expect("made")
    }

    /// Its exit code and what it said, once it has ended.
    fn end(mut self) -> (Option<i32>, String) {
        wait_until("umount ends", || self.child.try_wait().expect("a child").is_some());
        (self.child.wait_bounded().code(), self.said())
    }
}

impl Drop for Umount {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        for node in ["meta1", "data1"] {
            signal(self.cluster.pid(node), Signal::CONT);
        }
        Command::new("umount").arg("-l").arg(&self.place).run_bounded();
        if is_alive(self.pid) && std::thread::panicking() {
            signal(self.pid, Signal::KILL);
        }
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// The process behind a mount.
fn mount_process(place: &Path) -> u32 {
    let is_it = |process: &u32| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|&byte| byte == 0).collect();
        words.contains(&b"--foreground".as_slice()) && words.contains(&text(place).as_bytes())
    };
    let entries = fs::read_dir("/proc").expect("readable").flatten();
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.find(is_it).expect("the mount runs")
}

fn pause_ms(ms: u64) {
    vazao_meter::clock::system().sleep(Duration::from_millis(ms));
}

/// Clock ticks of processor time that a process has used (proc_pid_stat(5)): a hundredth of a second each.
fn processor_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("well formed");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

/// A program that handles SIGUSR1 and has `path` open as `F`. It makes the call `call` once it is sent a line.
fn caller(path: &Path, call: &str) -> Child {
    let program = format!(
        "$SIG{{USR1}} = sub {{}}; $| = 1; open(F, '+<', $ARGV[0]) or die $!; print \"open\\n\"; \
         defined(<STDIN>) or exit; {call} or die $!"
    );
    let mut command = Command::new("perl");
    command.arg("-e").arg(program).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("perl is there");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
    assert_eq!(line, "open\n");
    child
}

/// Has a [`caller`] make its call.
fn start(child: &mut Child) {
    child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it listens");
}

/// The metadata service was stopped, an fchmod waited for it, and its process got a signal that it handles. The mount
/// answered the kernel's interrupt with EAGAIN, upon which the kernel repeats it at once: the two kept a whole
/// processor busy until the service was back.
#[test]
fn a_signal_to_a_caller_that_cannot_be_interrupted_costs_the_mount_nothing() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(1);
    let transport = transport();
    let m = Mounted::new(&cluster, "m", transport);
    // More than fits into its record.
    fs::write(m.path("f"), vec![1; 100_000]).expect("written");
    let meta = cluster.pid("meta1");
    let mut child = caller(&m.path("f"), "chmod(0600, *F)");
    freeze(meta);
    start(&mut child);
    pause_ms(500);
    signal(child.id(), Signal::USR1);
    pause_ms(500);
    let before = processor_ticks(m.pid);
    pause_ms(3_000);
    let used = processor_ticks(m.pid) - before;
    assert!(child.try_wait().expect("a child").is_none(), "{transport}: it waits for the service");
    signal(meta, Signal::CONT);
    assert!(child.wait_bounded().success(), "{transport}: it was carried out");
    let mode = fs::metadata(m.path("f")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The storm took 300 of them, and more.
    assert!(used < 60, "{transport}: {used} hundredths of a second within three seconds of waiting");
}

/// Runs a test in a mount of a cluster of its own.
fn with_mounts(deadline_ms: Option<u32>, body: impl Fn(&Cluster, &Mounted<'_>, &str)) {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(1);
    if let Some(deadline_ms) = deadline_ms {
        cluster.set_deadline_ms(deadline_ms);
    }
    let transport = transport();
    let m = Mounted::new(&cluster, "m", transport);
    body(&cluster, &m, transport);
    for node in ["meta1", "data1"] {
        signal(cluster.pid(node), Signal::CONT);
    }
}

/// The metadata service was stopped: `vazao umount` said nothing, the mount's process outlived it by up to half a
/// minute, and ended with the claim that something written could not be stored.
#[test]
fn a_mount_that_has_stored_everything_ends_soon_whether_its_servers_answer_or_not() {
    with_mounts(None, |cluster, m, transport| {
        fs::write(m.path("f"), vec![1; 262_144]).expect("written");
        freeze(cluster.pid("meta1"));
        freeze(cluster.pid("data1"));
        let (ended, waited_s) = seconds(|| m.umount(&[]).end());
        assert_eq!(ended, (Some(0), String::new()), "{transport}");
        wait_until("the kernel has ended its process", || !is_alive(m.pid));
        assert!(waited_s < 15.0, "{transport}: {waited_s} s, half of the deadline");
        assert!(!m.log().contains("could not be stored"), "{transport}: {}", m.log());
    });
}

/// Regression: an unmount waited for a killed program's writes without a message, and did not report whether they were
/// stored.
#[test]
fn umount_says_what_it_waits_for_and_returns_when_everything_is_stored() {
    with_mounts(Some(120_000), |cluster, m, transport| {
        m.leave_behind("f");
        let mut umount = m.umount(&[]);
        wait_until("it says what it waits for", || umount.said().contains("data server data1 (127.0.0.1:"));
        let said = umount.said();
        for expected in [&format!("process {}", m.pid), "262144 bytes of 1 file", "kill", &text(&m.log)] {
            assert!(said.contains(expected), "{transport}: {expected}: {said}");
        }
        assert!(umount.child.try_wait().expect("a child").is_none(), "{transport}: it is not over");
        wait_until("its log says so, too", || m.log().contains("was to end"));
        signal(cluster.pid("data1"), Signal::CONT);
        let (code, said) = umount.end();
        assert_eq!(code, Some(0), "{transport}: {said}");
        wait_until("the kernel has ended its process", || !is_alive(m.pid));
        let stored = cluster.ok(&["cat", "vz:/f"]);
        assert!(stored.bytes().all(|byte| byte == b'x') && stored.len() == 262_144, "{transport}");
    });
}

#[test]
fn umount_tells_which_bytes_of_which_file_are_lost_when_they_cannot_be_stored() {
    with_mounts(Some(8_000), |cluster, m, transport| {
        m.leave_behind("f");
        let inode = cluster.ok(&["stat", "vz:/f"]);
        let (code, said) = m.umount(&[]).end();
        assert_eq!(code, Some(1), "{transport}: {said}");
        assert!(said.contains("lost: inode ") && said.contains(": bytes 0-262144"), "{transport}: {said}");
        let number = said.split("lost: inode ").nth(1).and_then(|rest| rest.split(':').next()).unwrap_or("?");
        assert!(inode.contains(number), "{transport}: {number}: {inode}");
        assert!(m.log().contains("bytes 0-262144"), "{transport}: {}", m.log());
        wait_until("the kernel has ended its process", || !is_alive(m.pid));
    });
}

/// What had been written of a small file was lost when it grew while its data server was stopped: the next fsync or
/// close said ESTALE.
#[test]
fn a_small_file_that_grows_while_its_data_server_is_stopped_is_stored_when_that_goes_on() {
    with_mounts(Some(2_000), |cluster, m, transport| {
        let bytes: Vec<u8> = (0..60_000u32).map(|number| (number % 251) as u8).collect();
        let timed_out = |outcome: std::io::Result<()>| {
            let errno = outcome.expect_err("the server is stopped").raw_os_error();
            assert_eq!(errno, Some(rustix::io::Errno::TIMEDOUT.raw_os_error()), "{transport}: {}", m.log());
        };
        let open = |name: &str| {
            File::options().write(true).create(true).truncate(false).open(m.path(name)).expect("opened")
        };
        fs::write(m.path("left"), "").expect("made");
        // It is sent a line between its writes, and ends with the error of its close.
        let call = "(syswrite(F, 'x' x 10000) and print(\"written\\n\") and defined(<STDIN>) \
                    and (syswrite(F, 'x' x 60000) or 1) and close(F))";
        let mut child = caller(&m.path("left"), call);
        start(&mut child);
        let mut line = [0; 8];
        child.stdout.as_mut().expect("piped").read_exact(&mut line).expect("it has written");
        let file = open("f");
        file.write_all_at(&bytes[..10_000], 0).expect("taken over");
        freeze(cluster.pid("data1"));
        start(&mut child);
        timed_out(file.write_all_at(&bytes[10_000..], 10_000));
        // A program that another test starts just now closes its copy of the descriptor, which stores the bytes with
        // the metadata: then there is nothing left that the data server has to take.
        let synced = file.sync_all();
        if synced.is_err() {
            timed_out(synced);
        }
        let ended = child.wait_bounded().code();
        assert_eq!(ended, Some(rustix::io::Errno::TIMEDOUT.raw_os_error()), "{transport}: {}", m.log());
        signal(cluster.pid("data1"), Signal::CONT);
        // A server that was silent for 10 s is not tried for another five.
        wait_until("it is stored", || file.sync_all().is_ok());
        file.write_all_at(&bytes[10_000..], 10_000).expect("taken over");
        drop(file);
        open("left").sync_all().expect("the next handle stores it");
        let stored = |name: &str| {
            let copy = cluster.local("copy");
            cluster.ok(&["cp", "-f", &format!("vz:/{name}"), &text(&copy)]);
            fs::read(copy).expect("copied")
        };
        assert!(stored("f") == bytes, "{transport}: {} bytes", stored("f").len());
        // The kernel cuts the second write at a page; the first part still fits.
        let left = stored("left");
        assert!(left.len() >= 10_000 && left.iter().all(|byte| *byte == b'x'), "{transport}: {}", left.len());
        fs::remove_file(m.path("f")).expect("removed");
        fs::remove_file(m.path("left")).expect("removed");
    });
}

#[test]
fn a_mount_in_use_ends_with_the_last_close_after_one_signal_and_at_once_after_two() {
    with_mounts(Some(120_000), |cluster, m, transport| {
        fs::write(m.path("f"), vec![1; 262_144]).expect("written");
        let call = "(syswrite(F, 'x' x 262144) and sleep 100)";
        let mut child = caller(&m.path("f"), call);
        freeze(cluster.pid("data1"));
        start(&mut child);
        pause_ms(2_000);
        signal(m.pid, Signal::TERM);
        wait_until("the log says what it waits for", || m.log().contains("1 file is open in it"));
        assert!(is_alive(m.pid), "{transport}: it serves who uses it");
        signal(m.pid, Signal::TERM);
        let ((), waited_s) = seconds(|| wait_until("it ends", || !is_alive(m.pid)));
        assert!(waited_s < 15.0, "{transport}: {waited_s}");
        let log = m.log();
        assert!(log.contains("gives up") && log.contains("lost: inode"), "{transport}: {log}");
        assert!(log.contains("bytes 0-262144"), "{transport}: {log}");
        child.kill_bounded();
    });
}

#[test]
fn umount_of_a_mount_in_use_names_the_calls_that_wait_and_force_ends_them() {
    with_mounts(Some(120_000), |cluster, m, transport| {
        fs::write(m.path("f"), vec![1; 262_144]).expect("written");
        let mut child = caller(&m.path("f"), "chmod(0600, *F)");
        freeze(cluster.pid("meta1"));
        start(&mut child);
        pause_ms(500);
        assert!(child.try_wait().expect("a child").is_none(), "{transport}: it waits for the service");
        let ((code, said), waited_s) = seconds(|| m.umount(&[]).end());
        assert_eq!(code, Some(1), "{transport}: {said}");
        assert!(waited_s < 15.0, "{transport}: {waited_s} s to say that it is in use");
        assert!(said.contains("setattr of process") && said.contains("--force"), "{transport}: {said}");
        let (code, said) = m.umount(&["--force"]).end();
        assert_eq!(code, Some(0), "{transport}: nothing was lost: {said}");
        wait_until("its call has failed", || child.try_wait().expect("a child").is_some());
        assert!(!child.wait_bounded().success(), "{transport}");
        wait_until("the kernel has ended its process", || !is_alive(m.pid));
    });
}

#[test]
fn a_mount_that_is_taken_away_lazily_says_that_it_goes_on_and_ends_with_the_last_close() {
    with_mounts(None, |_, m, transport| {
        fs::write(m.path("f"), vec![1; 262_144]).expect("written");
        let mut child = caller(&m.path("f"), "syswrite(F, 'x' x 262144)");
        let (code, said) = m.umount(&["--lazy"]).end();
        assert_eq!(code, Some(0), "{transport}: {said}");
        assert!(said.contains("goes on") && said.contains("1 file is open"), "{transport}: {said}");
        start(&mut child);
        assert!(child.wait_bounded().success(), "{transport}: it works until it is closed");
        wait_until("it ends with the last close", || !is_alive(m.pid));
    });
}
