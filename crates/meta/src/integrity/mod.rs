//! The metadata scrub, online: every stored byte is read and its checksum verified, then each record is decoded, then
//! the names of unreadable records are searched.
//!
//! It changes nothing, except for repairs that the engine makes by itself. Inconsistent records without damage are
//! not its business: `check.rs` finds those, in tests.

pub(crate) mod check;

use crate::engine::{Background, EngineError, EngineResult};
use crate::schema::keys;
use crate::schema::records::{DirectoryTimes, EntryRecord, InodeRecord, NumberRecord};
use crate::service::MetaService;
use crate::service::fault::Outcome;
use prost::Message;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::ids::ROOT;
use vazao_model::{Code, InodeId};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::shell::scrub::{Progress, Runs, Scrub};

/// Records between two checks of the rate and of the stop flag.
const PAGE: usize = 256;

/// Findings kept for the report; the count goes on.
const FINDINGS_MAX: usize = 256;

/// Places named in a report.
const PLACES_MAX: usize = 256;

/// Ranges of keys that cannot be read and are gone into; beyond that many, few files can be read anyway.
const GAPS_MAX: usize = 4096;

/// Directories above one another; more is a circle.
const DEPTH_MAX: usize = 4096;

/// Greater than every key.
const AFTER_ALL: [u8; 1] = [0xFF];

/// What a check has found, besides what every scrub counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    bytes_expected: u64,
    records: u64,
    /// Files and directories concerned.
    damaged: u64,
    /// The first of them.
    findings: Vec<proto::MetadataFinding>,
    /// Ranges of keys that cannot be read.
    places: Vec<String>,
}

/// The check.
pub(crate) type Integrity = Scrub<Found>;

/// What a walk over all records met.
#[derive(Default)]
struct Walked {
    /// Keys that cannot be read.
    gaps: Vec<Range<Vec<u8>>>,
    /// Paths of directories that were asked for.
    paths: BTreeMap<u64, String>,
}

impl MetaService {
    /// Starts a check that reads at most so many bytes a second; 0: as fast as it can. A running one continues at the
    /// new rate. Errors: no thread; the one before was stopped and has not ended yet.
    pub(crate) fn start_check(&self, rate_bytes: u64) -> Outcome<()> {
        let (runs, service) = match (self.background(), self.this()) {
            (Background::Threads, Some(service)) => (Runs::Thread("meta-check".to_owned()), service),
            (_, Some(service)) => (Runs::Here, service),
            (_, None) => return Err(Fault::new(Code::Unavailable, "the metadata service is ending")),
        };
        self.integrity().start(rate_bytes, Found::default(), runs, move || service.check_all())
    }

    /// The progress of the check, and all known damage, also what other reads have found.
    pub(crate) fn check_report(&self) -> proto::CheckMetadataResponse {
        let Progress { state, rate_bytes, bytes, elapsed_ms, trouble, found, .. } = self.integrity().report();
        let Found { bytes_expected, records, damaged, findings, places } = found;
        let health = self.engine().health();
        let places = health.failure.into_iter().chain(health.damaged).chain(places);
        proto::CheckMetadataResponse {
            state: state as u32,
            bytes,
            bytes_expected,
            records,
            elapsed_ms,
            rate_bytes,
            damaged,
            findings,
            trouble,
            places: places.take(PLACES_MAX).collect(),
            mended: health.mended,
            lost_ranges: health.lost_ranges,
        }
    }

    fn check_all(&self) {
        tracing::info!("check of the metadata begins");
        let ended = self.integrity().run(|| match self.check_storage()? {
            true => self.check_records(),
            false => Ok::<bool, EngineError>(false),
        });
        let Found { records, damaged, .. } = ended.found;
        let (state, bytes, places) = (ended.state, ended.bytes, self.check_report().places.len());
        tracing::info!(?state, bytes, records, places, damaged, "check of the metadata ends");
    }

    /// What lies on the disk. False when it was stopped.
    fn check_storage(&self) -> EngineResult<bool> {
        self.engine().scrub(&mut |read, all| {
            // The records are read once more.
            self.integrity().note(|found| found.bytes_expected = all.saturating_mul(2));
            self.integrity().read(read)
        })
    }

    // ---- records ----

    /// Each record, then the names of what cannot be read. False when it was stopped.
    fn check_records(&self) -> EngineResult<bool> {
        let mut walked = Walked::default();
        let all = Vec::new()..AFTER_ALL.to_vec();
        let goes_on = self.walk(&all, &mut |gap| self.note_gap(&mut walked.gaps, gap), &mut |page| {
            for (key, value) in page {
                if let Err(why) = decoded(key, value) {
                    self.note_finding(String::new(), 0, format!("{}: {why}", keys::described(key)));
                }
            }
            let bytes = page.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() as u64;
            self.integrity().note(|found| found.records += page.len() as u64);
            self.integrity().read(bytes)
        })?;
        if !goes_on {
            return Ok(false);
        }
        self.note_directories(&mut walked);
        let entries = keys::all_entries();
        self.walk(&entries, &mut |_| {}, &mut |page| {
            page.iter().for_each(|(key, value)| self.check_entry(key, value, &mut walked));
            self.integrity().read(0)
        })
    }

    /// Gives all records of a range to `take`, some at a time, and what cannot be read to `skip`. False when `take`
    /// said so.
    fn walk(
        &self,
        range: &Range<Vec<u8>>,
        skip: &mut dyn FnMut(Range<Vec<u8>>),
        take: &mut dyn FnMut(&[crate::engine::Pair]) -> bool,
    ) -> EngineResult<bool> {
        let mut from = range.start.clone();
        loop {
            let mut page = Vec::with_capacity(PAGE);
            let visited = self.engine().begin().visit(&from, &range.end, PAGE, &mut |key, value| {
                page.push((key.to_vec(), value.to_vec()));
            });
            if let Some((last, _)) = page.last() {
                from = keys::after(last);
            }
            if !take(&page) {
                return Ok(false);
            }
            match visited {
                Ok(PAGE) => {}
                Ok(_) => return Ok(true),
                Err(EngineError::Corrupt(_)) => {
                    let next = self.engine().next_reachable(&from, &range.end).max(keys::after(&from));
                    skip(std::mem::replace(&mut from, next.clone())..next);
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn note_gap(&self, gaps: &mut Vec<Range<Vec<u8>>>, gap: Range<Vec<u8>>) {
        let (first, last) = (keys::described(&gap.start), keys::described(&gap.end));
        let what = if first == last { first } else { format!("{first} to {last}") };
        self.integrity().note(|found| {
            if found.places.len() < PLACES_MAX {
                found.places.push(format!("cannot be read: {what}"));
            }
        });
        if gaps.len() < GAPS_MAX {
            gaps.push(gap);
        }
    }

    /// A path takes listings to find, and is shown only while this is true.
    fn has_room_for_findings(&self) -> bool {
        self.integrity().report().found.findings.len() < FINDINGS_MAX
    }

    fn note_finding(&self, path: String, inode: u64, what: String) {
        self.integrity().note(|found| {
            found.damaged += 1;
            if found.findings.len() < FINDINGS_MAX {
                found.findings.push(proto::MetadataFinding { path, inode, what });
            }
        });
    }

    /// The directories that names are missing of.
    fn note_directories(&self, walked: &mut Walked) {
        for gap in walked.gaps.clone() {
            let Some((first, last)) = keys::directories_within(&gap) else { continue };
            let mut from = first;
            for _ in 0..FINDINGS_MAX {
                let Some(id) = self.next_directory(from, last) else { break };
                let path = match self.has_room_for_findings() {
                    true => self.path_of(id, &mut walked.paths),
                    false => String::new(),
                };
                self.note_finding(path, id, "some names in it cannot be read".to_owned());
                let Some(next) = id.checked_add(1) else { break };
                from = next;
            }
        }
    }

    /// The first directory with an inode number from `from` to `last`.
    fn next_directory(&self, from: u64, last: u64) -> Option<u64> {
        let mut range = keys::inode(InodeId(from))..keys::after(&keys::inode(InodeId(last)));
        loop {
            let (mut found, mut seen) = (None, None);
            let visited = self.engine().begin().visit(&range.start, &range.end, PAGE, &mut |key, value| {
                let is_directory = InodeRecord::decode(value).is_ok_and(|record| record.is_directory());
                if is_directory && found.is_none() {
                    found = keys::number(key, 0);
                }
                seen = Some(keys::after(key));
            });
            range.start = match (visited, seen) {
                _ if found.is_some() => return found,
                (Ok(PAGE), Some(after)) => after,
                (Ok(_), _) => return None,
                (Err(_), after) => {
                    let at = after.unwrap_or(range.start);
                    self.engine().next_reachable(&at, &range.end).max(keys::after(&at))
                }
            };
        }
    }

    /// Whether what a name leads to can be read.
    fn check_entry(&self, key: &[u8], value: &[u8], walked: &mut Walked) {
        let (Some(parent), Ok(entry)) = (keys::number(key, 0), EntryRecord::decode(value)) else { return };
        let mut what: Vec<&str> = Vec::new();
        for (name, range) in keys::of_inode(InodeId(entry.inode)) {
            let is_hit = |gap: &Range<Vec<u8>>| gap.start < range.end && range.start < gap.end;
            if walked.gaps.iter().any(is_hit) && self.is_unreadable(&range) {
                what.push(name);
            }
        }
        let is_gone = what.is_empty() && self.is_missing(key, entry.inode);
        if what.is_empty() && !is_gone {
            return;
        }
        let what = match is_gone {
            true => "its inode is missing".to_owned(),
            false => format!("{} cannot be read", what.join(", ")),
        };
        if !self.has_room_for_findings() {
            return self.note_finding(String::new(), entry.inode, what);
        }
        let name = String::from_utf8_lossy(keys::entry_name(key).unwrap_or_default()).into_owned();
        let directory = self.path_of(parent, &mut walked.paths);
        let path = format!("{}/{name}", directory.trim_end_matches('/'));
        self.note_finding(path, entry.inode, what);
    }

    fn is_unreadable(&self, range: &Range<Vec<u8>>) -> bool {
        let is_alone = keys::after(&range.start) == range.end;
        let mut transaction = self.engine().begin();
        let read = match is_alone {
            true => transaction.get(&range.start).map(|_| ()),
            false => transaction.visit(&range.start, &range.end, PAGE, &mut |_, _| {}).map(|_| ()),
        };
        matches!(read, Err(EngineError::Corrupt(_)))
    }

    /// True when a name that is still there leads to nothing.
    fn is_missing(&self, entry: &[u8], inode: u64) -> bool {
        let is_absent = |key: &[u8]| matches!(self.engine().begin().get(key), Ok(None));
        let inode = keys::inode(InodeId(inode));
        is_absent(&inode) && !is_absent(entry) && is_absent(&inode)
    }

    /// A directory's path, as far up as it can be read.
    fn path_of(&self, directory: u64, known: &mut BTreeMap<u64, String>) -> String {
        let (mut names, mut at) = (Vec::new(), directory);
        for _ in 0..DEPTH_MAX {
            if at == ROOT.0 {
                names.push(String::new());
                break;
            }
            if let Some(path) = known.get(&at) {
                names.push(path.trim_end_matches('/').to_owned());
                break;
            }
            let Some((parent, name)) = self.name_of(at) else {
                names.push(format!("(inode {at})"));
                break;
            };
            names.push(name);
            at = parent;
        }
        names.reverse();
        let path = if directory == ROOT.0 { "/".to_owned() } else { names.join("/") };
        known.insert(directory, path.clone());
        path
    }

    /// The directory above a directory, and its name there.
    fn name_of(&self, directory: u64) -> Option<(u64, String)> {
        let bytes = self.engine().begin().get(&keys::inode(InodeId(directory))).ok()??;
        let parent = InodeRecord::decode(bytes.as_slice()).ok()?.parent;
        let mut name = None;
        let range = keys::entries(InodeId(parent));
        let walked = self.walk(&range, &mut |_| {}, &mut |page| {
            let leads_here =
                |value: &[u8]| EntryRecord::decode(value).is_ok_and(|entry| entry.inode == directory);
            name = page.iter().find(|(_, value)| leads_here(value)).map(|(key, _)| key.clone());
            name.is_none()
        });
        walked.ok()?;
        let name = keys::entry_name(name.as_deref()?)?.to_vec();
        Some((parent, String::from_utf8_lossy(&name).into_owned()))
    }
}

/// Whether a record is what its key says.
fn decoded(key: &[u8], value: &[u8]) -> Result<(), prost::DecodeError> {
    let within = |range: Range<Vec<u8>>| (range.start.as_slice()..range.end.as_slice()).contains(&key);
    if within(keys::inodes()) {
        InodeRecord::decode(value).map(|_| ())
    } else if within(keys::all_entries()) {
        EntryRecord::decode(value).map(|_| ())
    } else if within(keys::all_times()) {
        DirectoryTimes::decode(value).map(|_| ())
    } else if within(keys::all_subdirectories()) {
        NumberRecord::decode(value).map(|_| ())
    } else {
        Ok(())
    }
}

/// A service that its own thread keeps.
pub(crate) type This = std::sync::OnceLock<std::sync::Weak<MetaService>>;

impl MetaService {
    fn this(&self) -> Option<Arc<MetaService>> {
        self.own_reference().get()?.upgrade()
    }
}
