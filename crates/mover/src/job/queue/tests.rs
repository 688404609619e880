//! How a job ends.

use super::super::files::JobFiles;
use super::super::state::{Again, Job, JobState, Tries};
use super::{Queue, Setup};
use crate::control::Order;
use crate::engine::Engines;
use prost::Message;
use std::sync::Arc;
use tempfile::TempDir;
use vazao_area::AreaService;
use vazao_client::Client;
use vazao_meter::{Clock, SystemClock};
use vazao_model::{Action, Code, FileKind};
use vazao_wire::inline::InlineTransport;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::{Method, proto};

struct FakeMeta;

impl Service for FakeMeta {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let map = Some(proto::ClusterMap {
            cluster_id: 1,
            epoch: 1,
            nodes: vec![],
            targets: vec![],
            ..Default::default()
        });
        let opened = proto::OpenSessionResponse { session: 1, slots: 8, map, ..Default::default() };
        match request.method {
            Method::OpenSession => {
                responder.reply(&proto::OpenSessionResponse { lease_ms: 60_000, ..opened }.encode_to_vec());
            }
            _ => responder.fail(&Fault::from(Code::Unsupported)),
        }
    }
}

fn open_client() -> vazao_client::Result<Client> {
    let transport = InlineTransport::new(Arc::new(SystemClock));
    transport.serve("meta:1", Arc::new(FakeMeta));
    let options = vazao_client::Options { background: false, name: "test".into(), ..Default::default() };
    Client::open(transport, vec!["meta:1".into()], options)
}

/// A queue, and a job of it that it does not know of, which has three files and is about to be finished.
fn about_to_finish() -> (TempDir, Engines, Queue, Job) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let engines = Engines::new(Arc::clone(&clock));
    let queue = Queue::open(Setup {
        node: "n1".into(),
        area: AreaService::open(vec![], Default::default(), Arc::clone(&clock)).expect("opens"),
        clock,
        directory: directory.path(),
        copies_out_max: 4,
        copies_pair_max: 4,
        open_client: Box::new(open_client),
        engines: engines.clone(),
    });
    let files = JobFiles::new(directory.path().join("jobs/7"));
    let job = Job::new(7, "n1", files, proto::JobStatus::default());
    job.save(0).expect("written");
    let mut plan = job.files.begin_plan().expect("begun");
    let file = proto::PlanEntry { kind: FileKind::File.number(), ..Default::default() };
    (0..3).for_each(|_| plan.add(&file).expect("written"));
    plan.finish().expect("written");
    {
        let mut progress = job.progress();
        (progress.state, progress.is_planned, progress.is_busy) = (JobState::Running, true, true);
        (progress.files, progress.files_done) = (3, 3);
    }
    (directory, engines, queue.expect("opens"), job)
}

#[test]
fn a_job_with_all_its_files_is_done() {
    let (_directory, _engine, queue, job) = about_to_finish();
    queue.inner.finish(&job);
    assert_eq!(job.progress().state, JobState::Done);
    queue.stop(u64::MAX);
}

/// A job whose directories were being finished when its daemon was stopped had failed for good, with all files there.
#[test]
fn a_job_that_is_to_stop_while_it_is_finished_goes_on_later() {
    for order in [Order::Pause, Order::Shutdown, Order::Cancel] {
        let (_directory, _engine, queue, job) = about_to_finish();
        job.control.set(order);
        queue.inner.finish(&job);
        {
            let progress = job.progress();
            assert_eq!((progress.state, progress.is_busy), (JobState::Running, false), "{order:?}");
        }
        job.control.set(Order::Run);
        queue.inner.finish(&job);
        assert_eq!(job.progress().state, JobState::Done);
        queue.stop(u64::MAX);
    }
}

/// A plan is read up to where it makes sense: the files behind that were forgotten, and the job was done.
#[test]
fn a_job_whose_plan_could_not_be_read_to_its_end_is_not_done() {
    let (_directory, _engine, queue, job) = about_to_finish();
    job.progress().files_done = 2;
    queue.inner.finish(&job);
    assert_eq!(job.progress().state, JobState::Failed);
    assert!(job.progress().trouble.contains("1 files are missing"));
    queue.stop(u64::MAX);
}

/// A target that was mounted late, or a server that had just started, made the files of a job fail for good though a
/// client would have tried again: which faults may pass was listed twice, and the lists differed.
#[test]
fn a_fault_that_a_client_tries_again_fails_no_file_and_no_job() {
    let (_directory, _engine, queue, job) = about_to_finish();
    for &code in Code::ALL.iter().filter(|code| code.action() != Action::GiveUp) {
        let file = Again { index: 1, entry: proto::PlanEntry::default(), tries: Tries::default() };
        queue.inner.fail(&job, file, Fault::from(code));
        let mut progress = job.progress();
        assert_eq!((progress.files_failed, progress.again.len()), (0, 1), "{code:?}");
        progress.again.clear();
        drop(progress);
        assert!(super::may_pass(code), "{code:?} while planning or finishing");
    }
    let file = Again { index: 1, entry: proto::PlanEntry::default(), tries: Tries::default() };
    queue.inner.fail(&job, file, Fault::from(Code::NoSpace));
    {
        let progress = job.progress();
        assert_eq!((progress.files_failed, progress.again.len()), (1, 0));
    }
    queue.stop(u64::MAX);
}
