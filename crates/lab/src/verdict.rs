//! Names what limited a run, as far as the samples of one machine can tell.
//!
//! Each resource is compared with its ceiling: the machine's cores, one core for the busiest thread, the time a disk
//! was busy, a link's rate. The one nearest to its ceiling limits, when it is near enough; when none is, the time went
//! into waiting — round trips, wake-ups, locks, a server elsewhere — and is called latency. A disk counts as busy while
//! it has any request, so that a busy disk with queues may still have room: that share is an upper bound.

use crate::sampler::{ProcessRecord, Record};
use serde::{Deserialize, Serialize};

/// From this share of its ceiling on, a resource is called the limit: sampling and rounding take some percent.
const LIMITING_SHARE: f64 = 0.85;

/// A resource that can limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// The measuring process's CPU.
    ClientCpu,
    /// A server's CPU.
    ServerCpu,
    /// CPU used by processes that are neither.
    OtherCpu,
    /// A disk.
    Disk,
    /// A network link.
    Network,
    /// None of them: waiting.
    Latency,
    /// Too little was seen.
    Unknown,
}

/// What limited, and how much of its ceiling was reached.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The limit.
    pub resource: Resource,
    /// The share of its ceiling, 0 to 1; of latency: of the highest ceiling otherwise.
    pub share: f64,
    /// In words.
    pub text: String,
}

/// CPU time comes in steps of 10 ms for each process: below this length of a run they would decide the verdict.
const JUDGED_SECONDS_MIN: f64 = 0.1;

/// The verdict on one run.
pub fn judge(record: &Record) -> Verdict {
    let seconds = record.seconds.max(1e-9);
    if seconds < JUDGED_SECONDS_MIN {
        return verdict(Resource::Unknown, 0.0, format!("too short a run to tell ({:.0} ms)", seconds * 1e3));
    }
    let mut candidates = vec![machine_cpu(record, seconds)];
    candidates
        .extend(record.processes.iter().enumerate().map(|(index, p)| one_thread(p, index == 0, seconds)));
    candidates.extend(record.disks.iter().map(|disk| {
        let share = disk.busy_s / seconds;
        verdict(Resource::Disk, share, format!("disk {} was busy {} of the time", disk.name, percent(share)))
    }));
    candidates.extend(record.network.iter().filter_map(|link| {
        let rate = link.received_bytes.max(link.sent_bytes) as f64 / seconds;
        let share = rate / link.link_bytes_per_s?;
        let text = format!("network {} carried {} of its rate", link.name, percent(share));
        Some(verdict(Resource::Network, share, text))
    }));
    let highest = candidates.into_iter().max_by(|a, b| a.share.total_cmp(&b.share));
    match highest {
        Some(limit) if limit.share >= LIMITING_SHARE => limit,
        Some(nearest) => {
            let text = format!("waiting (round trips, wake-ups, locks); nearest ceiling: {}", nearest.text);
            verdict(Resource::Latency, nearest.share, text)
        }
        None => verdict(Resource::Unknown, 0.0, "nothing was sampled".to_owned()),
    }
}

fn verdict(resource: Resource, share: f64, text: String) -> Verdict {
    Verdict { resource, share, text }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// All cores of the machine together; named after whoever used most of them.
fn machine_cpu(record: &Record, seconds: f64) -> Verdict {
    let cores = record.cores.max(1) as f64;
    // Ticks of 1/100 s can add up to more than all.
    let share = (record.machine_busy_s / seconds / cores).min(1.0);
    let client_s = record.processes.first().map_or(0.0, ProcessRecord::cpu_s);
    // Not sum(): of nothing that is -0.0, and shows.
    let servers_s =
        record.processes.iter().skip(1).map(ProcessRecord::cpu_s).fold(0.0, |sum, cpu_s| sum + cpu_s);
    let others_s = (record.machine_busy_s - client_s - servers_s).max(0.0);
    let parts =
        [(Resource::ClientCpu, client_s), (Resource::ServerCpu, servers_s), (Resource::OtherCpu, others_s)];
    let resource = parts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Resource::OtherCpu, |part| part.0);
    let of = |used_s: f64| percent(used_s / seconds / cores);
    let text = format!(
        "all {} cores {} busy: client {}, servers {}, others {}",
        record.cores,
        percent(share),
        of(client_s),
        of(servers_s),
        of(others_s)
    );
    verdict(resource, share, text)
}

/// A process whose busiest thread keeps a core to itself cannot go faster however many cores idle.
fn one_thread(process: &ProcessRecord, is_client: bool, seconds: f64) -> Verdict {
    let share = process.busiest_thread_s / seconds;
    let resource = if is_client { Resource::ClientCpu } else { Resource::ServerCpu };
    verdict(resource, share, format!("one thread of {} used {} of a core", process.name, percent(share)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{DiskRecord, NetworkRecord};

    fn process(name: &str, cpu_s: f64, busiest_thread_s: f64) -> ProcessRecord {
        ProcessRecord { name: name.to_owned(), user_s: cpu_s, busiest_thread_s, ..ProcessRecord::default() }
    }

    fn record(machine_busy_s: f64, processes: Vec<ProcessRecord>) -> Record {
        Record { seconds: 10.0, cores: 4, machine_busy_s, processes, ..Record::default() }
    }

    #[test]
    fn a_full_machine_is_named_after_its_largest_user() {
        let client = judge(&record(39.0, vec![process("client", 25.0, 3.0), process("data-1", 9.0, 3.0)]));
        assert_eq!(client.resource, Resource::ClientCpu);
        let servers =
            [process("client", 9.0, 3.0), process("data-1", 12.0, 3.0), process("data-2", 12.0, 3.0)];
        let servers = judge(&record(39.0, servers.to_vec()));
        assert_eq!(servers.resource, Resource::ServerCpu);
        assert!((servers.share - 0.975).abs() < 1e-9);
        let others = judge(&record(39.0, vec![process("client", 5.0, 3.0)]));
        assert_eq!(others.resource, Resource::OtherCpu);
    }

    #[test]
    fn one_full_thread_limits_on_an_otherwise_idle_machine() {
        let found = judge(&record(15.0, vec![process("client", 4.0, 1.0), process("data-1", 9.9, 9.9)]));
        assert_eq!(found.resource, Resource::ServerCpu);
        assert!(found.text.contains("data-1") && found.text.contains("99%"), "{}", found.text);
    }

    #[test]
    fn a_busy_disk_limits() {
        let mut record = record(8.0, vec![process("client", 2.0, 1.0)]);
        record.disks = vec![DiskRecord { name: "vdb".to_owned(), busy_s: 9.5, ..DiskRecord::default() }];
        let found = judge(&record);
        assert_eq!((found.resource, found.share), (Resource::Disk, 0.95));
        assert!(found.text.contains("vdb"));
    }

    #[test]
    fn a_full_link_limits_in_either_direction_and_loopback_never() {
        let mut record = record(8.0, vec![process("client", 2.0, 1.0)]);
        let link = |name: &str, received, sent, rate| NetworkRecord {
            name: name.to_owned(),
            received_bytes: received,
            sent_bytes: sent,
            link_bytes_per_s: rate,
        };
        record.network = vec![link("lo", u64::MAX, 0, None), link("eth0", 5, 1_200_000_000, Some(125e6))];
        assert_eq!(judge(&record).resource, Resource::Network);
        record.network[1] = link("eth0", 1_200_000_000, 5, Some(125e6));
        let found = judge(&record);
        assert_eq!((found.resource, found.share), (Resource::Network, 0.96));
    }

    #[test]
    fn when_nothing_is_full_it_is_latency_with_the_nearest_ceiling() {
        let found = judge(&record(8.0, vec![process("client", 5.0, 4.0)]));
        assert_eq!((found.resource, found.share), (Resource::Latency, 0.4));
        assert!(found.text.contains("one thread of client used 40%"), "{}", found.text);
    }

    #[test]
    fn too_short_a_run_is_not_judged_by_the_rounding_of_its_samples() {
        let mut short = record(0.02, vec![process("client", 0.02, 0.01)]);
        short.seconds = 0.01;
        assert_eq!(judge(&short).resource, Resource::Unknown);
        assert_eq!(judge(&Record::default()).resource, Resource::Unknown);
    }
}
