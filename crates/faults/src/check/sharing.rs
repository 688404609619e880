//! What clients did to shared files, against what is there: records appended, values counted under a lock, files
//! written and closed.

use crate::load::bytes::bytes;
use crate::load::sharing::Done;
use crate::load::sharing::appends::{APPENDS, RECORD_BYTES, record};
use crate::load::sharing::files::Written;
use crate::load::sharing::locks::COUNTER;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What must not be, of all that is read through one mount.
pub(crate) fn check_shared(directory: &Path, done: &[Done]) -> Vec<String> {
    let mut findings = check_appends(directory, done);
    findings.extend(check_counter(directory, done));
    for written in done.iter().flat_map(|done| &done.written) {
        findings.extend(check_written(directory, written).err());
    }
    findings
}

/// One record each, whole, in the order of each client.
fn check_appends(directory: &Path, done: &[Done]) -> Vec<String> {
    let path = directory.join(APPENDS);
    let contents = match fs::read(&path) {
        Ok(contents) => contents,
        Err(error) => return vec![format!("{}: {error}", path.display())],
    };
    let mut found: BTreeMap<(char, u64), usize> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut last: BTreeMap<char, u64> = BTreeMap::new();
    for (place, text) in contents.chunks(RECORD_BYTES).enumerate() {
        let Some((client, number)) = parse(text) else {
            let shown = String::from_utf8_lossy(text).into_owned();
            findings.push(format!(
                "{}: at record {place} is {shown:?}, which was never appended",
                path.display()
            ));
            continue;
        };
        *found.entry((client, number)).or_default() += 1;
        if last.insert(client, number).is_some_and(|last| last >= number) {
            findings.push(format!("{}: record {client}{number} at {place} is out of order", path.display()));
        }
    }
    for Done { client, appended, .. } in done {
        let count = |number: &u64| found.get(&(*client, *number)).copied().unwrap_or(0);
        let lost: Vec<u64> = appended.synced.iter().copied().filter(|number| count(number) == 0).collect();
        if !lost.is_empty() {
            let (path, order) = (path.display(), order(&contents));
            findings.push(format!("{path}: of client {client} records {lost:?} are lost; there are {order}"));
        }
        let all = appended.synced.iter().chain(&appended.unknown);
        let twice = all.filter(|number| count(number) > 1);
        findings.extend(
            twice.map(|number| format!("{}: record {client}{number} is there twice", path.display())),
        );
    }
    findings
}

/// Which records are there in which order, for people.
fn order(contents: &[u8]) -> String {
    let name = |text: &[u8]| match parse(text) {
        Some((client, number)) => format!("{client}{number}"),
        None => "?".to_owned(),
    };
    contents.chunks(RECORD_BYTES).map(name).collect::<Vec<_>>().join(" ")
}

fn parse(text: &[u8]) -> Option<(char, u64)> {
    let words = std::str::from_utf8(text).ok()?;
    let client = words.chars().next()?;
    let number = words.get(2..10)?.parse().ok()?;
    (record(client, number) == text).then_some((client, number))
}

/// Each value was counted once, and the last one is there.
fn check_counter(directory: &Path, done: &[Done]) -> Vec<String> {
    let path = directory.join(COUNTER);
    let mut findings = Vec::new();
    let mut counted: BTreeMap<u64, usize> = BTreeMap::new();
    for value in done.iter().flat_map(|done| &done.counted.values) {
        *counted.entry(*value).or_default() += 1;
    }
    let twice: Vec<u64> = counted.iter().filter(|(_, times)| **times > 1).map(|(value, _)| *value).collect();
    if !twice.is_empty() {
        findings.push(format!("{}: counted twice under the lock: {twice:?}", path.display()));
    }
    let last = counted.keys().next_back().copied().unwrap_or(0);
    match fs::read(&path).map(|bytes| bytes.try_into().map(u64::from_le_bytes)) {
        Ok(Ok(value)) if value >= last => {}
        Ok(Ok(value)) => findings.push(format!("{}: holds {value}, and {last} was synced", path.display())),
        Ok(Err(bytes)) if last > 0 => findings.push(format!("{}: holds {bytes:?}", path.display())),
        Ok(Err(_)) => {}
        Err(error) => findings.push(format!("{}: {error}", path.display())),
    }
    findings
}

fn check_written(directory: &Path, written: &Written) -> Result<(), String> {
    let path = directory.join(&written.name);
    let contents = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let expected = bytes(written.stamp, 0, written.length);
    if contents == expected {
        return Ok(());
    }
    let differs = contents.iter().zip(&expected).position(|(one, other)| one != other);
    Err(format!(
        "{}: has {} bytes, {} were written{}; they differ first at {differs:?}",
        path.display(),
        contents.len(),
        written.length,
        if written.is_synced { " and synced" } else { " and closed" },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::sharing::appends::Appended;
    use crate::load::sharing::locks::Counted;

    fn done(client: char, synced: &[u64], unknown: &[u64], values: &[u64]) -> Done {
        let appended = Appended { synced: synced.to_vec(), unknown: unknown.to_vec() };
        let counted = Counted { values: values.to_vec(), ..Counted::default() };
        Done { client, appended, counted, written: Vec::new() }
    }

    fn findings(records: &[Vec<u8>], counter: u64, done: &[Done]) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join(APPENDS), records.concat()).expect("written");
        fs::write(directory.path().join(COUNTER), counter.to_le_bytes()).expect("written");
        check_shared(directory.path(), done)
    }

    #[test]
    fn a_record_that_was_synced_is_there_once_and_whole() {
        let done = [done('a', &[1, 2], &[3], &[]), done('b', &[1], &[], &[])];
        let (a1, a2, a3, b1) = (record('a', 1), record('a', 2), record('a', 3), record('b', 1));
        let whole = [a1.clone(), b1.clone(), a2.clone()];
        assert!(findings(&whole, 0, &done).is_empty());
        assert!(findings(&[a1.clone(), b1.clone(), a2.clone(), a3.clone()], 0, &done).is_empty());
        assert_eq!(findings(&[a1.clone(), a2.clone()], 0, &done).len(), 1, "one is lost");
        let twice = [a1.clone(), b1.clone(), a2.clone(), a3.clone(), a3];
        assert!(!findings(&twice, 0, &done).is_empty(), "one is there twice");
        let order = [a2.clone(), a1.clone(), b1.clone()];
        assert!(!findings(&order, 0, &done).is_empty(), "the order");
        let torn = [a1, a2[..30].to_vec(), b1];
        assert!(!findings(&torn, 0, &done).is_empty(), "one is torn");
    }

    #[test]
    fn no_value_is_counted_twice_or_lost() {
        assert!(findings(&[], 3, &[done('a', &[], &[], &[1, 3]), done('b', &[], &[], &[2])]).is_empty());
        assert!(!findings(&[], 3, &[done('a', &[], &[], &[1, 2]), done('b', &[], &[], &[2])]).is_empty());
        assert!(!findings(&[], 2, &[done('a', &[], &[], &[1, 3]), done('b', &[], &[], &[2])]).is_empty());
    }

    #[test]
    fn a_closed_file_holds_what_was_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let written = Written { name: "a1".to_owned(), length: 100, stamp: 1, is_synced: false };
        let write = |bytes: &[u8]| fs::write(directory.path().join("a1"), bytes).expect("written");
        assert!(check_written(directory.path(), &written).is_err(), "not there");
        write(&bytes(1, 0, 100));
        assert!(check_written(directory.path(), &written).is_ok());
        write(&bytes(1, 0, 99));
        assert!(check_written(directory.path(), &written).is_err(), "short");
    }
}
