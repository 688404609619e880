//! What an operation works with: its transaction, seen through the records of the schema.

use crate::engine::{Commit, EngineResult, Pair, Transaction};
use crate::part::invalidation_hub::{Asker, Changed};
use crate::part::opens::InodeGuard;
use crate::schema::keys;
use crate::schema::records::{DirectoryTimes, EntryRecord, InodeRecord, NumberRecord, TimeRecord};
use crate::service::MetaService;
use crate::service::fault::{Outcome, damage_fault, inode_fault, name_fault};
use prost::Message;
use std::collections::BTreeMap;
use std::ops::Range;
use vazao_model::{Code, InodeId, Name, SessionId, Timestamp, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Unit of `allocated_bytes`, as `st_blocks` counts.
const ALLOCATION_BYTES: u64 = 512;

/// Inodes are read in one pass where at least one in so many of those between is wanted: each of the others costs a
/// step, and the reading of up to [`limits::INLINE_BYTES_MAX`] that were not asked for.
const CLOSE_INODES: u64 = 4;

/// One run of one operation.
pub(crate) struct Context<'a> {
    transaction: Box<dyn Transaction + 'a>,
    /// Lock on the inode's share of opens, held until the transaction is over.
    turn: Option<InodeGuard<'a>>,
    /// The service it runs in.
    pub(crate) service: &'a MetaService,
    /// Time of all changes of this operation.
    pub(crate) now: Timestamp,
    now_ns: u64,
    /// The session of the request, where known.
    pub(crate) caller: Option<SessionId>,
    /// Its seat, when it caches the answer.
    pub(crate) seat: u32,
    changed: Vec<Changed>,
    /// Inodes that came into being, less those that ended.
    pub(crate) inodes_delta: i64,
    /// It has written something.
    pub(crate) wrote: bool,
    /// Refused for want of room: such answers are not kept for repetitions, since keeping them takes room as well.
    pub(crate) no_room: bool,
    /// The answer must not leave before the change is durable.
    pub(crate) answer_when_durable: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn begin(service: &'a MetaService, caller: Option<SessionId>) -> Context<'a> {
        let now_ns = service.stamp_ns();
        let now = Timestamp {
            seconds: (now_ns / 1_000_000_000) as i64,
            nanoseconds: (now_ns % 1_000_000_000) as u32,
        };
        let transaction = service.engine().begin();
        Context {
            transaction,
            turn: None,
            service,
            now,
            now_ns,
            caller,
            seat: 0,
            changed: Vec::new(),
            inodes_delta: 0,
            wrote: false,
            no_room: false,
            answer_when_durable: false,
        }
    }

    // ---- records in general ----

    pub(crate) fn read<R: Message + Default>(&mut self, key: &[u8], what: &str) -> Outcome<Option<R>> {
        self.get(key)?.map(|bytes| decode(&bytes, || what.to_owned())).transpose()
    }

    /// Reads a key; an error names the record.
    fn get(&mut self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        self.transaction.get(key).map_err(|error| damage_fault(error, key))
    }

    pub(crate) fn exists(&mut self, key: &[u8]) -> Outcome<bool> {
        Ok(self.get(key)?.is_some())
    }

    pub(crate) fn raw(&mut self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        self.get(key)
    }

    /// Asks for room, before something is added. `NoSpace` when only the reserve is left.
    pub(crate) fn grow(&mut self) -> Outcome<()> {
        let room = self.service.engine().room();
        self.no_room = room.is_err();
        Ok(room?)
    }

    pub(crate) fn write(&mut self, key: Vec<u8>, record: &impl Message) {
        self.wrote = true;
        self.transaction.put(key, record.encode_to_vec());
    }

    pub(crate) fn write_raw(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.wrote = true;
        self.transaction.put(key, value);
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.wrote = true;
        self.transaction.delete(key);
    }

    pub(crate) fn scan(&mut self, range: &Range<Vec<u8>>, limit: usize) -> Outcome<Vec<Pair>> {
        let pairs = self.transaction.scan(&range.start, &range.end, limit);
        pairs.map_err(|error| damage_fault(error, &range.start))
    }

    /// [`Context::scan`] without copies; returns how many pairs there were.
    pub(crate) fn visit(
        &mut self,
        range: &Range<Vec<u8>>,
        limit: usize,
        take: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Outcome<usize> {
        let count = self.transaction.visit(&range.start, &range.end, limit, take);
        count.map_err(|error| damage_fault(error, &range.start))
    }

    /// Discards the writes and keeps the read set.
    pub(crate) fn discard_writes(&mut self) {
        self.transaction.discard_writes();
        self.changed.clear();
        self.wrote = false;
        self.inodes_delta = 0;
        self.answer_when_durable = false;
    }

    /// Ends the transaction; `None`: the engine is behind, nothing has changed. Its lock is gone by then.
    pub(crate) fn commit(self) -> EngineResult<Option<Commit>> {
        let (service, delta, asker) = (self.service, self.inodes_delta, self.asker());
        let outcome = self.transaction.commit_unless_behind()?;
        if matches!(outcome, Some(Commit::Done(_))) {
            service.count_inodes(delta);
            service.part().invalidations.publish(asker, service.names(), self.changed);
        }
        Ok(outcome)
    }

    // ---- opens of other sessions ----

    /// The answer lets a session open a file: a transaction that ends the file has to ask that session first. One
    /// operation opens or ends one inode.
    pub(crate) fn opens(&mut self, session: SessionId, id: InodeId) {
        let service = self.service;
        self.turn = Some(service.part().opens.opens(session, id));
    }

    /// Which of the sessions, which are sorted, may have an inode open that is about to lose its last name.
    pub(crate) fn may_hold(&mut self, id: InodeId, sessions: &[SessionId]) -> Vec<SessionId> {
        let service = self.service;
        let (turn, holders) = service.part().opens.ends(id, sessions);
        self.turn = Some(turn);
        holders
    }

    // ---- caches of other sessions ----

    fn asker(&self) -> Asker {
        Asker { session: self.caller, seat: self.seat }
    }

    /// The answer will show where a name leads, or that it leads nowhere.
    pub(crate) fn shows_entry(&self, parent: InodeId, name: &[u8]) {
        self.service.part().invalidations.note_entry(self.asker(), self.service.names(), parent, name);
    }

    /// Invalidates a file's contents.
    pub(crate) fn contents_changed(&mut self, id: InodeId) {
        self.changed.push(Changed::Contents(id));
    }

    /// Invalidates an inode's attributes: they have changed, or it is gone.
    pub(crate) fn attributes_changed(&mut self, id: InodeId) {
        self.changed.push(Changed::Attributes(id));
    }

    // ---- inodes ----

    pub(crate) fn find_inode(&mut self, id: InodeId) -> Outcome<Option<InodeRecord>> {
        let bytes = self.get(&keys::inode(id))?;
        bytes.map(|bytes| inode_record(id, &bytes)).transpose()
    }

    /// An inode referred to by number; `Stale` when it does not exist any more.
    pub(crate) fn inode(&mut self, id: InodeId) -> Outcome<InodeRecord> {
        self.find_inode(id)?.ok_or_else(|| inode_fault(Code::Stale, id))
    }

    /// A directory that still has its name.
    pub(crate) fn directory(&mut self, id: InodeId) -> Outcome<InodeRecord> {
        let missing = || Fault::new(Code::NotFound, format!("directory {id}"));
        let record = self.find_inode(id)?.ok_or_else(missing)?;
        if !record.is_directory() {
            return Err(inode_fault(Code::NotDirectory, id));
        }
        if record.links == 0 { Err(missing()) } else { Ok(record) }
    }

    pub(crate) fn put_inode(&mut self, id: InodeId, record: &InodeRecord) {
        self.attributes_changed(id);
        self.write(keys::inode(id), record);
    }

    /// Marks a change of attributes.
    pub(crate) fn touch(&self, record: &mut InodeRecord) {
        record.changed = Some(self.now.into());
        record.version += 1;
    }

    // ---- entries ----

    pub(crate) fn entry(&mut self, parent: InodeId, name: &[u8]) -> Outcome<Option<EntryRecord>> {
        let key = self.service.names().entry_key(parent, name);
        let bytes = self.get(&key)?;
        bytes.map(|bytes| decode(&bytes, || format!("entry of directory {parent}"))).transpose()
    }

    pub(crate) fn put_entry(&mut self, parent: InodeId, name: &[u8], entry: &EntryRecord) {
        let key = self.service.names().entry_key(parent, name);
        self.changed.push(Changed::Entry(parent, name.to_vec()));
        self.write(key, entry);
    }

    pub(crate) fn delete_entry(&mut self, parent: InodeId, name: &[u8]) {
        let key = self.service.names().entry_key(parent, name);
        self.changed.push(Changed::Entry(parent, name.to_vec()));
        self.delete(key);
    }

    /// The inode that one component of a path leads to, `.` and `..` included.
    pub(crate) fn step(&mut self, parent: InodeId, name: &[u8]) -> Outcome<InodeId> {
        match name {
            b"." => self.directory(parent).map(|_| parent),
            b".." => self.directory(parent).map(|record| InodeId(record.parent)),
            name => {
                if let Some(entry) = self.entry(parent, name)? {
                    return Ok(InodeId(entry.inode));
                }
                self.directory(parent)?;
                checked_name(parent, name)?;
                Err(name_fault(Code::NotFound, parent, name))
            }
        }
    }

    /// The inode that an entry names.
    pub(crate) fn named_inode(&mut self, id: InodeId) -> Outcome<InodeRecord> {
        self.find_inode(id)?
            .ok_or_else(|| Fault::new(Code::Corrupt, format!("an entry names inode {id}, which is missing")))
    }

    /// True when the directory has no entries.
    pub(crate) fn is_empty(&mut self, directory: InodeId) -> Outcome<bool> {
        Ok(self.scan(&keys::entries(directory), 1)?.is_empty())
    }

    // ---- directories ----

    /// Notes a change of the directory's entries as a blind put: concurrent creates in one directory do not conflict
    /// here.
    pub(crate) fn touch_directory(&mut self, directory: InodeId) {
        let now: TimeRecord = self.now.into();
        self.put_times(directory, now, now);
    }

    pub(crate) fn put_times(&mut self, directory: InodeId, modified: TimeRecord, changed: TimeRecord) {
        let times = DirectoryTimes { modified: Some(modified), changed: Some(changed), version: self.now_ns };
        self.attributes_changed(directory);
        self.write(keys::times(directory), &times);
    }

    pub(crate) fn subdirectories(&mut self, directory: InodeId) -> Outcome<u64> {
        let key = keys::subdirectories(directory);
        let record = self.read::<NumberRecord>(&key, "count of subdirectories")?;
        Ok(record.map_or(0, |record| record.value))
    }

    /// Changes the number of subdirectories. `TooManyLinks` beyond the limit.
    pub(crate) fn add_subdirectories(&mut self, directory: InodeId, delta: i64) -> Outcome<()> {
        if delta == 0 {
            return Ok(());
        }
        let present = self.subdirectories(directory)?;
        let value = present.checked_add_signed(delta).ok_or_else(|| {
            Fault::new(Code::Corrupt, format!("directory {directory}: {present} subdirectories and {delta}"))
        })?;
        if delta > 0 && value + 2 > u64::from(limits::LINKS_MAX) {
            return Err(Fault::new(Code::TooManyLinks, format!("subdirectories of directory {directory}")));
        }
        self.write(keys::subdirectories(directory), &NumberRecord { value });
        Ok(())
    }

    // ---- messages ----

    pub(crate) fn attributes(&mut self, id: InodeId, record: &InodeRecord) -> Outcome<proto::Attributes> {
        self.service.part().invalidations.note_inode(self.asker(), id);
        let mut attributes = attributes_in(id, record);
        if record.is_directory() {
            self.add_directory_attributes(id, record, &mut attributes)?;
        }
        Ok(attributes)
    }

    /// Attributes of the inodes with these numbers, which ascend; those that are missing are left out. For an operation
    /// that has written nothing.
    pub(crate) fn attributes_of(&mut self, ids: &[InodeId]) -> Outcome<BTreeMap<InodeId, proto::Attributes>> {
        let span = ids.last().zip(ids.first()).map_or(0, |(last, first)| last.0 - first.0);
        if span / CLOSE_INODES > ids.len() as u64 {
            return self.attributes_one_by_one(ids);
        }
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| keys::inode(*id)).collect();
        let (mut found, mut directories, mut fault) = (BTreeMap::new(), Vec::new(), None);
        let read =
            self.transaction.visit_keys(&keys, &mut |index, value| match inode_record(ids[index], value) {
                Ok(record) if record.is_directory() => directories.push((ids[index], record)),
                Ok(record) => drop(found.insert(ids[index], attributes_in(ids[index], &record))),
                Err(broken) => fault = Some(broken),
            });
        if read.is_err() || fault.is_some() {
            // What lies between them may be damaged, and is not asked for. What is broken itself is named there.
            return self.attributes_one_by_one(ids);
        }
        found.keys().for_each(|id| self.service.part().invalidations.note_inode(self.asker(), *id));
        for (id, record) in directories {
            found.insert(id, self.attributes(id, &record)?);
        }
        Ok(found)
    }

    fn attributes_one_by_one(&mut self, ids: &[InodeId]) -> Outcome<BTreeMap<InodeId, proto::Attributes>> {
        let mut found = BTreeMap::new();
        for id in ids {
            if let Some(record) = self.find_inode(*id)? {
                found.insert(*id, self.attributes(*id, &record)?);
            }
        }
        Ok(found)
    }

    fn add_directory_attributes(
        &mut self,
        id: InodeId,
        record: &InodeRecord,
        attributes: &mut proto::Attributes,
    ) -> Outcome<()> {
        let times =
            self.read::<DirectoryTimes>(&keys::times(id), "times of a directory")?.unwrap_or_default();
        attributes.modified = Some(times.modified.unwrap_or_default().into());
        let changed = |t: Option<TimeRecord>| t.map(|t| (t.seconds, t.nanoseconds));
        if changed(times.changed) > changed(record.changed) {
            attributes.changed = times.changed.map(Into::into);
        }
        attributes.version = times.version.saturating_add(record.version);
        if record.links > 0 {
            attributes.links = u32::try_from(self.subdirectories(id)? + 2).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    pub(crate) fn inode_message(&mut self, id: InodeId, record: &InodeRecord) -> Outcome<proto::Inode> {
        Ok(proto::Inode {
            attributes: Some(self.attributes(id, record)?),
            layout: record.layout.as_ref().map(Into::into),
            contents: None,
            start: self.service.start(),
            unwritten: record.unwritten.iter().map(Into::into).collect(),
        })
    }

    /// The same with inline contents or a link's target.
    pub(crate) fn inode_with_contents(&mut self, id: InodeId, record: InodeRecord) -> Outcome<proto::Inode> {
        let mut message = self.inode_message(id, &record)?;
        // A file with a layout has no contents to show, not empty ones.
        let inline = record.layout.is_none();
        message.contents = (inline && !record.is_directory()).then_some(record.contents);
        Ok(message)
    }
}

/// Checks a name that is about to be looked up or created.
pub(crate) fn checked_name(parent: InodeId, name: &[u8]) -> Outcome<&[u8]> {
    Name::new(name).map(|name| name.as_bytes()).map_err(|code| name_fault(code, parent, name))
}

fn inode_record(id: InodeId, bytes: &[u8]) -> Outcome<InodeRecord> {
    let record: InodeRecord = decode(bytes, || format!("record of inode {id}"))?;
    Ok(record.without_half_moved_contents())
}

fn decode<R: Message + Default>(bytes: &[u8], what: impl FnOnce() -> String) -> Outcome<R> {
    R::decode(bytes).map_err(|e| Fault::new(Code::Corrupt, format!("{}: {e}", what())))
}

/// Attributes as far as the inode's own record has them: a directory's are in others, too.
fn attributes_in(id: InodeId, record: &InodeRecord) -> proto::Attributes {
    let time = |t: Option<TimeRecord>| Some(t.unwrap_or_default().into());
    proto::Attributes {
        inode: id.0,
        kind: record.kind,
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
        size: record.size,
        allocated_bytes: allocated_bytes(record),
        links: record.links,
        device: record.device,
        accessed: time(record.accessed),
        modified: time(record.modified),
        changed: time(record.changed),
        version: record.version,
        without_xattrs: record.xattr_names_bytes == 0,
    }
}

/// For files with holes, the bytes that writers have reported; for others, the size. The data servers are not asked.
fn allocated_bytes(record: &InodeRecord) -> u64 {
    let bytes = match &record.layout {
        Some(_) => record.allocated_bytes.unwrap_or(record.size),
        None => record.contents.len() as u64,
    };
    bytes.checked_next_multiple_of(ALLOCATION_BYTES).unwrap_or(bytes)
}
