//! What the service counts of its work; its shell counts the requests.

use crate::placement::missed::{MissedZones, ShortOfCopies};
use vazao_meter::{Counter, Exposition};

/// Counters of the service.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Transactions that ran again because another one changed what they had read.
    pub(crate) conflicts: Counter,
    /// Objects that data servers have removed.
    pub(crate) objects_removed: Counter,
    /// Objects found that no file has.
    pub(crate) orphan_objects_found: Counter,
    /// Those of them that were removed.
    pub(crate) orphan_objects_removed: Counter,
    /// Files that lie elsewhere than in their zone.
    pub(crate) missed_zones: MissedZones,
    /// Files that were laid out with fewer copies than they were to have.
    pub(crate) short_of_copies: ShortOfCopies,
    /// Objects met that carry numbers which this service has not given out.
    pub(crate) objects_unknown: Counter,
}

impl Metrics {
    /// Writes everything out.
    pub(crate) fn expose(&self, exposition: &mut Exposition) {
        let mut count = |name: &str, help: &str, counter: &Counter| {
            exposition.counter(name, help, &[], counter.get() as f64);
        };
        count("vazao_meta_conflicts_total", "Transactions run again after a conflict.", &self.conflicts);
        let help = "Objects of deleted files that were removed.";
        count("vazao_meta_objects_removed_total", help, &self.objects_removed);
        let help = "Objects found that no file has.";
        count("vazao_meta_orphan_objects_found_total", help, &self.orphan_objects_found);
        let help = "Objects that no file had, removed.";
        count("vazao_meta_orphan_objects_removed_total", help, &self.orphan_objects_removed);
        let help = "Files laid out elsewhere because no target of their zone had room.";
        count("vazao_meta_zone_missed_files_total", help, &self.missed_zones.files);
        let help = "Files laid out with fewer copies than asked for, because too few targets served.";
        count("vazao_meta_short_of_copies_files_total", help, &self.short_of_copies.files);
        let help = "Objects met that are newer than this metadata, and left alone.";
        count("vazao_meta_objects_unknown_total", help, &self.objects_unknown);
    }
}
