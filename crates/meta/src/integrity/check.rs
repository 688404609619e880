//! Looks whether the records of a volume agree with one another. Reads all of them and changes nothing.

use crate::schema::records::{
    EntryRecord, GroupRecord, InodeRecord, MembershipRecord, NumberRecord, OrphanRecord, TargetRecord,
    VolumeRecord,
};
use crate::schema::{groups, keys};
use crate::service::fault::Outcome;
use crate::service::{self, MetaService};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vazao_model::ids::ROOT;
use vazao_model::{Code, GroupId, InodeId, SessionId};
use vazao_wire::service::Fault;

/// Records read at a time.
const PAGE: usize = 1024;

/// What a check saw.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Inodes, orphans included.
    pub inodes: u64,
    /// Directory entries.
    pub entries: u64,
    /// Unlinked inodes that a session may have open.
    pub orphans: u64,
    /// Contradictions, for people; empty when all is well.
    pub problems: Vec<String>,
}

#[derive(Default)]
struct Seen {
    inodes: BTreeMap<u64, InodeRecord>,
    names: BTreeMap<u64, u32>,
    subdirectories: BTreeMap<u64, u64>,
    checked: Checked,
}

impl Seen {
    fn problem(&mut self, text: String) {
        self.checked.problems.push(text);
    }
}

impl MetaService {
    /// Compares entries with inodes, links with entries, orphans with sessions, layouts with groups.
    /// Needs memory for all inodes; meant for tests and for a volume without concurrent changes.
    pub fn check(&self) -> Result<Checked, Fault> {
        let mut seen = Seen::default();
        each(self, keys::inodes(), |key, value| {
            let record = InodeRecord::decode(value).map_err(|e| broken("inode", &e))?;
            seen.inodes.insert(number(key, 0)?, record);
            Ok(())
        })?;
        check_entries(self, &mut seen)?;
        check_links(self, &mut seen)?;
        check_orphans(self, &mut seen)?;
        check_sessions(self, &mut seen)?;
        check_reclaims(self, &mut seen)?;
        check_groups(self, &mut seen)?;
        seen.checked.inodes = seen.inodes.len() as u64;
        Ok(seen.checked)
    }
}

fn broken(what: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::new(Code::Corrupt, format!("{what} record: {error}"))
}

fn number(key: &[u8], index: usize) -> Outcome<u64> {
    keys::number(key, index).ok_or_else(|| broken("short key of a", &"key"))
}

fn each(
    service: &MetaService,
    mut range: Range<Vec<u8>>,
    mut visit: impl FnMut(&[u8], &[u8]) -> Outcome<()>,
) -> Outcome<()> {
    loop {
        let (page, _) = service.transact(None, |context| context.scan(&range, PAGE))?;
        let page = page?;
        page.iter().try_for_each(|(key, value)| visit(key, value))?;
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range.start = keys::after(last),
            _ => return Ok(()),
        }
    }
}

fn check_entries(service: &MetaService, seen: &mut Seen) -> Outcome<()> {
    each(service, keys::all_entries(), |key, value| {
        let entry = EntryRecord::decode(value).map_err(|e| broken("entry", &e))?;
        let parent = number(key, 0)?;
        let name = keys::entry_name(key).unwrap_or_default();
        seen.checked.entries += 1;
        *seen.names.entry(entry.inode).or_default() += 1;
        if service.names().hash(name) != number(key, 1)? {
            seen.problem(format!("an entry of i{parent} lies under another name's hash"));
        }
        if !seen.inodes.get(&parent).is_some_and(|record| record.is_directory() && record.links > 0) {
            seen.problem(format!("i{parent} has entries and is no directory"));
        }
        let Some(record) = seen.inodes.get(&entry.inode).cloned() else {
            seen.problem(format!("an entry of i{parent} names i{}, which is missing", entry.inode));
            return Ok(());
        };
        if record.kind != entry.kind {
            seen.problem(format!("i{} has another kind than its entry", entry.inode));
        }
        if record.is_directory() {
            *seen.subdirectories.entry(parent).or_default() += 1;
            if record.parent != parent {
                seen.problem(format!("i{} takes i{} for its parent", entry.inode, record.parent));
            }
        }
        Ok(())
    })
}

fn check_links(service: &MetaService, seen: &mut Seen) -> Outcome<()> {
    for (id, record) in seen.inodes.clone() {
        let names = seen.names.get(&id).copied().unwrap_or(0) + u32::from(id == ROOT.0);
        if record.links != names {
            seen.problem(format!("i{id} counts {} links and has {names} names", record.links));
        }
        let (stored, _) = service.transact(None, |context| {
            let count: Option<NumberRecord> =
                context.read(&keys::subdirectories(InodeId(id)), "count of subdirectories")?;
            let orphan = context.exists(&keys::orphan(InodeId(id)))?;
            let times = context.exists(&keys::times(InodeId(id)))?;
            let names = crate::ops::xattr::names(context, InodeId(id))?;
            Ok((count.map_or(0, |count| count.value), orphan, times, names))
        })?;
        let (count, orphan, times, names) = stored?;
        if count != seen.subdirectories.get(&id).copied().unwrap_or(0) {
            seen.problem(format!("i{id} counts {count} subdirectories"));
        }
        if orphan != (record.links == 0) {
            seen.problem(format!("i{id} has {} links and orphan record: {orphan}", record.links));
        }
        if times != record.is_directory() {
            seen.problem(format!("i{id} has directory times: {times}"));
        }
        if names.iter().map(|name| name.len() + 1).sum::<usize>() != record.xattr_names_bytes as usize {
            seen.problem(format!("i{id} miscounts its extended attributes"));
        }
    }
    Ok(())
}

fn check_orphans(service: &MetaService, seen: &mut Seen) -> Outcome<()> {
    let mut expected: BTreeSet<(u64, u64)> = BTreeSet::new();
    each(service, keys::orphans(), |key, value| {
        let id = number(key, 0)?;
        let orphan = OrphanRecord::decode(value).map_err(|e| broken("orphan", &e))?;
        seen.checked.orphans += 1;
        if !seen.inodes.contains_key(&id) || orphan.sessions.is_empty() {
            seen.problem(format!("orphan i{id} with {} sessions", orphan.sessions.len()));
        }
        expected.extend(orphan.sessions.iter().map(|&session| (session, id)));
        Ok(())
    })?;
    let mut asked: BTreeSet<(u64, u64)> = BTreeSet::new();
    each(service, keys::all_asked(), |key, _| {
        asked.insert((number(key, 0)?, number(key, 1)?));
        Ok(())
    })?;
    if asked != expected {
        let text = format!("orphans and sessions disagree: {:?}", asked.symmetric_difference(&expected));
        seen.problem(text);
    }
    for (session, id) in asked {
        let (there, _) =
            service.transact(None, |context| context.exists(&keys::session(SessionId(session))))?;
        if !there? {
            seen.problem(format!("orphan i{id} waits for a session that is gone"));
        }
    }
    Ok(())
}

fn check_sessions(service: &MetaService, seen: &mut Seen) -> Outcome<()> {
    let (sessions, _) = service.transact(None, crate::sessions::load)?;
    let sessions: BTreeSet<u64> = sessions?.into_iter().map(|session| session.0).collect();
    each(service, keys::all_replies(), |key, _| {
        let session = number(key, 0)?;
        if !sessions.contains(&session) {
            seen.problem(format!("a reply slot of session s{session}, which is gone"));
        }
        Ok(())
    })
}

fn check_reclaims(service: &MetaService, seen: &mut Seen) -> Outcome<()> {
    each(service, keys::reclaims(), |key, _| {
        let (id, generation) = (number(key, 0)?, number(key, 1)?);
        let live = seen.inodes.get(&id).and_then(|record| record.layout.as_ref());
        if live.is_some_and(|layout| u64::from(layout.generation) == generation) {
            seen.problem(format!("objects of i{id}.{generation} are in use and to be removed"));
        }
        Ok(())
    })
}

/// Each placement group is one that the rule of its members could have made, and each slot of a layout has one.
fn check_groups(service: &MetaService, seen: &mut Seen) -> Outcome<()> {
    let (processes, mut known) = (processes(service)?, BTreeSet::new());
    let (read, _) = service.transact(None, |context| {
        let membership: Option<MembershipRecord> = context.read(keys::MEMBERSHIP, "membership")?;
        let volume: Option<VolumeRecord> = context.read(keys::VOLUME, "volume")?;
        Ok((membership.map_or(0, |record| record.groups), volume.map_or(0, |volume| volume.schema)))
    })?;
    let (made, schema) = read?;
    each(service, keys::groups(), |key, value| {
        let record = GroupRecord::decode(value).map_err(|e| broken("placement group", &e))?;
        let id = number(key, 0)?;
        known.insert(id);
        let first = u64::from(GroupId::FIRST);
        if !(first..first + u64::from(made)).contains(&id) {
            seen.problem(format!("placement group {id} is none of the {made} that were made"));
        }
        let group = GroupId(u32::try_from(id).unwrap_or(u32::MAX));
        let membership = match groups::group(group, &record) {
            Ok(group) => group.membership,
            Err(fault) => {
                seen.problem(fault.detail);
                return Ok(());
            }
        };
        if schema < service::schema_of_groups(!membership.is_plain()) {
            seen.problem(format!("placement group {id} has a record that schema {schema} does not have"));
        }
        for member in &membership.members {
            let target = member.target;
            match processes.get(&u64::from(target.0)) {
                None => {
                    seen.problem(format!("placement group {id} has the member {target}, which is missing"))
                }
                Some(last) if member.run > *last => seen.problem(format!(
                    "placement group {id} has process {} of {target}, of which {last} is the latest",
                    member.run
                )),
                Some(_) => {}
            }
        }
        Ok(())
    })?;
    for (id, record) in seen.inodes.clone() {
        let named = record.layout.iter().flat_map(|layout| &layout.groups).map(|group| GroupId(*group));
        let missing = named.filter(|group| group.target().is_none() && !known.contains(&u64::from(group.0)));
        for group in missing {
            seen.problem(format!("i{id} has objects in the placement group {group}, which is missing"));
        }
    }
    Ok(())
}

/// All targets, with the latest process that was given leave to serve each.
fn processes(service: &MetaService) -> Outcome<BTreeMap<u64, u64>> {
    let mut found = BTreeMap::new();
    each(service, keys::targets(), |key, value| {
        let record = TargetRecord::decode(value).map_err(|e| broken("target", &e))?;
        found.insert(number(key, 0)?, record.process);
        Ok(())
    })?;
    Ok(found)
}
