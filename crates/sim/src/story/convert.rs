//! Distributions of stories, and files that get another one in the middle.

use super::Story;
use rand::RngExt;
use vazao_client::Convert;
use vazao_model::distribution::{Pattern, Strip};
use vazao_model::{Code, FileKind, InodeId, LayoutHint};

/// Each distribution in turn.
pub(super) fn pattern_of(seed: u64) -> Pattern {
    let strip = |slot, units: u64| Strip { slot, bytes: units * (64 << 10) };
    match seed % 4 {
        0 => Pattern::Strips(vec![strip(0, 1), strip(1, 3), strip(0, 1)]),
        1 => Pattern::Groups { groups: 2, factor: 2 },
        2 => Pattern::Local,
        _ => Pattern::Stripe,
    }
}

impl Story {
    /// Gives a file another layout, from a client that does not have it open itself; the contents stay as they are.
    pub(super) fn convert(&mut self) {
        let (files, client) = (self.tree.of_kind(FileKind::File), self.client());
        let is_held = |inode: &u64| self.handles.iter().any(|h| h.inode == *inode && h.client == client);
        let free: Vec<u64> = files.into_iter().filter(|inode| !is_held(inode)).collect();
        if free.is_empty() {
            return;
        }
        let inode = free[self.random.random_range(0..free.len())];
        let pattern = pattern_of(self.random.random());
        self.note(format!("{client}: convert {inode} to {pattern:?}"));
        let hint =
            LayoutHint { stripe_unit_bytes: 64 << 10, pattern: Some(pattern), ..LayoutHint::default() };
        let how = Convert { hint, is_dry_run: false, rate_bytes_max: 0 };
        if self.handles.iter().any(|handle| handle.inode == inode) {
            self.converted.insert(inode);
        }
        self.contents.entry(inode).or_default().moves();
        match self.clients[client].convert(InodeId(inode), &how, &|_| true) {
            Ok(done) => self.note(format!("  {} bytes, changed: {}", done.bytes, done.is_changed)),
            Err(error) if matches!(error.code, Code::InUse | Code::Stale) => self.note(format!("  {error}")),
            Err(error) => self.explain(inode, &error),
        }
    }
}
