//! Whether all copies are there and equal, as the cluster itself says.

use crate::clock::{now_ns, sleep_ms};
use crate::daemons::Daemons;
use crate::failure::{Failure, Outcome};
use serde::Deserialize;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Copies are made again after this, on a busy machine, too.
const WHOLE_MS_MAX: u64 = 120_000;

/// Between two looks at the cluster.
const LOOK_MS: u64 = 200;

/// They stay for as long: members that are put out again and again are there for moments.
const STAYS_MS: u64 = 3_000;

/// What `vazao status --json` says, in part.
#[derive(Clone, Debug, Deserialize)]
struct Status {
    copies: Copies,
    targets: Vec<Target>,
    troubles: Vec<Trouble>,
}

#[derive(Clone, Debug, Deserialize)]
struct Copies {
    groups: u64,
    short: u64,
    short_groups: Vec<ShortGroup>,
}

#[derive(Clone, Debug, Deserialize)]
struct ShortGroup {
    /// Members that have everything.
    current: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    id: u32,
    node: String,
    directory: PathBuf,
    corrupt_blocks: u64,
    missing_objects: u64,
    repaired_from_copies: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Trouble {
    thing: String,
    what: String,
}

/// What `vazao scrub --compare --json` says, in part.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Compared {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    lagging: Vec<u32>,
    failed: u64,
    damaged: u64,
    differing: u64,
    missing: u64,
    repaired: u64,
    equal: bool,
}

/// A target, and where it lies.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) target: u32,
    pub(super) directory: PathBuf,
}

impl Place {
    /// That of a node, which has one.
    pub(super) fn of(daemons: &Daemons, node: &str) -> Outcome<Place> {
        let status = status(daemons)?;
        let found = status.targets.into_iter().find(|target| target.node == node);
        let found = found.ok_or_else(|| Failure::new(format!("`vazao status` shows no target of {node}")))?;
        Ok(Place { target: found.id, directory: found.directory })
    }
}

/// Whether some group has good copies on these targets only: a server that the machine had not run for a second counts
/// as one that has failed, too.
pub(super) fn have_last_copies(daemons: &Daemons, targets: &[u32]) -> Outcome<bool> {
    Ok(are_last(&status(daemons)?, targets))
}

fn are_last(status: &Status, targets: &[u32]) -> bool {
    let names: Vec<String> = targets.iter().map(|target| format!("t{target}")).collect();
    status.copies.short_groups.iter().any(|group| group.current.iter().all(|target| names.contains(target)))
}

fn status(daemons: &Daemons) -> Outcome<Status> {
    serde_json::from_str(&daemons.run(&["status", "--json"])?)
        .map_err(|error| Failure::new(format!("vazao status --json: {error}")))
}

/// All copies are there.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    /// Since then.
    pub(super) since_ns: u64,
    /// What must not be, for people.
    pub(super) findings: Vec<String>,
}

/// Waits until all copies are there, no server is in trouble, and that stays so.
pub(super) fn wait(daemons: &Daemons) -> Outcome<Whole> {
    let deadline_ns = now_ns() + WHOLE_MS_MAX * 1_000_000;
    let mut stay = Stay::default();
    loop {
        let status = status(daemons)?;
        let (why, now_ns) = (lacking(&status), now_ns());
        if let Some(since_ns) = stay.seen(why.is_none(), now_ns) {
            return Ok(Whole { since_ns, findings: damage(&status) });
        }
        if let Some(why) = why.filter(|_| now_ns > deadline_ns) {
            let why = format!("not whole, or not for long, in {} s: {why}", WHOLE_MS_MAX / 1_000);
            return Ok(Whole { since_ns: now_ns, findings: vec![why] });
        }
        sleep_ms(LOOK_MS);
    }
}

/// Since when all looks have found it whole.
#[derive(Clone, Copy, Debug, Default)]
struct Stay(Option<u64>);

impl Stay {
    /// Takes a look in; since when it is whole, if that has stayed so.
    fn seen(&mut self, is_whole: bool, now_ns: u64) -> Option<u64> {
        self.0 = is_whole.then(|| self.0.unwrap_or(now_ns));
        self.0.filter(|since_ns| now_ns - since_ns >= STAYS_MS * 1_000_000)
    }
}

/// What is not whole yet. Troubles count: a server that has just gone lacks in no group yet.
fn lacking(status: &Status) -> Option<String> {
    let troubles = status.troubles.iter().map(|trouble| format!("{} {}", trouble.thing, trouble.what));
    let troubles: Vec<String> = troubles.collect();
    let Copies { groups, short, .. } = status.copies;
    (short > 0 || !troubles.is_empty())
        .then(|| format!("{short} of {groups} groups lack copies; {}", troubles.join("; ")))
}

/// Damage that servers have met with since they started: no disk here damages anything.
fn damage(status: &Status) -> Vec<String> {
    let is_damaged =
        |target: &&Target| target.corrupt_blocks + target.missing_objects + target.repaired_from_copies > 0;
    status
        .targets
        .iter()
        .filter(is_damaged)
        .map(|target| format!("damage that no disk made: {target:?}"))
        .collect()
}

/// Has all copies compared.
pub(super) fn compare(daemons: &Daemons) -> Outcome<Compared> {
    let said = daemons.run(&["scrub", "--compare", "--json", "--rate", "0", "vz:/"])?;
    serde_json::from_str(&said)
        .map_err(|error| Failure::new(format!("vazao scrub --compare: {error}: {said}")))
}

impl Compared {
    /// What must not be, for people. A repair is a finding as well: there was something to repair.
    pub(super) fn findings(&self) -> Vec<String> {
        let Compared { failed, damaged, differing, missing, repaired, equal, .. } = *self;
        let found = failed + damaged + differing + missing + repaired;
        let is_seen = self.objects > 0 && self.bytes > 0;
        match equal && found == 0 && self.lagging.is_empty() && is_seen {
            true => Vec::new(),
            false => vec![format!("`vazao scrub --compare` found {self:?}")],
        }
    }
}

/// Changes a byte of the largest object on one target.
pub(super) fn spoil(target: &Path) -> Outcome {
    let (mut left, mut largest) = (vec![target.join("groups")], (0, PathBuf::new()));
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).map_err(Failure::at(directory.display()))?.flatten() {
            let path = entry.path();
            match entry.metadata() {
                Ok(it) if it.is_dir() => left.push(path),
                Ok(it) if it.len() > largest.0 => largest = (it.len(), path),
                _ => {}
            }
        }
    }
    let (bytes, path) = largest;
    let file =
        fs::OpenOptions::new().read(true).write(true).open(&path).map_err(Failure::at(path.display()))?;
    let mut byte = [0];
    let changed =
        file.read_exact_at(&mut byte, bytes / 2).and_then(|()| file.write_all_at(&[!byte[0]], bytes / 2));
    changed.map_err(Failure::at(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compared(change: impl Fn(&mut serde_json::Value)) -> Compared {
        let mut said = json!({
            "bytes": 7, "damaged": 0, "differences": [], "differing": 0, "equal": true, "failed": 0, "files": 1,
            "lagging": [], "missing": 0, "objects": 2, "one_copy": 0, "repaired": 0,
        });
        change(&mut said);
        serde_json::from_value(said).expect("as `vazao scrub` says it")
    }

    #[test]
    fn a_comparison_that_found_or_compared_anything_but_equal_copies_is_a_finding() {
        assert!(compared(|_| {}).findings().is_empty());
        for count in ["damaged", "differing", "failed", "missing", "repaired"] {
            assert_eq!(compared(|it| it[count] = json!(1)).findings().len(), 1, "{count}");
        }
        assert_eq!(compared(|it| it["equal"] = json!(false)).findings().len(), 1);
        assert_eq!(compared(|it| it["lagging"] = json!([3])).findings().len(), 1);
        assert_eq!(compared(|it| it["objects"] = json!(0)).findings().len(), 1, "nothing was compared");
    }

    fn status(short: u64, troubles: serde_json::Value, repaired: u64) -> Status {
        let said = json!({
            "copies": {"groups": 256, "short": short, "lost": [], "short_groups": []},
            "troubles": troubles,
            "targets": [{
                "id": 1, "node": "data1", "directory": "/t", "corrupt_blocks": 0, "missing_objects": 0,
                "repaired_from_copies": repaired,
            }],
        });
        serde_json::from_value(said).expect("as `vazao status` says it")
    }

    #[test]
    fn a_cluster_is_whole_without_short_groups_and_without_trouble() {
        assert_eq!(lacking(&status(0, json!([]), 0)), None);
        assert!(lacking(&status(1, json!([]), 0)).is_some());
        let missing = json!([{"thing": "target t1 of data1", "what": "is missing", "remedy": "mount it"}]);
        assert!(lacking(&status(0, missing, 0)).is_some());
    }

    /// A member of a group was put out 1.9 s after it was back, for minutes, and one look in five found all whole.
    #[test]
    fn what_is_whole_for_moments_is_not_whole() {
        let (mut stay, stays_ns) = (Stay::default(), STAYS_MS * 1_000_000);
        assert_eq!(stay.seen(true, 10), None);
        assert_eq!(stay.seen(false, 20), None);
        assert_eq!(stay.seen(true, 30), None);
        assert_eq!(stay.seen(true, 10 + stays_ns), None);
        assert_eq!(stay.seen(true, 30 + stays_ns), Some(30));
    }

    #[test]
    fn targets_have_last_copies_where_no_other_member_is_current() {
        let with = |current: serde_json::Value| {
            let mut status = status(1, json!([]), 0);
            let group = json!({"group": "g256", "copies": 3, "current": current, "away": ["t1"]});
            status.copies.short_groups =
                vec![serde_json::from_value(group).expect("as `vazao status` says it")];
            status
        };
        assert!(are_last(&with(json!(["t4"])), &[4]));
        assert!(!are_last(&with(json!(["t4"])), &[3]));
        assert!(!are_last(&with(json!(["t4", "t2"])), &[4]));
        assert!(are_last(&with(json!(["t4", "t2"])), &[2, 4]));
        assert!(!are_last(&status(0, json!([]), 0), &[4]));
    }

    #[test]
    fn what_was_repaired_from_copies_is_a_finding() {
        assert!(damage(&status(0, json!([]), 0)).is_empty());
        assert_eq!(damage(&status(0, json!([]), 1)).len(), 1);
    }
}
