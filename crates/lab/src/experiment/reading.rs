//! The measurement behind P4, P5, P7 and P8: one large file read by 1 … 32 threads from 1 … 8 servers with slow disks,
//! beside a slow disk of the client's own; caches dropped before each run, and left warm.

use super::psplits::Call;
use super::reading_kept::Reading;
use super::testbed::{DiskPlan, Plan, Testbed};
use super::{Lab, Measured};
use crate::Error;
use crate::hosts::{BitsPerSecond, TCP_PAYLOAD_SHARE};
use crate::psplit::Run;
use crate::report::size::{MB, MIB, format_size};

/// What each disk gives, as the disks of the paper did: about 28 MB/s.
pub(super) const DISK_BYTES_PER_S: u64 = 28_000_000;
/// The network of the paper.
pub(super) const LINK: BitsPerSecond = BitsPerSecond(1_000_000_000);
/// The paper's block.
const BLOCK_BYTES: u64 = 64 << 10;

/// What all experiments of this measurement bring back, without their figures.
pub(super) fn measured(reading: Reading, lab: &Lab) -> Measured {
    let scale = format!("{} a run, {} repetitions", format_size(reading.total_bytes), lab.repetitions());
    Measured { scale, setup: reading.setup, figures: Vec::new(), gaps: reading.gaps }
}

/// Payload that the network carries, megabytes a second.
pub(super) fn network_mb_per_s() -> f64 {
    LINK.0 as f64 / 8.0 * TCP_PAYLOAD_SHARE / MB
}

/// The servers of a place, by its name; `None` for the local disk.
pub(super) fn servers_of(run: &Run) -> Option<usize> {
    run.place.strip_prefix("vz:/w")?.parse().ok()
}

/// What a place is called in figures.
pub(super) fn series_of(run: &Run) -> Option<String> {
    Some(match servers_of(run) {
        Some(1) => "1 server".to_owned(),
        Some(servers) => format!("{servers} servers"),
        None => LOCAL.to_owned(),
    })
}

/// The client's own disk in figures.
pub(super) const LOCAL: &str = "local file system";

/// Directories of a volume whose files are spread over so many servers each.
pub(super) fn directories(lab: &Lab, bed: &Testbed<'_>, widths: &[usize]) -> Result<Vec<String>, Error> {
    let mut places = Vec::new();
    for width in widths {
        let place = format!("vz:/w{width}");
        lab.text_of(bed.vazao(0)?.args(["mkdir", &place]))?;
        lab.text_of(bed.vazao(0)?.args(["layout", &place, "--width", &width.to_string()]))?;
        places.push(place);
    }
    Ok(places)
}

/// Measures, once for all experiments of one call.
pub(super) fn measure(lab: &Lab) -> Result<Reading, Error> {
    if let Some(reading) = lab.remembered() {
        return Ok(reading);
    }
    let reading = measure_now(lab)?;
    lab.remember(&reading);
    Ok(reading)
}

fn measure_now(lab: &Lab) -> Result<Reading, Error> {
    let threads = lab.scaled(vec![1, 2, 8, 32], vec![1, 2, 4, 8, 16, 32]);
    let widths = lab.scaled(vec![1, 2, 4, 8], vec![1, 2, 3, 4, 5, 6, 7, 8]);
    let total_bytes = lab.bytes(64 * MIB, 1024 * MIB);
    let bed = Testbed::new(lab, &plan(total_bytes))?;
    let mut places = directories(lab, &bed, &widths)?;
    places.extend(bed.client_disks().iter().map(|path| path.display().to_string()));
    let call = Call {
        mode: "read",
        places: &places,
        threads: &threads,
        block_bytes: &[BLOCK_BYTES],
        total_bytes: &[total_bytes],
        drop_caches: true,
        sync: false,
    };
    let cold = call.run(lab, &bed, 0)?;
    let warm = Call { drop_caches: false, ..call }.run(lab, &bed, 0)?;
    Ok(Reading { threads, total_bytes, cold, warm, setup: setup(), gaps: gaps(lab) })
}

/// Eight servers and a client with slow disks that hold some files of this size.
pub(super) fn plan(total_bytes: u64) -> Plan {
    let disk = DiskPlan { size_bytes: total_bytes * 3 + 256 * MIB, bytes_per_second: DISK_BYTES_PER_S };
    Plan { data_servers: 8, clients: 1, disk: Some(disk), link: Some(LINK), ..Plan::default() }
}

/// What was arranged, in words.
pub(super) fn setup() -> Vec<String> {
    vec![
        format!(
            "8 data servers, 1 metadata service and 1 client, each a host of its own (network namespace) behind a link of {} Mb/s.",
            LINK.0 / 1_000_000
        ),
        format!(
            "A disk of {} MB/s for each server and for the client (loop device bounded by the block-I/O controller): a stand-in without seeks.",
            DISK_BYTES_PER_S / 1_000_000
        ),
    ]
}

fn gaps(lab: &Lab) -> Vec<String> {
    lab.scaled(vec!["3, 5, 6 and 7 servers, 4 and 16 threads: only with --scale full".to_owned()], Vec::new())
}
