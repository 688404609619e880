//! Runs of the tests in bad circumstances: one that is interrupted leaves nothing on the machine, one on a full disk
//! says so, and two take turns.
//!
//! Needs root. On a machine without, `VAZAO_TEST_NO_ROOT=1` says so and skips this; without it, this fails there.

use crate::support::{freeze, signal, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use vazao_testing::programs::{RunBounded, WaitBounded};

/// A test run, as far as its place goes, with an experiment under way in it.
const RUN: &str = r#"
source scripts/lib/sandbox.sh
sandbox_enter
"$1" lab run P4 --scale tiny --out "$TMPDIR/out" --work "$TMPDIR" >"$TMPDIR/said" 2>&1 &
echo "$! $TMPDIR"
wait
"#;

/// Two steps on a small disk, the first of which fills it.
const FULL_RUN: &str = r#"
source scripts/lib/sandbox.sh
source scripts/lib/steps.sh
sandbox_enter
mkdir "$TMPDIR/mounted"
mount -t tmpfs none "$TMPDIR/mounted"
step first bash -c 'head -c 2M /dev/zero >"$TMPDIR/big"; echo "3 passed, 0 failed"'
step second bash -c 'echo "4 passed, 0 failed"'
echo "$passed and ${#failed_steps[@]}"
"#;

fn may_run() -> bool {
    if std::env::var_os("VAZAO_TEST_NO_ROOT").is_some_and(|it| it == "1") {
        eprintln!("skipped: VAZAO_TEST_NO_ROOT=1");
        return false;
    }
    assert!(rustix::process::geteuid().is_root(), "run this as root, or set VAZAO_TEST_NO_ROOT=1");
    true
}

/// `bash` at the root of the sources, with a place of its own, as when no run is around it.
fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", script, "run"]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).env_remove("VAZAO_TEST_RUN");
    command.env_remove("TMPDIR").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What the machine shows of the processes and files of a run.
fn traces(process: u32, place: &str) -> Vec<String> {
    let prefix = format!("vazao-lab-{process}-");
    let names = ["/run/vazao-lab", "/run/netns"].into_iter().flat_map(|directory| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string())
    });
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().map(str::to_owned).collect::<Vec<_>>();
    let processes = fs::read_dir("/proc").expect("listed").flatten().filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).into_owned())
    });
    let place_itself = Path::new(place).exists().then(|| place.to_owned());
    let all = names.chain(loops).chain(mounts).chain(processes).chain(place_itself);
    all.filter(|text| text.contains(&prefix) || text.contains(place)).collect()
}

/// Starts a run. Its process, that of the experiment, and the run's place.
fn start(targets: &Path) -> (Child, u32, String) {
    let mut command = bash(RUN);
    command.arg(env!("CARGO_BIN_EXE_vazao")).env("CARGO_TARGET_DIR", targets);
    let mut run = command.spawn().expect("bash starts");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("piped")).read_line(&mut line).expect("its first line");
    let (process, place) = line.trim().split_once(' ').expect("two words");
    let process = process.parse().expect("a number");
    (run, process, place.to_owned())
}

/// Hosts and loop devices of interrupted runs stayed on the machine: what the killed test would have removed itself was
/// removed by nothing else.
#[test]
fn a_run_that_is_interrupted_in_the_middle_of_the_laboratory_leaves_nothing() {
    if !may_run() {
        return;
    }
    let targets = tempfile::tempdir().expect("a directory");
    fs::create_dir(targets.path().join("release")).expect("made");
    symlink(env!("CARGO_BIN_EXE_vazao"), targets.path().join("release/vazao")).expect("made");
    for (ends_by, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 143)] {
        let (mut run, experiment, place) = start(targets.path());
        wait_until("a slow disk is mounted on a loop device, and hosts are there", || {
            let traces = traces(experiment, &place);
            let has = |part: &str| traces.iter().any(|trace| trace.contains(part));
            has("/run/netns/") && has(".img") && has("/disk ext4")
        });
        // It can clean up nothing itself.
        freeze(experiment);
        // The terminal is gone: nothing that is said has a reader.
        drop(run.stderr.take().filter(|_| ends_by == Signal::HUP));
        signal(run.id(), ends_by);
        assert_eq!(run.wait_bounded().code(), Some(status), "{ends_by:?}");
        assert_eq!(traces(experiment, &place), Vec::<String>::new(), "{ends_by:?}");
    }
}

/// Steps failed without a word, what they had passed was not counted, and what was mounted stayed: the program that put
/// the mounts into order had no room.
#[test]
fn a_run_on_a_full_disk_says_so_and_takes_its_mounts_away() {
    if !may_run() {
        return;
    }
    let alone = r#"unshare --mount bash -c 'mount -t tmpfs -o size=300k none /tmp || exit 9
        bash -c "$1"
        grep " /tmp/vazao-" /proc/self/mounts' inner "$1""#;
    let mut command = bash(alone);
    let said = command.arg(FULL_RUN).run_bounded();
    let said = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.contains("==> second: FAILED: the disk of /tmp/vazao-"), "{said}");
    assert!(said.contains("make room there"), "{said}");
    assert!(said.contains("\n0 and 2\n"), "nothing passed, and both steps failed: {said}");
    assert!(said.contains("cleanup: unmounting /tmp/vazao-"), "{said}");
    assert!(!said.contains("none /tmp/vazao-"), "a mount is left: {said}");
}

/// Each put back what it had found of the other's: a switch of the kernel stayed as the first of two runs had set it.
#[test]
fn what_changes_the_machine_runs_in_one_run_at_a_time() {
    const STEP: &str = r#"source scripts/lib/steps.sh; alone "$1""#;
    let place = tempfile::tempdir().expect("a directory");
    let (script, log) = (place.path().join("step.sh"), place.path().join("log"));
    let log = log.to_str().expect("text");
    fs::write(&script, format!("echo begins >>'{log}'; sleep 0.3; echo ends >>'{log}'")).expect("written");
    let begin = || {
        let mut command = bash(STEP);
        command.arg(&script).env("VAZAO_TEST_LOCK", place.path());
        command.spawn().expect("bash starts")
    };
    for mut run in [begin(), begin(), begin()] {
        assert!(run.wait_bounded().success());
    }
    assert_eq!(fs::read_to_string(log).expect("readable"), "begins\nends\n".repeat(3));
}
