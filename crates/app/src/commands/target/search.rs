//! Finds the files of the volume that lie on a target, by their layouts: the target itself is not asked, and may be gone.

use crate::failure::{At, Failure, Outcome, report};
use crate::location::show_volume;
use crate::output::Output;
use crate::parallel;
use parking_lot::Mutex;
use vazao_client::{Client, Entry, Error};
use vazao_model::ids::ROOT;
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Attributes, Code, FileKind, InodeId, Layout, TargetId, VolumePath};

/// A file with a slot on the target.
pub(super) struct Found {
    pub(super) path: VolumePath,
    pub(super) attributes: Attributes,
    pub(super) layout: Layout,
    /// Those of its slots.
    pub(super) slots: Vec<u32>,
    /// What it has there of any of these counts as a good copy; else the target lags in all of their groups.
    pub(super) is_good: bool,
    /// Good copies that lie elsewhere, of the slot that has the fewest.
    pub(super) other_copies: usize,
}

impl Found {
    /// Those of its slots on the target that have been written to.
    pub(super) fn written(&self) -> Vec<u32> {
        self.slots.iter().copied().filter(|slot| self.layout.is_written(*slot)).collect()
    }
}

/// A walk over the whole volume. What damage of the metadata hides is reported, and the walk goes on.
pub(super) struct Search<'a> {
    client: &'a Client,
    target: TargetId,
    /// Directories that are still to be listed.
    waiting: Vec<(InodeId, VolumePath)>,
    /// Something could not be looked at.
    is_incomplete: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(client: &'a Client, target: TargetId) -> Search<'a> {
        Search { client, target, waiting: vec![(ROOT, VolumePath::default())], is_incomplete: false }
    }

    /// Shows each file of which `is_wanted`, page by page of the directories. One with several names is shown with each.
    /// True when everything was looked at.
    pub(super) fn run(
        mut self,
        output: &mut Output,
        is_wanted: impl Fn(&Attributes) -> bool,
        mut show: impl FnMut(&mut Output, Found) -> Outcome,
    ) -> Outcome<bool> {
        while let Some((directory, path)) = self.waiting.pop() {
            let mut cookie = Some(0);
            while let Some(from) = cookie {
                let page = self.client.list(directory, from, LIST_ENTRIES_MAX, true);
                let Some(page) = self.readable(page, &path)? else { break };
                cookie = page.entries.last().filter(|_| !page.end).map(|entry| entry.cookie);
                let files = self.files(page.entries, &path, &is_wanted);
                for found in self.layouts(files)? {
                    show(output, found)?;
                }
                output.flush()?;
            }
        }
        Ok(!self.is_incomplete)
    }

    /// What was asked of a path; `None` where it was removed meanwhile, or is damaged. Errors: there is no answer.
    fn readable<T>(&mut self, asked: vazao_client::Result<T>, path: &VolumePath) -> Outcome<Option<T>> {
        match asked {
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) if error.code == Code::Corrupt => {
                report(&Failure::from(error.about(show_volume(path))));
                self.is_incomplete = true;
                Ok(None)
            }
            other => other.map(Some).at(show_volume(path)),
        }
    }

    /// The files of a page; its directories wait.
    fn files(
        &mut self,
        entries: Vec<Entry>,
        directory: &VolumePath,
        is_wanted: impl Fn(&Attributes) -> bool,
    ) -> Vec<(VolumePath, Attributes)> {
        let mut files = Vec::new();
        for entry in entries {
            let path = directory.join(&entry.name);
            match (entry.kind, entry.attributes) {
                (FileKind::Directory, _) => self.waiting.push((entry.inode, path)),
                (FileKind::File, Some(attributes)) if is_wanted(&attributes) => {
                    files.push((path, attributes));
                }
                _ => {}
            }
        }
        files
    }

    /// Those with a slot on the target, in order; several layouts are asked for at once.
    fn layouts(&mut self, files: Vec<(VolumePath, Attributes)>) -> Outcome<Vec<Found>> {
        let asked: Vec<_> = files.into_iter().map(|file| (file, Mutex::new(None))).collect();
        let client = self.client;
        parallel::for_each(&asked, |((_, attributes), place)| {
            *place.lock() = Some(client.layout(attributes.inode));
            Ok(())
        })?;
        let map = client.map();
        let mut found = Vec::new();
        for ((path, attributes), place) in asked {
            let Some(layout) = place.into_inner() else { continue };
            let layout = self.readable(layout, &path)?.flatten();
            let Some(layout) = layout else { continue };
            let group = |slot: u32| layout.groups[slot as usize];
            let counts = |slot: &u32| map.members(group(*slot)).contains(&self.target);
            let lags = |slot: &u32| {
                let away = map.away(group(*slot));
                away.is_some_and(|away| away.members.iter().any(|member| member.target == self.target))
            };
            let slots: Vec<u32> = (0..layout.width()).filter(|slot| counts(slot) || lags(slot)).collect();
            let others = |slot: &u32| {
                map.members(group(*slot)).iter().filter(|member| **member != self.target).count()
            };
            let written = slots.iter().filter(|slot| layout.is_written(**slot));
            let other_copies = written.map(others).min().unwrap_or(0);
            if !slots.is_empty() {
                let is_good = slots.iter().any(counts);
                found.push(Found { path, attributes, layout, slots, is_good, other_copies });
            }
        }
        Ok(found)
    }
}

/// It was removed between the look at its directory and this one.
fn is_gone(error: &Error) -> bool {
    matches!(error.code, Code::NotFound | Code::Stale)
}
