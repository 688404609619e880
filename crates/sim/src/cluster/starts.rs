//! Starts of daemons in steps, with time between them in which others see how far each has come.

use super::{Daemon, HEARTBEAT_NS, Host, META, Shared};
use crate::defects::Defect;
use crate::network::End;
use rand::RngExt;
use std::sync::Arc;
use vazao_disk::MemoryDisk;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_store::{DataService, MissingTarget};
use vazao_wire::op::RegisterNode;
use vazao_wire::proto::RegisterNodeRequest;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::transport::{Transport, call};

/// Longest time between two steps: some attempts of a waiting client fall into it.
const PAUSE_MS_MAX: u64 = 400;

/// A step of the start of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It takes connections, and its role is not ready.
    Listen,
    /// Its service answers: a data server has not been told of its groups, a metadata service has heard of no server.
    Open,
    /// It reports itself once.
    Report,
    /// It reports until it has nothing to add.
    Serve,
    /// The disk that was missing is there.
    FindDisk,
    /// One data server reports to it.
    HearOne,
    /// All of them do.
    HearAll,
}

const META_STEPS: &[Step] = &[Step::Listen, Step::Open, Step::HearOne, Step::HearAll];
const DATA_STEPS: &[Step] = &[Step::Listen, Step::Open, Step::Report, Step::Serve];
const LATE_STEPS: &[Step] =
    &[Step::Listen, Step::Open, Step::Report, Step::Serve, Step::FindDisk, Step::Report, Step::Serve];

/// A process that is there, and none of whose roles is.
struct NotReady;

impl Service for NotReady {
    fn handle(&self, _request: Request<'_>, responder: &mut dyn Responder) {
        responder.fail(&Fault::new(Code::Unavailable, "it is starting"));
    }
}

/// The disk of a data server that is there only when its server has started without it.
#[derive(Debug)]
pub(super) struct LateDisk {
    pub(super) disk: MemoryDisk,
    /// Until when it was away; `u64::MAX` while it is.
    away_until_ns: u64,
}

impl LateDisk {
    pub(super) fn new(disk: MemoryDisk) -> LateDisk {
        LateDisk { disk, away_until_ns: 0 }
    }
}

fn label(number: usize) -> String {
    format!("/late{number}")
}

impl Host {
    /// The steps of this machine's daemon, whose number is `number`.
    pub(super) fn steps(&self, number: usize) -> &'static [Step] {
        match (number, &self.late_disk) {
            (0, _) => META_STEPS,
            (_, None) => DATA_STEPS,
            (_, Some(_)) => LATE_STEPS,
        }
    }

    /// What the late disk is to a server that starts: a disk like others before it has a target, missing afterwards.
    pub(super) fn give_late_disk(
        &self,
        number: usize,
        disks: &mut Vec<(Arc<dyn vazao_disk::Disk>, String)>,
        options: &mut vazao_store::Options,
    ) {
        let Some(late) = &self.late_disk else { return };
        let disk = late.disk.boot();
        let found = vazao_store::inspect(&disk, &label(number)).expect("a disk in memory is readable");
        match found.filter(|target| target.id != 0) {
            None => disks.push((Arc::new(disk), label(number))),
            Some(target) => options.missing.push(MissingTarget {
                id: target.id,
                uuid: target.uuid,
                directory: label(number),
                why: "its disk is not mounted yet".to_owned(),
            }),
        }
    }
}

impl Shared {
    /// Every daemon whose time has come takes the next step of its start, or ends before it.
    pub(super) fn take_steps(&self) {
        let count = self.world().machines.len();
        for number in 0..count {
            let now_ns = self.clock.now_ns();
            let (address, step) = {
                let world = self.world();
                let machine = &world.machines[number];
                if machine.starts_at_ns > now_ns || machine.steps_done == machine.steps(number).len() {
                    continue;
                }
                (machine.address.clone(), machine.steps_done)
            };
            if step > 0 && self.world().end_at.take_if(|end| *end == (number, step)).is_some() {
                self.end(&address, End::Kill);
                continue;
            }
            let is_done = self.take_step(number, step);
            let mut world = self.world();
            let pause_ms = world.random.random_range(0..=PAUSE_MS_MAX);
            let machine = &mut world.machines[number];
            machine.steps_done += usize::from(is_done);
            machine.starts_at_ns = self.clock.now_ns() + pause_ms * 1_000_000;
        }
    }

    /// Takes a step; false when it is to be taken again.
    fn take_step(&self, number: usize, step: usize) -> bool {
        let step = self.world().machines[number].steps(number)[step];
        let data = self.data_server(number);
        match (step, data) {
            (Step::Listen, _) => {
                let mut world = self.world();
                let machine = &mut world.machines[number];
                machine.daemon = Some(Daemon::Starting);
                machine.late_disk.iter_mut().for_each(|late| late.away_until_ns = u64::MAX);
                self.serve(number, &machine.address, Arc::new(NotReady));
            }
            (Step::Open, _) => {
                self.world().starts += 1;
                self.open(number);
            }
            (Step::HearOne, _) => {
                return self
                    .data_servers()
                    .first()
                    .is_some_and(|(it, data)| self.report_once(*it, data).is_ok());
            }
            (Step::HearAll, _) => self.beat(),
            (Step::Report, Some(data)) => return self.report_once(number, &data).is_ok(),
            (Step::Serve, Some(data)) => {
                return self.report(number, &data).is_ok_and(|()| self.note_disk(number));
            }
            (Step::FindDisk, Some(data)) => self.find_disk(number, &data),
            (Step::Report | Step::Serve | Step::FindDisk, None) => {}
        }
        true
    }

    fn data_server(&self, number: usize) -> Option<Arc<DataService>> {
        match &self.world().machines[number].daemon {
            Some(Daemon::Data(service)) => Some(Arc::clone(service)),
            _ => None,
        }
    }

    fn find_disk(&self, number: usize, service: &DataService) {
        let world = self.world();
        let Some(late) = &world.machines[number].late_disk else { return };
        service
            .add_target(Arc::new(late.disk.boot()), &label(number))
            .expect("the target opens after any end");
    }

    /// Notes when a late disk is served again. True.
    fn note_disk(&self, number: usize) -> bool {
        let is_there = self.data_server(number).is_some_and(|it| it.missing_targets().is_empty());
        let now_ns = self.clock.now_ns();
        let mut world = self.world();
        for late in world.machines[number].late_disk.iter_mut().filter(|_| is_there) {
            late.away_until_ns = late.away_until_ns.min(now_ns);
        }
        true
    }

    /// Since when all late disks are served; `u64::MAX`: one is not.
    pub(super) fn disks_back_ns(&self) -> u64 {
        let world = self.world();
        let late = world.machines.iter().filter_map(|machine| machine.late_disk.as_ref());
        late.map(|late| late.away_until_ns).max().unwrap_or(0)
    }

    /// One report; asks for it whether the process is gone that had its identity before.
    fn report_once(&self, number: usize, service: &DataService) -> Result<(), Fault> {
        let mut request = service.registration();
        self.spoil(&mut request);
        let deadline_ns = self.endpoints[number].clock().now_ns() + HEARTBEAT_NS;
        let answer = call::<RegisterNode>(&*self.endpoints[number], META, &request, deadline_ns);
        if answer.as_ref().is_err_and(|fault| fault.code == Code::Unavailable) {
            self.settle_claims();
        }
        let response = answer?;
        service.set_registration(request.epoch, &response)?;
        self.world().told.entry(request.run).or_insert(response.epoch);
        Ok(())
    }

    /// What [`Defect::ForgottenGroups`] makes of a report.
    pub(super) fn spoil(&self, request: &mut RegisterNodeRequest) {
        if self.defect.get() == Some(&Defect::ForgottenGroups)
            && let Some(epoch) = self.world().told.get(&request.run)
        {
            request.epoch = *epoch;
        }
    }
}
