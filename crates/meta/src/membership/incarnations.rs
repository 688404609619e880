//! Whether a target may be served: its disk beside what was recorded of it. A pure function; the protocol is in
//! docs/decisions/target-identity.md.
//!
//! Invariants:
//! - The record is never ahead of the disk that it was made from: a server writes first and reports then.
//! - A disk is raised only after it was found not to be behind, so that restarts alone never make an old copy current.
//! - One process at a time has leave to serve; it keeps it until another one gets it.
//! - Processes with leave are numbered, and the numbers of a target grow, also over old copies of its disk or of the
//!   records: a number is an incarnation that no process before had.

use crate::schema::records::TargetRecord;

/// A server's report on a target's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Said {
    /// The process; 0: one that knows nothing of incarnations.
    pub(crate) run: u64,
    /// On the disk when it started.
    pub(crate) found: u64,
    /// What it has made durable since; 0: nothing.
    pub(crate) written: u64,
}

/// The verdict on a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    /// To serve. The record has been brought up to date.
    Serve,
    /// To write this incarnation on the disk and to report again.
    Advance(u64),
    /// To serve nothing: the disk is an older copy.
    Stale,
}

/// Judges a report, and updates the record where that grants leave or advances it.
pub(crate) fn judge(record: &mut TargetRecord, said: Said) -> Judgement {
    let Said { run, found, written } = said;
    if run == 0 && record.incarnation == 0 {
        return Judgement::Serve;
    }
    if run != 0 && record.run == run {
        record.incarnation = record.incarnation.max(written);
        if record.process == 0 {
            // It was given leave before processes were numbered.
            record.process = record.incarnation;
        }
        return Judgement::Serve;
    }
    let is_accepted = record.accepted_from.is_some_and(|from| found >= from);
    if found < record.incarnation && !is_accepted {
        return Judgement::Stale;
    }
    let floor = record.incarnation.max(found);
    if written <= floor {
        return Judgement::Advance(floor + 1);
    }
    (record.run, record.process, record.incarnation, record.accepted_from) = (run, written, written, None);
    Judgement::Serve
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A disk under a server.
    #[derive(Clone, Copy, Debug)]
    struct Disk {
        incarnation: u64,
    }

    /// A server's process, which obeys the verdicts.
    #[derive(Clone, Copy, Debug)]
    struct Server {
        run: u64,
        disk: Disk,
        found: u64,
        written: u64,
        serves: bool,
    }

    impl Server {
        fn start(run: u64, disk: Disk) -> Server {
            Server { run, disk, found: disk.incarnation, written: 0, serves: false }
        }

        fn report(&mut self, record: &mut TargetRecord) -> Judgement {
            let said = Said { run: self.run, found: self.found, written: self.written };
            let judgement = judge(record, said);
            match judgement {
                Judgement::Serve => self.serves = true,
                Judgement::Advance(to) => (self.disk.incarnation, self.written) = (to, to),
                Judgement::Stale => self.serves = false,
            }
            judgement
        }

        fn join(&mut self, record: &mut TargetRecord) -> Judgement {
            while let Judgement::Advance(_) = self.report(record) {}
            self.report(record)
        }

        fn advance(&mut self) {
            self.disk.incarnation += 1;
            self.written = self.disk.incarnation;
        }
    }

    fn new_disk() -> Disk {
        Disk { incarnation: 0 }
    }

    #[test]
    fn a_target_is_served_after_its_new_incarnation_is_on_disk_and_recorded() {
        let mut record = TargetRecord::default();
        let mut server = Server::start(7, new_disk());
        assert_eq!(server.report(&mut record), Judgement::Advance(1));
        assert_eq!(record, TargetRecord::default(), "nothing is recorded before it is on disk");
        assert_eq!(server.report(&mut record), Judgement::Serve);
        assert_eq!((record.incarnation, record.run), (1, 7));
        server.advance();
        assert_eq!(server.report(&mut record), Judgement::Serve);
        assert_eq!(record.incarnation, 2);
    }

    #[test]
    fn a_restart_is_taken_in_whenever_the_process_was_killed() {
        // After n reports the process dies, once before and once after the verdict is on disk.
        for reports in 0..5 {
            for is_written in [false, true] {
                let mut record = TargetRecord::default();
                let mut server = Server::start(7, new_disk());
                for _ in 0..reports {
                    let before = server.disk;
                    server.report(&mut record);
                    if !is_written {
                        server.disk = Disk { incarnation: before.incarnation.max(record.incarnation) };
                    }
                }
                let mut again = Server::start(8, server.disk);
                assert_eq!(again.join(&mut record), Judgement::Serve, "{reports} {is_written}");
            }
        }
    }

    /// A disk restored from an image taken while its server ran was served as if it were current.
    #[test]
    fn an_image_is_stale_once_anything_was_advanced_after_it() {
        let mut record = TargetRecord::default();
        let mut server = Server::start(7, new_disk());
        server.join(&mut record);
        let image = server.disk;
        server.advance();
        server.report(&mut record);
        assert_eq!(Server::start(8, image).join(&mut record), Judgement::Stale);
        assert_eq!(Server::start(9, server.disk).join(&mut record), Judgement::Serve);
        assert_eq!(
            Server::start(10, server.disk).join(&mut record),
            Judgement::Stale,
            "a start is an advance"
        );
    }

    #[test]
    fn an_old_copy_does_not_become_current_by_being_restarted() {
        let mut record = TargetRecord { incarnation: 20, run: 1, ..TargetRecord::default() };
        let mut disk = Disk { incarnation: 5 };
        for run in 2..100 {
            let mut server = Server::start(run, disk);
            assert_eq!(server.join(&mut record), Judgement::Stale);
            disk = server.disk;
        }
    }

    #[test]
    fn an_accepted_copy_overtakes_the_original_which_is_stale_from_then_on() {
        let mut record = TargetRecord { incarnation: 20, run: 1, ..TargetRecord::default() };
        let (original, older, copy) =
            (Disk { incarnation: 20 }, Disk { incarnation: 4 }, Disk { incarnation: 5 });
        record.accepted_from = Some(5);
        assert_eq!(
            Server::start(2, older).join(&mut record),
            Judgement::Stale,
            "older than what was accepted"
        );
        let mut server = Server::start(3, copy);
        assert_eq!(server.join(&mut record), Judgement::Serve);
        assert_eq!((record.incarnation, record.accepted_from), (21, None));
        assert_eq!(Server::start(4, original).join(&mut record), Judgement::Stale);
        assert_eq!(Server::start(5, copy).join(&mut record), Judgement::Stale, "once");
    }

    #[test]
    fn a_process_of_before_they_were_numbered_gets_a_number_that_no_later_one_has() {
        let mut record = TargetRecord { incarnation: 20, run: 1, ..TargetRecord::default() };
        let mut server = Server { written: 21, ..Server::start(1, Disk { incarnation: 21 }) };
        assert_eq!(server.report(&mut record), Judgement::Serve);
        assert_eq!(record.process, 21);
        server.advance();
        server.report(&mut record);
        assert_eq!((record.incarnation, record.process), (22, 21), "it keeps it");
        Server::start(2, server.disk).join(&mut record);
        assert_eq!(record.process, 23);
    }

    #[test]
    fn a_server_that_was_overtaken_loses_its_leave() {
        let mut record = TargetRecord::default();
        let mut first = Server::start(7, new_disk());
        first.join(&mut record);
        let mut second = Server::start(8, first.disk);
        assert_eq!(second.join(&mut record), Judgement::Serve);
        first.advance();
        assert_eq!(first.report(&mut record), Judgement::Stale);
    }

    #[test]
    fn a_record_restored_from_an_image_is_overtaken_by_the_disk() {
        let mut record = TargetRecord { incarnation: 3, run: 1, ..TargetRecord::default() };
        let mut server = Server { written: 75, ..Server::start(7, Disk { incarnation: 60 }) };
        assert_eq!(server.report(&mut record), Judgement::Serve);
        assert_eq!(record.incarnation, 75);
    }

    #[test]
    fn a_server_without_incarnations_serves_only_what_never_had_one() {
        let mut record = TargetRecord::default();
        let mut old = Server::start(0, new_disk());
        assert_eq!(old.report(&mut record), Judgement::Serve);
        Server::start(7, new_disk()).join(&mut record);
        assert_eq!(old.report(&mut record), Judgement::Stale);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Start,
        Report,
        Write,
        Kill,
        TakeImage,
        RestoreImage,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Report),
            2 => Just(Step::Write),
            1 => Just(Step::Start),
            1 => Just(Step::Kill),
            1 => Just(Step::TakeImage),
            1 => Just(Step::RestoreImage),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        /// Whatever is killed, imaged and restored: what is served has everything that was recorded, and a disk that
        /// was never put back is never refused.
        #[test]
        fn what_is_served_is_never_behind_what_was_recorded(steps in steps()) {
            let mut record = TargetRecord::default();
            let (mut disk, mut image, mut run) = (new_disk(), new_disk(), 0);
            let mut is_restored = false;
            let mut server: Option<Server> = None;
            let mut last = (0, 0);
            for step in steps {
                match (step, &mut server) {
                    (Step::Start, None) => {
                        run += 1;
                        server = Some(Server::start(run, disk));
                    }
                    (Step::Report, Some(server)) => {
                        let recorded = record.incarnation;
                        let judgement = server.report(&mut record);
                        disk = server.disk;
                        let is_same = record.run == last.0 && record.process == last.1;
                        prop_assert!(is_same || record.process > last.1, "the numbers of processes grow");
                        last = (record.run, record.process);
                        prop_assert!(judgement != Judgement::Serve || disk.incarnation >= recorded);
                        prop_assert!(judgement != Judgement::Stale || is_restored);
                    }
                    (Step::Write, Some(server)) if server.serves => {
                        server.advance();
                        disk = server.disk;
                    }
                    (Step::Kill, Some(_)) => server = None,
                    (Step::TakeImage, _) => image = disk,
                    (Step::RestoreImage, None) => {
                        is_restored |= image.incarnation < disk.incarnation;
                        disk = image;
                    }
                    _ => {}
                }
            }
        }
    }
}
