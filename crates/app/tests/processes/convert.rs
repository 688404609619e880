//! `vazao layout --convert` over real daemons: files in use, and everything that can be killed in the middle.

use crate::support::{Cluster, failed, noise, noise_file, signal, spawn, succeeded, text, wait_until};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Weak};
use vazao_testing::programs::WaitBounded;

const LENGTH: usize = 24_000_001;

/// Slow enough that things can be killed in the middle: about three seconds.
const SLOWLY: [&str; 2] = ["--rate", "8M"];

fn can_mount() -> bool {
    let possible = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !possible {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    possible
}

/// A cluster with a file of noise.
fn start() -> Cluster {
    let cluster = Cluster::start(3);
    cluster.ok(&["cp", &noise_file(&cluster.local("source"), LENGTH), "vz:/f"]);
    cluster
}

fn to_local(more: &[&'static str]) -> Vec<&'static str> {
    [&["layout", "--convert", "vz:/f", "--distribution", "local"], more].concat()
}

fn kind(cluster: &Cluster) -> String {
    let layout = cluster.ok(&["layout", "--json", "vz:/f"]);
    let layout: serde_json::Value = serde_json::from_str(&layout).expect("JSON");
    layout["distribution"]["kind"].as_str().expect("a name").to_owned()
}

fn is_whole(cluster: &Cluster) {
    assert!(cluster.run(&["cat", "vz:/f"]).stdout == noise(LENGTH));
}

/// Bytes of all objects on the disks.
fn stored(cluster: &Cluster) -> u64 {
    fn below(directory: &Path) -> u64 {
        let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
        entries
            .map(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => below(&entry.path()),
                _ => entry.metadata().map_or(0, |metadata| metadata.len()),
            })
            .sum()
    }
    fs::read_dir(cluster.dir().join("nodes"))
        .expect("nodes")
        .filter_map(Result::ok)
        .map(|node| below(&node.path()))
        .sum()
}

/// A slow conversion that has copied something by now.
fn begin(cluster: &Cluster, before: u64) -> Child {
    let child = spawn(cluster.command(&to_local(&SLOWLY)));
    wait_until("it copies", || stored(cluster) > before + 4_000_000);
    child
}

#[test]
fn a_file_that_a_mount_writes_and_reads_is_converted_and_no_byte_is_lost() {
    if !can_mount() {
        return;
    }
    let cluster = start();
    let places = ["busy", "watching"].map(|name| cluster.local(name));
    for place in &places {
        fs::create_dir(place).expect("made");
        cluster.ok(&["mount", "vz:/", &text(place)]);
    }
    let checked = std::panic::catch_unwind(|| {
        let path = places[0].join("f");
        let watching = File::open(places[1].join("f")).expect("opens");
        let model = std::thread::scope(|scope| {
            // Dropped also when something is asserted in vain: the writer would never end otherwise.
            let busy = Arc::new(());
            let (path, is_busy) = (&path, Arc::downgrade(&busy));
            let writer = scope.spawn(move || write_while(path, &is_busy));
            for pattern in ["local", "stripe", "groups"] {
                let line = ["layout", "--convert", "vz:/f", "--distribution", pattern, "--groups", "3"];
                let line = if pattern == "groups" { &line[..] } else { &line[..5] };
                // One that finds no pause says so, and leaves the file as it was.
                let output = cluster.run(line);
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() || said.contains("written to"), "{said}");
                let mut part = vec![0; 100_000];
                watching.read_exact_at(&mut part, 20_000_000).expect("the other mount reads on");
                assert!(part == noise(LENGTH)[20_000_000..20_100_000], "nobody writes there");
            }
            drop(busy);
            writer.join().expect("the writer reads what it wrote")
        });
        // In peace each of them is converted, still open.
        for pattern in ["stripe", "local", "stripe"] {
            cluster.ok(&["layout", "--convert", "vz:/f", "--distribution", pattern]);
            assert_eq!(kind(&cluster), pattern);
            assert!(cluster.run(&["cat", "vz:/f"]).stdout == model, "{pattern}");
            assert!(fs::read(&path).expect("reads") == model, "{pattern}: in the mount that wrote");
            assert!(fs::read(places[1].join("f")).expect("reads") == model, "{pattern}: in the other one");
        }
    });
    for place in &places {
        cluster.ok(&["umount", &text(place)]);
    }
    checked.expect("checked above");
    assert!(cluster.ok(&["scrub", "--rate", "0"]).contains("done"));
}

/// Changes the first 16 MB, with pauses, and reads each change back. Returns what the file then has to be.
fn write_while(path: &Path, is_busy: &Weak<()>) -> Vec<u8> {
    let mut model = noise(LENGTH);
    let file = OpenOptions::new().read(true).write(true).open(path).expect("opens");
    let mut round = 0usize;
    while is_busy.strong_count() > 0 || round < 5 {
        for step in 0..10 {
            let at = (round * 1_234_567 + step * 777_777) % 16_000_000;
            let part = vec![(round * 10 + step) as u8; 30_000];
            file.write_all_at(&part, at as u64).expect("writes");
            model[at..at + part.len()].copy_from_slice(&part);
            let mut found = vec![0; 50_000];
            file.read_exact_at(&mut found, at as u64).expect("reads");
            assert!(found == model[at..at + 50_000], "round {round}, step {step}");
        }
        match round % 3 {
            0 => file.sync_all().expect("syncs"),
            1 => drop(File::open(path).expect("opens and closes")),
            _ => {}
        }
        round += 1;
        vazao_meter::Clock::sleep(&vazao_meter::SystemClock, std::time::Duration::from_millis(700));
    }
    file.sync_all().expect("all of it is there");
    model
}

#[test]
fn a_conversion_that_is_interrupted_leaves_nothing_and_one_that_is_killed_leaves_the_file_as_it_was() {
    let cluster = start();
    let before = stored(&cluster);
    let child = begin(&cluster, before);
    signal(child.id(), Signal::INT);
    let said = failed(child.output_bounded(), 130);
    assert!(said.contains("interrupted"), "{said}");
    wait_until("its objects are removed", || stored(&cluster) < before + 4_000_000);
    assert_eq!(kind(&cluster), "stripe");

    let mut child = begin(&cluster, before);
    signal(child.id(), Signal::KILL);
    child.wait_bounded();
    is_whole(&cluster);
    let said = cluster.fails(&to_local(&[]));
    assert!(said.contains("another client converts it"), "until its session is over: {said}");
    cluster.ok(&["cp", &text(&cluster.local("source")), "vz:/f"]);
    cluster.ok(&to_local(&[]));
    is_whole(&cluster);
}

#[test]
fn a_conversion_goes_on_over_the_death_of_the_metadata_service_and_starts_over_for_that_of_a_data_server() {
    let cluster = start();
    let before = stored(&cluster);
    for (node, pattern) in [("meta1", "local"), ("data1", "stripe")] {
        let line = ["layout", "--convert", "vz:/f", "--distribution", pattern, "--rate", "8M"];
        let child = spawn(cluster.command(&line));
        wait_until("it copies", || stored(&cluster) > before + 4_000_000);
        cluster.kill(node);
        cluster.up(&[]);
        succeeded(child.output_bounded());
        assert_eq!(kind(&cluster), pattern);
        is_whole(&cluster);
        wait_until("the old objects are removed", || stored(&cluster) < before + 4_000_000);
    }
}

#[test]
fn what_is_said_of_a_conversion() {
    let cluster = start();
    let dry: serde_json::Value =
        serde_json::from_str(&cluster.ok(&to_local(&["--dry-run", "--json"]))).expect("JSON");
    assert_eq!((&dry["dry_run"], &dry["changed"]), (&true.into(), &false.into()), "{dry}");
    assert!(dry["bytes"].as_u64().is_some_and(|bytes| bytes >= LENGTH as u64), "{dry}");
    let done: serde_json::Value = serde_json::from_str(&cluster.ok(&to_local(&["--json"]))).expect("JSON");
    assert_eq!((&done["path"], &done["changed"]), (&"vz:/f".into(), &true.into()), "{done}");
    assert_eq!((&done["from"]["width"], &done["to"]["width"]), (&3.into(), &1.into()), "{done}");
    let again = cluster.ok(&to_local(&[]));
    assert!(again.contains("0 files converted") && again.contains("1 left as they are"), "{again}");
    let usage = [
        vec!["layout", "--convert"],
        vec!["layout", "--dry-run", "vz:/f"],
        vec!["layout", "--convert", "--rate", "fast", "vz:/f"],
        vec!["layout", "--convert", "/tmp"],
    ];
    for line in usage {
        failed(cluster.run(&line), 2);
    }
    cluster.ok(&["mkdir", "vz:/d"]);
    for (line, why) in
        [(vec!["layout", "--convert", "vz:/none"], "vz:/none"), (vec!["layout", "--convert", "vz:/d"], "-r")]
    {
        let said = cluster.fails(&line);
        assert!(said.contains(why), "{line:?}: {said}");
    }
    is_whole(&cluster);
}

/// Written, cut and read in pieces through a mount, read past the servers by `cat`, and gone through by `scrub`.
#[test]
fn files_of_every_distribution_are_the_same_through_a_mount_past_the_servers_and_for_scrub() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(3);
    let place = cluster.local("place");
    fs::create_dir(&place).expect("made");
    let distributions = [
        ("stripe", vec![]),
        ("strips", vec!["--strips", "64K,192K,64K"]),
        ("groups", vec!["--groups", "3", "--factor", "2"]),
        ("local", vec![]),
    ];
    for (name, more) in &distributions {
        cluster.ok(&["mkdir", &format!("vz:/{name}")]);
        let path = format!("vz:/{name}");
        cluster.ok(&[&["layout", &path, "--distribution", name], &more[..]].concat());
    }
    cluster.ok(&["mount", "vz:/", &text(&place)]);
    let checked = std::panic::catch_unwind(|| {
        for (name, _) in &distributions {
            let path = place.join(name).join("f");
            let mut model = noise(5_000_000);
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("made");
            for (number, part) in model.chunks(777_777).enumerate() {
                file.write_all_at(part, number as u64 * 777_777).expect("writes");
            }
            file.set_len(3_333_333).expect("cuts");
            file.set_len(4_000_000).expect("makes it longer");
            model.truncate(4_000_000);
            model[3_333_333..].fill(0);
            file.write_all_at(&[7; 300_000], 1_900_001).expect("writes over it");
            model[1_900_001..2_200_001].fill(7);
            file.sync_all().expect("syncs");
            assert!(fs::read(&path).expect("reads") == model, "{name}: through the mount");
            let mut part = vec![0; 100_000];
            for at in [0u64, 65_530, 262_100, 1_850_000, 3_300_000] {
                file.read_exact_at(&mut part, at).expect("reads");
                assert!(part == model[at as usize..at as usize + 100_000], "{name}: at {at}");
            }
            let volume = format!("vz:/{name}/f");
            assert!(cluster.run(&["cat", &volume]).stdout == model, "{name}: past the servers");
            let layout = cluster.ok(&["layout", "--json", &volume]);
            let layout: serde_json::Value = serde_json::from_str(&layout).expect("JSON");
            assert_eq!(layout["distribution"]["kind"], **name);
        }
    });
    cluster.ok(&["umount", &text(&place)]);
    checked.expect("checked above");
    assert!(cluster.ok(&["scrub", "--rate", "0"]).contains("done"));
}
