//! Objects that the primary of a placement group has lost, and fetches from members that lag: the file FETCHING. Until
//! all of one is here the next process, too, holds it for not whole, and knows where it is to be had. Nothing else says
//! that by then: what it has not, and others have, is either lost or removed.
//!
//! Lines are appended: some that name an object each, with a member that has all of it, and one with their checksum; or
//! one that says that an object is whole, or no more. What is not whole at the end was never begun. The file goes with
//! the last object.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use vazao_disk::{Disk, Open};
use vazao_model::checksum::crc32c;
use vazao_model::cluster::serving::HadAll;
use vazao_model::{GroupId, InodeId, ObjectId, TargetId};

pub(crate) const FILE: &str = "FETCHING";
const NEW: &str = "FETCHING.new";

/// A member that has all of an object, and since when it has missed other changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub(crate) target: TargetId,
    pub(crate) had_all: HadAll,
}

/// Objects, each with the members that it may be fetched from.
type Known = BTreeMap<ObjectId, Vec<Source>>;

/// What a target fetches.
#[derive(Debug, Default)]
pub(crate) struct Fetching {
    /// Bytes of the file. Held while it is written; taken before `known`.
    length: Mutex<u64>,
    known: Mutex<Known>,
}

impl Fetching {
    /// What a process before this one has not fetched to the end. `None`: the file is damaged.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Option<Fetching>> {
        let text = match disk.open(FILE, Open::ReadOnly) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            file => {
                let file = file?;
                let mut bytes = vec![0; file.length()? as usize];
                let length = file.read_at(&mut bytes, 0)?;
                String::from_utf8_lossy(&bytes[..length]).into_owned()
            }
        };
        let Some(known) = parse(&text) else { return Ok(None) };
        let fetching = Fetching { length: Mutex::new(0), known: Mutex::new(known) };
        // Without what was not written whole: further lines are appended.
        fetching.write_anew(disk)?;
        Ok(Some(fetching))
    }

    fn write_anew(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut length = self.length.lock();
        let known: Vec<(ObjectId, Vec<Source>)> = self.known.lock().clone().into_iter().collect();
        if known.is_empty() {
            return remove(disk);
        }
        let text = frame(&known);
        let file = disk.open(NEW, Open::Create)?;
        file.set_length(0)?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync()?;
        disk.rename(NEW, FILE)?;
        disk.sync_directory("")?;
        *length = text.len() as u64;
        Ok(())
    }

    /// All objects.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        self.known.lock().keys().copied().collect()
    }

    /// The members that an object is fetched from; `None`: it is not.
    pub(crate) fn sources(&self, object: ObjectId) -> Option<Vec<Source>> {
        self.known.lock().get(&object).cloned()
    }

    /// Objects are fetched from now on: before any of them is there.
    pub(crate) fn add(&self, disk: &dyn Disk, objects: &[(ObjectId, Vec<Source>)]) -> io::Result<()> {
        let mut length = self.length.lock();
        append(disk, &mut length, &frame(objects))?;
        self.known.lock().extend(objects.iter().cloned());
        Ok(())
    }

    /// An object is whole, or no more.
    pub(crate) fn remove(&self, disk: &dyn Disk, object: ObjectId) -> io::Result<()> {
        if self.sources(object).is_none() {
            return Ok(());
        }
        let mut length = self.length.lock();
        let is_last = self.known.lock().keys().all(|known| *known == object);
        match is_last {
            true => {
                remove(disk)?;
                *length = 0;
            }
            false => append(disk, &mut length, &line(&format!("done {}", numbers(object))))?,
        }
        self.known.lock().remove(&object);
        Ok(())
    }
}

/// Makes what it ends in durable, or leaves it as it was.
fn append(disk: &dyn Disk, length: &mut u64, text: &str) -> io::Result<()> {
    let file = disk.open(FILE, Open::Create)?;
    let written = file.set_length(*length).and_then(|()| file.write_at(text.as_bytes(), *length));
    let synced = written.and_then(|()| file.sync());
    if let Err(error) = synced {
        let _ = file.set_length(*length);
        return Err(error);
    }
    if *length == 0 {
        disk.sync_directory("")?;
    }
    *length += text.len() as u64;
    Ok(())
}

fn remove(disk: &dyn Disk) -> io::Result<()> {
    match disk.remove(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| disk.sync_directory("")),
    }
}

fn numbers(object: ObjectId) -> String {
    let ObjectId { inode, generation, slot, group } = object;
    format!("{} {generation} {slot} {}", inode.0, group.0)
}

/// Lines of objects, and the one that they count with.
fn frame(objects: &[(ObjectId, Vec<Source>)]) -> String {
    let of_source = |object: ObjectId, Source { target, had_all }: &Source| {
        format!("fetch {} {} {} {}\n", numbers(object), target.0, had_all.run, had_all.since)
    };
    let of_object = |(object, sources): &(ObjectId, Vec<Source>)| -> String {
        sources.iter().map(|source| of_source(*object, source)).collect()
    };
    let lines: String = objects.iter().map(of_object).collect();
    let checksum = crc32c(lines.as_bytes());
    format!("{lines}{}", line(&format!("begun {checksum:08x}")))
}

fn line(body: &str) -> String {
    format!("{body} {:08x}\n", crc32c(body.as_bytes()))
}

/// `None`: what is not whole stands before what is.
fn parse(text: &str) -> Option<Known> {
    let mut known = Known::new();
    let (mut is_over, mut begun) = (false, String::new());
    for line in text.split_inclusive('\n') {
        if line.starts_with("fetch ") {
            begun.push_str(line);
            continue;
        }
        let lines = std::mem::take(&mut begun);
        let Some((what, rest)) = checked(line) else {
            is_over = true;
            continue;
        };
        let is_whole = match what {
            "begun" => rest == format!("{:08x}", crc32c(lines.as_bytes())),
            _ => what == "done" && lines.is_empty(),
        };
        match (is_whole, is_over) {
            (true, true) => return None,
            (false, _) => is_over = true,
            (true, false) if what == "done" => _ = known.remove(&object(&parsed(rest)?)?),
            (true, false) => {
                // The latest sources of each.
                let mut these = Known::new();
                for line in lines.lines() {
                    let numbers = parsed(line.strip_prefix("fetch ")?)?;
                    let (object, source) = (object(numbers.get(..4)?)?, source(numbers.get(4..)?)?);
                    these.entry(object).or_default().push(source);
                }
                known.extend(these);
            }
        }
    }
    Some(known)
}

/// The first word of a line and what follows it, where its checksum matches.
fn checked(line: &str) -> Option<(&str, &str)> {
    let (body, checksum) = line.strip_suffix('\n')?.rsplit_once(' ')?;
    (checksum == format!("{:08x}", crc32c(body.as_bytes()))).then(|| body.split_once(' '))?
}

fn parsed(numbers: &str) -> Option<Vec<u64>> {
    numbers.split(' ').map(|number| number.parse().ok()).collect()
}

fn object(numbers: &[u64]) -> Option<ObjectId> {
    let &[inode, generation, slot, group] = numbers else { return None };
    let (generation, slot) = (generation.try_into().ok()?, slot.try_into().ok()?);
    let (inode, group) = (InodeId(inode), GroupId(group.try_into().ok()?));
    Some(ObjectId { inode, generation, slot, group })
}

fn source(numbers: &[u64]) -> Option<Source> {
    let &[target, run, since] = numbers else { return None };
    Some(Source { target: TargetId(target.try_into().ok()?), had_all: HadAll { run, since } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_disk::MemoryDisk;

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), generation: 3, slot: 0, group: GroupId(70_000) }
    }

    fn sources(targets: &[u32]) -> Vec<Source> {
        let source =
            |target: &u32| Source { target: TargetId(*target), had_all: HadAll { run: 11, since: 40 } };
        targets.iter().map(source).collect()
    }

    fn open(disk: &MemoryDisk) -> Fetching {
        Fetching::open(disk).expect("it answers").expect("it is whole")
    }

    fn objects(disk: &MemoryDisk) -> Vec<u64> {
        let objects = open(disk).objects();
        objects.iter().map(|object| object.inode.0).collect()
    }

    #[test]
    fn what_is_fetched_is_known_to_the_next_process_until_it_is_here() {
        let disk = MemoryDisk::new(1);
        let fetching = open(&disk);
        fetching
            .add(&disk, &[(object(1), sources(&[2])), (object(u64::MAX), sources(&[2, 3]))])
            .expect("kept");
        fetching.add(&disk, &[(object(5), sources(&[3]))]).expect("kept");
        disk.crash();
        assert_eq!(objects(&disk), [1, 5, u64::MAX]);
        let fetching = open(&disk);
        assert_eq!(fetching.sources(object(u64::MAX)), Some(sources(&[2, 3])));
        fetching.remove(&disk, object(5)).expect("kept");
        fetching.remove(&disk, object(6)).expect("it was none");
        disk.crash();
        assert_eq!(objects(&disk), [1, u64::MAX]);
        let fetching = open(&disk);
        [1, u64::MAX].into_iter().for_each(|inode| fetching.remove(&disk, object(inode)).expect("kept"));
        assert!(disk.open(FILE, Open::ReadOnly).is_err(), "there is nothing to say");
        fetching.add(&disk, &[(object(7), sources(&[3]))]).expect("kept");
        assert_eq!(objects(&disk), [7]);
    }

    /// Parts of what was appended last may be there, and others not.
    #[test]
    fn a_hole_in_what_was_appended_last_is_no_damage() {
        let disk = MemoryDisk::new(1);
        let fetching = open(&disk);
        fetching.add(&disk, &[(object(1), sources(&[2]))]).expect("kept");
        let length = *fetching.length.lock();
        let many: Vec<_> = (2..300).map(|inode| (object(inode), sources(&[2]))).collect();
        fetching.add(&disk, &many).expect("kept");
        let file = disk.open(FILE, Open::Existing).expect("is there");
        file.write_at(&[0; 4096], length).expect("is there");
        assert_eq!(objects(&disk), [1]);
        assert_eq!(objects(&disk), [1], "it was written anew");
    }

    #[test]
    fn what_was_not_written_whole_was_not_begun_and_a_damaged_line_is_not_passed_over() {
        let disk = MemoryDisk::new(1);
        let fetching = open(&disk);
        fetching.add(&disk, &[(object(1), sources(&[2]))]).expect("kept");
        let length = *fetching.length.lock();
        fetching.add(&disk, &[(object(2), sources(&[2]))]).expect("kept");
        let file = disk.open(FILE, Open::Existing).expect("is there");
        let mut bytes = vec![0; *fetching.length.lock() as usize];
        file.read_at(&mut bytes, 0).expect("is there");
        for end in length..bytes.len() as u64 {
            let file = disk.open(FILE, Open::Create).expect("is there");
            file.set_length(0).and_then(|()| file.write_at(&bytes[..end as usize], 0)).expect("is there");
            assert_eq!(objects(&disk), [1], "{end} bytes");
        }
        let file = disk.open(FILE, Open::Create).expect("is there");
        bytes[8] ^= 1;
        file.write_at(&bytes, 0).expect("is there");
        assert!(Fetching::open(&disk).expect("it answers").is_none());
    }
}
