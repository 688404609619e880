//! `vazao top`: who moves what, and what limits each, live.

mod zones;

use self::zones::Zones;
use crate::cli::Results;
use crate::commands::status;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::{self, Lean};
use crate::output::Output;
use crate::output::live::Screen;
use crate::signals::{self, Stop};
use clap::Args;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::Duration;
use vazao_client::Client;
use vazao_client::overview::{Overview, Shown};
use vazao_meter::bottleneck::Resource;
use vazao_meter::measures::Part;
use vazao_model::ClusterMap;

/// What is behind the options in `--help`.
const AFTER_HELP: &str = "\
Examples:
  vazao top
  vazao top -i 5
  vazao top --json -n 10 > rates.jsonl

What is shown:
  On a terminal the screen is drawn anew each round and q ends it; elsewhere each round is a
  table, with --json one object a line. Clients are called COMMAND (USER@HOST, process PID),
  mounts PATH (USER@HOST, process PID). A server that does not answer is the first line.
  Where there are zones, each is shown with its own, and below is what moves between them: READ
  by clients of TO ZONE, WRITTEN by clients of FROM ZONE. What the limits mean:
  docs/bottleneck.md.

How fresh it is:
  Servers are asked each round; clients and mounts report every two seconds while `vazao top`
  runs, and are there after some three. How far a target has caught up is of the servers'
  reports, every two seconds, and is said above the table as `vazao status` says it.";

/// Arguments of `vazao top`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Rounds; without it, until q or Ctrl-C
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds from one round to the next
    #[arg(short = 'i', value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    interval: f64,
}

/// Below this the questions themselves would show.
const SECONDS_MIN: f64 = 0.2;
/// Above this one does not look live.
const SECONDS_MAX: f64 = 3600.0;

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    Err(format!("'{text}' is not between {SECONDS_MIN} and {SECONDS_MAX} seconds"))
}

/// Shows it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    let client = context.client()?;
    stop.hangs_up(&client);
    client.describe("vazao top", Part::Client);
    let shown = rounds(&client, &arguments, &stop);
    let closed = client.close();
    shown?;
    Ok(closed?)
}

fn rounds(client: &Client, arguments: &Arguments, stop: &Stop) -> Outcome {
    let mut output = Output::new(arguments.results.json);
    let is_live = output.terminal && !output.json && std::io::stdin().is_terminal();
    let mut screen = if is_live { Some(Screen::open()?) } else { None };
    let mut overview = Overview::default();
    overview.look(client);
    let interval = Duration::from_secs_f64(arguments.interval);
    let keys = format!("every {} s; q ends it", arguments.interval);
    let mut round = 0;
    let mut zones = Zones::default();
    loop {
        let ends = match &mut screen {
            Some(screen) => screen.wait_for_end(interval, stop)?,
            None => stop.wait(interval),
        };
        if ends {
            break;
        }
        // Servers and clients may have come or gone; one that cannot be asked shows as missing.
        let map = client.refresh_map();
        let shown = overview.look(client);
        if let (Err(error), true) = (&map, shown.is_empty()) {
            return Err(Failure::new(error.to_string()));
        }
        // Without the metadata service the zones are those of the round before, and no target catches up.
        let lagging = map.as_deref().map_or_else(|_| Lagging::default(), Lagging::of);
        zones = map.map_or(zones, |map| Zones::of(&map));
        match &mut screen {
            Some(screen) => {
                let (rows, columns) = screen.size();
                let above = lagging.lines(columns);
                let room = rows.saturating_sub(above.lines().count());
                let page = page(&shown, &zones, &keys, (room, columns));
                screen.draw(&format!("{above}{page}"), rows)?;
            }
            None if output.json => {
                let mut value = to_json(&shown, &zones);
                value["lagging"] = Value::Array(lagging.json);
                output.value(&value)?;
            }
            None => output.line(&format!("{}{}", lagging.lines(usize::MAX), text(&shown, &zones)))?,
        }
        output.flush()?;
        round += 1;
        if arguments.count.is_some_and(|count| round >= count) {
            break;
        }
    }
    drop(screen);
    output.finish()
}

/// Targets that placement groups lack, as `vazao status` has them.
#[derive(Default)]
struct Lagging {
    sentences: Vec<String>,
    json: Vec<Value>,
}

impl Lagging {
    fn of(map: &ClusterMap) -> Lagging {
        Lagging { sentences: status::lagging_sentences(map), json: status::lagging_json(map) }
    }

    /// Lines of at most `columns`, and an empty one below; nothing where there are none.
    fn lines(&self, columns: usize) -> String {
        let lines = self.sentences.iter().flat_map(|sentence| format::wrapped(sentence, columns));
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        if lines.is_empty() { lines } else { lines + "\n" }
    }
}

fn kind(part: Part) -> &'static str {
    match part {
        Part::Client => "client",
        Part::Server => "server",
        Part::Mount => "mount",
    }
}

/// Bytes and operations of all servers in a second.
#[derive(Default)]
struct Totals {
    read: f64,
    written: f64,
    operations: f64,
}

impl Totals {
    fn of(shown: &[Shown]) -> Totals {
        let servers = shown.iter().filter(|shown| shown.change.of.part == Part::Server);
        servers.fold(Totals::default(), |totals, Shown { change, .. }| Totals {
            read: totals.read + change.rate(change.of.work.read_bytes),
            written: totals.written + change.rate(change.of.work.written_bytes),
            operations: totals.operations + change.rate(change.of.work.operations),
        })
    }
}

/// A server that said nothing when it was asked.
fn is_unanswered(shown: &Shown) -> bool {
    let is_own = shown.verdict.place == shown.change.of.name;
    shown.change.of.part == Part::Server && shown.verdict.resource == Resource::NoAnswer && is_own
}

/// Who is there, and what all servers do together.
fn heading(shown: &[Shown]) -> String {
    let number = |part, one, more| {
        format::count(shown.iter().filter(|shown| shown.change.of.part == part).count() as u64, one, more)
    };
    let totals = Totals::of(shown);
    let unanswered = shown.iter().filter(|shown| is_unanswered(shown)).count();
    let missing = match unanswered {
        0 => String::new(),
        count => format!(" ({})", format::count(count as u64, "does not answer", "do not answer")),
    };
    format!(
        "{}{missing}, {}, {}: read {}, written {}, {:.0} operations/s",
        number(Part::Server, "server", "servers"),
        number(Part::Mount, "mount", "mounts"),
        number(Part::Client, "client", "clients"),
        format::rate(totals.read),
        format::rate(totals.written),
        totals.operations,
    )
}

/// A round where there is no screen: heading, table, and what moves between zones, where something does.
fn text(shown: &[Shown], zones: &Zones) -> String {
    let between = zones::table(&zones.between(shown));
    let all = format!("{}\n\n{}", heading(shown), table(shown, zones, usize::MAX));
    if between.is_empty() { all } else { format!("{all}\n{between}") }
}

/// What a screen shows: heading, table, what moves between zones, and in its last line the keys. Where not all of the
/// table has room, its end is left out, and not what is below it.
fn page(shown: &[Shown], zones: &Zones, keys: &str, (rows, columns): (usize, usize)) -> String {
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    // The line below the last one belongs to the cursor.
    let room = rows.saturating_sub(2).max(1);
    let text = format!("{}\n\n{}", heading(shown), table(shown, zones, columns));
    let between = zones::table(&zones.between(shown));
    // An empty line stands above; more than half of the screen is not theirs.
    let below: Vec<String> =
        between.lines().take(1).map(|_| "").chain(between.lines()).map(cut).take(room / 2).collect();
    let mut lines: Vec<String> = text.lines().map(cut).take(room - below.len()).collect();
    lines.extend(below);
    lines.resize(room, String::new());
    lines.push(cut(keys));
    lines.join("\n")
}

/// A table. Where its lines are longer than `columns`, each limit has lines of its own below its row, so that nothing
/// of it is cut. Zones have a column where there are some.
fn table(shown: &[Shown], zones: &Zones, columns: usize) -> String {
    let mut head = vec![
        ("NAME", Lean::Left),
        ("KIND", Lean::Left),
        ("READ", Lean::Right),
        ("WRITTEN", Lean::Right),
        ("OPS/S", Lean::Right),
        ("P50", Lean::Right),
        ("P99", Lean::Right),
        ("SHARE", Lean::Right),
        ("LIMIT", Lean::Left),
    ];
    let mut rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    if shown.iter().any(|shown| zones.zone(shown).is_some()) {
        head.insert(ZONE_COLUMN, ("ZONE", Lean::Left));
        for (row, shown) in rows.iter_mut().zip(shown) {
            row.insert(ZONE_COLUMN, zones.zone(shown).unwrap_or("-").to_owned());
        }
    }
    let text = format::table(&head, &rows);
    if text.lines().all(|line| line.chars().count() <= columns) {
        return text;
    }
    let text = format::table(&head[..head.len() - 1], &rows);
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default();
    let mut all = format!("{title}  LIMIT\n");
    for (line, shown) in lines.zip(shown) {
        all += &format!("{line}\n");
        for part in format::wrapped(&shown.verdict.text, columns.saturating_sub(INDENT.len())) {
            all += &format!("{INDENT}{part}\n");
        }
    }
    all
}

/// Zones stand behind name and kind.
const ZONE_COLUMN: usize = 2;

/// Before a limit that stands below its row.
const INDENT: &str = "    ";

fn row(shown: &Shown) -> Vec<String> {
    let (change, work) = (&shown.change, &shown.change.of.work);
    if is_unanswered(shown) {
        let unknown = || "-".to_owned();
        let (name, kind) = (change.of.name.clone(), kind(change.of.part).to_owned());
        let text = shown.verdict.text.clone();
        return vec![name, kind, unknown(), unknown(), unknown(), unknown(), unknown(), unknown(), text];
    }
    let latency = |q| work.latency_ns(q).map_or("-".to_owned(), format::duration);
    let share = shown.verdict.share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    vec![
        change.of.name.clone(),
        kind(change.of.part).to_owned(),
        format::rate(change.rate(work.read_bytes)),
        format::rate(change.rate(work.written_bytes)),
        format!("{:.0}", change.rate(work.operations)),
        latency(0.5),
        latency(0.99),
        share,
        shown.verdict.text.clone(),
    ]
}

/// One that takes part, for programs.
pub(crate) fn part_json(shown: &Shown) -> Value {
    let (change, work) = (&shown.change, &shown.change.of.work);
    json!({
        "name": change.of.name,
        "kind": kind(change.of.part),
        "seconds": change.seconds,
        "read_bytes_per_second": change.rate(work.read_bytes),
        "written_bytes_per_second": change.rate(work.written_bytes),
        "operations_per_second": change.rate(work.operations),
        "latency_p50_ns": work.latency_ns(0.5),
        "latency_p99_ns": work.latency_ns(0.99),
        "limit": shown.verdict,
    })
}

fn to_json(shown: &[Shown], zones: &Zones) -> Value {
    let totals = Totals::of(shown);
    let part = |shown: &Shown| {
        let mut value = part_json(shown);
        value["zone"] = json!(zones.zone(shown));
        value
    };
    json!({
        "parts": shown.iter().map(part).collect::<Vec<_>>(),
        "read_bytes_per_second": totals.read,
        "written_bytes_per_second": totals.written,
        "operations_per_second": totals.operations,
        "between_zones": zones::to_json(&zones.between(shown)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_meter::Change;
    use vazao_meter::bottleneck::{Verdict, not_answering};
    use vazao_meter::measures::{Measures, Peer, Work};

    fn shown() -> Shown {
        let work = Work { read_bytes: 56_000_000, operations: 200, ..Work::default() };
        let of = Measures { name: "data1".to_owned(), part: Part::Server, work, ..Measures::default() };
        let verdict = Verdict {
            resource: Resource::Disk,
            share: Some(0.99),
            text: "disk of data1".to_owned(),
            ..Verdict::default()
        };
        Shown { change: Change { seconds: 2.0, of }, verdict }
    }

    #[test]
    fn a_row_has_rates_share_and_limit() {
        let text = table(&[shown()], &Zones::default(), 200);
        assert!(text.contains("data1") && text.contains("99%") && text.contains("disk of data1"), "{text}");
        assert!(text.contains("100"), "200 operations in 2 s: {text}");
    }

    /// At 100 columns the limit, which one looks for, was cut.
    #[test]
    fn a_limit_that_has_no_room_beside_its_row_stands_whole_below_it() {
        let mut long = shown();
        long.change.of.name = "cp (ana@host1, process 4711)".to_owned();
        long.verdict.text =
            "disk of data2 (/srv/d2, sdc): busy 99%, 28.1 MB/s, waited for 98% of the time".to_owned();
        for columns in [80, 100, 120] {
            let text = table(&[shown(), long.clone()], &Zones::default(), columns);
            assert!(text.lines().filter(|line| line.starts_with(' ')).count() >= 2, "{text}");
            assert!(text.contains("cp (ana@host1, process 4711)"), "{text}");
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(&text).contains(&words(&long.verdict.text)), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 110.max(columns)), "{text}");
        }
        assert!(
            table(&[long], &Zones::default(), 60).lines().filter(|line| line.starts_with(INDENT)).count()
                == 2
        );
    }

    #[test]
    fn a_screen_has_a_heading_with_totals_and_the_keys_in_its_last_line() {
        let mount = Shown {
            change: Change {
                seconds: 2.0,
                of: Measures { name: "/m (ana@host1)".to_owned(), part: Part::Mount, ..Measures::default() },
            },
            verdict: Verdict::default(),
        };
        let text = page(&[shown(), shown(), mount], &Zones::default(), "every 2 s; q ends it", (10, 100));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "2 servers, 1 mount, 0 clients: read 53.4 MiB/s, written 0 B/s, 200 operations/s"
        );
        assert_eq!((lines.len(), lines[8]), (9, "every 2 s; q ends it"));
        assert!(
            page(&[shown()], &Zones::default(), "keys", (3, 10))
                .lines()
                .all(|line| line.chars().count() <= 10)
        );
    }

    /// With one of four servers dead the heading said "3 servers", and the dead one was left out.
    #[test]
    fn a_server_that_does_not_answer_is_counted_and_has_no_rates() {
        let mut dead = shown();
        dead.change.of.name = "data2".to_owned();
        dead.change.of.work = Work::default();
        dead.verdict = not_answering("data2", 12.0);
        let all = [dead, shown()];
        assert!(heading(&all).starts_with("2 servers (1 does not answer), 0 mounts"), "{}", heading(&all));
        let text = table(&all, &Zones::default(), 200);
        let line: Vec<&str> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(&line[..10], ["data2", "server", "-", "-", "-", "-", "-", "-", "no", "answer"], "{text}");
        assert_eq!(to_json(&all, &Zones::default())["parts"][0]["limit"]["resource"], "no_answer");
    }

    #[test]
    fn json_has_rates_and_the_verdict() {
        let value = to_json(&[shown()], &Zones::default());
        assert_eq!(value["parts"][0]["read_bytes_per_second"], 28_000_000.0);
        assert_eq!(value["read_bytes_per_second"], 28_000_000.0);
        assert_eq!(value["parts"][0]["limit"]["resource"], "disk");
        assert_eq!(value["parts"][0]["latency_p50_ns"], Value::Null);
    }

    #[test]
    fn parts_are_shown_with_their_zones_where_there_are_some() {
        let zones = Zones::with([("data1", "rio")]);
        let mut mount = shown();
        // A mount chooses its name, and one named as a node is not in the zone of that node.
        mount.change.of.part = Part::Mount;
        let mut far = mount.clone();
        far.change.of.zone = "bra".to_owned();
        let mut none = shown();
        none.change.of.name = "data2".to_owned();
        let all = [shown(), mount, none, far];
        let text = table(&all, &zones, 200);
        let column = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
        let seen: Vec<String> = text.lines().filter_map(column).collect();
        assert_eq!(seen, ["ZONE", "rio", "-", "-", "bra"], "{text}");
        assert!(!table(&all[..3], &Zones::default(), 200).contains("ZONE"));
        let parts = &to_json(&all, &zones)["parts"];
        assert_eq!(
            [0, 1, 2, 3].map(|part: usize| &parts[part]["zone"]),
            [&json!("rio"), &Value::Null, &Value::Null, &json!("bra")]
        );
    }

    #[test]
    fn what_moves_between_zones_stands_below_the_table_and_has_room_on_a_full_screen() {
        let zones = Zones::with([("data1", "rio"), ("data2", "bra")]);
        let mut mount = shown();
        (mount.change.of.part, mount.change.of.zone) = (Part::Mount, "bra".to_owned());
        mount.change.of.peers = vec![Peer { name: "data1".to_owned(), read_bytes: 4096, ..Peer::default() }];
        let all = [vec![shown(); 20], vec![mount]].concat();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let row = "rio bra 2.0 KiB/s 0 B/s 2.0 KiB/s";
        let text = text(&all, &zones);
        assert_eq!(text.lines().last().map(words).as_deref(), Some(row), "{text}");
        let screen = page(&all, &zones, "keys", (12, 200));
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!((lines.len(), lines[7], words(lines[9]).as_str(), lines[10]), (11, "", row, "keys"));
        assert_eq!(page(&all, &zones, "keys", (3, 200)).lines().count(), 2);
        assert_eq!(to_json(&all, &zones)["between_zones"][0]["bytes_per_second"], 2048.0);
        // Where there are no zones, there is nothing of them.
        let alone = [shown()];
        assert!(!super::text(&alone, &Zones::default()).contains("ZONE"));
        assert_eq!(to_json(&alone, &Zones::default())["between_zones"], json!([]));
    }

    #[test]
    fn what_lags_stands_above_and_nothing_where_all_copies_are_there() {
        use vazao_model::{AwayMember, Group, GroupAway, GroupId, TargetId};
        assert_eq!(Lagging::of(&ClusterMap::default()).lines(80), "");
        let id = GroupId(GroupId::FIRST);
        let members = vec![AwayMember { target: TargetId(3), is_leaving: false, ago_ms: 72_000 }];
        let group = Group { id, epoch: 1, members: vec![TargetId(1)], is_agreed: true };
        let (groups, away) = (vec![group], vec![GroupAway { id, copies: 2, members }]);
        let lagging = Lagging::of(&ClusterMap { groups, away, ..ClusterMap::default() });
        assert_eq!(lagging.lines(80), "t3 lost 00:01:12 ago\n\n");
        assert_eq!(lagging.lines(12), "t3 lost\n00:01:12 ago\n\n", "nothing is cut");
        assert_eq!((lagging.json.len(), &lagging.json[0]["target"]), (1, &json!("t3")));
    }

    #[test]
    fn intervals_that_make_no_sense_are_refused() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "x", "NaN", "1e9"] {
            parse_seconds(wrong).expect_err(wrong);
        }
    }
}
