//! Published experiments run from end to end at their smallest scale: real daemons on made hosts with slow disks, and
//! results, plots and page in the end. That the figures are right is for the experiments to say; here every place of
//! every figure has to have been measured, and nothing of the machinery may stay behind.
//!
//! Needs root. On a machine without, `VAZAO_TEST_NO_ROOT=1` says so and skips this; without it, this fails there.

use crate::support::{failed, signal, wait_until};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use vazao_testing::programs::{RunBounded, WaitBounded};

fn may_run() -> bool {
    if std::env::var_os("VAZAO_TEST_NO_ROOT").is_some_and(|it| it == "1") {
        eprintln!("skipped: VAZAO_TEST_NO_ROOT=1");
        return false;
    }
    let root = rustix::process::geteuid().is_root();
    assert!(root, "this test makes network namespaces: run it as root, or set VAZAO_TEST_NO_ROOT=1");
    true
}

fn lab(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_vazao")).arg("lab").args(arguments).run_bounded()
}

fn ledgers() -> Vec<String> {
    let entries = fs::read_dir("/run/vazao-lab").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn assert_complete(directory: &Path, id: &str, series_of_first_figure: usize) {
    let text = fs::read_to_string(directory.join(format!("{id}.json"))).expect("an outcome");
    let outcome: Value = serde_json::from_str(&text).expect("JSON");
    let figures = outcome["figures"].as_array().expect("figures");
    assert_eq!(figures[0]["series"].as_array().expect("series").len(), series_of_first_figure, "{id}");
    for figure in figures {
        let (key, places) = (figure["key"].as_str().expect("a key"), figure["x"].as_array().expect("places"));
        for series in figure["series"].as_array().expect("series") {
            let points = series["points"].as_array().expect("points");
            assert_eq!(points.len(), places.len(), "{id} {key} {}: a place was not measured", series["name"]);
            let positive = |value: &Value| value.as_f64().is_some_and(|value| value >= 0.0 || key == "gain");
            let values = points.iter().flat_map(|point| point["values"].as_array().expect("values"));
            assert!(values.clone().count() > 0 && values.clone().all(positive), "{id} {key}");
        }
        let image = fs::read_to_string(directory.join(format!("{id}-{key}.svg"))).expect("a plot");
        assert!(image.starts_with("<svg"), "{id} {key}");
    }
    let findings = outcome["findings"].as_array().expect("findings");
    let unknown = findings.iter().filter(|finding| finding["holds"] == "unknown").count();
    assert!(!findings.is_empty() && unknown == 0, "{id}: {findings:?}");
}

#[test]
fn experiments_measure_every_place_draw_it_and_leave_nothing_behind() {
    if !may_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("text");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vazao"));
    command.args(["lab", "run", "P4", "p8", "R2", "--scale", "tiny", "--out", out]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("vazao starts");
    let process = child.id();
    let run = child.output_bounded();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{said}");
    assert_complete(directory.path(), "P4", 5);
    assert_complete(directory.path(), "P8", 5);
    assert_complete(directory.path(), "R2", 3);
    let page = fs::read_to_string(directory.path().join("index.html")).expect("the page");
    for part in ["<h2 id=\"P4\"", "<h2 id=\"P8\"", "<h2 id=\"R2\"", "P4-cold.svg"] {
        assert!(page.contains(part), "{part} is missing");
    }
    // Other tests may have ledgers of their own at the same time: ours carry the process that ran.
    let ours = format!("vazao-lab-{process}-");
    assert!(ledgers().iter().all(|name| !name.starts_with(&ours)), "{:?}", ledgers());
    fs::remove_file(directory.path().join("P4-cold.svg")).expect("removed");
    let report = lab(&["report", out]);
    assert!(report.status.success() && directory.path().join("P4-cold.svg").exists());
}

#[test]
fn two_clients_go_through_files_in_one_network_and_over_two_sites() {
    if !may_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("text");
    let run = lab(&["run", "C1", "C2", "--scale", "tiny", "--out", out, "--work", out]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_complete(directory.path(), "C1", 2);
    let outcome = outcome(directory.path(), "C2");
    let series = |key: &str| -> Vec<(String, usize)> {
        let figures = outcome["figures"].as_array().expect("figures");
        let figure = figures.iter().find(|figure| figure["key"] == key).expect(key);
        let all = figure["series"].as_array().expect("series").iter();
        let points = |series: &Value| series["points"].as_array().map_or(0, Vec::len);
        all.map(|series| (series["name"].as_str().expect("a name").to_owned(), points(series))).collect()
    };
    for key in ["write", "rewrite", "read", "reread", "reread-from-memory"] {
        let own: Vec<(String, usize)> = series(key).into_iter().filter(|(_, points)| *points == 3).collect();
        let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Vazão, client 1", "Vazão, client 2"], "{key}: each size was measured");
        assert_eq!(series(key).len(), 4, "{key}: and smaller files that lie on both sides");
    }
    assert!(series("far").iter().all(|(_, points)| *points == 2) && series("far").len() == 2);
    assert!(series("stat").iter().all(|(_, points)| *points == 2) && series("stat").len() == 3);
    let findings = outcome["findings"].as_array().expect("findings");
    assert!(findings.iter().all(|finding| finding["holds"] != "unknown"), "{findings:?}");
    assert!(!command_lines().any(|line| line.contains(out)), "processes are left");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(out), "mounts are left: {mounts}");
}

/// The outcome of an experiment.
fn outcome(directory: &Path, id: &str) -> Value {
    let text = fs::read_to_string(directory.join(format!("{id}.json"))).expect("an outcome");
    serde_json::from_str(&text).expect("JSON")
}

/// The median of a series at a place of a figure.
fn median(outcome: &Value, key: &str, series: &str, at: usize) -> f64 {
    let named = |list: &Value, name: &str, value: &str| {
        let found = list.as_array().into_iter().flatten().find(|entry| entry[name] == value);
        found.unwrap_or_else(|| panic!("{key} {series}: no {value}")).clone()
    };
    let figure = named(&outcome["figures"], "key", key);
    let point = &named(&figure["series"], "name", series)["points"][at];
    assert_eq!(point["at"], at, "{key} {series}");
    point["values"][0].as_f64().expect("a value")
}

#[test]
fn copies_are_weighed_and_a_data_server_dies_and_returns_under_readers_and_writers() {
    if !may_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("text");
    let run = lab(&["run", "P10", "--scale", "tiny", "--workers", "1", "--out", out, "--work", out]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_complete(directory.path(), "P10", 3);
    let outcome = outcome(directory.path(), "P10");
    for place in 0..4 {
        // What hosts received tells how many copies were made, whatever the machine was busy with.
        for (copies, series) in [(1.0, "write, 1 copy"), (2.0, "write, 2 copies"), (3.0, "write, 3 copies")] {
            let times = median(&outcome, "network", series, place);
            // More was seen once at the first place, right after the groups were made; other traffic counts, too.
            let most = if place == 0 { f64::INFINITY } else { copies + 0.9 };
            assert!((copies - 0.5..most).contains(&times), "{series} at {place}: {times} times");
        }
        let read = median(&outcome, "network", "read, 3 copies", place);
        assert!((0.95..2.5).contains(&read), "a byte is read from one copy, not from all: {read} at {place}");
    }
    // One primary that sends twice, against one that sends once.
    let (star, chain) = (
        median(&outcome, "chain", "star allows", 2),
        median(&outcome, "chain", "chain allows (computed)", 2),
    );
    assert!((chain / star - 2.0).abs() < 1e-6, "{star} {chain}");
    assert_eq!(median(&outcome, "failures", "this run", 1), 0.0, "acknowledged blocks are lost: {outcome}");
    let figures = outcome["figures"].as_array().expect("figures");
    let over_time = figures.iter().find(|figure| figure["key"] == "outage").expect("the figure over time");
    let marks: Vec<&str> =
        over_time["marks"].as_array().expect("marks").iter().filter_map(|it| it["name"].as_str()).collect();
    for mark in ["data2 is killed", "data2 is started again", "the longest read: ", "the longest write: "] {
        assert!(marks.iter().any(|name| name.starts_with(mark)), "{mark}: {marks:?}");
    }
    for (series, text) in [(0, "read"), (1, "written")] {
        let points = over_time["series"][series]["points"].as_array().expect("points");
        assert!(points.iter().any(|point| point["values"][0].as_f64() > Some(0.0)), "nothing was {text}");
    }
    assert!(!command_lines().any(|line| line.contains(out)), "processes are left");
}

#[test]
fn remote_calls_of_every_language_reach_every_server_without_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("text");
    let run = lab(&["run", "L1", "--scale", "tiny", "--out", out, "--work", out]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_complete(directory.path(), "L1", 3);
    let outcome = outcome(directory.path(), "L1");
    assert_eq!(outcome["findings"][0]["holds"], "yes", "{} {}", outcome["findings"], outcome["gaps"]);
    let rates = outcome["figures"][1]["series"].as_array().expect("series");
    let values = rates.iter().flat_map(|series| series["points"].as_array().expect("points"));
    assert!(
        values.clone().count() == 9 && values.clone().all(|point| point["values"][0].as_f64() > Some(0.0))
    );
    assert!(!command_lines().any(|line| line.contains(out)), "processes are left");
}

#[test]
fn without_lua_and_python_the_calls_of_rust_are_measured_and_the_remedy_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("text");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vazao"));
    command.args(["lab", "run", "L1", "--scale", "tiny", "--out", out, "--work", out]).env("PATH", out);
    let run = command.run_bounded();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let outcome = outcome(directory.path(), "L1");
    let gaps = outcome["gaps"].to_string();
    for part in ["Lua: lua5.4 with LuaSocket is needed; ./x setup", "Python: python3 is needed; ./x setup"] {
        assert!(gaps.contains(part), "{part}: {gaps}");
    }
    assert_eq!(outcome["findings"][0]["holds"], "unknown");
    assert_eq!(outcome["figures"][0]["series"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_unknown_experiment_is_a_usage_error_that_lists_those_that_are_there() {
    let run = lab(&["run", "Z9", "--out", "/nowhere"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("Z9") && said.contains("P4"), "{said}");
}

/// Ctrl-C was heard only between two experiments, and each may take an hour; a second one left hosts and daemons.
#[test]
fn an_experiment_that_is_interrupted_ends_its_copies_and_leaves_nothing() {
    if !may_run() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("work")).expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vazao"));
    command.args(["lab", "run", "G10", "W2"]).arg("--out").arg(path("out"));
    command.arg("--work").arg(path("work")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("vazao starts");
    let process = child.id();
    let work = path("work").to_string_lossy().into_owned();
    // The longest wait there is: for the copies of a measurement.
    wait_until("copies are under way", || {
        command_lines().any(|line| line.contains(&work) && line.contains("\0cp\0"))
    });
    signal(process, rustix::process::Signal::INT);
    let said = failed(child.output_bounded(), 130);
    assert!(said.contains("G10: interrupted") && !said.contains("W2"), "{said}");
    assert!(!path("out").join("G10.json").exists(), "half an outcome was kept");
    assert_eq!(fs::read_dir(path("work")).expect("listed").count(), 0, "files are left");
    assert!(!command_lines().any(|line| line.contains(&work)), "processes are left");
    let ours = format!("vazao-lab-{process}-");
    assert!(ledgers().iter().all(|name| !name.starts_with(&ours)), "{:?}", ledgers());
}

fn command_lines() -> impl Iterator<Item = String> {
    let processes = fs::read_dir("/proc").expect("listed").flatten();
    let line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    processes.filter_map(line).map(|line| String::from_utf8_lossy(&line).into_owned())
}
