//! How rows become ratios and goals, and what the command line refuses; the benchmark itself runs in `tests/volume.rs`.

use super::*;
use crate::report::statistics::Summary;

fn results() -> Results {
    let machine = Machine { cores: 2, ..Machine::default() };
    let mut results = Results::new(machine, Scale::Full.amounts(), 3, 0);
    results.declare("tcp.stream", "raw", "MiB/s", None, Goal::None);
    results.declare("read.large", "read", "MiB/s", Some("tcp.stream"), Goal::AtLeast(0.5));
    for (raw, read) in [(100.0, 80.0), (200.0, 90.0), (50.0, 20.0)] {
        results.push("tcp.stream", raw * MIB as f64, None);
        results.push("read.large", read * MIB as f64, None);
    }
    results
}

#[test]
fn a_ratio_is_taken_within_each_repetition() {
    // Ratios 0.8, 0.45, 0.4: their median misses the goal, though the median rates 80 and 100 would not.
    let text = results().report(false);
    let row = text.lines().find(|line| line.starts_with("read")).unwrap();
    assert!(row.contains("0.45x") && row.contains("≥ 0.50x") && row.contains("NO"), "{row}");
    assert!(row.contains("80.0"), "median in MiB/s: {row}");
}

#[test]
fn goals_reached_say_yes_in_both_directions() {
    let mut results = results();
    results.declare("list.names", "listing", "s", None, Goal::AtMost(10.0));
    results.push("list.names", 9.9, None);
    results.declare("create", "creates", "1/s", None, Goal::AtLeast(10e3));
    results.push("create", 12_345.0, None);
    let text = results.report(true);
    assert!(text.contains("| listing | s | 9.90 | 9.90 | 9.90 |  | ≤ 10.0 | yes |"), "{text}");
    assert!(text.contains("| creates | 1/s | 12345 | 12345 | 12345 |  | ≥ 10000 | yes |"), "{text}");
}

#[test]
fn rows_never_measured_are_left_out() {
    let mut results = results();
    results.declare("lookup", "lookups", "1/s", None, Goal::None);
    assert!(!results.report(false).contains("lookups"));
    assert_eq!(Summary::of(&[]), None);
}

#[test]
fn results_survive_json() {
    let results = results();
    let text = report::to_json(&results).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
}

#[test]
fn a_local_directory_is_refused_with_the_remedy() {
    let args = Args {
        place: "/tmp".to_owned(),
        scale: Scale::Small,
        repeat: 1,
        only: Vec::new(),
        seed: 1,
        json: None,
    };
    let connect = || Err("unused".to_owned());
    let mut output = Vec::new();
    let context = Context {
        clock: vazao_meter::clock::system(),
        connect: &connect,
        stop: Default::default(),
        output: &mut output,
    };
    let error = measure(&args, &context).unwrap_err();
    assert_eq!((error.exit_code(), error.to_string().contains("vz:/path")), (2, true));
}

#[test]
fn cpu_time_is_told_for_a_gibibyte_and_for_an_operation() {
    let mut results = results();
    let process = |user_s| vazao_sampler::ProcessRecord { user_s, ..Default::default() };
    let record = vazao_sampler::Record {
        seconds: 2.0,
        machine_busy_s: 3.0,
        processes: vec![process(1.0), process(0.5)],
        ..Default::default()
    };
    results.declare("create", "creates", "1/s", None, Goal::None);
    results.push("create", 10_000.0, Some(record.clone()));
    results.push("tcp.stream", 1024.0 * MIB as f64, Some(record));
    let text = results.report(true);
    assert!(text.contains("| creates | 1 operation | µs | 50.0 | 25.0 | 150 |"), "{text}");
}
