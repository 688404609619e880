//! C2: the four operations over two sites with 2 Mb/s between them (figures 4b and 5, table 2 of the study).

use super::fio::{self, CrossCheck};
use super::samples::{
    Bench, FOUR, Operation, Published, Sample, Systems, ahead_of_peers, ahead_of_published, lower_client,
    over_sizes, tables,
};
use super::system::{OURS, Volume};
use super::{
    CLIENTS, CONGESTION_CONTROL, PORT, RECORD_BYTES, far, largest, peer, repetitions, scale, setup, sizes,
    stat,
};
use crate::Error;
use crate::experiment::outcome::{Figure, Finding};
use crate::experiment::testbed::{Plan, SecondSite, Testbed};
use crate::experiment::{About, Experiment, Lab, Measured, shown};
use crate::hosts::BitsPerSecond;
use crate::report::size::{MIB, format_size};

/// Four operations over two sites.
pub(in crate::experiment) struct C2;

const LINE: BitsPerSecond = BitsPerSecond(2_000_000);
const SITES: SecondSite = SecondSite { line: LINE, data_servers_before: 2, clients_before: 1 };
/// MB/s of each client's own files: the rate of its own network.
const GOAL: f64 = 10.0;
/// Table 2.
const PUBLISHED: Published = [
    ("PVFS2", [0.321_04, 0.339_1, 0.382_93, 0.397_92]),
    ("FhGFS", [0.816_15, 0.851_37, 0.915_28, 0.921_94]),
    ("Ceph", [0.336_02, 0.373_11, 3.67, 3.69]),
    ("Lustre", [2.0, 2.14, 2.44, 2.5]),
];

impl Experiment for C2 {
    fn about(&self) -> About {
        About {
            id: "C2",
            title: "Write, rewrite, read, reread over two sites with 2 Mb/s between them",
            source: "PVFS2, FhGFS, Ceph and Lustre, scenario 2: figures 4b and 5, table 2",
            needs: "root, /dev/fuse",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let plan = Plan {
            data_servers: 3,
            clients: CLIENTS,
            link: Some(PORT),
            congestion_control: Some(CONGESTION_CONTROL),
            second_site: Some(SITES),
            ..Plan::default()
        };
        let bed = Testbed::new(lab, &plan)?;
        let mut bench = Bench::new(lab, &bed)?;
        let near = Volume::near_writer(lab, &bed)?;
        let everywhere = Volume::everywhere(lab, &bed)?;
        let mut gaps = Vec::new();
        let peers = peer::start(lab, &bed, &mut gaps)?;
        let mut systems = Systems::prepare(&mut bench, vec![&near, &everywhere], &peers, gaps)?;
        far::prepare(&bench)?;
        let sizes = sizes(lab, &[1, 4, 16], &[1, 4, 16, 64]);
        // A file that lies on both sides takes minutes a sample when it is large.
        let spread_max = lab.bytes(MIB, 4 * MIB);
        let far_bytes = lab.bytes(4 * MIB, 16 * MIB);
        let bulk_bytes = lab.bytes(8_000_000, 100_000_000);
        let (mut samples, mut others) = (Vec::new(), far::figures(far_bytes));
        let round_trip = bed.clients()[0].measured_rtt_to(bed.host_named("meta1")?)?;
        let mut stats = stat::figure_of(bulk_bytes, round_trip);
        let mut check = CrossCheck::new(largest(&sizes));
        for repetition in 0..repetitions(lab) {
            for &bytes in &sizes {
                systems.go_through(&mut bench, (bytes, spread_max), repetition, &mut samples)?;
            }
            check.measure(&mut bench, &near, repetition)?;
            far::measure(&mut bench, &near, far_bytes, repetition, &mut others)?;
            stat::measure(&mut bench, &near, bulk_bytes, repetition, &mut stats)?;
        }
        let mut figures = figures(&sizes, &samples);
        figures.extend(others);
        figures.push(stats);
        let (compared, missing) = check.into_parts();
        figures.extend(compared);
        let mut arranged = vec![format!(
            "Site A: client 1 and 2 data servers, zone a. Site B: client 2, the metadata service and 1 data server, zone b. \
             Between them {} Mb/s each way, a queue of 40 frames, and a round trip of {:.2} ms when nothing else is under \
             way. Own files are placed near their writer; all names are asked for at B.",
            LINE.0 / 1_000_000,
            round_trip.as_secs_f64() * 1e3
        )];
        arranged.extend(setup());
        let mut gaps = systems.into_gaps();
        gaps.extend(missing);
        gaps.push(format!(
            "files over {} that lie on both sides: at the rate of the line a sample takes minutes",
            format_size(spread_max)
        ));
        Ok(Measured { scale: scale(lab, &sizes), setup: arranged, figures, gaps })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = FOUR.map(|operation| goal(figures, operation)).into();
        findings.push(ahead_of_published(figures, "table2"));
        findings.extend(ahead_of_peers(figures));
        findings.extend(fio::finding(figures));
        findings.extend(far::findings(figures, GOAL));
        findings.extend(stat::findings(figures));
        findings
    }
}

fn figures(sizes: &[u64], samples: &[Sample]) -> Vec<Figure> {
    let titles = [
        (Operation::Write, "Own files, write"),
        (Operation::Rewrite, "Own files, rewrite (figure 4b)"),
        (Operation::Read, "Own files, read"),
        (Operation::Reread, "Own files, reread (figures 5a, 5b: a client each)"),
        (Operation::RereadFromMemory, "Own files, reread from the client's own memory"),
    ];
    let over = |titled| over_sizes(titled, sizes, RECORD_BYTES, samples, &PUBLISHED);
    let mut figures: Vec<Figure> = titles.map(over).into();
    let title = ("table2", "Own files: means of all sizes and both clients (table 2)");
    figures.extend(tables(title, RECORD_BYTES, samples, &PUBLISHED));
    figures
}

fn goal(figures: &[Figure], operation: Operation) -> Finding {
    let rate = lower_client(figures, operation, OURS);
    let at = FOUR.iter().position(|&of_four| of_four == operation).unwrap_or(0);
    let best = PUBLISHED.iter().map(|(_, rates)| rates[at]).fold(0.0, f64::max);
    Finding::new(
        &format!(
            "{}: each client gets {GOAL} MB/s with its own largest file, both at once",
            operation.name()
        ),
        rate.map(|rate| rate >= GOAL),
        format!("the lower client: {} MB/s; the best published mean is {best}", shown(rate)),
    )
}
