//! C1: the four operations by two clients in one network of 100 Mb/s (figure 3, figure 4a and table 1 of the study).

use super::fio::{self, CrossCheck};
use super::samples::{
    Bench, FOUR, Operation, Published, Systems, ahead_of_peers, ahead_of_published, lower_client,
    over_records, over_sizes, tables,
};
use super::system::{OURS, System, Volume};
use super::{
    CLIENTS, CONGESTION_CONTROL, PORT, RECORD_BYTES, largest, peer, records, repetitions, scale, setup, sizes,
};
use crate::Error;
use crate::experiment::outcome::{Figure, Finding};
use crate::experiment::testbed::{Plan, Testbed};
use crate::experiment::{About, Experiment, Lab, Measured, shown};
use crate::report::size::format_size;

/// Four operations in one network.
pub(in crate::experiment) struct C1;

/// MB/s of each client, both at once: 97.5% of the least that TCP's payload comes to on such a port.
const GOAL: f64 = 11.6;
/// Table 1.
const PUBLISHED: Published = [
    ("PVFS2", [10.42, 10.44, 11.02, 11.12]),
    ("FhGFS", [10.01, 9.98, 11.52, 11.51]),
    ("Ceph", [3.80, 3.81, 9.49, 10.17]),
    ("Lustre", [6.31, 6.48, 6.49, 6.79]),
];

impl Experiment for C1 {
    fn about(&self) -> About {
        About {
            id: "C1",
            title: "Write, rewrite, read, reread by two clients at once in a network of 100 Mb/s",
            source: "PVFS2, FhGFS, Ceph and Lustre, scenario 1: figures 3 and 4a, table 1",
            needs: "root, /dev/fuse",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let plan = Plan {
            data_servers: 3,
            clients: CLIENTS,
            link: Some(PORT),
            congestion_control: Some(CONGESTION_CONTROL),
            ..Plan::default()
        };
        let bed = Testbed::new(lab, &plan)?;
        let mut bench = Bench::new(lab, &bed)?;
        let volume = Volume::everywhere(lab, &bed)?;
        let mut gaps = Vec::new();
        let peers = peer::start(lab, &bed, &mut gaps)?;
        let mut systems = Systems::prepare(&mut bench, vec![&volume], &peers, gaps)?;
        let sizes = sizes(lab, &[4, 16, 64], &[1, 4, 16, 64, 256]);
        let (records, middle) = (records(lab), sizes[sizes.len() / 2]);
        let mut samples = Vec::new();
        let mut check = CrossCheck::new(largest(&sizes));
        for repetition in 0..repetitions(lab) {
            for &bytes in &sizes {
                systems.go_through(&mut bench, (bytes, u64::MAX), repetition, &mut samples)?;
            }
            for &record in records.iter().filter(|&&record| record != RECORD_BYTES) {
                samples.extend(bench.go_through(&volume, middle, record, repetition)?);
            }
            check.measure(&mut bench, &volume, repetition)?;
        }
        let titles = [
            (Operation::Write, "Write (figure 3a)"),
            (Operation::Read, "Read (figure 3b)"),
            (Operation::Rewrite, "Rewrite (figure 4a)"),
            (Operation::Reread, "Reread"),
            (Operation::RereadFromMemory, "Reread from the client's own memory"),
        ];
        let mut figures: Vec<Figure> =
            titles.map(|titled| over_sizes(titled, &sizes, RECORD_BYTES, &samples, &PUBLISHED)).into();
        let title = format!("By the bytes of a call, files of {}", format_size(middle));
        figures.push(over_records(&title, &records, middle, volume.name(), &samples));
        let title = ("table1", "Means of all sizes and both clients (table 1)");
        figures.extend(tables(title, RECORD_BYTES, &samples, &PUBLISHED));
        let (mut gaps, (compared, missing)) = (systems.into_gaps(), check.into_parts());
        figures.extend(compared);
        gaps.extend(missing);
        let mut setup = setup();
        setup.insert(
            0,
            "3 data servers, a metadata service and 2 clients, each a host of its own, at one switch; files lie on all \
             three servers."
                .to_owned(),
        );
        Ok(Measured { scale: scale(lab, &sizes), setup, figures, gaps })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = FOUR.map(|operation| goal(figures, operation)).into();
        findings.push(ahead_of_published(figures, "table1"));
        findings.extend(ahead_of_peers(figures));
        findings.extend(fio::finding(figures));
        findings
    }
}

fn goal(figures: &[Figure], operation: Operation) -> Finding {
    let rate = lower_client(figures, operation, OURS);
    Finding::new(
        &format!("{}: each client gets {GOAL} MB/s with the largest file, both at once", operation.name()),
        rate.map(|rate| rate >= GOAL),
        format!(
            "the lower client: {} MB/s of {:.2} that the port carries",
            shown(rate),
            super::carried_mb_per_s(PORT)
        ),
    )
}
