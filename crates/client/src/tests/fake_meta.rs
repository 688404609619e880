//! A metadata service small enough to be obviously right: one lock, maps in memory.

use parking_lot::Mutex;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use vazao_model::distribution::Distribution;
use vazao_model::{Code, Extents, GroupId, Layout};
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::{Method, proto};

pub(super) const META: &str = "meta:1";

#[derive(Clone, Default)]
pub(super) struct FakeInode {
    pub(super) attributes: proto::Attributes,
    pub(super) layout: Option<proto::Layout>,
    pub(super) contents: Vec<u8>,
    pub(super) unwritten: Extents,
    generation: u32,
}

pub(super) struct MetaState {
    pub(super) inodes: HashMap<u64, FakeInode>,
    entries: BTreeMap<(u64, Vec<u8>), u64>,
    /// By session and slot: the last sequence and its answer.
    replies: HashMap<(u64, u32), (u64, Answer)>,
    sessions: HashSet<u64>,
    next: u64,
    pub(super) counts: HashMap<Method, usize>,
    /// Requests executed, repetitions not counted.
    pub(super) executed: HashMap<Method, usize>,
    pub(super) map: proto::ClusterMap,
    pub(super) distribution: Distribution,
    pub(super) held: BTreeSet<u64>,
    pub(super) not_held: BTreeSet<u64>,
    pub(super) released: BTreeSet<u64>,
    pub(super) last_held_inode: u64,
    pub(super) synced_commits: usize,
    /// So many opens come just after somebody else replaced the file.
    pub(super) replaced_before_open: usize,
    /// Counters of clients are wanted.
    pub(super) is_watched: bool,
    /// Under which names they were told.
    pub(super) reports: Vec<String>,
    /// Of the service; another one when it has lost power.
    pub(super) start: u32,
}

pub(super) struct FakeMeta {
    pub(super) state: Mutex<MetaState>,
    /// What happens once, right before the next request of a kind is carried out.
    pub(super) before: Mutex<Option<Before>>,
}

type Answer = Result<Vec<u8>, Fault>;

pub(super) type Before = (Method, Box<dyn FnOnce() + Send>);

fn not_found(what: impl ToString) -> Fault {
    Fault::new(Code::NotFound, what.to_string())
}

impl FakeMeta {
    pub(super) fn new(map: proto::ClusterMap, distribution: Distribution) -> FakeMeta {
        let mut state = MetaState {
            map,
            distribution,
            next: 100,
            inodes: HashMap::new(),
            entries: BTreeMap::new(),
            replies: HashMap::new(),
            sessions: HashSet::new(),
            counts: HashMap::new(),
            executed: HashMap::new(),
            held: BTreeSet::new(),
            not_held: BTreeSet::new(),
            released: BTreeSet::new(),
            last_held_inode: 0,
            synced_commits: 0,
            replaced_before_open: 0,
            is_watched: false,
            reports: Vec::new(),
            start: 1,
        };
        let attributes = proto::Attributes { inode: 1, kind: 2, links: 2, ..Default::default() };
        state.inodes.insert(1, FakeInode { attributes, ..FakeInode::default() });
        FakeMeta { state: Mutex::new(state), before: Mutex::default() }
    }

    pub(super) fn count(&self, method: Method) -> usize {
        self.state.lock().counts.get(&method).copied().unwrap_or(0)
    }

    pub(super) fn total(&self) -> usize {
        self.state.lock().counts.values().sum()
    }

    pub(super) fn inode(&self, inode: u64) -> FakeInode {
        self.state.lock().inodes[&inode].clone()
    }

    pub(super) fn forget_sessions(&self) {
        let mut state = self.state.lock();
        state.sessions.clear();
        state.replies.clear();
    }
}

fn once_of(request: &Request<'_>) -> Option<proto::Once> {
    macro_rules! once {
        ($($method:ident: $message:ident),*) => {
            match request.method {
                $(Method::$method => proto::$message::decode(request.message).unwrap().once,)*
                _ => None,
            }
        };
    }
    once!(
        SetAttributes: SetAttributesRequest, Open: OpenRequest, Create: CreateRequest, Link: LinkRequest,
        Unlink: UnlinkRequest, Rename: RenameRequest, AssignLayout: AssignLayoutRequest, Commit: CommitRequest
    )
}

impl Service for FakeMeta {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let due = self.before.lock().take_if(|(method, _)| *method == request.method);
        if let Some((_, hook)) = due {
            hook();
        }
        let mut state = self.state.lock();
        *state.counts.entry(request.method).or_default() += 1;
        let once = once_of(&request);
        if let Some(once) = &once {
            if !state.sessions.contains(&once.session) {
                return responder.fail(&Code::SessionExpired.into());
            }
            if let Some((sequence, answer)) = state.replies.get(&(once.session, once.slot)) {
                assert!(once.sequence >= *sequence, "a slot goes back");
                if once.sequence == *sequence {
                    return respond(responder, answer.clone());
                }
            }
        }
        *state.executed.entry(request.method).or_default() += 1;
        let answer = state.execute(&request);
        if let Some(once) = once {
            state.replies.insert((once.session, once.slot), (once.sequence, answer.clone()));
        }
        respond(responder, answer);
    }
}

fn respond(responder: &mut dyn Responder, answer: Answer) {
    match answer {
        Ok(message) => responder.reply(&message),
        Err(fault) => responder.fail(&fault),
    }
}

impl FakeInode {
    /// Of what it grows by only `written` is.
    fn grow(&mut self, size: u64, written: &[proto::Extent]) {
        if self.layout.is_some() {
            self.unwritten.add(self.attributes.size..size);
            written.iter().for_each(|extent| self.unwritten.remove(&extent.into()));
        }
        self.attributes.size = self.attributes.size.max(size);
    }
}

impl MetaState {
    fn execute(&mut self, request: &Request<'_>) -> Answer {
        macro_rules! dispatch {
            ($($method:ident => $function:ident),* $(,)?) => {
                match request.method {
                    $(Method::$method => {
                        self.$function(Message::decode(request.message).unwrap()).map(|r| r.encode_to_vec())
                    })*
                    other => Err(Fault::new(Code::Unsupported, other.name())),
                }
            };
        }
        dispatch!(
            OpenSession => open_session, RenewSession => renew, CloseSession => close_session,
            GetClusterMap => get_map, Lookup => lookup, Resolve => resolve, GetAttributes => get_attributes,
            Open => open, SetAttributes => set_attributes, Create => create, Unlink => unlink,
            AssignLayout => assign, Commit => commit, Release => release, List => list,
            SetLock => set_lock, ReclaimLocks => reclaim_locks,
        )
    }

    fn set_lock(&mut self, r: proto::SetLockRequest) -> Result<proto::SetLockResponse, Fault> {
        if !self.sessions.contains(&r.session) {
            return Err(Code::SessionExpired.into());
        }
        let inode = r.lock.map_or(0, |lock| lock.inode);
        let version = self.inodes.get(&inode).map_or(0, |inode| inode.attributes.version);
        Ok(proto::SetLockResponse { version, ..Default::default() })
    }

    /// Somebody else has got all of them.
    fn reclaim_locks(&mut self, r: proto::ReclaimLocksRequest) -> Result<proto::ReclaimLocksResponse, Fault> {
        Ok(proto::ReclaimLocksResponse { lost: (0..r.locks.len() as u32).collect() })
    }

    fn open_session(&mut self, _: proto::OpenSessionRequest) -> Result<proto::OpenSessionResponse, Fault> {
        self.next += 1;
        self.sessions.insert(self.next);
        Ok(proto::OpenSessionResponse {
            lines: Vec::new(),
            session: self.next,
            lease_ms: 1000,
            slots: 4,
            map: Some(self.map.clone()),
            volume_layout: None,
            zone: String::new(),
        })
    }

    fn renew(&mut self, r: proto::RenewSessionRequest) -> Result<proto::RenewSessionResponse, Fault> {
        if !self.sessions.contains(&r.session) {
            return Err(Code::SessionExpired.into());
        }
        self.held.extend(r.held);
        self.not_held.extend(r.not_held);
        let unlinked = self.inodes.iter().filter(|(_, inode)| inode.attributes.links == 0);
        let orphans = unlinked.map(|(id, _)| *id).filter(|id| !self.not_held.contains(id)).collect();
        let map = Some(self.map.clone());
        self.reports.extend(r.measures.map(|measures| measures.name));
        Ok(proto::RenewSessionResponse {
            map,
            orphans,
            report_measures: self.is_watched,
            ..Default::default()
        })
    }

    fn close_session(&mut self, r: proto::CloseSessionRequest) -> Result<proto::CloseSessionResponse, Fault> {
        self.sessions.remove(&r.session);
        Ok(proto::CloseSessionResponse {})
    }

    fn get_map(&mut self, _: proto::GetClusterMapRequest) -> Result<proto::GetClusterMapResponse, Fault> {
        Ok(proto::GetClusterMapResponse { map: Some(self.map.clone()) })
    }

    fn show(&self, inode: u64, with_contents: bool) -> Result<Option<proto::Inode>, Fault> {
        let found = self.inodes.get(&inode).ok_or_else(|| not_found(inode))?;
        let is_link = found.attributes.kind == 3;
        let shows = is_link || (with_contents && found.layout.is_none());
        Ok(Some(proto::Inode {
            attributes: Some(found.attributes),
            layout: found.layout.clone(),
            contents: shows.then(|| found.contents.clone()),
            start: self.start,
            unwritten: found.unwritten.iter().map(Into::into).collect(),
        }))
    }

    fn step(&self, parent: u64, name: &[u8]) -> Result<u64, Fault> {
        if name == b".." {
            let above = self.entries.iter().find(|(_, inode)| **inode == parent);
            return Ok(above.map_or(1, |((above, _), _)| *above));
        }
        let found = self.entries.get(&(parent, name.to_vec())).copied();
        found.ok_or_else(|| not_found(String::from_utf8_lossy(name)))
    }

    fn lookup(&mut self, r: proto::LookupRequest) -> Result<proto::LookupResponse, Fault> {
        let inode = self.step(r.parent, &r.name)?;
        Ok(proto::LookupResponse { inode: self.show(inode, false)? })
    }

    fn resolve(&mut self, r: proto::ResolveRequest) -> Result<proto::ResolveResponse, Fault> {
        let (mut at, mut parent, mut walked) = (r.start, r.start, 0);
        for component in &r.components {
            let kind = self.inodes[&at].attributes.kind;
            if kind == 3 {
                break;
            }
            if kind != 2 {
                return Err(Code::NotDirectory.into());
            }
            (parent, at) = (at, self.step(at, component)?);
            walked += 1;
        }
        Ok(proto::ResolveResponse { inode: self.show(at, false)?, walked, parent })
    }

    fn get_attributes(
        &mut self,
        r: proto::GetAttributesRequest,
    ) -> Result<proto::GetAttributesResponse, Fault> {
        Ok(proto::GetAttributesResponse { inode: self.show(r.inode, false)? })
    }

    fn change(&mut self, inode: u64) -> Result<&mut FakeInode, Fault> {
        let found = self.inodes.get_mut(&inode).ok_or_else(|| not_found(inode))?;
        found.attributes.version += 1;
        Ok(found)
    }

    fn open(&mut self, r: proto::OpenRequest) -> Result<proto::OpenResponse, Fault> {
        if self.replaced_before_open > 0 {
            self.replaced_before_open -= 1;
            let mut other = self.inodes.remove(&r.inode).ok_or_else(|| not_found(r.inode))?;
            self.next += 1;
            other.attributes.inode = self.next;
            self.entries.values_mut().filter(|inode| **inode == r.inode).for_each(|inode| *inode = self.next);
            self.inodes.insert(self.next, other);
            return Err(Code::Stale.into());
        }
        if r.truncate {
            let found = self.change(r.inode)?;
            (found.layout, found.attributes.size) = (None, 0);
            found.unwritten = Extents::default();
            found.contents.clear();
        }
        Ok(proto::OpenResponse { inode: self.show(r.inode, true)? })
    }

    fn set_attributes(
        &mut self,
        r: proto::SetAttributesRequest,
    ) -> Result<proto::SetAttributesResponse, Fault> {
        let found = self.change(r.inode)?;
        found.attributes.mode = r.mode.unwrap_or(found.attributes.mode);
        found.attributes.modified = r.modified.or(found.attributes.modified);
        if let Some(size) = r.size {
            assert!(size > 0, "the client empties files by opening them");
            found.grow(size, &[]);
            found.unwritten.cut(size);
            found.attributes.size = size;
            found.contents.truncate(size as usize);
        }
        Ok(proto::SetAttributesResponse { inode: self.show(r.inode, false)? })
    }

    fn create(&mut self, r: proto::CreateRequest) -> Result<proto::CreateResponse, Fault> {
        if let Some(&there) = self.entries.get(&(r.parent, r.name.clone())) {
            if r.exclusive {
                return Err(Code::Exists.into());
            }
            return Ok(proto::CreateResponse {
                inode: self.show(there, true)?,
                created: false,
                parent_changed: None,
            });
        }
        self.next += 1;
        let inode = self.next;
        let size = r.contents.len() as u64;
        let attributes = proto::Attributes {
            inode,
            kind: r.kind,
            mode: r.mode,
            size,
            links: 1,
            version: 1,
            ..Default::default()
        };
        self.inodes.insert(inode, FakeInode { attributes, contents: r.contents, ..FakeInode::default() });
        self.entries.insert((r.parent, r.name), inode);
        Ok(proto::CreateResponse { inode: self.show(inode, false)?, created: true, parent_changed: None })
    }

    fn unlink(&mut self, r: proto::UnlinkRequest) -> Result<proto::UnlinkResponse, Fault> {
        let inode = self.entries.remove(&(r.parent, r.name)).ok_or_else(|| not_found("name"))?;
        self.last_held_inode = r.held_inode;
        let found = self.change(inode)?;
        found.attributes.links -= 1;
        Ok(proto::UnlinkResponse { inode, links: found.attributes.links, parent_changed: None })
    }

    fn assign(&mut self, r: proto::AssignLayoutRequest) -> Result<proto::AssignLayoutResponse, Fault> {
        let distribution = self.distribution.clone();
        let width = match &distribution {
            Distribution::VaryingStrips(strips) => strips.width() as usize,
            Distribution::Local { .. } => 1,
            _ if self.map.groups.iter().any(|group| group.members.len() > 1) => self.map.groups.len(),
            _ => self.map.targets.len(),
        };
        // Every other target is named by a group that it is alone in.
        let group_of = |target: &proto::Target| {
            let group = self.map.groups.iter().find(|group| group.members == [target.id]);
            GroupId(group.map_or(target.id, |group| group.id))
        };
        let several: Vec<&proto::Group> = self.map.groups.iter().filter(|g| g.members.len() > 1).collect();
        let groups: Vec<GroupId> = match several.is_empty() {
            true => self.map.targets.iter().map(group_of).cycle().take(width).collect(),
            false => several.iter().map(|group| GroupId(group.id)).cycle().take(width).collect(),
        };
        let found = self.inodes.get_mut(&r.inode).ok_or_else(|| not_found(r.inode))?;
        let version = found.attributes.version;
        if let Some(copied) = r.copied.filter(|copied| found.layout.is_none() && copied.version == version) {
            let written = found.contents.len() as u64;
            (found.layout, found.contents) = (copied.layout, Vec::new());
            found.unwritten = std::iter::once(written..found.attributes.size).collect();
            found.attributes.version += 1;
        }
        if found.layout.is_some() {
            let layout = found.layout.clone();
            return Ok(proto::AssignLayoutResponse { layout, contents: None, version });
        }
        found.generation += 1;
        let layout = Layout::new(found.generation, distribution, groups).unwrap();
        let layout = Some(proto::Layout::from(&layout));
        if found.contents.is_empty() {
            found.layout = layout.clone();
            found.unwritten = std::iter::once(0..found.attributes.size).collect();
            found.attributes.version += 1;
            return Ok(proto::AssignLayoutResponse { layout, contents: None, version });
        }
        Ok(proto::AssignLayoutResponse { layout, contents: Some(found.contents.clone()), version })
    }

    fn commit(&mut self, r: proto::CommitRequest) -> Result<proto::CommitResponse, Fault> {
        self.synced_commits += usize::from(r.sync);
        let is_change = r.modified.is_some() || r.written_slots != 0 || !r.inline_writes.is_empty();
        let found = self.change(r.inode)?;
        // A report of nothing changes nothing.
        found.attributes.version -= u64::from(!is_change);
        let is_stale = found.attributes.version != r.base_version + u64::from(is_change);
        let generation = found.layout.as_ref().map_or(0, |layout| layout.generation);
        if generation == r.generation {
            assert!(r.tells_written, "this client tells what it has written");
            found.grow(r.size_at_least, &r.written);
            found.attributes.modified = r.modified.or(found.attributes.modified);
            if let Some(layout) = &mut found.layout {
                layout.written_slots |= r.written_slots;
            }
            for write in r.inline_writes {
                if write.zeros != 0 {
                    let (start, end) = (write.offset as usize, (write.offset + write.zeros) as usize);
                    let length = found.contents.len();
                    match end < length {
                        true => found.contents[start..end].fill(0),
                        false => found.contents.truncate(start),
                    }
                    continue;
                }
                let (start, end) = (write.offset as usize, write.offset as usize + write.data.len());
                let length = found.contents.len().max(end);
                found.contents.resize(length, 0);
                found.contents[start..end].copy_from_slice(&write.data);
                found.attributes.size = found.attributes.size.max(end as u64);
            }
        }
        Ok(proto::CommitResponse { inode: self.show(r.inode, generation == 0 && is_stale)? })
    }

    fn release(&mut self, r: proto::ReleaseRequest) -> Result<proto::ReleaseResponse, Fault> {
        self.released.extend(r.inodes);
        Ok(proto::ReleaseResponse {})
    }

    fn list(&mut self, r: proto::ListRequest) -> Result<proto::ListResponse, Fault> {
        let named = self.entries.iter().filter(|((parent, _), _)| *parent == r.directory);
        let entries = named.map(|((_, name), inode)| proto::DirectoryEntry {
            name: name.clone(),
            inode: *inode,
            kind: self.inodes[inode].attributes.kind,
            cookie: *inode,
            attributes: Some(self.inodes[inode].attributes),
        });
        Ok(proto::ListResponse { entries: entries.collect(), end: true, parent: 1 })
    }
}
