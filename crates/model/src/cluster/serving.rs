//! What one member's process knows of its placement group, and what it may do by that: grant, serve reads, acknowledge
//! changes. It holds no data and sends nothing.
//!
//! - A member serves reads while it is current, its own process is the one in the record, and it holds leases of all
//!   other members that count. It asks again after each read, before the answer leaves.
//! - The primary acknowledges changes on top of that once its own grants to all that do not count have ended, so that
//!   none of them serves what was before the change.
//! - The members that count are the current ones, and one whose promotion the authority is about to be asked for: the
//!   answer may be lost, and it would be current without the others knowing. **All** current members hold it so before
//!   the authority is asked, and until a newer record says what became of it. Held so by the primary alone, a third
//!   member would go on serving reads by the primary's lease, while the promoted one, which has put both of them out,
//!   has waited for its own grants only.
//! - A process that starts waits for what the one before it may have granted. None has granted anything in a group that
//!   was made with this very process: a lease is granted by a process that the record names, and no earlier one was
//!   ever in a record of the group ([`MemberState::begun`]). It is no matter of clocks: there is nothing that could end
//!   too late.
//! - A primary begins a promotion only when it might acknowledge changes: a promoted member that goes on alone waits
//!   for its own grants, and knows nothing of those that the primary gave to a member that was put out before.

use crate::cluster::lease::{Grant, Lease, Moment};
use crate::cluster::membership::{Member, Membership, Standing};
use crate::ids::TargetId;
use std::collections::BTreeMap;

/// A primary that has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormerPrimary {
    /// The member.
    pub target: TargetId,
    /// Its process.
    pub run: u64,
    /// An epoch in which it was the primary.
    pub epoch: u64,
    /// Its group has two members: the other one has missed nothing that it had.
    pub is_pair: bool,
}

/// A process has started in the place of another one that was current, and has gone on alone.
#[derive(Clone, Debug)]
struct WentOn {
    /// The record before.
    before: Membership,
    /// The first epoch in which it is known to be the primary.
    first: u64,
}

/// A member that had everything when the primary's process began to lead, and lacks what was changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HadAll {
    /// Its process then.
    pub run: u64,
    /// The first epoch without it.
    pub since: u64,
}

/// One process's view of one of its groups.
#[derive(Clone, Debug)]
pub struct MemberState {
    own: TargetId,
    run: u64,
    record: Option<Membership>,
    /// The one that it knew before.
    former: Option<Membership>,
    /// While this process leads.
    went_on: Option<WentOn>,
    /// The member whose promotion is under way in the record's epoch.
    promoting: Option<TargetId>,
    leases: BTreeMap<TargetId, Lease>,
    grants: BTreeMap<TargetId, Grant>,
    /// What the process before this one may have granted to any member.
    inherited: Grant,
}

impl MemberState {
    /// A process that has started; `steady_ns`: its clock then, or later.
    pub fn started(own: TargetId, run: u64, steady_ns: u64) -> MemberState {
        let mut inherited = Grant::default();
        inherited.give(steady_ns);
        let (leases, grants) = (BTreeMap::new(), BTreeMap::new());
        let (record, former, went_on, promoting) = (None, None, None, None);
        MemberState { own, run, record, former, went_on, promoting, leases, grants, inherited }
    }

    /// A process that has started, with the first record of the group that it hears of. The caller knows that neither
    /// this process nor one before it was a member of another group of that number; else it is to be
    /// [`MemberState::started`].
    pub fn begun(own: TargetId, run: u64, steady_ns: u64, record: &Membership) -> MemberState {
        let mut state = MemberState::started(own, run, steady_ns);
        if record.is_made_with(own, run) {
            state.inherited = Grant::default();
        }
        state.learn(record);
        state
    }

    /// The epoch that it knows; 0: none.
    pub fn epoch(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.epoch)
    }

    /// The record that it knows.
    pub fn record(&self) -> Option<&Membership> {
        self.record.as_ref()
    }

    /// The primary before this one, where this process followed it and is the primary now, with no other having led in
    /// between. `None`: that is not so, or not known.
    pub fn former_primary(&self) -> Option<FormerPrimary> {
        let (former, record) = (self.former.as_ref()?, self.record.as_ref()?);
        let own =
            |record: &Membership| record.current().position(|it| (it.target, it.run) == (self.own, self.run));
        let (before, Some(0)) = (own(former)?, own(record)) else { return None };
        let since = |target: TargetId| match record.member(target)?.standing {
            Standing::Lagging { since } if since > former.epoch => Some(since),
            _ => None,
        };
        let primary = former.primary().filter(|_| before > 0)?;
        let left = since(primary.target)?;
        // All that were to lead before this one went with the primary, or before it.
        let led_none =
            former.current().take(before).all(|other| since(other.target).is_some_and(|since| since <= left));
        let is_pair = former.members.len() == 2 && record.members.len() == 2;
        let (target, run, epoch) = (primary.target, primary.run, former.epoch);
        led_none.then_some(FormerPrimary { target, run, epoch, is_pair })
    }

    /// It hears of a record. An older one changes nothing; a newer one ends a promotion that was under way.
    pub fn learn(&mut self, record: &Membership) {
        if record.epoch <= self.epoch() {
            return;
        }
        self.went_on = self.went_on_by(record);
        self.former = self.record.replace(record.clone());
        self.promoting = None;
        // A member that comes back does so with leases of its own.
        let counting: Vec<TargetId> = self.counting().collect();
        self.leases.retain(|target, _| counting.contains(target));
    }

    /// What is known, with this newer record, of how it began to lead.
    fn went_on_by(&self, record: &Membership) -> Option<WentOn> {
        let is_own = |(target, run): (TargetId, u64)| (target, run) == (self.own, self.run);
        let leads = record.primary().is_some_and(|first| is_own((first.target, first.run)));
        let began = || {
            let before = self.record.as_ref().filter(|_| record.current().count() == 1)?;
            let was_current = |it: &Member| it.target == self.own && it.run != self.run;
            let went_on = || WentOn { before: before.clone(), first: record.epoch };
            before.current().any(was_current).then(went_on)
        };
        if leads { self.went_on.clone().or_else(began) } else { None }
    }

    /// Whether it leads since it went on alone in the place of another process of its own.
    pub fn has_gone_on(&self) -> bool {
        self.went_on.is_some()
    }

    /// Of a member that lags: whether it had everything when this process began to lead, which has led ever since. It
    /// was current beside the process before this one, and was put out as this one went on alone.
    pub fn had_all(&self, target: TargetId) -> Option<HadAll> {
        let WentOn { before, first } = self.went_on.as_ref()?;
        let Standing::Lagging { since } = self.record.as_ref()?.member(target)?.standing else { return None };
        // What had acknowledged anything in between would have put this one out.
        let was = before.current().find(|member| member.target == target)?;
        (since <= *first).then_some(HadAll { run: was.run, since })
    }

    /// The primary begins the promotion of the lagging member `target`, or goes on with it. False: it may not now.
    pub fn begin_promotion(&mut self, target: TargetId, now: Moment) -> bool {
        let may = self.promoting == Some(target) || self.may_acknowledge(now);
        may && self.hold_promoted(target, self.epoch())
    }

    /// It holds the lagging member `target` for current from now on, in `epoch`. False: it does not.
    pub fn hold_promoted(&mut self, target: TargetId, epoch: u64) -> bool {
        let record = self.record.as_ref().filter(|record| record.epoch == epoch && self.is_own_run());
        let lags = |record: &Membership| {
            record.member(target).is_some_and(|member| matches!(member.standing, Standing::Lagging { .. }))
        };
        let holds = record.is_some_and(lags) && self.promoting.is_none_or(|other| other == target);
        self.promoting = if holds { Some(target) } else { self.promoting };
        holds
    }

    /// The members that count in the epoch that it knows.
    pub fn counting(&self) -> impl Iterator<Item = TargetId> {
        let current = self.record.iter().flat_map(Membership::current).map(|member| member.target);
        current.chain(self.promoting)
    }

    /// True when the record has this process of its own target.
    fn is_own_run(&self) -> bool {
        let own = self.record.as_ref().and_then(|record| record.member(self.own));
        own.is_some_and(|member| member.run == self.run)
    }

    fn counts(&self, target: TargetId) -> bool {
        self.counting().any(|other| other == target)
    }

    /// Another member asks for a lease, in the epoch that it knows; `run`: its process. True: granted, and kept before
    /// the answer leaves.
    pub fn grant(&mut self, to: TargetId, run: u64, epoch: u64, steady_ns: u64) -> bool {
        let is_same = epoch != 0 && epoch == self.epoch() && self.is_own_run() && self.counts(self.own);
        let other = self.record.as_ref().and_then(|record| record.member(to));
        let may = is_same && self.counts(to) && other.is_some_and(|member| member.run == run);
        if may {
            self.grants.entry(to).or_default().give(steady_ns);
        }
        may
    }

    /// A question that left at `asked`, in `epoch`, was answered with a grant.
    pub fn granted(&mut self, by: TargetId, epoch: u64, asked: Moment) {
        if epoch == self.epoch() && self.counts(by) {
            self.leases.entry(by).or_default().granted(asked);
        }
    }

    /// True while it holds a lease of another member.
    pub fn holds(&self, of: TargetId, now: Moment) -> bool {
        self.leases.get(&of).is_some_and(|lease| lease.is_held(now))
    }

    /// True when it may answer a read.
    pub fn may_serve(&self, now: Moment) -> bool {
        let is_current =
            self.record.iter().flat_map(Membership::current).any(|member| member.target == self.own);
        let holds = |target: TargetId| target == self.own || self.holds(target, now);
        is_current && self.is_own_run() && self.counting().all(holds)
    }

    /// True when it may acknowledge a change that all who count have applied.
    pub fn may_acknowledge(&self, now: Moment) -> bool {
        let primary = self.record.as_ref().and_then(Membership::primary);
        let ended =
            |(target, grant): (&TargetId, &Grant)| self.counts(*target) || grant.has_ended(now.steady_ns);
        primary.is_some_and(|primary| primary.target == self.own)
            && self.may_serve(now)
            && self.inherited.has_ended(now.steady_ns)
            && self.grants.iter().all(ended)
    }
}

#[cfg(test)]
#[path = "serving_tests.rs"]
mod tests;
