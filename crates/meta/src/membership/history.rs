//! The history of the volume's metadata: its starts, and how far each of them came. Data servers keep marks of it.
//! The first report with a later mark shows that a metadata directory was restored from an old copy.

use crate::engine::Position;
use crate::schema::keys;
use crate::schema::records::{NumberRecord, StartRecord};
use crate::service::context::Context;
use crate::service::fault::Outcome;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::proto::HistoryMark;
use vazao_wire::service::Fault;

/// Starts that are kept. A mark of an older start cannot be checked and counts as known.
const STARTS_MAX: usize = 1024;

/// The remedy for an operator.
const REMEDY: &str = "put the newer directory back and start the service on it; to go on with this one and give up what \
                      it lacks, run `vazao metadata accept-old`";

/// This start and those before it.
#[derive(Debug, Default)]
pub(crate) struct History {
    lineage: u64,
    start: u64,
    run: u64,
    /// Present and past starts by their numbers.
    starts: BTreeMap<u64, StartRecord>,
    is_behind: AtomicBool,
    behind: Mutex<Option<Behind>>,
}

/// What a data server knows that is not in this directory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Behind {
    /// The furthest moment that was named.
    pub(crate) mark: HistoryMark,
    why: String,
    /// An operator goes on with it, from the next start on.
    is_accepted: bool,
}

impl History {
    /// Notes this start, which found `position` commits, and reads those before.
    pub(crate) fn begin(
        context: &mut Context<'_>,
        start: u64,
        run: u64,
        position: Position,
    ) -> Outcome<History> {
        let lineage: Option<NumberRecord> = context.read(keys::LINEAGE, "lineage")?;
        let mut starts = BTreeMap::new();
        for (key, value) in context.scan(&keys::starts(), STARTS_MAX + 1)? {
            let record = StartRecord::decode(value.as_slice()).ok();
            let (Some(number), Some(record)) = (keys::number(&key, 0), record) else {
                return Err(Fault::new(Code::Corrupt, "a record of a start of this service"));
            };
            starts.insert(number, record);
        }
        let own = StartRecord { run, position };
        starts.insert(start, own);
        context.write(keys::start(start), &own);
        while starts.len() > STARTS_MAX {
            let oldest = starts.pop_first();
            oldest.iter().for_each(|(number, _)| context.delete(keys::start(*number)));
        }
        let lineage = lineage.map_or(0, |lineage| lineage.value);
        Ok(History { lineage, start, run, starts, ..History::default() })
    }

    /// The present moment, with all commits up to `durable` on disk; `None` while this directory is behind: no node
    /// may drop what it knows because of this mark.
    pub(crate) fn mark(&self, durable: Position) -> Option<HistoryMark> {
        let mark = HistoryMark { lineage: self.lineage, start: self.start, run: self.run, position: durable };
        (!self.is_behind()).then_some(mark)
    }

    /// How far the start with this number came: no further than what the next one found. `None`: it is the present one.
    fn end_of(&self, start: u64) -> Option<Position> {
        let mut later = self.starts.range((Bound::Excluded(start), Bound::Unbounded));
        later.next().map(|(_, next)| next.position)
    }

    /// What this directory lacks up to a moment that was once reported; `None` when it lacks nothing.
    fn lacks(&self, mark: HistoryMark) -> Option<String> {
        if mark.run == 0 || mark.lineage < self.lineage {
            return None;
        }
        if mark.lineage > self.lineage {
            return Some("an operator's decision to go on with old metadata".to_owned());
        }
        let is_forgotten = self.starts.first_key_value().is_some_and(|(oldest, _)| mark.start < *oldest);
        match self.starts.get(&mark.start) {
            None if is_forgotten => None,
            Some(known) if known.run == mark.run => {
                let end = self.end_of(mark.start).unwrap_or(u64::MAX);
                (mark.position > end)
                    .then(|| format!("the last {} changes of that start", mark.position - end))
            }
            _ => Some(format!("the service's start number {}", mark.start)),
        }
    }

    /// Handles the mark that node `name` has received. True when it shows, as the first one, that this directory is
    /// behind.
    pub(crate) fn hear(&self, mark: HistoryMark, name: &str) -> bool {
        let Some(lacks) = self.lacks(mark) else { return false };
        let mut behind = self.behind();
        let is_news = behind.is_none();
        let is_further = |known: &Behind| furthest(mark) > furthest(known.mark) && !known.is_accepted;
        if behind.as_ref().is_none_or(is_further) {
            let why = format!(
                "its directory is an older copy: node {name} knows of commit {} of start {}, and {lacks} \
                 cannot be found in it; {REMEDY}",
                mark.position, mark.start
            );
            *behind = Some(Behind { mark, why, is_accepted: false });
        }
        self.is_behind.store(true, Ordering::Release);
        is_news
    }

    fn behind(&self) -> MutexGuard<'_, Option<Behind>> {
        self.behind.lock()
    }

    /// True when a node knows of commits that this directory lacks: nothing is changed and nothing shown then.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// Message for people why nothing is served; empty while all is well.
    pub(crate) fn trouble(&self) -> String {
        self.behind().as_ref().map(|behind| behind.why.clone()).unwrap_or_default()
    }

    /// Refuses requests that an older copy must not serve.
    pub(crate) fn check(&self, method: Method) -> Outcome<()> {
        if !self.is_behind() || is_about_the_cluster(method) {
            return Ok(());
        }
        Err(Fault::new(Code::Io, format!("the metadata service: {}", self.trouble())))
    }

    /// What this directory is behind of, before an operator goes on with it all the same.
    pub(crate) fn to_accept(&self) -> Option<Behind> {
        self.behind().clone().filter(|behind| !behind.is_accepted)
    }

    /// The lineage that begins when the operator has accepted.
    pub(crate) fn next_lineage(&self, behind: &Behind) -> u64 {
        self.lineage.max(behind.mark.lineage) + 1
    }

    /// A start number that is new to every node.
    pub(crate) fn next_start(&self, behind: &Behind) -> u64 {
        self.start.max(behind.mark.start) + 1
    }

    /// Commits that are not here, as far as known.
    pub(crate) fn lost_commits(&self, behind: &Behind, position: Position) -> u64 {
        behind.mark.position.saturating_sub(position)
    }

    /// It is written down that the operator has accepted.
    pub(crate) fn set_accepted(&self) {
        if let Some(behind) = &mut *self.behind() {
            behind.is_accepted = true;
            behind.why =
                "an operator has accepted its old directory: restart the metadata service".to_owned();
        }
    }
}

fn furthest(mark: HistoryMark) -> (u64, u64, u64) {
    (mark.lineage, mark.start, mark.position)
}

/// What an operator needs to see the trouble and to end it.
fn is_about_the_cluster(method: Method) -> bool {
    matches!(
        method,
        Method::Ping
            | Method::OpenSession
            | Method::RenewSession
            | Method::GetClusterMap
            | Method::RegisterNode
            | Method::AcceptOld
            | Method::CheckMetadata
            | Method::Space
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts 1 to n; the one with number i has the random number 10 i and found 100 i commits.
    fn history(starts: u64) -> History {
        let record = |start| (start, StartRecord { run: 10 * start, position: 100 * start });
        let run = 10 * starts;
        History { start: starts, run, starts: (1..=starts).map(record).collect(), ..History::default() }
    }

    fn mark(start: u64, run: u64, position: u64) -> HistoryMark {
        HistoryMark { lineage: 0, start, run, position }
    }

    #[test]
    fn what_the_present_and_earlier_starts_told_is_known() {
        let history = history(3);
        let told =
            [mark(3, 30, 1_000_000), mark(2, 20, 300), mark(2, 20, 250), mark(1, 10, 200), mark(0, 0, 0)];
        for mark in told {
            assert!(!history.hear(mark, "data1"), "{mark:?}");
        }
        assert_eq!(history.mark(350), Some(mark(3, 30, 350)));
    }

    /// A metadata directory restored from an image taken while the service ran went on as if nothing had happened.
    #[test]
    fn an_image_taken_while_the_service_ran_lacks_the_end_of_that_start() {
        let history = history(3);
        assert!(history.hear(mark(2, 20, 301), "data1"), "the image had 300 commits when start 3 found it");
        assert_eq!(history.mark(350), None, "no member may forget what it knows");
        assert!(history.check(Method::Lookup).is_err() && history.check(Method::GetClusterMap).is_ok());
        assert!(history.trouble().contains("data1") && history.trouble().contains("accept-old"));
        assert!(!history.hear(mark(2, 20, 302), "data2"), "it is no news");
        assert_eq!(history.to_accept().map(|behind| behind.mark.position), Some(302), "but it is more");
    }

    #[test]
    fn an_image_lacks_later_starts_even_when_one_has_had_the_same_number_since() {
        assert!(history(3).hear(mark(4, 40, 350), "data1"));
        assert!(history(3).hear(mark(3, 31, 250), "data1"), "start 3 was another one");
    }

    #[test]
    fn what_was_told_before_an_operator_accepted_says_nothing() {
        let mut history = history(3);
        history.hear(mark(5, 50, 700), "data1");
        let behind = history.to_accept().expect("is behind");
        assert_eq!((history.next_lineage(&behind), history.next_start(&behind)), (1, 6));
        assert_eq!(history.lost_commits(&behind, 350), 350);
        history.set_accepted();
        assert!(history.to_accept().is_none() && history.trouble().contains("restart"));
        history = History { lineage: 1, ..self::history(6) };
        assert!(!history.hear(mark(5, 50, 700), "data1"));
        assert!(history.hear(HistoryMark { lineage: 2, ..mark(6, 60, 600) }, "data1"), "a lost acceptance");
    }

    #[test]
    fn somebody_who_was_away_for_more_starts_than_are_remembered_is_believed() {
        let mut history = history(5);
        history.starts.retain(|start, _| *start > 3);
        assert!(!history.hear(mark(2, 99, 5_000), "data1"));
    }
}
