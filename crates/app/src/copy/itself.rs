//! Copies of something into or onto itself, noticed by whatever names its two ends have: a mount and `vz:`, a path of
//! this machine and an area, hard links.
//!
//! Before anything is copied the directories above the destination are compared with the source. What is mounted below
//! a source is seen only on the way: there each directory is compared with those that the copy began to fill.

use super::tree::{Origin, Tree};
use super::{Item, Transfer};
use crate::failure::{Failure, Outcome};

/// A path with the tree that it is in.
type End<'a> = (&'a dyn Tree, &'a [u8]);

/// Refuses a file that is to replace itself, and a directory that would go into itself.
pub(crate) fn check(from: End<'_>, to: End<'_>, is_directory: bool) -> Outcome {
    let Some(source) = from.0.origin(from.1)? else { return Ok(()) };
    let (shown, shown_there) = (from.0.show(from.1), to.0.show(to.1));
    if to.0.origin(to.1)?.as_ref() == Some(&source) {
        return Err(Failure::new(format!("{shown} and {shown_there} are the same file")));
    }
    if is_directory && lies_in(&source, to)? {
        return Err(into_itself(&shown, &shown_there));
    }
    Ok(())
}

/// True when both lead to the same file.
pub(super) fn is_same(from: End<'_>, to: End<'_>) -> Outcome<bool> {
    let source = from.0.origin(from.1)?;
    Ok(source.is_some() && source == to.0.origin(to.1)?)
}

fn into_itself(shown: &str, shown_there: &str) -> Failure {
    Failure::new(format!("{shown}: cannot be copied into itself: {shown_there} lies in it"))
}

/// True when one of the directories above a destination is the source itself.
fn lies_in(source: &Origin, (tree, path): End<'_>) -> Outcome<bool> {
    let mut here = path.to_vec();
    // The deepest that is there: behind a link its names may lead elsewhere.
    let mut is_real = false;
    while let Some(above) = tree.above(&here)? {
        here = above;
        let Some(origin) = tree.origin(&here)? else { continue };
        if origin == *source {
            return Ok(true);
        }
        if !is_real {
            is_real = true;
            // Of an area only the node knows where its links lead: these have to be named without.
            here = tree.real_path(&here).unwrap_or(here);
            if tree.origin(&here)?.as_ref() == Some(source) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Directories that a copy of trees fills: the ones it was told to, where their contents go.
#[derive(Default)]
pub(super) struct Made {
    roots: Vec<(Origin, Vec<u8>)>,
}

impl Made {
    /// Refuses a directory of a source that is one of them.
    pub(super) fn check(&self, transfer: Transfer<'_>, item: &Item) -> Outcome {
        if item.below.is_empty() || self.roots.is_empty() {
            return Ok(());
        }
        let Some(here) = transfer.from.origin(&item.source)? else { return Ok(()) };
        match self.roots.iter().find(|(origin, _)| *origin == here) {
            Some((_, path)) => Err(into_itself(&transfer.from.show(&item.source), &transfer.to.show(path))),
            None => Ok(()),
        }
    }

    /// The destination of a whole tree is there.
    pub(super) fn note(&mut self, transfer: Transfer<'_>, item: &Item) -> Outcome {
        if !transfer.may_meet || !item.below.is_empty() {
            return Ok(());
        }
        if let Some(origin) = transfer.to.origin(&item.destination)? {
            self.roots.push((origin, item.destination.clone()));
        }
        Ok(())
    }
}
