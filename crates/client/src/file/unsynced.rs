//! Changes of objects that an fsync has yet to make durable, and under which start of its machine each was answered.
//!
//! A machine that has started anew since may have lost what it had answered. What was changed under an earlier start
//! and not synced then counts as lost: no later fsync may call it durable until it was written again.

use std::collections::BTreeMap;
use std::ops::Range;
use vazao_model::Layout;

/// Ranges of one object kept apart; beyond that everything between them counts as changed too.
const SPANS_MAX: usize = 64;

/// A changed range, of an object or of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) range: Range<u64>,
    /// It was made to read as zeros, not written.
    pub(crate) is_cut: bool,
}

/// The changes of one object, all of them under one start of its machine.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Changes {
    boot: u64,
    spans: Vec<Span>,
}

/// The changes of one file.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Unsynced {
    slots: BTreeMap<u32, Changes>,
    /// The layout that they were made under.
    layout: Option<Layout>,
    /// Those made under layouts of the same life that this one was converted from: what power took of them before it
    /// was copied is lost.
    former: Vec<Former>,
}

/// Changes under a layout that the file has no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Former {
    pub(crate) layout: Layout,
    slots: BTreeMap<u32, Changes>,
}

impl Former {
    /// Its slots on each start of a machine, one by one.
    pub(crate) fn by_boot(&self) -> Vec<(u64, u32)> {
        self.slots.iter().map(|(&slot, changes)| (changes.boot, slot)).collect()
    }

    /// What was changed in one of them.
    pub(crate) fn spans(&self, slot: u32) -> Vec<(u32, Span)> {
        let spans = self.slots.get(&slot).map_or(&[][..], |changes| &changes.spans);
        spans.iter().map(|span| (slot, span.clone())).collect()
    }

    /// That slot alone.
    pub(crate) fn only(&self, slot: u32) -> Former {
        let changes = self.slots.get(&slot).cloned();
        Former {
            layout: self.layout.clone(),
            slots: changes.map(|changes| (slot, changes)).into_iter().collect(),
        }
    }
}

impl Unsynced {
    /// True when nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.former.is_empty()
    }

    /// What is left of them when the file has this layout, `None` for one without objects.
    pub(crate) fn under(mut self, layout: Option<&Layout>) -> Unsynced {
        let (Some(mine), Some(now)) = (&self.layout, layout) else { return Unsynced::default() };
        if mine.generation == now.generation {
            return self;
        }
        if !mine.is_same_life(now) {
            return Unsynced::default();
        }
        let former = Former { layout: mine.clone(), slots: std::mem::take(&mut self.slots) };
        if !former.slots.is_empty() {
            self.former.push(former);
        }
        Unsynced { slots: BTreeMap::new(), layout: Some(now.clone()), former: self.former }
    }

    /// Takes the changes under former layouts away.
    pub(crate) fn take_former(&mut self) -> Vec<Former> {
        std::mem::take(&mut self.former)
    }

    /// Takes back what an fsync has not come to know of.
    pub(crate) fn restore_former(&mut self, former: Former) {
        if self.layout.is_none() {
            self.layout = Some(former.layout.clone());
        }
        self.former.push(former);
    }

    /// Notes a change of an object, answered by its machine during its start `boot`; 0 is that of a server that does
    /// not know. Returns what was changed under another start, and not again now: it may be lost.
    pub(crate) fn note(&mut self, layout: &Layout, slot: u32, span: Span, boot: u64) -> Vec<Span> {
        if self.layout.as_ref().is_none_or(|mine| mine.generation != layout.generation) {
            *self = std::mem::take(self).under(Some(layout));
            self.layout = Some(layout.clone());
        }
        if boot == 0 {
            return Vec::new();
        }
        let changes = self.slots.entry(slot).or_insert_with(|| Changes { boot, spans: Vec::new() });
        let earlier = if changes.boot == boot { Vec::new() } else { std::mem::take(&mut changes.spans) };
        changes.boot = boot;
        let lost = without(earlier, std::slice::from_ref(&span));
        changes.add(span);
        lost
    }

    /// Takes back what an fsync of `slots` that did not come through had taken over. Returns what may be lost, by slot.
    pub(crate) fn restore(&mut self, layout: &Layout, earlier: &Unsynced, slots: &[u32]) -> Vec<(u32, Span)> {
        let mut lost = Vec::new();
        for (&slot, changes) in earlier.slots.iter().filter(|(slot, _)| slots.contains(slot)) {
            let is_over = self.slots.get(&slot).is_some_and(|now| now.boot != changes.boot);
            if is_over {
                lost.extend(self.unwritten(earlier, &[slot]));
                continue;
            }
            for span in &changes.spans {
                self.note(layout, slot, span.clone(), changes.boot);
            }
        }
        lost
    }

    /// What `earlier` has of `slots` and was not changed again since.
    pub(crate) fn unwritten(&self, earlier: &Unsynced, slots: &[u32]) -> Vec<(u32, Span)> {
        let changes = earlier.slots.iter().filter(|(slot, _)| slots.contains(slot));
        let left = changes.flat_map(|(&slot, changes)| {
            let since = self.slots.get(&slot).map_or(&[][..], |now| &now.spans);
            without(changes.spans.clone(), since).into_iter().map(move |span| (slot, span))
        });
        left.collect()
    }

    /// The slots of one server in groups whose changes have a start in common, 0 where none is known.
    pub(crate) fn by_boot(&self, slots: &[u32]) -> Vec<(u64, Vec<u32>)> {
        let mut groups: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for &slot in slots {
            let boot = self.slots.get(&slot).map_or(0, |changes| changes.boot);
            groups.entry(boot).or_default().push(slot);
        }
        // What nothing is known of can go with any of them.
        if groups.len() > 1
            && let Some(unknown) = groups.remove(&0)
            && let Some(mut first) = groups.first_entry()
        {
            first.get_mut().extend(unknown);
        }
        groups.into_iter().collect()
    }
}

impl Changes {
    /// Adds a span, joined with those that it touches.
    fn add(&mut self, mut span: Span) {
        self.spans.retain(|other| {
            let touches = other.range.start <= span.range.end && span.range.start <= other.range.end;
            let is_one = touches && (other.is_cut == span.is_cut || is_within(&other.range, &span.range));
            if is_one {
                let start = span.range.start.min(other.range.start);
                span.range = start..span.range.end.max(other.range.end);
            }
            !is_one
        });
        self.spans.push(span);
        if self.spans.len() > SPANS_MAX {
            let start = self.spans.iter().map(|span| span.range.start).min().unwrap_or(0);
            let end = self.spans.iter().map(|span| span.range.end).max().unwrap_or(0);
            let is_cut = self.spans.iter().all(|span| span.is_cut);
            self.spans = vec![Span { range: start..end, is_cut }];
        }
    }
}

fn is_within(inner: &Range<u64>, outer: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// `spans` less what lies in `taken`.
fn without(spans: Vec<Span>, taken: &[Span]) -> Vec<Span> {
    let cut = |spans: Vec<Span>, taken: &Range<u64>| -> Vec<Span> {
        let rest = |span: Span| {
            let before = span.range.start..span.range.end.min(taken.start);
            let after = span.range.start.max(taken.end)..span.range.end;
            let is_cut = span.is_cut;
            [before, after]
                .into_iter()
                .filter(|range| range.start < range.end)
                .map(move |range| Span { range, is_cut })
        };
        spans.into_iter().flat_map(rest).collect()
    };
    taken.iter().fold(spans, |spans, taken| cut(spans, &taken.range))
}

/// The ranges of the file that a range of the object of `slot` stands for; when they are very many, the one that holds
/// them all.
pub(crate) fn in_file(layout: &Layout, slot: u32, object: &Range<u64>) -> Vec<Range<u64>> {
    if object.is_empty() {
        return Vec::new();
    }
    let place = |at: u64| layout.distribution.file_offset(slot, at, layout.width()).unwrap_or(u64::MAX);
    let ranges = layout.distribution.file_ranges(slot, object, layout.width(), SPANS_MAX);
    let all = place(object.start)..place(object.end - 1).saturating_add(1);
    ranges.unwrap_or_else(|| Vec::from([all]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::GroupId;

    const UNIT: u64 = 65_536;

    fn layout(width: u32) -> Layout {
        Layout::striped(1, UNIT, (1..=width).map(GroupId).collect()).expect("valid")
    }

    fn written(range: Range<u64>) -> Span {
        Span { range, is_cut: false }
    }

    #[test]
    fn a_new_start_of_the_machine_loses_what_was_not_written_again_with_it() {
        let mut unsynced = Unsynced::default();
        assert!(unsynced.note(&layout(1), 0, written(0..100), 7).is_empty());
        assert!(unsynced.note(&layout(1), 0, written(100..200), 7).is_empty());
        let lost = unsynced.note(&layout(1), 0, written(50..150), 8);
        assert_eq!(lost, [written(0..50), written(150..200)]);
        assert_eq!(unsynced.by_boot(&[0, 1]), [(8, vec![0, 1])]);
        assert!(unsynced.note(&layout(1), 1, written(0..1), 7).is_empty(), "another object");
        assert_eq!(unsynced.by_boot(&[0, 1]), [(7, vec![1]), (8, vec![0])]);
    }

    #[test]
    fn what_was_written_while_an_fsync_failed_is_not_lost_with_the_rest() {
        let mut unsynced = Unsynced::default();
        unsynced.note(&layout(1), 0, written(0..100), 7);
        let begun = std::mem::take(&mut unsynced);
        unsynced.note(&layout(1), 0, written(0..40), 8);
        assert_eq!(unsynced.unwritten(&begun, &[0]), [(0, written(40..100))]);
        assert_eq!(unsynced.restore(&layout(1), &begun, &[0]), [(0, written(40..100))]);
        let mut same = Unsynced::default();
        assert!(same.restore(&layout(1), &begun, &[0]).is_empty());
        assert_eq!(same, begun);
    }

    #[test]
    fn many_ranges_become_one_and_another_life_has_none() {
        let mut unsynced = Unsynced::default();
        for at in 0..=SPANS_MAX as u64 {
            unsynced.note(&layout(1), 0, written(at * 10..at * 10 + 1), 7);
        }
        let lost = unsynced.clone().note(&layout(1), 0, written(5000..5001), 8);
        assert_eq!(lost, [written(0..10 * SPANS_MAX as u64 + 1)]);
        let other = Layout::striped(2, UNIT, vec![GroupId(1)]).expect("valid");
        assert!(unsynced.clone().under(Some(&other)).is_empty());
        let mut converted = unsynced.under(Some(&Layout { life: 1, ..other }));
        let former = converted.take_former();
        assert!(converted.is_empty() && former.len() == 1);
        assert_eq!(former[0].by_boot(), [(7, 0)]);
        assert_eq!(former[0].spans(0), [(0, written(0..10 * SPANS_MAX as u64 + 1))]);
    }

    #[test]
    fn ranges_of_an_object_are_found_in_the_file() {
        let found = in_file(&layout(2), 1, &(UNIT - 10..2 * UNIT + 5));
        assert_eq!(found, [2 * UNIT - 10..2 * UNIT, 3 * UNIT..4 * UNIT, 5 * UNIT..5 * UNIT + 5]);
        let one = |width, object| in_file(&layout(width), 0, &object).first().cloned();
        assert_eq!(one(1, 3..3 * UNIT), Some(3..3 * UNIT));
        assert_eq!(one(2, 0..100 * UNIT), Some(0..199 * UNIT));
    }
}
