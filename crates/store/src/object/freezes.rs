//! Freezes of objects whose file is being converted to another layout.
//!
//! A conversion has a file's objects *watched* before it copies them, and *sealed* when it is done: a seal is set
//! only when nothing has changed since the watch began. A sealed object is read as ever and refuses every change, until
//! it is removed with the file's old layout or the seal is lifted. Of those removed it is remembered for a while, so
//! that no late write makes them anew. Seals survive restarts and loss of power (`SEALED`
//! in the target's directory): a write that slipped in after one would be lost with the object. Watches do not, and
//! a request for a seal is then answered that something may have changed.

use crate::object::attempts::{Passed, Terms};
use crate::object::{Body, Mode, Stop};
use crate::targets::Target;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_disk::{Disk, Open};
use vazao_model::checksum::crc32c;
use vazao_model::{Code, GroupId, InodeId, ObjectId};
use vazao_wire::proto::GoneObject;
use vazao_wire::service::Fault;

/// The seals, in the target's directory.
pub(crate) const SEALED: &str = "SEALED";
const SEALED_NEW: &str = "SEALED.new";

/// Freezes of one target: a conversion sets at most 64, and is over within its files' copying.
const FENCES_MAX: usize = 16_384;

/// Removed objects that are remembered, the newest: longer than requests to them can be on their way.
const GONE_MAX: usize = 4096;

/// Longest file of seals.
const FILE_BYTES_MAX: usize = FENCES_MAX * 96;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Watched {
        changed: bool,
    },
    Sealed,
    /// Its file has another layout, and some of its chunks may be gone already: the others must not be read as all.
    Going,
    /// It is gone. A write that was under way for long would make it anew, where it is never read.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ObjectFreeze {
    token: u64,
    state: State,
}

/// The freezes of one target.
#[derive(Default, Debug)]
pub(crate) struct ObjectFreezes {
    freezes: Mutex<BTreeMap<ObjectId, ObjectFreeze>>,
    /// Their number, so that writes to targets without any take no lock.
    count: AtomicUsize,
    /// Held while they are written down: the disk may hang, and others look at them meanwhile.
    storing: Mutex<()>,
}

impl ObjectFreezes {
    /// Those that a target's directory names.
    pub(crate) fn load(disk: &dyn Disk) -> io::Result<ObjectFreezes> {
        let file = match disk.open(SEALED, Open::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ObjectFreezes::default()),
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; FILE_BYTES_MAX];
        let length = file.read_at(&mut bytes, 0)?;
        bytes.truncate(length);
        let freezes = decode(&bytes).ok_or_else(|| {
            let text = format!("{SEALED} is damaged: if no file is being converted, remove it");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        let count = AtomicUsize::new(freezes.len());
        Ok(ObjectFreezes { freezes: Mutex::new(freezes), count, storing: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectId, ObjectFreeze>> {
        self.freezes.lock()
    }

    /// Takes note that an object is about to be changed. The caller holds its lock. `Converting` when it is sealed.
    fn pass(&self, id: ObjectId) -> Result<(), Fault> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        match self.lock().get_mut(&id).map(|fence| &mut fence.state) {
            None => Ok(()),
            Some(State::Watched { changed }) => {
                *changed = true;
                Ok(())
            }
            Some(State::Sealed) => {
                let text = format!("object {id}: its file gets another layout right now");
                Err(Fault::new(Code::Converting, text))
            }
            Some(State::Going | State::Gone) => Err(removed(id)),
        }
    }

    fn watch(&self, id: ObjectId, token: u64) -> Result<(), Fault> {
        let mut freezes = self.lock();
        let is_taken = |fence: &ObjectFreeze| match fence.state {
            State::Watched { .. } => false,
            State::Sealed => fence.token != token,
            State::Going | State::Gone => true,
        };
        if freezes.get(&id).is_some_and(is_taken) {
            return Err(Fault::new(Code::InUse, format!("object {id}: its file is being converted already")));
        }
        if freezes.len() >= FENCES_MAX {
            // Those whose owners died are the oldest; none of them blocks a write.
            freezes.retain(|_, fence| !matches!(fence.state, State::Watched { .. }));
        }
        if freezes.len() >= FENCES_MAX {
            return Err(Fault::new(Code::InUse, "too many files are being converted at once"));
        }
        freezes.insert(id, ObjectFreeze { token, state: State::Watched { changed: false } });
        self.count.store(freezes.len(), Ordering::Relaxed);
        Ok(())
    }

    /// True when the object is sealed now: it was watched under this token and not changed since.
    fn seal(&self, id: ObjectId, token: u64) -> bool {
        match self.lock().get_mut(&id) {
            Some(fence) if fence.token == token && fence.state == (State::Watched { changed: false }) => {
                fence.state = State::Sealed;
                true
            }
            Some(fence) => fence.token == token && fence.state == State::Sealed,
            None => false,
        }
    }

    /// A sealed object is being removed. True when that has to be written down before.
    fn go(&self, id: ObjectId) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        match self.lock().get_mut(&id) {
            Some(fence) if fence.state == State::Sealed => {
                fence.state = State::Going;
                true
            }
            _ => false,
        }
    }

    /// Notes that an object is removed. True when that has to be written down.
    fn end(&self, id: ObjectId) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut freezes = self.lock();
        match freezes.get_mut(&id) {
            Some(fence) if matches!(fence.state, State::Sealed | State::Going) => fence.state = State::Gone,
            _ => return false,
        }
        let gone = freezes.iter().filter(|(_, fence)| fence.state == State::Gone);
        let mut gone: Vec<(u64, ObjectId)> = gone.map(|(id, fence)| (fence.token, *id)).collect();
        if gone.len() > GONE_MAX {
            // Tokens are generations of layouts, which grow with the starts of the metadata service.
            gone.sort_unstable();
            for (_, oldest) in &gone[..GONE_MAX / 2] {
                freezes.remove(oldest);
            }
            self.count.store(freezes.len(), Ordering::Relaxed);
        }
        true
    }

    /// True where it knew of any.
    fn forget_group(&self, group: GroupId) -> bool {
        let mut freezes = self.lock();
        let before = freezes.len();
        freezes.retain(|id, _| id.group != group);
        self.count.store(freezes.len(), Ordering::Relaxed);
        freezes.len() != before
    }

    fn gone_of_group(&self, group: GroupId) -> Option<Vec<GoneObject>> {
        let freezes = self.lock();
        let of_group = freezes.iter().filter(|(id, _)| id.group == group);
        let gone = |(id, freeze): (&ObjectId, &ObjectFreeze)| {
            let (inode, generation, slot) = (id.inode.0, id.generation, id.slot);
            (freeze.state == State::Gone).then_some(GoneObject {
                inode,
                generation,
                slot,
                token: freeze.token,
            })
        };
        of_group.map(gone).collect()
    }

    fn keep_gone(&self, group: GroupId, gone: &[GoneObject]) {
        let mut freezes = self.lock();
        for it in gone.iter().take(GONE_MAX) {
            let (inode, generation, slot) = (InodeId(it.inode), it.generation, it.slot);
            let freeze = ObjectFreeze { token: it.token, state: State::Gone };
            freezes.insert(ObjectId { inode, generation, slot, group }, freeze);
        }
        self.count.store(freezes.len(), Ordering::Relaxed);
    }

    /// Whether the removal of a sealed object has begun.
    pub(crate) fn is_going(&self, id: ObjectId) -> bool {
        self.count.load(Ordering::Relaxed) > 0
            && self.lock().get(&id).is_some_and(|fence| fence.state == State::Going)
    }

    /// Forgets a watch or a seal with this token. True when that was a seal.
    fn lift(&self, id: ObjectId, token: u64) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut freezes = self.lock();
        let is_it = |fence: &&ObjectFreeze| {
            fence.token == token && matches!(fence.state, State::Watched { .. } | State::Sealed)
        };
        let Some(fence) = freezes.get(&id).filter(is_it).copied() else { return false };
        freezes.remove(&id);
        self.count.store(freezes.len(), Ordering::Relaxed);
        fence.state == State::Sealed
    }

    /// Writes down which objects are sealed. After power loss the file is the old or the new one.
    fn store(&self, disk: &dyn Disk) -> io::Result<()> {
        // One at a time, so that an older state never replaces a newer one.
        let _one = self.storing.lock();
        let text = encode(&self.lock());
        let file = disk.open(SEALED_NEW, Open::Create)?;
        file.set_length(0)?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync()?;
        disk.rename(SEALED_NEW, SEALED)?;
        disk.sync_directory("")
    }
}

fn removed(id: ObjectId) -> Fault {
    Fault::new(Code::NotFound, format!("object {id}: it was removed"))
}

fn encode(freezes: &BTreeMap<ObjectId, ObjectFreeze>) -> String {
    let mut text = String::from("vazao seals\n");
    for (id, fence) in freezes {
        let state = match fence.state {
            State::Watched { .. } => continue,
            State::Sealed => "",
            State::Going => " going",
            State::Gone => " gone",
        };
        let ObjectId { inode, generation, slot, group } = id;
        let group = if group.0 == 0 { String::new() } else { format!(".{}", group.0) };
        text.push_str(&format!("{} {generation} {slot}{group} {:016x}{state}\n", inode.0, fence.token));
    }
    let checksum = crc32c(text.as_bytes());
    text.push_str(&format!("checksum {checksum:08x}\n"));
    text
}

fn decode(bytes: &[u8]) -> Option<BTreeMap<ObjectId, ObjectFreeze>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, tail) = text.split_at(text.rfind("checksum ")?);
    if tail != format!("checksum {:08x}\n", crc32c(body.as_bytes())) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next() != Some("vazao seals") {
        return None;
    }
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (inode, generation) = (words.next()?, words.next()?);
        let slot = words.next()?;
        let (slot, group) = slot.split_once('.').unwrap_or((slot, "0"));
        let id = ObjectId {
            inode: InodeId(inode.parse().ok()?),
            generation: generation.parse().ok()?,
            slot: slot.parse().ok()?,
            group: GroupId(group.parse().ok()?),
        };
        let token = u64::from_str_radix(words.next()?, 16).ok()?;
        let state = match words.next() {
            None => State::Sealed,
            Some("going") => State::Going,
            Some("gone") => State::Gone,
            Some(_) => return None,
        };
        Some((id, ObjectFreeze { token, state }))
    };
    lines.map(parse).collect()
}

impl Target {
    /// Has changes of objects noted from now on.
    pub(crate) fn watch(&self, objects: &[ObjectId], token: u64) -> Result<(), Stop> {
        self.check()?;
        objects.iter().try_for_each(|&id| Ok(self.alone(id, || self.freezes.watch(id, token))??))
    }

    /// Refuses changes of objects from now on, also after a restart. False when one of them may have been changed since
    /// it was watched; the others are sealed nevertheless, until they are lifted.
    pub(crate) fn seal(&self, objects: &[ObjectId], token: u64) -> Result<bool, Stop> {
        self.check()?;
        let mut all = true;
        for &id in objects {
            all &= self.alone(id, || self.freezes.seal(id, token))?;
        }
        self.store_freezes()?;
        self.epochs.note_change();
        Ok(all)
    }

    /// Takes freezes away.
    pub(crate) fn lift(&self, objects: &[ObjectId], token: u64) -> Result<(), Stop> {
        self.check()?;
        let lifted = objects.iter().filter(|id| self.freezes.lift(**id, token)).count();
        if lifted > 0 {
            self.store_freezes()?;
            self.epochs.note_change();
        }
        Ok(())
    }

    /// Takes note that an object is about to be changed, or refuses it. The caller holds its lock.
    pub(crate) fn admit(&self, id: ObjectId, terms: Terms) -> Result<(), Fault> {
        if let Some(passed) = terms.passed {
            self.check_passed(passed)?;
        }
        self.attempts.admit(id, terms.attempt, self.clock.now_ns())?;
        self.freezes.pass(id)
    }

    /// Refuses what the primary of another epoch has sent, or this one has given up since.
    pub(crate) fn check_passed(&self, Passed { group, epoch, stream }: Passed) -> Result<(), Fault> {
        let known = self.latest_of_groups.get().map_or((0, 0), |latest| latest.known((self.id(), group)));
        match known == (epoch, stream) {
            true => Ok(()),
            false => Err(crate::latest::outdated(group, (epoch, stream), known)),
        }
    }

    /// See [`Attempts::give_up`](super::attempts::Attempts::give_up).
    pub(crate) fn give_up(&self, id: ObjectId, changes: &[u64]) -> Result<(), Fault> {
        self.attempts.give_up(id, changes, self.clock.now_ns())
    }

    /// Forgets what it knows of fences around objects of a group: the primary knows better.
    pub(crate) fn forget_freezes(&self, group: GroupId) -> Result<(), Stop> {
        let is_changed = self.freezes.forget_group(group);
        if is_changed { Ok(self.store_freezes()?) } else { Ok(()) }
    }

    /// The sealed objects of a group that were removed. `None`: some of its objects are fenced in at the moment.
    pub(crate) fn gone_of_group(&self, group: GroupId) -> Option<Vec<GoneObject>> {
        self.freezes.gone_of_group(group)
    }

    /// Keeps which sealed objects of a group were removed.
    pub(crate) fn keep_gone(&self, group: GroupId, gone: &[GoneObject]) -> Result<(), Stop> {
        if gone.is_empty() {
            return Ok(());
        }
        self.freezes.keep_gone(group, gone);
        Ok(self.store_freezes()?)
    }

    /// Hides a sealed object whose chunks are about to be removed one after the other, also when that
    /// is interrupted: a client that still has the file's old layout would take those that are gone for holes.
    pub(crate) fn hide(&self, id: ObjectId) -> Result<(), Fault> {
        if self.freezes.go(id) { self.store_freezes() } else { Ok(()) }
    }

    /// Remembers of a sealed object that it was removed. True when that has to be written down.
    pub(crate) fn bury(&self, id: ObjectId) -> bool {
        self.freezes.end(id)
    }

    /// `NotFound` for an object that must exist and does not.
    pub(crate) fn demand(&self, id: ObjectId, body: &Body, must_exist: bool) -> Result<(), Fault> {
        if must_exist && !body.exists() { Err(removed(id)) } else { Ok(()) }
    }

    pub(crate) fn store_freezes(&self) -> Result<(), Fault> {
        self.freezes.store(&*self.disk).map_err(|e| self.write_fault(SEALED, &e))
    }

    /// Runs `work` while no change of the object is under way.
    fn alone<T>(&self, id: ObjectId, work: impl FnOnce() -> T) -> Result<T, Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let _body = object.write(self);
        Ok(work())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_disk::MemoryDisk;

    fn object(slot: u32) -> ObjectId {
        let group = if slot == 0 { GroupId(0) } else { GroupId(GroupId::FIRST + slot) };
        ObjectId { inode: InodeId(7), generation: 3, slot, group }
    }

    #[test]
    fn a_seal_is_set_only_when_nothing_has_changed_since_the_watch() {
        let freezes = ObjectFreezes::default();
        assert!(!freezes.seal(object(0), 1), "it is not watched");
        freezes.watch(object(0), 1).expect("free");
        freezes.watch(object(1), 1).expect("free");
        freezes.pass(object(1)).expect("watched objects may be changed");
        assert!(freezes.seal(object(0), 1) && !freezes.seal(object(1), 1));
        assert_eq!(freezes.pass(object(0)).map_err(|fault| fault.code), Err(Code::Converting));
        assert!(freezes.pass(object(2)).is_ok() && freezes.watch(object(0), 2).is_err());
        assert!(!freezes.lift(object(0), 2), "another owner's");
        assert!(freezes.lift(object(0), 1) && freezes.pass(object(0)).is_ok());
        assert!(!freezes.seal(object(0), 1), "a seal that comes late seals nothing");
    }

    #[test]
    fn seals_survive_power_loss_and_watches_do_not() {
        let disk = MemoryDisk::new(1);
        let freezes = ObjectFreezes::load(&disk).expect("empty");
        freezes.watch(object(0), 9).expect("free");
        freezes.watch(object(1), 9).expect("free");
        freezes.watch(object(2), 9).expect("free");
        assert!(freezes.seal(object(0), 9) && freezes.seal(object(2), 9));
        freezes.store(&disk).expect("stores");
        let again = ObjectFreezes::load(&disk).expect("loads");
        assert!(again.pass(object(0)).is_err() && again.pass(object(2)).is_err());
        assert!(!again.seal(object(1), 9) && again.lift(object(0), 9) && again.lift(object(2), 9));
        again.store(&disk).expect("stores");
        assert_eq!(ObjectFreezes::load(&disk).expect("loads").lock().len(), 0);
    }

    #[test]
    fn an_object_on_its_way_out_stays_hidden_over_a_restart_until_it_is_gone() {
        let disk = MemoryDisk::new(1);
        let freezes = ObjectFreezes::load(&disk).expect("empty");
        freezes.watch(object(0), 9).expect("free");
        assert!(!freezes.go(object(0)) && !freezes.is_going(object(0)), "only watched");
        assert!(freezes.seal(object(0), 9) && freezes.go(object(0)) && !freezes.go(object(0)));
        freezes.store(&disk).expect("stores");
        let again = ObjectFreezes::load(&disk).expect("loads");
        assert!(again.is_going(object(0)) && !again.seal(object(0), 9));
        assert_eq!(again.pass(object(0)).map_err(|fault| fault.code), Err(Code::NotFound));
        assert!(!again.lift(object(0), 9) && again.is_going(object(0)), "a late request to lift");
        assert!(again.end(object(0)) && !again.end(object(0)) && !again.is_going(object(0)));
        again.store(&disk).expect("stores");
        let late = ObjectFreezes::load(&disk).expect("loads").pass(object(0));
        assert_eq!(late.map_err(|fault| fault.code), Err(Code::NotFound));
    }

    #[test]
    fn of_removed_objects_the_newest_are_remembered() {
        let freezes = ObjectFreezes::default();
        for slot in 0..=GONE_MAX as u32 {
            freezes.watch(object(slot), u64::from(slot)).expect("free");
            assert!(freezes.seal(object(slot), u64::from(slot)) && freezes.end(object(slot)));
        }
        assert!(freezes.pass(object(0)).is_ok() && freezes.pass(object(GONE_MAX as u32)).is_err());
    }

    #[test]
    fn a_changed_byte_of_the_file_is_refused() {
        let freezes = ObjectFreezes::default();
        freezes.watch(object(0), 9).expect("free");
        assert!(freezes.seal(object(0), 9));
        let bytes = encode(&freezes.lock()).into_bytes();
        assert_eq!(decode(&bytes), Some(freezes.lock().clone()));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(decode(&bytes), None, "byte {at}");
        }
    }
}
