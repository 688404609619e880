//! `vazao mount` and `vazao umount` as a user meets them. What files do inside a mount is tested with the door itself.

use crate::support::{self, Cluster, failed, noise, seconds, signal, text, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use vazao_testing::programs::{RunBounded, WaitBounded};

/// Mounts need the device and, for these tests, root.
fn can_mount() -> bool {
    let possible = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !possible {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    possible
}

/// Set to `on` these tests run with requests over io_uring, and fail where the kernel does not offer it.
const TRANSPORT: &str = "VAZAO_TEST_URING";

/// Mounts with requests coming the way that is tested.
fn mount(cluster: &Cluster, volume: &str, mountpoint: &Path) {
    let is_on = std::env::var_os(TRANSPORT).is_some_and(|value| value == "on");
    let transport = if is_on { "uring=on" } else { "uring=off" };
    cluster.ok(&["mount", volume, &text(mountpoint), "-o", transport]);
}

/// The process behind a mount.
fn mount_process(mountpoint: &Path) -> u32 {
    let is_it = |process: &u32| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let mut words = words.split(|&byte| byte == 0);
        let place = text(mountpoint);
        words.clone().any(|word| word == b"--foreground") && words.any(|word| word == place.as_bytes())
    };
    let entries = fs::read_dir("/proc").expect("readable").filter_map(Result::ok);
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.find(is_it).expect("the mount runs")
}

fn mounts() -> String {
    fs::read_to_string("/proc/mounts").expect("readable")
}

#[test]
fn a_mount_serves_when_the_command_returns_and_is_gone_after_umount() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(2);
    let mountpoint = cluster.local("mount point");
    fs::create_dir(&mountpoint).expect("made");
    cluster.ok(&["mkdir", "-p", "vz:/a/b"]);
    mount(&cluster, "vz:/a", &mountpoint);
    let line = mounts().lines().find(|line| line.contains("mount\\040point")).map(str::to_owned);
    let umount = || cluster.ok(&["umount", &text(&mountpoint)]);
    let checked = std::panic::catch_unwind(|| {
        assert!(line.as_ref().is_some_and(|line| line.contains(" fuse.vazao ")), "{line:?}");
        fs::write(mountpoint.join("b/file"), noise(3_000_000)).expect("written");
        assert!(cluster.run(&["cat", "vz:/a/b/file"]).stdout == noise(3_000_000));
        let said = cluster.fails(&["mount", "vz:/", &text(&mountpoint)]);
        assert!(said.contains("already mounted"), "{said}");
    });
    umount();
    checked.expect("checked above");
    wait_until("the mount is gone", || !mounts().contains("mount\\040point"));
    let said = cluster.fails(&["umount", &text(&mountpoint)]);
    assert!(said.contains("nothing is mounted"), "{said}");
}

#[test]
fn a_mountpoint_that_is_missing_or_not_empty_is_refused() {
    let cluster = Cluster::start(1);
    let missing = cluster.fails(&["mount", "vz:/", &text(&cluster.local("missing"))]);
    assert!(missing.contains("no such directory") && missing.contains("mkdir"), "{missing}");
    let full = cluster.local("full");
    fs::create_dir_all(full.join("something")).expect("made");
    let full = cluster.fails(&["mount", "vz:/", &text(&full)]);
    assert!(full.contains("not empty"), "{full}");
    let empty = cluster.local("empty");
    fs::create_dir(&empty).expect("made");
    let said = failed(cluster.run(&["mount", "vz:/", &text(&empty), "-o", "rainbow"]), 2);
    assert!(said.contains("rainbow"), "{said}");
    let said = cluster.fails(&["mount", "vz:/nothing", &text(&empty)]);
    assert!(said.contains("vz:/nothing") || said.contains("/nothing"), "{said}");
}

#[test]
fn a_mount_goes_on_while_the_metadata_service_is_restarted_under_it() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start_on_own_ports(1);
    let mountpoint = cluster.local("m");
    fs::create_dir(&mountpoint).expect("made");
    mount(&cluster, "vz:/", &mountpoint);
    let checked = std::panic::catch_unwind(|| {
        fs::write(mountpoint.join("before"), noise(200_000)).expect("written");
        cluster.kill("meta1");
        cluster.up(&[]);
        assert!(fs::read(mountpoint.join("before")).expect("readable") == noise(200_000));
        fs::write(mountpoint.join("after"), noise(200_000)).expect("written");
        assert_eq!(cluster.ok(&["ls", "vz:/"]), "after\nbefore\n");
    });
    cluster.ok(&["umount", &text(&mountpoint)]);
    checked.expect("checked above");
}

#[test]
fn a_mount_whose_process_is_killed_fails_its_callers_at_once_and_umount_clears_it() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(1);
    let mountpoint = cluster.local("killed");
    fs::create_dir(&mountpoint).expect("made");
    mount(&cluster, "vz:/", &mountpoint);
    fs::write(mountpoint.join("file"), noise(100_000)).expect("written");
    let process = mount_process(&mountpoint);
    let (failures, waited_s) = seconds(|| {
        std::thread::scope(|scope| {
            // Callers that are in the middle of something, on every core.
            let callers: Vec<_> = (0..4)
                .map(|number| {
                    let path = mountpoint.join(format!("d{number}"));
                    scope.spawn(move || {
                        loop {
                            let outcome = fs::create_dir(&path).and_then(|()| fs::remove_dir(&path));
                            if let Err(error) = outcome {
                                return error;
                            }
                        }
                    })
                })
                .collect();
            vazao_meter::clock::system().sleep(std::time::Duration::from_millis(200));
            signal(process, Signal::KILL);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect::<Vec<_>>()
        })
    });
    cluster.ok(&["umount", &text(&mountpoint)]);
    assert!(!mounts().contains(&text(&mountpoint)));
    assert!(waited_s < 10.0, "{waited_s} s");
    for failure in failures {
        let errno = rustix::io::Errno::from_io_error(&failure).expect("a system call's error");
        use rustix::io::Errno;
        let expected = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO, Errno::CANCELED];
        assert!(expected.contains(&errno), "{failure}");
    }
    // The same place serves again.
    mount(&cluster, "vz:/", &mountpoint);
    let read = fs::read(mountpoint.join("file")).expect("readable");
    cluster.ok(&["umount", &text(&mountpoint)]);
    assert!(read == noise(100_000));
}

#[test]
fn requests_over_io_uring_are_refused_by_name_where_they_are_not_offered() {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    if !can_mount() || fs::read_to_string(SWITCH).is_ok_and(|value| value.trim() == "Y") {
        eprintln!("not tested: requests over io_uring are offered here");
        return;
    }
    let cluster = Cluster::start(1);
    let mountpoint = cluster.local("m");
    fs::create_dir(&mountpoint).expect("made");
    let said = cluster.fails(&["mount", "vz:/", &text(&mountpoint), "-o", "uring=on"]);
    assert!(said.contains("io_uring") && said.contains("uring=on"), "{said}");
    assert!(!mounts().contains(&text(&mountpoint)), "nothing stays behind");
}

#[test]
fn a_mount_works_without_a_place_for_its_log_and_one_that_fails_leaves_none() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(1);
    let mountpoint = cluster.local("mountpoint");
    let state = cluster.local("state");
    let command = |volume: &str| cluster.command(&["mount", volume, &text(&mountpoint)]);
    let said = failed(command("vz:/").run_bounded(), 1);
    assert!(said.contains("mountpoint"), "{said}");
    fs::create_dir(&mountpoint).expect("made");
    failed(command("vz:/nowhere").run_bounded(), 1);
    let logs = fs::read_dir(state.join("vazao")).map_or(0, Iterator::count);
    assert_eq!(logs, 0, "a mount that failed has told why, and leaves no log");

    // Nobody can make a directory there, root neither.
    let mut nowhere = command("vz:/");
    nowhere.env("XDG_STATE_HOME", "/proc/no").env("HOME", "/proc/no").env("XDG_RUNTIME_DIR", "/proc/no");
    let output = nowhere.run_bounded();
    let is_mounted = mounts().contains(&text(&mountpoint));
    let unmounted = cluster.run(&["umount", &text(&mountpoint)]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && is_mounted && said.contains("--log-file"), "{said}");
    assert!(unmounted.status.success());
}

#[test]
fn a_file_system_of_nothing_keeps_names_until_it_is_unmounted_and_bytes_never() {
    if !can_mount() {
        return;
    }
    // Unlike a mount it needs no cluster.
    let cluster = Cluster::unstarted();
    let mountpoint = cluster.local("null");
    fs::create_dir(&mountpoint).expect("made");
    let command = cluster.command(&["lab", "nullfs", &text(&mountpoint), "-o", "uring=off"]);
    let mut nullfs = support::spawn(command);
    wait_until("it is mounted", || mounts().contains(&text(&mountpoint)));
    let checked = std::panic::catch_unwind(|| {
        fs::create_dir(mountpoint.join("d")).expect("made");
        fs::write(mountpoint.join("d/f"), noise(10_000)).expect("written");
        assert_eq!(fs::read(mountpoint.join("d/f")).expect("read"), [0; 10_000]);
        assert_eq!(fs::read_dir(mountpoint.join("d")).expect("listed").count(), 1);
        fs::remove_file(mountpoint.join("d/f")).expect("removed");
        fs::remove_dir(mountpoint.join("d")).expect("removed");
    });
    cluster.ok(&["umount", &text(&mountpoint)]);
    assert!(nullfs.wait_bounded().success());
    checked.expect("it works");
}
