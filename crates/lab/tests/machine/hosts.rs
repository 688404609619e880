//! Stand-ins for hardware do what they are set to, and leave nothing behind, however their process ends.
//!
//! Needs root, iproute2 and loop devices. On a machine that has none of it, `VAZAO_TEST_NO_ROOT=1` says so and skips
//! these tests; without it they fail there.

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vazao_lab::hosts::{
    BitsPerSecond, CpuLimit, Delay, DelayBy, Host, Network, RUN_DIRECTORY, SlowDisk, TCP_PAYLOAD_SHARE, sweep,
};
use vazao_meter::{Clock, SystemClock};
use vazao_testing::programs::{RunBounded, WaitBounded};
use vazao_testing::waiting::wait_until;

const DISK_BYTES_PER_SECOND: u64 = 28_000_000;

/// Tests that measure take turns: they would measure one another. Nothing to hold where there is no root.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if std::env::var_os("VAZAO_TEST_NO_ROOT").is_some_and(|it| it == "1") {
        eprintln!("skipped: VAZAO_TEST_NO_ROOT=1");
        return None;
    }
    let root = rustix::process::geteuid().is_root();
    assert!(root, "this test makes network namespaces: run it as root, or set VAZAO_TEST_NO_ROOT=1");
    Some(TURN.lock())
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start_ns = SystemClock.now_ns();
    work();
    (SystemClock.now_ns() - start_ns) as f64 / 1e9
}

/// Measures up to three times, until `enough` is reached: whatever else this machine does makes things slower, never
/// faster. So `most` holds every time.
fn best_of_three(what: &str, enough: f64, most: f64, mut measure: impl FnMut() -> f64) {
    let mut seen = Vec::new();
    while seen.len() < 3 && seen.last().is_none_or(|last| *last < enough) {
        seen.push(measure());
    }
    let best = seen.iter().copied().fold(f64::MIN, f64::max);
    assert!((enough..=most).contains(&best), "{what}: {seen:?}, expected {enough} to {most}");
}

#[test]
fn two_hosts_reach_each_other_and_the_machine_sees_neither() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::new().expect("a network");
    let (a, b) = (network.add_host("a").expect("a host"), network.add_host("b").expect("a host"));
    let out_of_place = links().into_iter().find(|name| name == "bridge" || name.starts_with("port"));
    assert_eq!(out_of_place, None, "links of hosts belong in namespaces of their own");
    let listener = a.inside(|| TcpListener::bind((a.address(), 0))).expect("inside").expect("a socket");
    let target = listener.local_addr().expect("bound");
    let mut sender = b.inside(|| TcpStream::connect(target)).expect("inside").expect("connected");
    sender.write_all(b"from b to a").expect("sent");
    drop(sender);
    let (mut receiver, from) = listener.accept().expect("accepted");
    let mut text = String::new();
    receiver.read_to_string(&mut text).expect("received");
    assert_eq!((text.as_str(), from.ip()), ("from b to a", b.address().into()));
}

#[test]
fn a_command_runs_on_its_host_and_its_child_id_is_the_programs() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::new().expect("a network");
    let host = network.add_host("n1").expect("a host");
    let output = host.command("ip").args(["-4", "-o", "address"]).run_bounded();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&host.address().to_string()), "{text}");
    let mut child = host.command("sleep").arg("60").spawn().expect("sleep runs");
    wait_until("nsenter has become sleep", || {
        fs::read_to_string(format!("/proc/{}/comm", child.id())).expect("alive") == "sleep\n"
    });
    drop(network);
    assert!(!child.wait_bounded().success(), "what runs on a host ends with its network");
    host.command("true").run_bounded().status.success().then(|| panic!("the host is gone"));
}

#[test]
fn unusable_names_rates_and_delays_are_refused_with_the_remedy() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::new().expect("a network");
    let host = network.add_host("n1").expect("a host");
    for name in ["", "../up", "a b", "n1", &"x".repeat(33)] {
        network.add_host(name).expect_err(name);
    }
    host.set_rate(Some(BitsPerSecond(1))).expect_err("too slow");
    host.set_delay(Delay::one_way(Duration::from_secs(60))).expect_err("too long");
    let error = SlowDisk::new(Path::new("/no/such/place"), 64 << 20, 1 << 20).expect_err("no such place");
    assert!(error.to_string().starts_with("/no/such/place: "), "{error}");
    SlowDisk::new(&std::env::temp_dir(), 1, 1 << 20).expect_err("too small");
    CpuLimit::new(0.0).expect_err("nothing");
}

/// Sends so many bytes from one host to another, to the last of them.
fn transfer(from: &Host, to: &Host, bytes: u64) {
    let listener = to.inside(|| TcpListener::bind((to.address(), 0))).expect("inside").expect("a socket");
    let target = listener.local_addr().expect("bound");
    let mut sender = from.inside(|| TcpStream::connect(target)).expect("inside").expect("connected");
    let (mut receiver, _) = listener.accept().expect("accepted");
    receiver.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&vec![7; bytes as usize]).expect("sent"));
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).expect("received");
        assert_eq!(received.len() as u64, bytes);
    });
}

/// Reno is in every kernel; which one a machine uses by itself differs.
#[test]
fn a_host_uses_the_congestion_control_that_was_set_for_it() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::new().expect("a network");
    let (a, b) = (network.add_host("a").expect("a host"), network.add_host("b").expect("a host"));
    a.set_congestion_control("reno").expect("is there");
    let listener = b.inside(|| TcpListener::bind((b.address(), 0))).expect("inside").expect("a socket");
    let place = listener.local_addr().expect("bound");
    let stream = a.inside(|| TcpStream::connect(place)).expect("inside").expect("connects");
    assert_eq!(rustix::net::sockopt::tcp_congestion(&stream).expect("TCP"), "reno");
    let refused = a.set_congestion_control("no-such-one");
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn sites_share_a_line_that_can_be_cut_and_hosts_of_one_site_do_not_feel_it() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::new().expect("a network");
    let (a, b) = (network.add_host("a").expect("a host"), network.add_host("b").expect("a host"));
    let line = network.add_line(BitsPerSecond::mega(2)).expect("a line");
    let there = network.add_host_beyond(&line, "there").expect("a host");
    let beside = network.add_host_beyond(&line, "beside").expect("a host");
    const BYTES: u64 = 500_000;
    let crossed = |from: &Host, to: &Host| {
        let before = line.carried().expect("counted");
        let taken_s = seconds(|| transfer(from, to, BYTES));
        let after = line.carried().expect("counted");
        (after.out_bytes - before.out_bytes, after.back_bytes - before.back_bytes, taken_s)
    };
    // What the bucket holds at first, and what waits, is the only part that can be faster than the line.
    let (out_bytes, _, out_s) = crossed(&a, &there);
    let (_, back_bytes, back_s) = crossed(&there, &b);
    assert!(out_bytes >= BYTES && back_bytes >= BYTES, "{out_bytes} out, {back_bytes} back");
    assert!(out_s > 1.5 && back_s > 1.5, "500 kB over 2 Mb/s took {out_s} and {back_s} s");
    for (from, to) in [(&a, &b), (&there, &beside)] {
        let (out_bytes, back_bytes, _) = crossed(from, to);
        assert!(out_bytes + back_bytes < BYTES / 10, "{out_bytes} and {back_bytes} took the line");
    }
    let listener =
        there.inside(|| TcpListener::bind((there.address(), 0))).expect("inside").expect("a socket");
    let target = listener.local_addr().expect("bound");
    let reaches =
        |within: Duration| a.inside(|| TcpStream::connect_timeout(&target, within)).expect("inside");
    line.cut().expect("cut");
    assert!(reaches(Duration::from_millis(300)).is_err(), "the line is cut");
    line.mend().expect("mended");
    reaches(Duration::from_secs(20)).expect("the line is whole again");
    let mut other = Network::new().expect("a network");
    let error = other.add_host_beyond(&line, "n1").expect_err("a line of another network").to_string();
    assert!(error.contains("not of this network"), "{error}");
}

#[test]
fn a_link_of_100_megabits_carries_90_to_100_of_payload_and_can_be_changed_under_way() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::new().expect("a network");
    let (a, b) = (network.add_host("a").expect("a host"), network.add_host("b").expect("a host"));
    let rate = || {
        let (warm_up, measured) = (Duration::from_millis(300), Duration::from_millis(1500));
        a.measured_tcp_rate_to(&b, warm_up, measured).expect("measured") / 1e6
    };
    let enough = 95.0 * TCP_PAYLOAD_SHARE;
    a.set_rate(Some(BitsPerSecond::mega(100))).expect("set");
    best_of_three("Mb/s that leave by a link of 100", enough, 100.0, rate);
    a.set_rate(None).expect("lifted");
    b.set_rate(Some(BitsPerSecond::mega(100))).expect("set");
    best_of_three("Mb/s that arrive by a link of 100", enough, 100.0, rate);
    b.set_rate(Some(BitsPerSecond::mega(300))).expect("set");
    best_of_three("Mb/s that arrive by a link of 300", 3.0 * enough, 300.0, rate);
}

#[test]
fn a_delay_of_50_ms_is_measured_within_15_percent_both_ways_and_can_be_changed() {
    let Some(_turn) = turn() else { return };
    delay_is_what_was_set(Network::with_delay_by(DelayBy::Forwarder).expect("a network"));
    let best = Network::new().expect("a network");
    if best.delay_by() == DelayBy::Kernel {
        delay_is_what_was_set(best);
    }
}

fn delay_is_what_was_set(mut network: Network) {
    let (a, b) = (network.add_host("a").expect("a host"), network.add_host("b").expect("a host"));
    for one_way_ms in [50, 10] {
        a.set_delay(Delay::one_way(Duration::from_millis(one_way_ms))).expect("set and verified");
        for (from, to) in [(&a, &b), (&b, &a)] {
            let share = from.measured_rtt_to(to).expect("measured").as_secs_f64() * 500.0 / one_way_ms as f64;
            assert!((0.85..=1.15).contains(&share), "{share} of {one_way_ms} ms from {}", from.name());
        }
    }
    let near = b.measured_rtt().expect("measured");
    assert!(near < Duration::from_millis(5), "{near:?}: the delay of one host is not the other's");
}

#[test]
fn a_long_link_of_200_megabits_and_100_ms_carries_them() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::with_delay_by(DelayBy::Forwarder).expect("a network");
    let (a, b) = (network.add_host("a").expect("a host"), network.add_host("b").expect("a host"));
    a.set_rate(Some(BitsPerSecond::mega(200))).expect("set");
    a.set_delay(Delay::one_way(Duration::from_millis(50))).expect("set and verified");
    let (warm_up, measured) = (Duration::from_millis(2500), Duration::from_millis(1500));
    best_of_three("Mb/s by a long link of 200", 180.0 * TCP_PAYLOAD_SHARE, 200.0, || {
        a.measured_tcp_rate_to(&b, warm_up, measured).expect("measured") / 1e6
    });
    assert_eq!(a.delay_overflowed(), 0);
}

#[test]
fn a_lossy_link_loses_single_packets_in_the_share_that_was_set() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::with_delay_by(DelayBy::Forwarder).expect("a network");
    let (a, b) = (network.add_host("a").expect("a host"), network.add_host("b").expect("a host"));
    a.set_delay(Delay { one_way: Duration::from_millis(1), loss_per_million: 100_000 })
        .expect("set and verified");
    let bind = |host: &vazao_lab::hosts::Host| {
        let socket = host.inside(|| std::net::UdpSocket::bind((host.address(), 0))).expect("inside");
        socket.expect("a socket")
    };
    let (from, to) = (bind(&a), bind(&b));
    let target = to.local_addr().expect("bound");
    to.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
    let mut arrived = 0;
    // In small groups, taken out at once: a socket buffer that overflows loses packets too.
    for _ in 0..50 {
        (0..40).for_each(|_| assert_eq!(from.send_to(&[7; 100], target).expect("sent"), 100));
        while to.recv(&mut [0; 200]).is_ok() {
            arrived += 1;
        }
    }
    assert!((1700..=1890).contains(&arrived), "{arrived} of 2000 packets arrived, 1800 expected");
}

#[test]
fn a_slow_disk_reads_and_writes_at_its_rate_and_can_be_changed() {
    let Some(_turn) = turn() else { return };
    let mut disk = SlowDisk::new(&std::env::temp_dir(), 128 << 20, DISK_BYTES_PER_SECOND).expect("a disk");
    disk.attach(std::process::id()).expect("attached");
    for (rate, bytes) in [(DISK_BYTES_PER_SECOND, 40 << 20), (60_000_000, 60 << 20)] {
        disk.set_rate(rate).expect("set");
        let path = disk.path().join("direct");
        let share = |taken_seconds: f64| bytes as f64 / taken_seconds / rate as f64;
        best_of_three("share of the rate written", 0.9, 1.1, || {
            share(seconds(|| write_direct(&path, bytes)))
        });
        best_of_three("share of the rate read", 0.9, 1.1, || share(seconds(|| read_direct(&path, bytes))));
        fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn buffered_writes_reach_a_slow_disk_at_its_rate_as_well() {
    let Some(_turn) = turn() else { return };
    let disk = SlowDisk::new(&std::env::temp_dir(), 128 << 20, DISK_BYTES_PER_SECOND).expect("a disk");
    disk.attach(std::process::id()).expect("attached");
    let bytes = 56 << 20;
    best_of_three("share of the rate written back", 0.75, 1.1, || {
        let taken_seconds = seconds(|| {
            let mut file = File::create(disk.path().join("buffered")).expect("created");
            file.write_all(&vec![7; bytes]).expect("written");
            file.sync_all().expect("synced");
        });
        bytes as f64 / taken_seconds / DISK_BYTES_PER_SECOND as f64
    });
}

/// A block for direct I/O has to lie on a page boundary: taken from the middle of a larger one.
fn with_aligned_block(work: impl FnOnce(&mut [u8])) {
    const BLOCK_BYTES: usize = 1 << 20;
    let mut space = vec![0x5a; BLOCK_BYTES + 4096];
    let start = space.as_ptr().align_offset(4096);
    work(&mut space[start..start + BLOCK_BYTES]);
}

fn write_direct(path: &Path, bytes: usize) {
    let flags = OFlags::DIRECT.bits() as i32;
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
        .expect("opened");
    with_aligned_block(|block| {
        (0..bytes / block.len()).for_each(|_| file.write_all(block).expect("written"));
    });
}

fn read_direct(path: &Path, bytes: usize) {
    let mut file =
        File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).expect("opened");
    with_aligned_block(|block| {
        (0..bytes / block.len()).for_each(|_| file.read_exact(block).expect("read"));
    });
}

#[test]
fn a_process_under_a_cpu_limit_gets_its_share_and_goes_on_after_it() {
    let Some(_turn) = turn() else { return };
    let mut limit = CpuLimit::new(0.25).expect("a limit");
    // In a hurry, so that nothing but the limit holds it back.
    let busy = Command::new("nice").args(["-n", "-15", "sh", "-c", "while :; do :; done"]).spawn();
    let mut child = Guarded(busy.expect("nice runs"));
    limit.attach(child.0.id()).expect("attached");
    let share = |child: &Guarded| {
        let before = cpu_ticks(child.0.id());
        let taken = seconds(|| SystemClock.sleep(Duration::from_millis(1200)));
        (cpu_ticks(child.0.id()) - before) as f64 / 100.0 / taken
    };
    let quarter = share(&child);
    assert!((0.15..=0.30).contains(&quarter), "{quarter} processors instead of 0.25");
    limit.set(0.1).expect("set");
    let tenth = share(&child);
    assert!((0.05..=0.14).contains(&tenth), "{tenth} processors instead of 0.1");
    drop(limit);
    assert!(child.0.try_wait().expect("a child").is_none(), "the process outlives its limit");
}

struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.kill_bounded();
    }
}

/// Fields 14 and 15 of proc_pid_stat(5), in hundredths of a second.
fn cpu_ticks(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("alive");
    let fields = text.rsplit(')').next().expect("a name in brackets").split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn what_is_dropped_leaves_nothing_behind_even_in_a_panic() {
    let Some(_turn) = turn() else { return };
    let found = Mutex::new(None);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let everything = Everything::make();
        let traces = traces_of(std::process::id());
        *found.lock() = Some((traces, everything.process.id()));
        panic!("on purpose");
    }));
    result.expect_err("it panicked");
    let (traces, process) = found.lock().take().expect("all was made");
    assert_whole(&traces);
    assert_eq!(traces_of(std::process::id()), Traces::default());
    fs::remove_dir(mountpoint_of(std::process::id())).expect("unmounted, and so empty");
    assert!(has_ended(process));
}

#[test]
fn what_a_killed_process_leaves_behind_is_swept_and_the_living_are_left_alone() {
    let Some(_turn) = turn() else { return };
    let mut living = Network::new().expect("a network");
    let host = living.add_host("living").expect("a host");
    let this_test = std::env::current_exe().expect("a file");
    let arguments = ["--exact", "hosts::makes_everything_and_waits_to_be_killed", "--ignored", "--nocapture"];
    let victim = Command::new(this_test).args(arguments).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut victim = Guarded(victim);
    let (pid, process) = (victim.0.id(), ready(&mut victim.0));
    assert_whole(&traces_of(pid));
    sweep().expect("swept");
    assert_whole(&traces_of(pid));
    victim.0.kill().expect("killed");
    victim.0.wait_bounded();
    let left = traces_of(pid);
    assert_whole(&left);
    // Its place was tidied up first, and its loop device stayed: it was not recognised without its file.
    left.images.iter().for_each(|image| fs::remove_file(image).expect("removed"));
    assert!(sweep().expect("swept") >= 3, "a network, a disk and a limit were left behind");
    assert_eq!(traces_of(pid), Traces::default());
    fs::remove_dir(mountpoint_of(pid)).expect("unmounted, and so empty");
    assert!(has_ended(process));
    assert!(host.measured_rtt().is_ok(), "the living network still works");
}

/// Waits for the victim's word that all is made; the number it says is that of a process on its host.
fn ready(victim: &mut Child) -> u32 {
    let output = victim.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines().map(|line| line.expect("text"));
    let word =
        lines.find_map(|line| line.split("ready ").nth(1).map(str::to_owned)).expect("the victim's word");
    word.trim().parse().expect("a number")
}

#[test]
#[ignore = "the victim of the test that kills it"]
fn makes_everything_and_waits_to_be_killed() {
    let everything = Everything::make();
    println!("ready {}", everything.process.id());
    SystemClock.sleep(Duration::from_secs(60));
    panic!("nobody killed this process");
}

/// One of each stand-in, in use.
struct Everything {
    process: Child,
    _network: Network,
    _disk: SlowDisk,
    _limit: CpuLimit,
}

impl Everything {
    fn make() -> Everything {
        let mut network = Network::with_delay_by(DelayBy::Forwarder).expect("a network");
        let host = network.add_host("n1").expect("a host");
        host.set_delay(Delay::one_way(Duration::from_millis(5))).expect("set");
        let mountpoint = mountpoint_of(std::process::id());
        fs::create_dir(&mountpoint).expect("a directory");
        host.unmount_at_end(&mountpoint).expect("recorded");
        let mounted = host.command("mount").args(["-t", "tmpfs", "none"]).arg(&mountpoint).run_bounded();
        assert!(mounted.status.success());
        let disk = SlowDisk::new(&std::env::temp_dir(), 32 << 20, DISK_BYTES_PER_SECOND).expect("a disk");
        let limit = CpuLimit::new(1.0).expect("a limit");
        let process = host.command("sleep").arg("60").current_dir(disk.path()).spawn().expect("sleep runs");
        disk.attach(process.id()).expect("attached");
        limit.attach(process.id()).expect("attached");
        Everything { process, _network: network, _disk: disk, _limit: limit }
    }
}

/// What the machine shows of a run by its names: for looking at only, never for removing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traces {
    ledgers: Vec<PathBuf>,
    namespaces: Vec<PathBuf>,
    images: Vec<PathBuf>,
    loops: Vec<String>,
    rules: Vec<String>,
    /// Of the disk, of the two namespaces, and of a program on the host.
    mounts: Vec<String>,
    groups: Vec<PathBuf>,
    nodes: Vec<PathBuf>,
}

/// Its name is not one of the images'.
fn mountpoint_of(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("mounted-vazao-lab-{pid}-n1"))
}

fn assert_whole(traces: &Traces) {
    assert_eq!(traces.namespaces.len(), 2, "{traces:?}");
    let others = [traces.images.len(), traces.loops.len(), traces.mounts.len()];
    assert_eq!(others, [1, 1, 4], "{traces:?}");
    assert!(!traces.groups.is_empty() && traces.ledgers.len() == 3, "{traces:?}");
    assert!(traces.nodes.is_empty(), "device nodes are removed once opened: {traces:?}");
}

fn traces_of(pid: u32) -> Traces {
    let prefix = format!("vazao-lab-{pid}-");
    let named = |directory: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        entries
            .filter(|path| path.file_name().is_some_and(|it| it.to_string_lossy().starts_with(&prefix)))
            .collect()
    };
    let loops = loops_behind(&prefix);
    Traces {
        ledgers: named(Path::new(RUN_DIRECTORY)),
        namespaces: named(Path::new("/run/netns")),
        images: named(&std::env::temp_dir()),
        rules: rules_of_free_loops(),
        loops,
        mounts: lines_with("/proc/self/mounts", &prefix),
        groups: cgroup_roots().iter().flat_map(|root| named(root)).collect(),
        nodes: named(Path::new("/dev")),
    }
}

fn loops_behind(prefix: &str) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").expect("sysfs").flatten();
    let files = devices.filter_map(|it| fs::read_to_string(it.path().join("loop/backing_file")).ok());
    files.filter(|file| file.contains(prefix)).collect()
}

/// Bounds that stand although their device has no file any more: its next user would be slow and not know why.
fn rules_of_free_loops() -> Vec<String> {
    let rules = cgroup_roots()
        .into_iter()
        .flat_map(|root| ["read", "write"].map(|way| root.join(format!("blkio.throttle.{way}_bps_device"))));
    let texts = rules.filter_map(|rule| fs::read_to_string(rule).ok());
    let lines: Vec<String> =
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines
        .into_iter()
        .filter(|line| {
            let numbers = line.split(' ').next().unwrap_or_default();
            numbers.starts_with("7:")
                && !Path::new(&format!("/sys/dev/block/{numbers}/loop/backing_file")).exists()
        })
        .collect()
}

fn cgroup_roots() -> Vec<PathBuf> {
    let mounts = lines_with("/proc/self/mounts", " cgroup");
    mounts.iter().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from).collect()
}

fn lines_with(file: &str, part: &str) -> Vec<String> {
    let text = fs::read_to_string(file).expect("readable");
    text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

fn has_ended(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.is_empty() || state.contains(") Z ")
}

fn links() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").expect("sysfs").flatten();
    entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect()
}
