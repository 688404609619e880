//! `vazao scrub --compare`: proves that all copies of files are equal.

use super::Arguments;
use crate::failure::{At, Failure, Outcome, report};
use crate::format;
use crate::location::{show_volume, volume_path, walk};
use crate::output::Output;
use crate::signals::{self, Stop};
use indicatif::ProgressBar;
use serde_json::json;
use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;
use vazao_client::{Client, ComparedCopies, CopyDifference, CopyFault};
use vazao_meter::{Clock, SystemClock};
use vazao_model::{FileKind, InodeId, TargetId, VolumePath};

/// Differences that are shown; the counts go on.
const SHOWN_MAX: u64 = 1000;

/// One that waits for its rate looks this often whether it is to stop.
const PAUSE_NS_MAX: u64 = 100_000_000;

/// What was found in all.
#[derive(Default)]
struct Total {
    files: u64,
    failed: u64,
    objects: u64,
    single: u64,
    bytes: u64,
    lagging: BTreeSet<TargetId>,
    damaged: u64,
    differing: u64,
    missing: u64,
    repaired: u64,
    shown: Vec<serde_json::Value>,
}

struct Comparing<'a> {
    client: &'a Client,
    repair: bool,
    rate_bytes: u64,
    bar: ProgressBar,
    stop: Stop,
    started_ns: u64,
    /// In all, also of the file that is being compared.
    bytes: Cell<u64>,
    /// Of files with several names.
    seen: HashSet<InodeId>,
    total: Total,
}

/// Compares all that is named.
pub(super) fn run(client: &Client, output: &mut Output, arguments: &Arguments) -> Outcome {
    let whole = [std::ffi::OsString::from("vz:/")];
    let named = if arguments.names.is_empty() { &whole[..] } else { &arguments.names[..] };
    let paths = named.iter().map(|path| volume_path(path)).collect::<Outcome<Vec<_>>>()?;
    let bar = output.spinner();
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    stop.hangs_up(client);
    let mut comparing = Comparing {
        client,
        repair: arguments.repair,
        rate_bytes: arguments.orders.rate_bytes(),
        bar,
        stop,
        started_ns: SystemClock.now_ns(),
        bytes: Cell::new(0),
        seen: HashSet::new(),
        total: Total::default(),
    };
    for path in &paths {
        if let Err(failure) = comparing.argument(output, path) {
            comparing.fail(output, &failure)?;
        }
    }
    comparing.bar.finish_and_clear();
    comparing.finish(output)
}

impl Comparing<'_> {
    fn argument(&mut self, output: &mut Output, path: &VolumePath) -> Outcome {
        let attributes = self.client.resolve(path, true).at(show_volume(path))?;
        match attributes.kind {
            FileKind::Directory => self.tree(output, path, attributes.inode),
            FileKind::File => self.file(output, path, attributes.inode),
            other => {
                let text = format!("is a {} and has no copies", format::kind(other));
                Err(Failure::new(format!("{}: {text}", show_volume(path))))
            }
        }
    }

    /// All files below a directory, one directory after the other.
    fn tree(&mut self, output: &mut Output, path: &VolumePath, inode: InodeId) -> Outcome {
        let mut directories = vec![(path.clone(), inode)];
        while let Some((path, inode)) = directories.pop() {
            let client = self.client;
            walk::pages(client, inode, &path, false, |page| {
                for entry in page {
                    if self.stop.is_asked() {
                        break;
                    }
                    let path = path.join(&entry.name);
                    match entry.kind {
                        FileKind::Directory => directories.push((path, entry.inode)),
                        FileKind::File => {
                            if let Err(failure) = self.file(output, &path, entry.inode) {
                                self.fail(output, &failure)?;
                            }
                        }
                        _ => {}
                    }
                }
                Ok(())
            })?;
            if self.stop.is_asked() {
                break;
            }
        }
        Ok(())
    }

    fn file(&mut self, output: &mut Output, path: &VolumePath, inode: InodeId) -> Outcome {
        if !self.seen.insert(inode) {
            return Ok(());
        }
        let place = show_volume(path);
        let progress = |bytes: u64| self.go_on(&place, bytes);
        let compared =
            self.client.administration().compare_copies(inode, self.repair, &progress).at(&place)?;
        let ComparedCopies { objects, single, bytes, lagging, differences, .. } = compared;
        let total = &mut self.total;
        total.files += 1;
        (total.objects, total.single, total.bytes) =
            (total.objects + objects, total.single + single, total.bytes + bytes);
        total.lagging.extend(lagging);
        differences.iter().try_for_each(|difference| self.difference(output, &place, difference))
    }

    /// Counts bytes, and waits where the rate demands it. False: it is to stop.
    fn go_on(&self, place: &str, bytes: u64) -> bool {
        self.bytes.set(self.bytes.get() + bytes);
        self.bar.set_message(format!("{} compared, {place}", format::size(self.bytes.get())));
        self.bar.tick();
        while !self.stop.is_asked() {
            let elapsed_ns = SystemClock.now_ns().saturating_sub(self.started_ns);
            let due_ns = match self.rate_bytes {
                0 => 0,
                rate => (u128::from(self.bytes.get()) * 1_000_000_000 / u128::from(rate)) as u64,
            };
            match due_ns.saturating_sub(elapsed_ns) {
                0 => return true,
                ahead_ns => SystemClock.sleep(Duration::from_nanos(ahead_ns.min(PAUSE_NS_MAX))),
            }
        }
        false
    }

    fn difference(&mut self, output: &mut Output, place: &str, found: &CopyDifference) -> Outcome {
        let total = &mut self.total;
        match found.fault {
            CopyFault::Damaged => total.damaged += 1,
            CopyFault::Differs | CopyFault::OtherEnd => total.differing += 1,
            CopyFault::Missing | CopyFault::Lost => total.missing += 1,
        }
        total.repaired += u64::from(found.repaired);
        if total.damaged + total.differing + total.missing > SHOWN_MAX {
            return Ok(());
        }
        let CopyDifference { slot, offset, target, fault, repaired } = *found;
        if output.json {
            total.shown.push(json!({
                "path": place, "slot": slot, "offset": offset, "target": target.0,
                "what": word(fault), "repaired": repaired,
            }));
            return Ok(());
        }
        let what = match fault {
            CopyFault::Damaged => "does not match its checksum",
            CopyFault::Differs => "has other contents than the primary's copy",
            CopyFault::Missing => "is missing; it is made anew from another copy, compare again in a minute",
            CopyFault::Lost => "is missing, and no copy that is up to date has it",
            CopyFault::OtherEnd => "ends elsewhere than the primary's copy",
        };
        let done = match (repaired, fault) {
            (true, CopyFault::Damaged) => "; repaired from another copy",
            (true, _) => "; replaced by the primary's",
            (false, CopyFault::Damaged) => "; no other copy is good: restore the file",
            (false, CopyFault::Missing) => "",
            (false, CopyFault::Lost) => {
                "; if it is still so in a minute, restore the file or remove it; a server that lags may have an older copy"
            }
            (false, _) => "; --repair replaces it",
        };
        self.bar
            .suspend(|| output.line(&format!("{place}: the copy on {target} at byte {offset} {what}{done}")))
    }

    fn fail(&mut self, output: &mut Output, failure: &Failure) -> Outcome {
        self.total.failed += 1;
        output.flush()?;
        self.bar.suspend(|| report(failure));
        Ok(())
    }

    fn finish(self, output: &mut Output) -> Outcome {
        let total = &self.total;
        let found = total.damaged + total.differing + total.missing;
        let is_whole = total.failed == 0 && total.lagging.is_empty() && !self.stop.is_asked();
        let is_equal = found == total.repaired && is_whole;
        if output.json {
            output.value(&json!({
                "files": total.files,
                "failed": total.failed,
                "objects": total.objects,
                "one_copy": total.single,
                "bytes": total.bytes,
                "lagging": total.lagging.iter().map(|target| target.0).collect::<Vec<_>>(),
                "damaged": total.damaged,
                "differing": total.differing,
                "missing": total.missing,
                "repaired": total.repaired,
                "equal": is_equal,
                "differences": total.shown,
            }))?;
        } else {
            self.bar.suspend(|| total.show(output, is_equal))?;
        }
        match (self.stop.is_asked(), is_equal) {
            (true, _) => Err(Failure::new("interrupted; what was not compared yet is not known to be equal")),
            (false, true) => Ok(()),
            (false, false) => Err(Failure::Reported),
        }
    }
}

impl Total {
    fn show(&self, output: &mut Output, is_equal: bool) -> Outcome {
        if self.single > 0 {
            let objects = format::count(self.single, "object", "objects");
            output.line(&format!("{objects} with one copy: nothing to compare"))?;
        }
        if !self.lagging.is_empty() {
            let names: Vec<String> = self.lagging.iter().map(ToString::to_string).collect();
            output.line(&format!(
                "not compared: copies on {}, which have not caught up yet; see `vazao status`",
                names.join(", ")
            ))?;
        }
        let objects = format::count(self.objects, "object", "objects");
        let begin = format!("{objects}, {} compared", format::size(self.bytes));
        let found = self.damaged + self.differing + self.missing;
        let places = format::count(found, "place was not", "places were not");
        let end = match (is_equal, found) {
            (true, 0) if self.objects == 0 => "there are no copies of them".to_owned(),
            (true, 0) => "all copies are equal".to_owned(),
            (true, _) => format!("{places} equal and repaired; all copies are equal now"),
            (false, 0) if self.failed == 0 => {
                "what was compared is equal; compare the rest again later".to_owned()
            }
            (false, 0) => "not all of it could be compared".to_owned(),
            (false, _) => format!("{places} equal, {} of them repaired", self.repaired),
        };
        output.line(&format!("{begin}, {end}"))
    }
}

fn word(fault: CopyFault) -> &'static str {
    match fault {
        CopyFault::Damaged => "damaged",
        CopyFault::Differs => "differs",
        CopyFault::Missing => "missing",
        CopyFault::Lost => "lost",
        CopyFault::OtherEnd => "other_end",
    }
}
