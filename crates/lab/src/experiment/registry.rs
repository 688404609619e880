//! All published experiments. It stands above them: none of them knows it.

use super::definition::Experiment;
use super::{
    g1, g2, g4, g5, g6, g7, g9, g10, g11, g12, g13, g14, g15, l1, l2, p1, p2, p3, p4, p5, p6, p7, p8, p9,
    p10, r1, raid, sites, w1, w2,
};

/// All experiments, in the order of their ids.
pub fn registry() -> &'static [&'static dyn Experiment] {
    &[
        &sites::C1,
        &sites::C2,
        &g1::G1,
        &g2::G2,
        &g2::G3,
        &g4::G4,
        &g5::G5,
        &g6::G6,
        &g7::G7,
        &g7::G8,
        &g9::G9,
        &g10::G10,
        &g11::G11,
        &g12::G12,
        &g13::G13,
        &g14::G14,
        &g15::G15,
        &l1::L1,
        &l2::L2,
        &p1::P1,
        &p2::P2,
        &p3::P3,
        &p4::P4,
        &p5::P5,
        &p6::P6,
        &p7::P7,
        &p8::P8,
        &p9::P9,
        &p10::P10,
        &r1::R1,
        &raid::R2,
        &raid::R3,
        &w1::W1,
        &w2::W2,
    ]
}

/// The experiment with this id, in any case.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    registry().iter().copied().find(|experiment| experiment.about().id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The ids of the table in docs/lab.md, with whether each runs today.
    fn promised() -> Vec<(String, bool)> {
        let text = include_str!("../../../../docs/lab.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| ")).filter_map(|row| {
            let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
            let [ids, _, runs] = cells[..] else { return None };
            let is_row = ids.starts_with(|first: char| first.is_ascii_uppercase());
            is_row.then(|| (ids.to_owned(), runs.starts_with("yes")))
        });
        let each = |(ids, runs): (String, bool)| {
            let ids: Vec<(String, bool)> = ids.split(", ").map(|id| (id.to_owned(), runs)).collect();
            ids
        };
        rows.flat_map(each).collect()
    }

    #[test]
    fn the_document_promises_just_the_experiments_that_there_are() {
        let promised = promised();
        assert!(promised.len() > 30, "the table was not found: {promised:?}");
        let runs: BTreeSet<&str> =
            promised.iter().filter(|(_, runs)| *runs).map(|(id, _)| id.as_str()).collect();
        let there_are: BTreeSet<&str> = registry().iter().map(|experiment| experiment.about().id).collect();
        assert_eq!(runs, there_are);
    }
}
