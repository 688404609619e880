//! Servers that hang: commands and mounts say which one they wait for, once, while they wait.

use crate::support::{self, Cluster, freeze, noise_file, signal, spawn, text, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use vazao_testing::programs::WaitBounded;

/// Lines that contain `what`.
fn lines(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn a_command_tells_which_server_it_waits_for_and_goes_on_when_that_goes_on() {
    for (node, named) in
        [("data1", "data server data1 (127.0.0.1:"), ("meta1", "metadata service (127.0.0.1:")]
    {
        let cluster = Cluster::start(1);
        let file = noise_file(&cluster.local("file"), 2_000_000);
        cluster.ok(&["cp", &file, "vz:/file"]);
        let errors = cluster.local("errors");
        let mut command = cluster.command(&["cp", "vz:/file", "vz:/copy"]);
        command.stderr(fs::File::create(&errors).expect("made"));
        let pid = cluster.pid(node);
        let mut child = command.spawn().expect("it starts");
        freeze(pid);
        let said = || fs::read_to_string(&errors).expect("read");
        // A copy that was faster than the signal has nothing to wait for.
        let ended = |child: &mut std::process::Child| child.try_wait().expect("asked").is_some();
        wait_until("the server is named", || ended(&mut child) || said().contains("has not answered for"));
        signal(pid, Signal::CONT);
        let status = child.wait_bounded();
        let said = said();
        // Without a cluster in the first 5 s a command ends at once, which is for the metadata service to say.
        assert!(status.success() || (node == "meta1" && said.starts_with("vazao: ")), "{node}: {said}");
        let waited = lines(&said, named);
        assert!(waited <= 1, "{node}: {said}");
        if status.success() {
            // That line, and the two that end every copy: its limit was the server that stood still.
            assert_eq!(said.lines().count(), waited + 2, "{node}: {said}");
            let limit = format!("limit: no answer of {node} for ");
            assert!(waited == 0 || lines(&said, &limit) == 1, "{node}: {said}");
        }
    }
}

#[test]
fn a_mount_logs_once_which_server_it_waits_for_and_when_that_answers_again() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: no /dev/fuse, or not root");
        return;
    }
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 20_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let (mountpoint, log) = (cluster.local("mount"), cluster.local("mount.log"));
    fs::create_dir(&mountpoint).expect("made");
    cluster.ok(&["mount", "vz:/", &text(&mountpoint), "--log-file", &text(&log)]);
    let said = || fs::read_to_string(&log).expect("a log");
    let checked = std::panic::catch_unwind(|| {
        for (node, named) in
            [("data2", "data server data2 (127.0.0.1:"), ("meta1", "metadata service (127.0.0.1:")]
        {
            let pid = cluster.pid(node);
            freeze(pid);
            let path = mountpoint.join(if node == "data2" { "file" } else { "other" });
            let reader = std::thread::spawn(move || fs::read(path).map(|bytes| bytes.len()).ok());
            wait_until("the server is named", || said().contains(named));
            signal(pid, Signal::CONT);
            let read = reader.join().expect("it ends");
            assert_eq!(read, (node == "data2").then_some(20_000_000), "{}", said());
            wait_until("its return is told", || {
                said().lines().any(|l| l.contains(named) && l.contains("answers again"))
            });
            let told = said().lines().filter(|l| l.contains(named) && l.contains("has not answered")).count();
            assert_eq!(told, 1, "{}", said());
        }
    });
    cluster.ok(&["umount", &text(&mountpoint)]);
    checked.expect("the mount tells of its servers");
}

#[test]
fn a_command_whose_server_hangs_from_the_beginning_names_it_and_ends_by_its_deadline() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.set_deadline_ms(8_000);
    let pid = cluster.pid("data1");
    freeze(pid);
    let child = spawn(cluster.command(&["cat", "vz:/file"]));
    let (output, seconds) = support::seconds(|| child.output_bounded());
    signal(pid, Signal::CONT);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(seconds < 20.0, "{seconds}");
    assert_eq!(lines(&said, " WARN "), 1, "{said}");
    assert!(said.lines().next().is_some_and(|line| line.contains("data server data1 (127.0.0.1:")), "{said}");
}
