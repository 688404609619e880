//! Who belongs to a placement group with several copies, and which changes of that are legal: the rule that the
//! authority (the metadata service) keeps, and that a checker can hold its records against.
//!
//! - An *epoch* is a version of the record. A member that is *current* has everything that was acknowledged; the first
//!   current one is the *primary*. Others serve nothing.
//! - Nothing synced is lost while one current member is left: new current members are some of the old ones, and such as
//!   the old epoch's primary reports as caught up.
//! - The last current member never goes: the change that would take it out is refused. One that an operator calls lost
//!   goes where a member that had everything once goes on, never one that has nothing.
//! - Each change names the epoch that it was decided in. A request that comes late meets a newer one and is refused.
//!
//! A target has one process at a time: its directory is locked. What the process that ran before it granted is waited
//! for by the next one (`serving`).

use crate::ids::TargetId;

/// Copies that a file may have.
pub const COPIES_MAX: usize = 3;

/// Members of a group: its copies, those that take their places, and those whose objects are still to be removed.
pub const MEMBERS_MAX: usize = 3 * COPIES_MAX;

/// What a member is to its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has all that was acknowledged.
    Current,
    /// It lacks what was written since the epoch `since` began, or, when it is new, everything.
    Lagging {
        /// The first epoch without it; 0: it has nothing.
        since: u64,
    },
    /// It is not wanted any more; its objects are still there.
    Leaving {
        /// The first epoch without it.
        since: u64,
    },
}

/// A member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Where its objects are.
    pub target: TargetId,
    /// Which process of the target's server it is: they grow. What another process of the target says is refused.
    pub run: u64,
    /// What it is to the group.
    pub standing: Standing,
}

/// A change of a group's members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The others go on without these, which are silent, or give up their promotion.
    PutOut(Vec<TargetId>),
    /// A process of this target has started, which is in no epoch: the others go on without it.
    Started {
        /// The target.
        target: TargetId,
        /// Its new process.
        run: u64,
    },
    /// The process that has started goes on alone, as no process of another current member is left.
    Leads {
        /// The target, a current member.
        target: TargetId,
        /// Its new process.
        run: u64,
        /// Its machine ran on, so it has also what was acknowledged and not synced.
        kept_power: bool,
    },
    /// A lagging member has caught up. Legal once it and all current members treat it as current already.
    Promote {
        /// The member.
        target: TargetId,
        /// Its process that has caught up.
        run: u64,
        /// The primary that reports it, and its process.
        by: (TargetId, u64),
        /// The current member whose place it takes.
        instead_of: Option<TargetId>,
    },
    /// A target becomes a member that has nothing yet.
    Add {
        /// The target.
        target: TargetId,
        /// Its process.
        run: u64,
    },
    /// A member is not wanted any more.
    Retire(TargetId),
    /// A member's objects were removed.
    Remove(TargetId),
    /// An operator says that what is on this target is gone for good: an empty disk takes its place. Where it was the
    /// only current member, the others go on with the one of them that lacks least.
    Lost(TargetId),
}

/// Why a change is not made. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// It was decided in another epoch.
    #[error("the group is in epoch {0}: ask for its members and decide again")]
    OtherEpoch(u64),
    /// The target is no member, or none of the kind that the change is about.
    #[error("{0} is no such member of the group")]
    NoSuchMember(TargetId),
    /// The target is a member already.
    #[error("{0} is a member of the group already")]
    IsMember(TargetId),
    /// No current member would be left.
    #[error("no good copy would be left without {0}")]
    LastCurrent(TargetId),
    /// Another process of the target has been heard of since.
    #[error("{0} has started anew since")]
    OtherRun(TargetId),
    /// Only the primary may report it.
    #[error("{0} is not the primary")]
    NotPrimary(TargetId),
    /// The group has as many as it may have.
    #[error("the group has as many members as it may have")]
    TooMany,
}

/// A group's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// Version of what follows; the first one is 1.
    pub epoch: u64,
    /// Each target once; the first that is current is the primary.
    pub members: Vec<Member>,
    /// Raised when an epoch begins with no member that kept its power, or with none that was current: what was not
    /// synced before may be lost then.
    pub losses: u64,
    /// What made this epoch; none: the group was made so.
    pub why: Option<Change>,
}

impl Membership {
    /// A new group, whose members have nothing and lack nothing. `None`: none, too many, or one of them twice.
    pub fn new(members: &[(TargetId, u64)]) -> Option<Membership> {
        let current = |&(target, run): &(TargetId, u64)| Member { target, run, standing: Standing::Current };
        let members = members.iter().map(current).collect();
        let made = Membership { epoch: 1, members, losses: 0, why: None };
        made.is_whole().then_some(made)
    }

    /// The members that are current, the primary first.
    pub fn current(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.standing == Standing::Current)
    }

    /// The member that orders changes. Each record that is whole has one.
    pub fn primary(&self) -> Option<&Member> {
        self.current().next()
    }

    /// The member on this target.
    pub fn member(&self, target: TargetId) -> Option<&Member> {
        self.members.iter().find(|member| member.target == target)
    }

    /// True in the epoch in which the group was made, for a process that it was made with: no other process of that
    /// target has ever been in a record of the group.
    pub fn is_made_with(&self, target: TargetId, run: u64) -> bool {
        let is_named = |member: &Member| member.run == run && run != 0;
        (self.epoch, &self.why) == (1, &None) && self.member(target).is_some_and(is_named)
    }

    /// True for a target alone of which no process was ever noted: nothing has to be agreed on in such a group, so its
    /// epoch never changes.
    pub fn is_plain(&self) -> bool {
        let is_bare = |member: &Member| (member.run, member.standing) == (0, Standing::Current);
        let is_first = (self.epoch, self.losses, &self.why) == (1, 0, &None);
        is_first && self.members.len() == 1 && self.members.iter().all(is_bare)
    }

    /// True when it could have come from [`Membership::new`] and changes: what a checker asks of a stored one.
    pub fn is_whole(&self) -> bool {
        let began = |member: &Member| match member.standing {
            Standing::Current => true,
            Standing::Lagging { since } | Standing::Leaving { since } => since <= self.epoch,
        };
        let is_first =
            |(at, member): (usize, &Member)| self.members[..at].iter().all(|m| m.target != member.target);
        self.epoch > 0
            && (1..=COPIES_MAX).contains(&self.current().count())
            && self.members.len() <= MEMBERS_MAX
            && self.members.iter().all(began)
            && self.members.iter().enumerate().all(is_first)
    }

    /// The record of the next epoch, with a change that was decided in epoch `decided_in`.
    pub fn changed(&self, decided_in: u64, change: Change) -> Result<Membership, Refused> {
        if decided_in != self.epoch {
            return Err(Refused::OtherEpoch(self.epoch));
        }
        let mut next = Membership { epoch: self.epoch + 1, why: None, ..self.clone() };
        match &change {
            Change::PutOut(targets) => targets.iter().try_for_each(|target| next.put_out(*target))?,
            Change::Started { target, run } => {
                next.start(*target, *run)?;
                next.put_out(*target)?;
            }
            Change::Leads { target, run, kept_power } => next.lead(*target, *run, *kept_power)?,
            Change::Promote { target, run, by, instead_of } => {
                next.promote((*target, *run), *by)?;
                instead_of.map_or(Ok(()), |old| next.retire(old))?;
            }
            Change::Add { target, run } => next.add(*target, *run)?,
            Change::Retire(target) => next.retire(*target)?,
            Change::Remove(target) => next.remove(*target)?,
            Change::Lost(target) => next.lose(*target)?,
        }
        let copies = next.current().count();
        if copies > COPIES_MAX || next.members.len() > MEMBERS_MAX {
            return Err(Refused::TooMany);
        }
        next.why = Some(change);
        Ok(next)
    }

    fn find(&mut self, target: TargetId) -> Result<&mut Member, Refused> {
        let found = self.members.iter_mut().find(|member| member.target == target);
        found.ok_or(Refused::NoSuchMember(target))
    }

    /// Refuses to go on without the only current member.
    fn can_spare(&self, target: TargetId) -> Result<(), Refused> {
        match self.current().any(|member| member.target != target) {
            true => Ok(()),
            false => Err(Refused::LastCurrent(target)),
        }
    }

    /// One that lags already goes on lagging, in a newer epoch: its promotion is given up.
    fn put_out(&mut self, target: TargetId) -> Result<(), Refused> {
        let since = self.epoch;
        if self.find(target)?.standing == Standing::Current {
            self.can_spare(target)?;
            self.find(target)?.standing = Standing::Lagging { since };
        }
        Ok(())
    }

    fn start(&mut self, target: TargetId, run: u64) -> Result<(), Refused> {
        let member = self.find(target)?;
        if run <= member.run {
            return Err(Refused::OtherRun(target));
        }
        member.run = run;
        Ok(())
    }

    fn lead(&mut self, target: TargetId, run: u64, kept_power: bool) -> Result<(), Refused> {
        self.start(target, run)?;
        if self.find(target)?.standing != Standing::Current {
            return Err(Refused::NoSuchMember(target));
        }
        let others: Vec<TargetId> =
            self.current().map(|member| member.target).filter(|other| *other != target).collect();
        others.into_iter().try_for_each(|other| self.put_out(other))?;
        self.losses += u64::from(!kept_power);
        Ok(())
    }

    /// It goes to the end, so that a member that comes and goes is never the primary of those that stay.
    fn promote(&mut self, (target, run): (TargetId, u64), by: (TargetId, u64)) -> Result<(), Refused> {
        if self.primary().is_none_or(|primary| (primary.target, primary.run) != by) {
            return Err(Refused::NotPrimary(by.0));
        }
        let mut member = *self.find(target)?;
        if !matches!(member.standing, Standing::Lagging { .. }) {
            return Err(Refused::NoSuchMember(target));
        }
        if member.run != run {
            return Err(Refused::OtherRun(target));
        }
        member.standing = Standing::Current;
        self.members.retain(|other| other.target != target);
        self.members.push(member);
        Ok(())
    }

    fn add(&mut self, target: TargetId, run: u64) -> Result<(), Refused> {
        if self.member(target).is_some() {
            return Err(Refused::IsMember(target));
        }
        self.members.push(Member { target, run, standing: Standing::Lagging { since: 0 } });
        Ok(())
    }

    fn retire(&mut self, target: TargetId) -> Result<(), Refused> {
        let since = self.epoch;
        self.put_out(target)?;
        let member = self.find(target)?;
        if !matches!(member.standing, Standing::Lagging { .. }) {
            return Err(Refused::NoSuchMember(target));
        }
        member.standing = Standing::Leaving { since };
        Ok(())
    }

    fn remove(&mut self, target: TargetId) -> Result<(), Refused> {
        if !matches!(self.find(target)?.standing, Standing::Leaving { .. }) {
            return Err(Refused::NoSuchMember(target));
        }
        self.members.retain(|member| member.target != target);
        Ok(())
    }

    fn lose(&mut self, target: TargetId) -> Result<(), Refused> {
        if matches!(self.find(target)?.standing, Standing::Leaving { .. }) {
            return Ok(());
        }
        if self.can_spare(target).is_err() {
            let heir = self.heir(target).ok_or(Refused::LastCurrent(target))?;
            self.find(heir)?.standing = Standing::Current;
            self.losses += 1;
        }
        self.find(target)?.standing = Standing::Lagging { since: 0 };
        Ok(())
    }

    /// The member that goes on where `target`, the only current one, is lost: of those that have anything the one that
    /// lacks least.
    fn heir(&self, target: TargetId) -> Option<TargetId> {
        let since = |member: &Member| match member.standing {
            Standing::Lagging { since: since @ 1.. } if member.target != target => {
                Some((since, member.target))
            }
            _ => None,
        };
        let lagging = self.members.iter().filter_map(since);
        lagging.max_by_key(|(since, _)| *since).map(|(_, target)| target)
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
