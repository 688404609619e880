//! What psplit measured: every run with its samples, and the tables made of them.

use super::{Args, Mode, Verify};
use crate::machine::Machine;
use crate::report::Table;
use crate::report::size::{MB, format_size, mebibytes_a_second, megabytes_a_second, significant};
use crate::report::statistics::Summary;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use vazao_meter::bottleneck::Verdict;
use vazao_sampler::{ProcessRecord, Record};

/// Names the kind and version of a result file.
pub const FORMAT: &str = "vazao-lab-psplit-2";

/// One timed run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The place, as given.
    pub place: String,
    /// What was done.
    pub mode: Mode,
    /// Threads.
    pub threads: u32,
    /// Bytes of one call.
    pub block_bytes: u64,
    /// Bytes to be moved in all.
    pub total_bytes: u64,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// From the opening of the first file to the close of the last.
    pub seconds: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Failed calls and wrong bytes, one text a thread at most.
    pub errors: Vec<String>,
    /// What limited it.
    pub verdict: Verdict,
    /// What the machine did.
    pub record: Record,
}

impl Run {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }

    fn client(&self) -> ProcessRecord {
        self.record.processes.first().cloned().unwrap_or_default()
    }

    fn servers(&self) -> &[ProcessRecord] {
        self.record.processes.get(1..).unwrap_or_default()
    }
}

/// All that one call of psplit measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// Nanoseconds since the Unix epoch when it began.
    pub started_ns: u64,
    /// Where.
    pub machine: Machine,
    /// What was done.
    pub mode: Mode,
    /// Whether caches were dropped before each run.
    pub drop_caches: bool,
    /// Whether files were synced within the time.
    pub sync: bool,
    /// When bytes were compared.
    pub verify: Verify,
    /// Seed of the data.
    pub seed: u64,
    /// Servers whose CPU is not in the records.
    pub unwatched_servers: Vec<String>,
    /// In the order they were made.
    pub runs: Vec<Run>,
}

/// What the runs of one combination share.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    place: String,
    threads: u32,
    block_bytes: u64,
    total_bytes: u64,
}

impl Results {
    pub(super) fn new(
        args: &Args,
        machine: Machine,
        unwatched_servers: Vec<String>,
        started_ns: u64,
    ) -> Results {
        Results {
            format: FORMAT.to_owned(),
            started_ns,
            machine,
            mode: args.mode,
            drop_caches: args.drop_caches,
            sync: args.sync,
            verify: args.verify,
            seed: args.seed,
            unwatched_servers,
            runs: Vec::new(),
        }
    }

    /// Runs of the same combination together, in the order of their first.
    fn groups(&self) -> Vec<(Key, Vec<&Run>)> {
        let mut groups: Vec<(Key, Vec<&Run>)> = Vec::new();
        for run in &self.runs {
            let key = Key {
                place: run.place.clone(),
                threads: run.threads,
                block_bytes: run.block_bytes,
                total_bytes: run.total_bytes,
            };
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, runs)) => runs.push(run),
                None => groups.push((key, vec![run])),
            }
        }
        groups
    }

    /// The tables, as Markdown or as aligned text.
    pub fn report(&self, markdown: bool) -> String {
        let mut text = self.introduction();
        let groups = self.groups();
        let tables = [self.rates(&groups), cpu(&groups), limits(&groups)];
        for table in tables {
            text.push('\n');
            text.push_str(&if markdown { table.to_markdown() } else { table.to_text() });
        }
        for run in self.runs.iter().filter(|run| !run.errors.is_empty()) {
            let _ = writeln!(
                text,
                "\nFAILED {} repetition {}: {}",
                run.place,
                run.repetition,
                run.errors.join("; ")
            );
        }
        text
    }

    fn introduction(&self) -> String {
        let mode = match self.mode {
            Mode::Split => "split: one large file read, its parts written to one file a thread",
            Mode::Read => "read: one large file, each thread its part",
            Mode::Generate => "generate: random data into one file a thread",
        };
        let caches = if self.drop_caches {
            "page cache, directory entries and inodes of this machine dropped before each run; \
             those of servers elsewhere are not"
        } else {
            "left as they are (warm)"
        };
        let verified = match self.verify {
            Verify::After => "all bytes compared, outside the time",
            Verify::During => "bytes compared while reading, within the time, and written files afterwards",
            Verify::Off => "not compared",
        };
        let synced = if self.sync { "; files synced within the time" } else { "" };
        let mut text = format!("psplit {mode}\n\nMachine: {}\n", self.machine.describe());
        let _ = writeln!(text, "Caches: {caches}\nBytes: {verified}{synced}");
        if !self.unwatched_servers.is_empty() {
            let names = self.unwatched_servers.join(", ");
            let _ = writeln!(text, "CPU not watched (other machine or user): {names}");
        }
        text
    }

    /// Rates; with several places, each one's median beside that of the first.
    fn rates(&self, groups: &[(Key, Vec<&Run>)]) -> Table {
        let mut table = Table::new(&[
            "place",
            "threads",
            "block",
            "total",
            "runs",
            "time s",
            "mean MB/s",
            "median",
            "min",
            "max",
            "mean MiB/s",
            "to first",
            "errors",
        ]);
        for (key, runs) in groups {
            let rates: Vec<f64> = runs.iter().map(|run| run.rate()).collect();
            let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
            let (Some(rate), Some(time)) = (Summary::of(&rates), Summary::of(&seconds)) else { continue };
            let reference = median_rate_of_first_place(key, groups);
            let errors: usize = runs.iter().map(|run| run.errors.len()).sum();
            table.row(vec![
                key.place.clone(),
                key.threads.to_string(),
                format_size(key.block_bytes),
                format_size(key.total_bytes),
                rate.count.to_string(),
                format!("{:.3}", time.mean),
                megabytes_a_second(rate.mean),
                megabytes_a_second(rate.median),
                megabytes_a_second(rate.min),
                megabytes_a_second(rate.max),
                mebibytes_a_second(rate.mean),
                reference.map_or(String::new(), |reference| format!("{:.2}x", rate.median / reference)),
                errors.to_string(),
            ]);
        }
        table
    }

    /// One line a run.
    pub fn csv(&self) -> String {
        let mut table = Table::new(&[
            "place",
            "mode",
            "threads",
            "block_bytes",
            "total_bytes",
            "repetition",
            "seconds",
            "bytes",
            "bytes_per_s",
            "errors",
            "client_user_s",
            "client_system_s",
            "servers_user_s",
            "servers_system_s",
            "servers",
            "machine_busy_s",
            "disk_read_bytes",
            "disk_written_bytes",
            "received_bytes",
            "sent_bytes",
            "limit",
            "limit_place",
            "limit_share",
        ]);
        for run in &self.runs {
            table.row(csv_row(run));
        }
        table.to_csv()
    }
}

/// Of the place named first, the median rate of the same combination.
fn median_rate_of_first_place(key: &Key, groups: &[(Key, Vec<&Run>)]) -> Option<f64> {
    let same = |other: &Key| Key { place: key.place.clone(), ..other.clone() } == *key;
    let (_, runs) = groups.iter().find(|(other, _)| same(other))?;
    let rates: Vec<f64> = runs.iter().map(|run| run.rate()).collect();
    Summary::of(&rates).map(|summary| summary.median)
}

/// The name of a variant in result files.
fn plain(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn csv_row(run: &Run) -> Vec<String> {
    let client = run.client();
    // Not sum(): of nothing that is -0.0, and shows.
    let sum =
        |of: fn(&ProcessRecord) -> f64| run.servers().iter().map(of).fold(0.0, |sum, value| sum + value);
    let each = run.servers().iter().map(|s| format!("{}={:.2}/{:.2}", s.name, s.user_s, s.system_s));
    let disks = &run.record.disks;
    let network = &run.record.network;
    vec![
        run.place.clone(),
        plain(&run.mode),
        run.threads.to_string(),
        run.block_bytes.to_string(),
        run.total_bytes.to_string(),
        run.repetition.to_string(),
        format!("{:.6}", run.seconds),
        run.bytes.to_string(),
        format!("{:.0}", run.rate()),
        run.errors.len().to_string(),
        format!("{:.2}", client.user_s),
        format!("{:.2}", client.system_s),
        format!("{:.2}", sum(|s| s.user_s)),
        format!("{:.2}", sum(|s| s.system_s)),
        each.collect::<Vec<_>>().join(" "),
        format!("{:.2}", run.record.machine_busy_s),
        disks.iter().map(|d| d.read_bytes).sum::<u64>().to_string(),
        disks.iter().map(|d| d.written_bytes).sum::<u64>().to_string(),
        network.iter().map(|n| n.received_bytes).sum::<u64>().to_string(),
        network.iter().map(|n| n.sent_bytes).sum::<u64>().to_string(),
        plain(&run.verdict.resource),
        run.verdict.place.clone(),
        run.verdict.share.map_or(String::new(), |share| format!("{share:.3}")),
    ]
}

/// CPU seconds a run on average, by process.
fn cpu(groups: &[(Key, Vec<&Run>)]) -> Table {
    let mut table =
        Table::new(&["CPU seconds a run", "threads", "block", "process", "user", "system", "s/GB"]);
    for (key, runs) in groups {
        let count = runs.len().max(1) as f64;
        let processes = runs.first().map(|run| run.record.processes.clone()).unwrap_or_default();
        for (index, process) in processes.iter().enumerate() {
            let mean = |of: fn(&ProcessRecord) -> f64| {
                runs.iter().filter_map(|run| run.record.processes.get(index)).map(of).sum::<f64>() / count
            };
            let (user_s, system_s) = (mean(|p| p.user_s), mean(|p| p.system_s));
            let gigabytes = runs.iter().map(|run| run.bytes as f64).sum::<f64>() / count / (1000.0 * MB);
            table.row(vec![
                key.place.clone(),
                key.threads.to_string(),
                format_size(key.block_bytes),
                process.name.clone(),
                format!("{user_s:.2}"),
                format!("{system_s:.2}"),
                if gigabytes > 0.0 { significant((user_s + system_s) / gigabytes) } else { String::new() },
            ]);
        }
    }
    table
}

/// The limit of each combination's middle run.
fn limits(groups: &[(Key, Vec<&Run>)]) -> Table {
    let mut table = Table::new(&["limited by", "threads", "block", "total", "resource", "why"]);
    for (key, runs) in groups {
        let mut sorted = runs.clone();
        sorted.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        let Some(middle) = sorted.get(sorted.len() / 2) else { continue };
        table.row(vec![
            key.place.clone(),
            key.threads.to_string(),
            format_size(key.block_bytes),
            format_size(key.total_bytes),
            plain(&middle.verdict.resource),
            middle.verdict.text.clone(),
        ]);
    }
    table
}
