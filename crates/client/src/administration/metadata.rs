//! Damage of the metadata: the service looks for it, this asks.

use super::Administration;
use crate::{Error, Result, ScrubOrder, ScrubState};
use vazao_model::Code;
use vazao_wire::{op, proto};

/// A file or directory that damage concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetadataFinding {
    /// Its path, as far as it can be read; empty when it has none.
    pub path: String,
    /// Its inode; 0 when it is not that of one.
    pub inode: u64,
    /// What is wrong, for people.
    pub what: String,
}

/// How far a check of the metadata has come, and what is known of damage.
#[derive(Clone, PartialEq, Debug)]
pub struct MetadataReport {
    /// What the check is doing.
    pub state: ScrubState,
    /// Share that it has been through, 0 to 1.
    pub share: f64,
    /// Bytes read.
    pub bytes: u64,
    /// Records decoded.
    pub records: u64,
    /// Milliseconds since it began; to its end, when that has come.
    pub elapsed_ms: u64,
    /// Bytes a second it is held to; 0: no limit.
    pub rate_bytes: u64,
    /// Files and directories concerned, as far as a check has found them.
    pub damaged: u64,
    /// The first of them.
    pub findings: Vec<MetadataFinding>,
    /// Places that are damaged, also those that were met without a check.
    pub places: Vec<String>,
    /// Damage that was mended since the service started.
    pub mended: Vec<String>,
    /// Ranges of records that were lost with damaged places.
    pub lost_ranges: u64,
    /// Why the check failed; empty otherwise.
    pub trouble: String,
}

impl MetadataReport {
    /// Whether something cannot be read.
    pub fn has_damage(&self) -> bool {
        self.damaged > 0 || self.lost_ranges > 0 || !self.places.is_empty()
    }
}

impl Administration<'_> {
    /// Gives an order about the check of the metadata, and returns how it stands and what is known. Errors: the service
    /// does not answer, or is too old to know of checks.
    pub fn check_metadata(&self, order: ScrubOrder) -> Result<MetadataReport> {
        let (action, rate_bytes) = order.to_wire();
        let request = proto::CheckMetadataRequest { action, rate_bytes };
        let response = self.core.meta.ask::<op::CheckMetadata>(&request)?;
        let unknown = |state: u32| {
            let text = format!("the metadata service reports a check in state {state}");
            Error::new(Code::VersionMismatch, text)
        };
        let state = ScrubState::try_from(response.state).map_err(unknown)?;
        let share = match state {
            ScrubState::Done => 1.0,
            _ => (response.bytes as f64 / response.bytes_expected.max(1) as f64).min(0.99),
        };
        let finding = |found: proto::MetadataFinding| MetadataFinding {
            path: found.path,
            inode: found.inode,
            what: found.what,
        };
        Ok(MetadataReport {
            state,
            share,
            bytes: response.bytes,
            records: response.records,
            elapsed_ms: response.elapsed_ms,
            rate_bytes: response.rate_bytes,
            damaged: response.damaged,
            findings: response.findings.into_iter().map(finding).collect(),
            places: response.places,
            mended: response.mended,
            lost_ranges: response.lost_ranges,
            trouble: response.trouble,
        })
    }
}
