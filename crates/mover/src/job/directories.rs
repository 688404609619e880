//! The directories of a job: made before the first file, finished after the last, several at a time, for each takes a
//! round trip to the other node.

use super::state::Job;
use std::io;
use std::thread;
use vazao_meter::Clock;
use vazao_model::FileKind;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Directories at once: over 100 ms a thousand of them take some seconds.
const AT_ONCE: usize = 16;

/// What is done with a directory.
pub(super) type Act<'a> = dyn Fn(&proto::PlanEntry) -> Result<(), Fault> + Sync + 'a;

/// Does something with each directory of a job's plan; with those above it before. `own` makes a fault of what the
/// daemon's own disk says.
pub(super) fn each_of(
    job: &Job,
    clock: &dyn Clock,
    own: &dyn Fn(&io::Error) -> Fault,
    act: &Act<'_>,
) -> Result<(), Fault> {
    let mut together = Vec::new();
    for (_, entry) in job.files.plan().map_err(|error| own(&error))? {
        if FileKind::from_number(entry.kind) != Some(FileKind::Directory) {
            continue;
        }
        if together.len() == AT_ONCE || together.iter().any(|above| is_below(&entry, above)) {
            job.control.check(clock.now_ns())?;
            each(&together, act)?;
            together.clear();
        }
        together.push(entry);
    }
    job.control.check(clock.now_ns())?;
    each(&together, act)
}

fn is_below(entry: &proto::PlanEntry, above: &proto::PlanEntry) -> bool {
    let rest = entry.destination.strip_prefix(&above.destination[..]);
    // The root of an area or of the volume ends in its slash.
    rest.is_some_and(|rest| rest.starts_with(b"/") || above.destination.ends_with(b"/"))
}

/// All at once; the first fault in their order.
fn each(entries: &[proto::PlanEntry], act: &Act<'_>) -> Result<(), Fault> {
    let Some((first, others)) = entries.split_first() else { return Ok(()) };
    thread::scope(|scope| {
        let begin = |entry| {
            let spawned =
                thread::Builder::new().name("directory".to_owned()).spawn_scoped(scope, move || act(entry));
            // Without a thread it is done here, one after the other.
            spawned.map_err(|_| act(entry))
        };
        let begun: Vec<_> = others.iter().map(begin).collect();
        let mut outcome = act(first);
        for one in begun {
            outcome = outcome.and(match one {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(done) => done,
            });
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Barrier;
    use vazao_model::Code;

    fn entry(destination: &str) -> proto::PlanEntry {
        proto::PlanEntry { destination: destination.into(), ..proto::PlanEntry::default() }
    }

    #[test]
    fn a_directory_is_below_those_that_its_path_goes_through_and_no_others() {
        for (below, above) in [("n1:/a/x/y", "n1:/a/x"), ("vz:/x", "vz:/"), ("n1:/a/x/y/z", "n1:/a/x")] {
            assert!(is_below(&entry(below), &entry(above)), "{below} in {above}");
        }
        for (other, above) in [("n1:/a/xy", "n1:/a/x"), ("n1:/a/x", "n1:/a/x"), ("n1:/a/x", "n1:/a/x/y")] {
            assert!(!is_below(&entry(other), &entry(above)), "{other} in {above}");
        }
    }

    #[test]
    fn directories_side_by_side_are_made_at_the_same_time_and_one_that_fails_fails_the_job() {
        let barrier = Barrier::new(5);
        let made = Mutex::new(Vec::new());
        let entries: Vec<_> = ["a", "b", "c", "d", "e"].map(entry).into();
        let act = |entry: &proto::PlanEntry| {
            barrier.wait();
            made.lock().push(entry.destination.clone());
            match entry.destination[0] {
                b'b' | b'd' => Err(Fault::new(Code::NoSpace, String::from_utf8_lossy(&entry.destination))),
                _ => Ok(()),
            }
        };
        assert_eq!(each(&entries, &act), Err(Fault::new(Code::NoSpace, "b")));
        assert_eq!(made.lock().len(), 5);
        assert_eq!(each(&[], &|_| panic!("nothing to do")), Ok(()));
    }
}
