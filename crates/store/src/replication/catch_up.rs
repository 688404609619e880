//! A lagging member gets again what it missed. Where that is known ([`super::missed`]), the primary sends it that;
//! else it compares all objects of the group with its own, block by block, and sends what differs.
//!
//! States of a member that lags, as its primary sees it:
//!
//! - *away*: it did not answer; it is tried again after [`AGAIN_NS`], and at once where the record has another process
//!   of it, which has just started;
//! - *walked*: from the first step on each change is sent to it, too; it is answered also where that fails. The walk
//!   goes through what it missed, or removes what the primary has not ([`super::lost`]) and then compares. What fails
//!   makes the member away again;
//! - *promoted*: the walk is at its end. It syncs its whole disk and holds itself for current; then the primary counts
//!   it and asks for its lease, all other current members count it, and it syncs once more what came meanwhile. Only
//!   then the metadata service is asked. It stays so until a newer record says what became of it.

use super::Key;
use super::change::{Body, Change, Touched, WHOLE};
use super::missed::Missed;
use crate::lease::moment;
use crate::options::Defect;
use crate::service::{DataService, fault};
use crate::targets::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use vazao_model::{Code, GroupId, InodeId, ObjectId, TargetId};
use vazao_wire::op::{CatchUp, KeepAlive, ListObjects};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::call;

/// When a member that did not answer is tried again.
const AGAIN_NS: u64 = 2_000_000_000;

/// How long it may take for one request; it syncs a whole disk in one of them.
const ANSWER_NS: u64 = 2_000_000_000;
const SYNC_NS: u64 = 30_000_000_000;

/// How long it may take to grant a lease.
const LEASE_NS: u64 = 500_000_000;

/// After this time it is seen whether what was lost can be had, or is not wanted any more.
const LOST_AGAIN_NS: u64 = 10_000_000_000;

/// After this time another member is walked that lags, or the same one from the beginning.
const OTHERS_NS: u64 = 30_000_000_000;

/// Objects of a page.
const PAGE: u32 = 64;

/// Where a walk stands.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Walk {
    /// What the member is known to have missed is sent.
    Missed,
    /// What the member has and the primary has not is removed: the page after this cookie comes next.
    Orphans(Vec<u8>),
    /// What the primary has lost is fetched.
    Lost,
    /// What the primary has is compared.
    Objects(Vec<u8>),
    /// Everything is the same.
    Over,
}

/// A lagging member that is walked.
#[derive(Clone, Debug)]
pub(super) struct CatchingUp {
    pub(super) target: TargetId,
    process: u64,
    /// The leadership of the primary under which it began.
    leads_since: u64,
    walk: Walk,
    sent_bytes: u64,
    begun_ns: u64,
    /// Objects of which it has a copy, perhaps an older one, and the primary has none.
    lacking: Arc<Vec<ObjectId>>,
    /// When it had everything else.
    over_ns: Option<u64>,
    /// When these were looked at last.
    looked_ns: u64,
}

/// Of a group, in the table of changes.
#[derive(Default)]
pub(super) struct Lagging {
    /// The one that is walked; from then on changes are sent to it.
    pub(super) walked: Option<CatchingUp>,
    /// Of members that were asked: their process then, and since which one all is there that they have answered.
    pub(super) kept: BTreeMap<TargetId, (u64, u64)>,
    /// The one that was tried last.
    tried: Option<TargetId>,
    /// Those that lagged when that was, with their processes.
    tried_of: Vec<(TargetId, u64)>,
    /// None of these is begun before.
    not_before_ns: u64,
    /// A thread is at it.
    is_busy: bool,
}

impl Lagging {
    /// The member that is walked, and whether to the end.
    pub(super) fn walked_so_far(&self) -> Option<(TargetId, bool)> {
        self.walked.as_ref().map(|walked| (walked.target, walked.walk == Walk::Over))
    }

    /// Whether a walk is to go on, or to begin, where these lag.
    fn is_due(&self, lagging: &[(TargetId, u64)], now_ns: u64) -> bool {
        let may_begin = now_ns >= self.not_before_ns || self.tried_of != lagging;
        !self.is_busy && (self.walked.is_some() || (may_begin && !lagging.is_empty()))
    }

    /// The walk has failed.
    fn fail(&mut self, now_ns: u64) {
        self.walked = None;
        self.not_before_ns = now_ns + AGAIN_NS;
    }
}

impl DataService {
    /// The member that is walked and gets changes although it does not count.
    pub(super) fn walked(&self, key: Key) -> Option<TargetId> {
        let table = self.replication.table.lock();
        table.led.get(&key)?.lagging.walked.as_ref().map(|walked| walked.target)
    }

    /// A change did not reach the member that is walked, which therefore begins anew.
    pub(super) fn leave_behind(&self, key: Key, target: TargetId) {
        let now_ns = self.shell.clock().now_ns();
        let mut table = self.replication.table.lock();
        // One that counts by now is waited for by all changes, and goes on to be promoted.
        if self.view(key).is_ok_and(|view| view.others.contains(&target)) {
            return;
        }
        if let Some(led) = table.led.get_mut(&key)
            && led.lagging.walked.as_ref().is_some_and(|walked| walked.target == target)
        {
            led.lagging.fail(now_ns);
        }
    }

    /// Has members that lag walked, each group's by one thread. It waits for nothing itself.
    pub(crate) fn catch_up_all(&self) {
        if self.is_stopped() {
            return;
        }
        // Programs may wait for what was lost.
        let lost: BTreeSet<GroupId> =
            self.targets.iter().flat_map(|it| it.damage.groups_with_missing()).collect();
        let mut members = self.leases.members();
        members.sort_by_key(|((_, group), _)| !lost.contains(group));
        for (key, is_primary) in members {
            if !is_primary || !self.begin_or_go_on(key) {
                continue;
            }
            let walk = move |service: &DataService| {
                service.walk_on(key);
                if let Some(led) = service.replication.table.lock().led.get_mut(&key) {
                    led.lagging.is_busy = false;
                }
            };
            if self.options.inline {
                walk(self);
                continue;
            }
            let service = self.replication.service.get().and_then(std::sync::Weak::upgrade);
            match (self.replication.walks.reserve(0), service) {
                (Some(place), Some(service)) => place.submit(move || walk(&service)),
                _ => {
                    if let Some(led) = self.replication.table.lock().led.get_mut(&key) {
                        led.lagging.is_busy = false;
                    }
                    return;
                }
            }
        }
    }

    /// True where there is something to do for a member that lags; then the caller does it.
    fn begin_or_go_on(&self, key: Key) -> bool {
        let now_ns = self.shell.clock().now_ns();
        let Ok(view) = self.view(key) else { return false };
        {
            let mut table = self.replication.table.lock();
            let Some(led) = table.led.get_mut(&key) else { return false };
            if view.lagging.is_empty() {
                led.changed = None;
            }
            if !led.is_ready || !led.lagging.is_due(&view.lagging, now_ns) {
                return false;
            }
        }
        let record = self.leases.record(key);
        let current: Vec<TargetId> =
            record.iter().flat_map(|record| record.current()).map(|member| member.target).collect();
        let mut table = self.replication.table.lock();
        let Some(led) = table.led.get_mut(&key) else { return false };
        let lags = |walked: &CatchingUp| {
            view.lagging.contains(&(walked.target, walked.process)) || view.others.contains(&walked.target)
        };
        let counts = |walked: &CatchingUp| current.contains(&walked.target);
        if led.lagging.walked.as_ref().is_some_and(counts) {
            led.lagging.walked = None;
        } else if led.lagging.walked.as_ref().is_some_and(|walked| !lags(walked)) {
            led.lagging.fail(now_ns);
        }
        let is_due = led.lagging.is_due(&view.lagging, now_ns);
        led.lagging.is_busy = is_due;
        is_due
    }

    /// Goes on with the walk of one group's member, to its end where it may wait.
    fn walk_on(&self, key: Key) {
        loop {
            if let Err(fault) = self.walk_step(key) {
                tracing::debug!(group = %key.1, target_id = key.0.0, %fault, "a lagging member is tried again");
                let now_ns = self.shell.clock().now_ns();
                if let Some(led) = self.replication.table.lock().led.get_mut(&key) {
                    led.lagging.fail(now_ns);
                }
                return;
            }
            let is_over = self
                .replication
                .table
                .lock()
                .led
                .get(&key)
                .and_then(|led| led.lagging.walked.as_ref())
                .is_none_or(|walked| walked.walk == Walk::Over);
            if is_over || self.options.inline || self.is_stopped() {
                return;
            }
        }
    }

    /// The next step: a page of the walk, or of the promotion at its end.
    fn walk_step(&self, key: Key) -> Result<(), Fault> {
        let known = self.replication.table.lock().led.get(&key).and_then(|led| led.lagging.walked.clone());
        let leads_since = self.leadership(key)?;
        let Some(walked) = known else { return self.begin_walk(key, leads_since) };
        self.check_leads(key, &self.view(key)?, walked.leads_since)?;
        match &walked.walk {
            Walk::Missed => {
                let (is_over, sent_bytes) = self.send_missed(key, walked.target)?;
                self.walked_to(key, if is_over { Walk::Over } else { Walk::Missed }, sent_bytes);
            }
            Walk::Orphans(cookie) => {
                let next = self.remove_orphans(key, walked.target, cookie)?;
                self.walked_to(key, next.map_or(Walk::Lost, Walk::Orphans), 0);
            }
            Walk::Lost => {
                let target = self.target(key.0.0)?;
                let is_lacking = |object: &&ObjectId| !self.is_fetched(key, target, **object);
                let lacking = walked.lacking.iter().filter(is_lacking).copied().collect();
                self.note_lacking(key, |known| *known = lacking);
                self.walked_to(key, Walk::Objects(Vec::new()), 0);
            }
            Walk::Objects(cookie) => {
                let (next, sent_bytes) = self.compare_page(key, walked.target, cookie)?;
                self.walked_to(key, next.map_or(Walk::Over, Walk::Objects), sent_bytes);
            }
            Walk::Over if !walked.lacking.is_empty() => self.wait_for_lost(key, &walked)?,
            Walk::Over => self.promote(key, &walked)?,
        }
        Ok(())
    }

    fn walked_to(&self, key: Key, walk: Walk, sent_bytes: u64) {
        if let Some(led) = self.replication.table.lock().led.get_mut(&key)
            && let Some(walked) = &mut led.lagging.walked
        {
            walked.walk = walk;
            walked.sent_bytes += sent_bytes;
        }
    }

    /// One of which a process has started since; else the one after the member that was tried last: one that stays away
    /// keeps no other waiting.
    fn next_to_walk(&self, key: Key, lagging: &[(TargetId, u64)]) -> Option<(TargetId, u64)> {
        let mut table = self.replication.table.lock();
        let known = &mut table.led.entry(key).or_default().lagging;
        let at = |tried: TargetId| lagging.iter().position(|(target, _)| *target == tried);
        let next = known.tried.and_then(at).map_or(0, |at| at + 1);
        let new = lagging.iter().find(|member| !known.tried_of.contains(member));
        let next = new.or(lagging.get(next)).or(lagging.first()).copied();
        known.tried = next.map(|(target, _)| target);
        known.tried_of = lagging.to_vec();
        next
    }

    fn begin_walk(&self, key: Key, leads_since: u64) -> Result<(), Fault> {
        let view = self.leading(key)?;
        let Some((target, process)) = self.next_to_walk(key, &view.lagging) else { return Ok(()) };
        self.weigh(key, false);
        let begun = self.ask_catch_up((key, view.epoch), target, target, BEGIN, Vec::new(), ANSWER_NS)?;
        let begun_ns = self.shell.clock().now_ns();
        let missed_bytes = {
            // In one: each change either is under way here, or sees that the member is walked.
            let mut table = self.replication.table.lock();
            let led = table.led.entry(key).or_default();
            if led.leads_since != leads_since {
                return Err(Fault::new(Code::Unavailable, "it leads no more"));
            }
            if self.options.defect == Some(Defect::ForgottenMisses) {
                led.missed.entry(target).and_modify(|missed| *missed = Missed::new(missed.run));
            }
            led.missed_by_walked(target);
            let is_known = led.missed.get(&target).is_some_and(|missed| missed.holds_since(begun.kept_from));
            // A disk that fails may have lost what it had answered, and take no note of that, either.
            let walk = match led.missed.get_mut(&target) {
                Some(missed) if is_known && !self.leases.was_out(key, target) => {
                    begun.suspect.iter().for_each(|bytes| missed.add(&suspect_of(key.1, bytes)));
                    Walk::Missed
                }
                _ => {
                    led.missed.remove(&target);
                    Walk::Orphans(Vec::new())
                }
            };
            led.lagging.kept.insert(target, (process, begun.kept_from));
            led.lagging.walked = Some(CatchingUp {
                target,
                process,
                leads_since,
                walk,
                sent_bytes: 0,
                begun_ns,
                lacking: Arc::default(),
                over_ns: None,
                looked_ns: begun_ns,
            });
            led.missed.get(&target).and_then(Missed::bytes)
        };
        if missed_bytes.is_none() {
            self.weigh(key, true);
        }
        self.replication.progress.begin(key, target, missed_bytes, begun_ns);
        Ok(())
    }

    /// Sends what the member missed of one object, and how many bytes that was. True: there is nothing more.
    fn send_missed(&self, key: Key, other: TargetId) -> Result<(bool, u64), Fault> {
        let next = {
            let mut table = self.replication.table.lock();
            let missed = table.led.get_mut(&key).and_then(|led| led.missed.get_mut(&other));
            // Then it is compared whole, from the beginning.
            let lost = || Fault::new(Code::Unavailable, "what the member missed is not known any more");
            missed.filter(|missed| !missed.is_too_much()).ok_or_else(lost)?.pop()
        };
        let Some(mut next) = next else { return Ok((true, 0)) };
        let sent = self.target(key.0.0).and_then(|target| self.send_touched(key, other, target, &mut next));
        if sent.is_err()
            && let Some(led) = self.replication.table.lock().led.get_mut(&key)
            && let Some(missed) = led.missed.get_mut(&other)
        {
            missed.add(&next);
        }
        Ok((false, sent?))
    }

    /// Makes the member's copy of an object as this one's in these bytes, and as long.
    fn send_touched(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        touched: &mut Touched,
    ) -> Result<u64, Fault> {
        let object = touched.object;
        if self.settle_absent(key, other, target, &[object])?.is_empty() {
            return match target.exists(object).map_err(fault)? {
                true => self.compare_object(key, other, target, touched),
                false => Ok(0),
            };
        }
        if !self.is_fetched(key, target, object) {
            // All is compared before it counts.
            self.note_lacking(key, |lacking| lacking.push(object));
            return Ok(0);
        }
        touched.ranges = vec![WHOLE];
        self.compare_object(key, other, target, touched)
    }

    fn note_lacking(&self, key: Key, note: impl FnOnce(&mut Vec<ObjectId>)) {
        if let Some(led) = self.replication.table.lock().led.get_mut(&key)
            && let Some(walked) = &mut led.lagging.walked
        {
            note(Arc::make_mut(&mut walked.lacking));
        }
    }

    /// Removes an object that no file has, where it is not here. Errors: also that it is at a member that counts, so
    /// that this one has lost it.
    pub(super) fn remove_there(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
    ) -> Result<(), Fault> {
        let _held = self.lock_blocks(object, &[WHOLE])?;
        let leads_since = self.leadership(key)?;
        if target.exists(object).map_err(fault)? {
            return Ok(());
        }
        if let Some(lost) = self.lost_beside(key, target, object) {
            return Err(lost);
        }
        let objects = vec![super::even::address(object)];
        let remove = Change::new(Body::Remove(proto::RemoveObjectsRequest { objects }));
        self.send_one(key, leads_since, other, &remove)
    }

    /// Removes a page of what the member has and this one has not, as no file has it; where the next page begins.
    fn remove_orphans(&self, key: Key, other: TargetId, cookie: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let (transport, address) = self.way_to(other)?;
        let (target, group, cookie) = (other.0, key.1.0, cookie.to_vec());
        let request = proto::ListObjectsRequest { target, cookie, limit: PAGE, group };
        let until_ns = transport.clock().now_ns() + ANSWER_NS;
        let page = call::<ListObjects>(transport, &address, &request, until_ns)?;
        let target = self.target(key.0.0)?;
        let lost = self.settle_absent(key, other, target, &objects_of(key, &page))?;
        self.note_lacking(key, |lacking| lacking.extend(lost));
        Ok(next_cookie(page))
    }

    /// Compares a page of this member's objects; where the next one begins, and how many bytes were sent.
    fn compare_page(
        &self,
        key: Key,
        other: TargetId,
        cookie: &[u8],
    ) -> Result<(Option<Vec<u8>>, u64), Fault> {
        let target = self.target(key.0.0)?;
        let page = target.list(cookie, PAGE, Some(key.1)).map_err(fault)?;
        let (mut sent_bytes, mut damage) = (0, None);
        for object in objects_of(key, &page) {
            let mut all = Touched { object, ranges: vec![WHOLE] };
            match self.compare_object(key, other, target, &mut all) {
                // A file of it cannot be used; where that is the member's, it lets go of it.
                Err(fault) if fault.code == Code::Corrupt => damage = Some(fault),
                sent => sent_bytes += sent?,
            }
        }
        damage.map_or(Ok((next_cookie(page), sent_bytes)), Err)
    }

    /// A member that has everything but what is lost here is sent changes, and does not count. What is lost is looked
    /// at again from time to time: a file may be removed, another member may have the object, or come back.
    fn wait_for_lost(&self, key: Key, walked: &CatchingUp) -> Result<(), Fault> {
        let now_ns = self.shell.clock().now_ns();
        let over_ns = walked.over_ns.unwrap_or(now_ns);
        let is_over = now_ns.saturating_sub(over_ns) >= OTHERS_NS;
        if is_over && (self.view(key)?.lagging.len() > 1 || self.is_to_be_asked_again(key, walked.target)) {
            let text = format!("placement group {}: what {} has lost may be had by now", key.1, key.0);
            return Err(Fault::new(Code::Unavailable, text));
        }
        let mut looked_ns = walked.looked_ns;
        let is_late = now_ns.saturating_sub(looked_ns) >= LOST_AGAIN_NS;
        if is_late {
            let target = self.target(key.0.0)?;
            let mut lacking = Vec::new();
            for &object in walked.lacking.iter() {
                let lost = !self.settle_absent(key, walked.target, target, &[object])?.is_empty();
                if lost && !self.is_fetched(key, target, object) {
                    lacking.push(object);
                } else if target.exists(object).map_err(fault)? {
                    let mut all = Touched { object, ranges: vec![WHOLE] };
                    self.compare_object(key, walked.target, target, &mut all)?;
                }
            }
            self.note_lacking(key, |known| *known = lacking);
            looked_ns = self.shell.clock().now_ns();
        }
        if let Some(led) = self.replication.table.lock().led.get_mut(&key)
            && let Some(walked) = &mut led.lagging.walked
        {
            (walked.over_ns, walked.looked_ns) = (Some(over_ns), looked_ns);
        }
        Ok(())
    }

    /// Whether a member could not say what it has kept when it was asked, as while one of its objects is made anew.
    fn is_to_be_asked_again(&self, key: Key, other: TargetId) -> bool {
        let table = self.replication.table.lock();
        let kept = table.led.get(&key).and_then(|led| led.lagging.kept.get(&other));
        kept.is_some_and(|(_, from)| *from == 0)
    }

    /// Has a member that has everything count, in the order that the rule of members demands.
    fn promote(&self, key: Key, walked: &CatchingUp) -> Result<(), Fault> {
        if self.leases.is_said(key) {
            return Ok(());
        }
        let view = self.leading(key)?;
        let is_begun = view.others.contains(&walked.target);
        if !is_begun {
            let target = self.target(key.0.0)?;
            let Some(gone) = target.gone_of_group(key.1) else {
                // It is over soon: nothing is lost by waiting.
                return Ok(());
            };
            self.ask_catch_up((key, view.epoch), walked.target, walked.target, HAS_ALL, gone, SYNC_NS)?;
            if !self.begin_promotion(key, walked, view.epoch) {
                return Ok(());
            }
            self.ask_lease(key, walked.target);
        }
        let now = self.view(key)?;
        if now.epoch != view.epoch {
            return Ok(());
        }
        for other in now.others {
            let limit_ns = if other == walked.target { SYNC_NS } else { ANSWER_NS };
            let asked =
                self.ask_catch_up((key, view.epoch), other, walked.target, COUNTS, Vec::new(), limit_ns);
            if asked.is_err() {
                // Again with the next turn; the metadata service is asked once all hold it so.
                return Ok(());
            }
        }
        let seconds = self.shell.clock().now_ns().saturating_sub(walked.begun_ns) / 1_000_000_000;
        tracing::info!(
            group = %key.1,
            target_id = walked.target.0,
            sent_bytes = walked.sent_bytes,
            seconds,
            "a lagging member has caught up"
        );
        self.leases.say_caught_up(key, walked.target, walked.process, view.epoch);
        Ok(())
    }

    /// From now on the member counts here. False: a change has not reached it, or the leases are not held just now.
    fn begin_promotion(&self, key: Key, walked: &CatchingUp, epoch: u64) -> bool {
        let now = moment(&**self.shell.clock());
        let target = walked.target;
        // In one: a change that does not reach it either ends the walk before, or sees then that it counts.
        let mut table = self.replication.table.lock();
        let Some(led) = table.led.get_mut(&key) else { return false };
        let is_same = |it: &&mut CatchingUp| it.target == target && it.leads_since == led.leads_since;
        let Some(walked) = led.lagging.walked.as_mut().filter(is_same) else { return false };
        if led.missed.get(&target).is_some_and(|missed| !missed.is_empty()) {
            walked.walk = Walk::Missed;
            return false;
        }
        let begins = self.options.defect == Some(Defect::UncountedPromotion)
            || self.leases.promote(key, target, epoch, Some(now));
        if begins {
            self.leases.forget_out(key, target);
            led.missed.insert(target, Missed::new(walked.process));
        }
        begins
    }

    /// Asks a member that counts from now on for its lease, without which nothing is served here. The keepalives, which
    /// may have to connect first, would have it some tenths of a second later.
    fn ask_lease(&self, key: Key, of: TargetId) {
        let asked = moment(&**self.shell.clock());
        let questions = self.leases.questions(asked);
        let Some(question) = questions.iter().find(|it| (it.target, it.group, it.of) == (key.0, key.1, of))
        else {
            return;
        };
        let Ok((transport, server)) = self.way_to(of) else { return };
        let request = proto::KeepAliveRequest { questions: vec![question.into()] };
        let until_ns = transport.clock().now_ns() + LEASE_NS;
        // Where that fails the keepalives ask.
        if let Ok(response) = call::<KeepAlive>(transport, &server, &request, until_ns)
            && let Some(grant) = response.grants.first()
        {
            if grant.out {
                self.leases.note_out(key, of);
            }
            self.leases.take(question, grant, asked);
        }
    }

    /// Asks a member for its part in a step that belongs to `epoch`.
    fn ask_catch_up(
        &self,
        (key, epoch): (Key, u64),
        asked: TargetId,
        target: TargetId,
        step: u32,
        gone: Vec<proto::GoneObject>,
        limit_ns: u64,
    ) -> Result<proto::CatchUpResponse, Fault> {
        let (transport, server) = self.way_to(asked)?;
        let record = self.record(key);
        let request = proto::CatchUpRequest { group: key.1.0, epoch, record, target: target.0, step, gone };
        let until_ns = transport.clock().now_ns() + limit_ns;
        call::<CatchUp>(transport, &server, &request, until_ns)
    }

    /// The part of another member, or of the one that catches up: since which of its processes it has kept all, and
    /// what of that it cannot vouch for.
    pub(crate) fn take_catch_up(
        &self,
        request: &proto::CatchUpRequest,
    ) -> Result<proto::CatchUpResponse, Fault> {
        let group = GroupId(request.group);
        let key = self.member_of(group)?;
        self.check_sender(key, request.epoch, request.record.as_ref())?;
        let (target, other) = (self.target(key.0.0)?, TargetId(request.target));
        match request.step {
            BEGIN if other == key.0 => {
                target.forget_unnamed(group);
                target.forget_freezes(group).map_err(fault)?;
                let forgets = self.options.defect == Some(Defect::ForgottenPower);
                let lost = target.has_lost_names(group);
                if lost || forgets {
                    target.suspect.compare_whole(group);
                    let kept_from = u64::from(!lost);
                    return Ok(proto::CatchUpResponse { kept_from, suspect: Vec::new() });
                }
                return kept(target, group);
            }
            HAS_ALL if other == key.0 => {
                target.keep_gone(group, &request.gone).map_err(fault)?;
                target.has_all(group);
                if !target.suspect.forget(group) {
                    let text = format!("placement group {group}: {other} has to be compared in more bytes");
                    return Err(Fault::new(Code::Unavailable, text));
                }
                // What was sent is as durable as all that was synced elsewhere.
                target.sync_all()?;
            }
            // What came between that and the moment from which syncs wait for it may have been synced without it.
            COUNTS if other == key.0 => target.sync_all()?,
            COUNTS => {}
            step => {
                let text = format!("placement group {group}: step {step} of catching up for {other}");
                return Err(Fault::new(Code::BadRequest, text));
            }
        }
        match self.leases.promote(key, other, request.epoch, None) {
            true => Ok(proto::CatchUpResponse::default()),
            false => {
                let text =
                    format!("placement group {group}: {other} does not lag, or another one is promoted");
                Err(Fault::new(Code::Unavailable, text))
            }
        }
    }
}

/// Since which of its processes a target has kept everything of a group, as far as that is known.
fn kept(target: &Target, group: GroupId) -> Result<proto::CatchUpResponse, Fault> {
    if target.kept_from() == 0 {
        target.suspect.compare_whole(group);
        return Ok(proto::CatchUpResponse::default());
    }
    target.sweep_group(group)?;
    let kept_from = target.kept_from();
    let said = |(object, range): (ObjectId, Range<u64>)| proto::SuspectBytes {
        inode: object.inode.0,
        generation: object.generation,
        slot: object.slot,
        offset: range.start,
        end: range.end,
    };
    Ok(match target.suspect.tell(group) {
        Some(suspect) => {
            proto::CatchUpResponse { kept_from, suspect: suspect.into_iter().map(said).collect() }
        }
        None => proto::CatchUpResponse::default(),
    })
}

fn suspect_of(group: GroupId, bytes: &proto::SuspectBytes) -> Touched {
    let (inode, generation, slot) = (InodeId(bytes.inode), bytes.generation, bytes.slot);
    let range = bytes.offset..bytes.end;
    Touched { object: ObjectId { inode, generation, slot, group }, ranges: Vec::from([range]) }
}

const BEGIN: u32 = 1;
const HAS_ALL: u32 = 2;
const COUNTS: u32 = 3;

/// The objects of a page.
fn objects_of((_, group): Key, page: &proto::ListObjectsResponse) -> Vec<ObjectId> {
    let object = |it: &proto::ListedObject| {
        let (inode, generation, slot) = (InodeId(it.inode), it.generation, it.slot);
        (it.group == group.0).then_some(ObjectId { inode, generation, slot, group })
    };
    page.objects.iter().filter_map(object).collect()
}

/// Where the page after this one begins; `None`: there is none.
fn next_cookie(page: proto::ListObjectsResponse) -> Option<Vec<u8>> {
    Some(page.cookie).filter(|cookie| !cookie.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that was back waited for up to two seconds more, as its former process had been tried in vain.
    #[test]
    fn a_member_that_did_not_answer_is_tried_again_later_and_another_process_of_it_at_once() {
        let (of_former, of_next) = ([(TargetId(2), 7)], [(TargetId(2), 9)]);
        let mut lagging = Lagging { tried_of: of_former.to_vec(), ..Lagging::default() };
        lagging.fail(1_000);
        assert!(!lagging.is_due(&of_former, 1_001));
        assert!(lagging.is_due(&of_former, 1_000 + AGAIN_NS));
        assert!(lagging.is_due(&of_next, 1_001));
        assert!(!lagging.is_due(&[], 1_000 + AGAIN_NS), "none lags");
        lagging.is_busy = true;
        assert!(!lagging.is_due(&of_next, 1_001));
    }
}
