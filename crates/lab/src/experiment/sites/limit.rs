//! What limited an operation, from what links, processors and disks did meanwhile. It is one rule for all systems, also
//! for those that say nothing of themselves.

use crate::Error;
use crate::experiment::testbed::Testbed;
use crate::hosts::{BitsPerSecond, Carried};
use vazao_sampler::{Record, Recorder};

/// What is used by so much is the limit.
const FULL: f64 = 0.85;
/// Below this, counters say nothing.
const SECONDS_MIN: f64 = 0.05;

/// How much of something was used.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Used {
    /// What it is, in words.
    pub(super) name: String,
    /// Of what it can do in the time.
    pub(super) share: f64,
}

/// Bytes that went over each link until a moment.
struct Links(Vec<(String, BitsPerSecond, Carried)>);

impl Links {
    fn read(bed: &Testbed<'_>, port: BitsPerSecond) -> Result<Links, Error> {
        let mut links = Vec::new();
        for host in bed.hosts() {
            links.push((format!("the port of {}", host.name()), port, host.carried()?));
        }
        if let Some(line) = bed.line() {
            links.push(("the line between the sites".to_owned(), line.rate(), line.carried()?));
        }
        Ok(Links(links))
    }

    fn since(&self, before: &Links, seconds: f64) -> Vec<Used> {
        let used = |((name, rate, now), (_, _, then)): (
            &(String, BitsPerSecond, Carried),
            &(String, BitsPerSecond, Carried),
        )| {
            let share = |now: u64, then: u64| {
                now.saturating_sub(then) as f64 * 8.0 / (rate.0 as f64 * seconds.max(1e-9))
            };
            let (out, back) = (share(now.out_bytes, then.out_bytes), share(now.back_bytes, then.back_bytes));
            let megabits = rate.0 / 1_000_000;
            Used { name: format!("{name} ({megabits} Mb/s)"), share: out.max(back) }
        };
        self.0.iter().zip(&before.0).map(used).collect()
    }
}

/// Runs `work` and says what limited it.
pub(super) fn during<T>(
    bed: &Testbed<'_>,
    port: BitsPerSecond,
    recorder: &Recorder,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<(T, String), Error> {
    let before = Links::read(bed, port)?;
    let (result, record) = recorder.during(work);
    let links = Links::read(bed, port)?.since(&before, record.seconds);
    Ok((result?, judge(record.seconds, &links, &others(&record))))
}

/// Processors and disks.
fn others(record: &Record) -> Vec<Used> {
    let seconds = record.seconds.max(1e-9);
    let cores = record.cores.max(1) as f64;
    let processors =
        Used { name: "this machine's processors".to_owned(), share: record.machine_busy_s / seconds / cores };
    let disks = record
        .disks
        .iter()
        .map(|disk| Used { name: format!("disk {}", disk.name), share: disk.busy_s / seconds });
    std::iter::once(processors).chain(disks).collect()
}

/// Names the limit. A full link is named before a full processor: who sends as fast as the link takes may use both.
pub(super) fn judge(seconds: f64, links: &[Used], others: &[Used]) -> String {
    if seconds < SECONDS_MIN {
        return format!("unknown: {:.0} ms are too short to tell", seconds * 1e3);
    }
    let fullest = |used: &[Used]| used.iter().max_by(|a, b| a.share.total_cmp(&b.share)).cloned();
    let (link, other) = (fullest(links), fullest(others));
    let text = |used: &Used| format!("{}, {:.0}%", used.name, used.share.min(1.0) * 100.0);
    for used in [&link, &other].into_iter().flatten() {
        if used.share >= FULL {
            return text(used);
        }
    }
    let most: Vec<String> = [&link, &other].into_iter().flatten().map(text).collect();
    format!("round trips: nothing is full ({})", most.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(name: &str, share: f64) -> Used {
        Used { name: name.to_owned(), share }
    }

    #[test]
    fn a_full_link_is_named_before_a_full_processor_and_nothing_full_means_round_trips() {
        let links = [used("the port of client1", 0.96), used("the port of data1", 0.5)];
        assert_eq!(judge(1.0, &links, &[used("processors", 0.99)]), "the port of client1, 96%");
        let links = [used("the port of client1", 0.4)];
        assert_eq!(judge(1.0, &links, &[used("processors", 0.99)]), "processors, 99%");
        let text = judge(1.0, &links, &[used("disk vda", 0.2), used("processors", 0.1)]);
        assert_eq!(text, "round trips: nothing is full (the port of client1, 40%; disk vda, 20%)");
        assert!(judge(0.01, &links, &[]).starts_with("unknown"), "10 ms");
    }

    #[test]
    fn a_link_counts_by_its_busier_direction() {
        let at = |out_bytes, back_bytes| {
            Links(vec![("a".to_owned(), BitsPerSecond::mega(8), Carried { out_bytes, back_bytes })])
        };
        let used = at(1_500_000, 1_100_000).since(&at(1_000_000, 1_000_000), 1.0);
        assert_eq!(used, [Used { name: "a (8 Mb/s)".to_owned(), share: 0.5 }]);
    }
}
