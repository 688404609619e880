//! What happens to data servers, and for how long.

use super::Arguments;
use super::whole::{Place, have_last_copies};
use crate::clock::{now_ns, sleep_ms, wait_until};
use crate::daemons::{Daemons, META};
use crate::failure::{Failure, Outcome};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

/// What happens to a data server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Kind {
    /// Killed, and started again
    Kill,
    /// Stopped, and continued
    Freeze,
    /// Killed, and its disk is lost: an empty directory takes its place
    Wipe,
}

/// They take turns, so that a short run has each.
const KINDS: [Kind; 3] = [Kind::Kill, Kind::Freeze, Kind::Wipe];

/// The second of two servers fails at most so long after the first one, if not with it.
const SECOND_MS_MAX: u64 = 3_000;

impl Kind {
    fn draw_ms(self, random: &mut StdRng) -> u64 {
        match self {
            Kind::Kill => random.random_range(0..8_000),
            Kind::Freeze => random.random_range(500..10_000),
            Kind::Wipe => random.random_range(0..4_000),
        }
    }
}

/// What happens to one data server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    process: usize,
    kind: Kind,
    /// When it happens, from the first one of the round.
    begin_ms: u64,
    /// What is done for it to come back begins after so long.
    away_ms: u64,
    /// An empty disk comes at another path than the lost one.
    is_elsewhere: bool,
}

/// Draws one fault fewer than there are copies, each of another server.
pub(super) fn draw(arguments: &Arguments, number: u64, random: &mut StdRng) -> Vec<Fault> {
    let mut processes: Vec<usize> = (META + 1..=META + arguments.data_servers).collect();
    processes.shuffle(random);
    let fault = |(place, process)| {
        let drawn = match place {
            0 => KINDS[(number % KINDS.len() as u64) as usize],
            _ => KINDS[random.random_range(0..KINDS.len())],
        };
        let kind = arguments.only.unwrap_or(drawn);
        let begin_ms = match place > 0 && random.random_bool(0.5) {
            true => random.random_range(0..SECOND_MS_MAX),
            false => 0,
        };
        Fault {
            process,
            kind,
            begin_ms,
            away_ms: kind.draw_ms(random),
            is_elsewhere: random.random_bool(0.5),
        }
    };
    processes.into_iter().take(arguments.copies as usize - 1).enumerate().map(fault).collect()
}

/// What is to happen, for people.
pub(super) fn describe(faults: &[Fault], daemons: &Daemons) -> String {
    let words = |fault: &Fault| {
        let (name, away_ms) = (daemons.name(fault.process), fault.away_ms);
        let what = match (fault.kind, fault.is_elsewhere) {
            (Kind::Kill, _) => format!("{name} is killed for {away_ms} ms"),
            (Kind::Freeze, _) => format!("{name} is frozen for {away_ms} ms"),
            (Kind::Wipe, false) => format!("{name} loses its disk for {away_ms} ms"),
            (Kind::Wipe, true) => format!("{name} loses its disk for {away_ms} ms, and gets one elsewhere"),
        };
        match fault.begin_ms {
            0 => what,
            begin_ms => format!("after {begin_ms} ms {what}"),
        }
    };
    faults.iter().map(words).collect::<Vec<_>>().join("; ")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Begin,
    End,
}

/// Has it all happen, until all servers run again. `number`: of the round.
pub(super) fn strike(faults: &[Fault], number: u64, daemons: &mut Daemons) -> Outcome {
    let places: Vec<Place> =
        faults.iter().map(|fault| Place::of(daemons, daemons.name(fault.process))).collect::<Outcome<_>>()?;
    let mut moments: Vec<(u64, usize, Moment)> = Vec::new();
    for (index, fault) in faults.iter().enumerate() {
        moments.push((fault.begin_ms, index, Moment::Begin));
        moments.push((fault.begin_ms + fault.away_ms, index, Moment::End));
    }
    // A fault that takes no time still begins before it ends: the sort is stable.
    moments.sort_by_key(|(at_ms, ..)| *at_ms);
    let (began_ns, mut lost) = (now_ns(), Vec::new());
    for (at_ms, index, moment) in moments {
        sleep_ms(at_ms.saturating_sub((now_ns() - began_ns) / 1_000_000));
        let (fault, place) = (&faults[index], &places[index]);
        match moment {
            Moment::Begin => fault.begin(place, &mut lost, daemons)?,
            Moment::End => fault.end(place, number, daemons)?,
        }
    }
    Ok(())
}

impl Fault {
    /// `lost`: the targets that have lost their disks in this round.
    fn begin(&self, place: &Place, lost: &mut Vec<u32>, daemons: &mut Daemons) -> Outcome {
        match self.kind {
            Kind::Freeze => daemons.signal(self.process, Signal::STOP),
            Kind::Kill => daemons.kill(self.process),
            Kind::Wipe => {
                lost.push(place.target);
                self.kill_beside_others(lost, daemons)?;
                empty(&place.directory)
            }
        }
    }

    /// Kills it where others have all that it has: more servers than there may be could have failed by themselves. Only
    /// what is dead cannot become the last one any more.
    fn kill_beside_others(&self, lost: &[u32], daemons: &mut Daemons) -> Outcome {
        daemons.kill(self.process)?;
        while have_last_copies(daemons, lost)? {
            daemons.serve_again(self.process)?;
            wait_until("others have the copies of a disk that is to be lost", || {
                have_last_copies(daemons, lost).is_ok_and(|it| !it)
            })?;
            daemons.kill(self.process)?;
        }
        Ok(())
    }

    fn end(&self, place: &Place, number: u64, daemons: &mut Daemons) -> Outcome {
        match self.kind {
            Kind::Freeze => daemons.signal(self.process, Signal::CONT),
            Kind::Kill => daemons.serve_again(self.process),
            Kind::Wipe => {
                daemons.serve_again(self.process)?;
                // It cannot know whether the disk is only not mounted.
                if daemons.end_of(self.process)?.success() {
                    let name = daemons.name(self.process);
                    return Err(Failure::new(format!("{name} ended without an error, and has no target")));
                }
                let directory = match self.is_elsewhere {
                    true => self.other_disk(place, number, daemons)?,
                    false => place.directory.clone(),
                };
                self.replace(place, &directory, daemons)?;
                daemons.serve_again(self.process)
            }
        }
    }

    fn other_disk(&self, place: &Place, number: u64, daemons: &Daemons) -> Outcome<PathBuf> {
        let directory = daemons.place(self.process).join(format!("disk{number}"));
        fs::remove_dir(&place.directory).map_err(Failure::at(place.directory.display()))?;
        fs::create_dir(&directory).map_err(Failure::at(directory.display()))?;
        Ok(directory)
    }

    fn replace(&self, place: &Place, directory: &Path, daemons: &Daemons) -> Outcome {
        let target = format!("t{}", place.target);
        let (directory, cluster) = (directory.to_string_lossy(), daemons.directory().to_string_lossy());
        let node = daemons.name(self.process);
        let words = ["target", "replace", &target, &directory, "--dir", &cluster, "--node", node];
        daemons.run(&words).map(drop)
    }
}

/// Removes all that is in a directory.
fn empty(directory: &Path) -> Outcome {
    for entry in fs::read_dir(directory).map_err(Failure::at(directory.display()))? {
        let path = entry.map_err(Failure::at(directory.display()))?.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(Failure::at(path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::arguments;
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    #[test]
    fn one_copy_of_each_file_is_always_left() {
        for (copies, number) in (0..200).flat_map(|number| [(2, number), (3, number)]) {
            let mut random = StdRng::seed_from_u64(number);
            let faults = draw(&arguments(copies), number, &mut random);
            let servers: BTreeSet<usize> = faults.iter().map(|fault| fault.process).collect();
            assert_eq!((faults.len(), servers.len()), (copies as usize - 1, copies as usize - 1));
            assert!(servers.iter().all(|server| (1..=4).contains(server)), "{servers:?}");
            assert_eq!(faults[0].kind, KINDS[number as usize % 3], "each kind comes in three rounds");
        }
    }

    #[test]
    fn a_lost_disk_has_nothing_left_on_it() {
        let disk = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(disk.path().join("groups/1")).expect("made");
        fs::write(disk.path().join(".hidden"), "x").expect("written");
        empty(disk.path()).expect("emptied");
        assert_eq!(fs::read_dir(disk.path()).expect("is there").count(), 0);
    }
}
