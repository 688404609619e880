//! Claims: a new process wants the identity of a node that another process, the holder, has.
//!
//! A probe of the holder's address, outside of any transaction, decides whether the holder is alive. Until it has
//! answered or timed out the newcomer gets `Unavailable` and retries.
//!
//! A restarted server finds its old address free, or answers there itself, and is accepted after one round trip. A
//! copy of a node's directory finds the original alive, and is refused for as long as that one answers.

use crate::service::fault::Outcome;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::Duration;
use vazao_model::{Code, NodeId};
use vazao_wire::service::Fault;
use vazao_wire::transport::{Presence, Transport, submit};
use vazao_wire::{op, proto};

/// Concurrent claims; those beyond are answered with a retry as well.
const CLAIMS_MAX: usize = 64;

/// How long the holder's address may take to answer.
const ANSWER_NS_MAX: u64 = 1_500_000_000;

/// A probe's result counts for this long: the newcomer retries earlier, and later the holder's state may have
/// changed.
const FRESH_NS: u64 = 2_000_000_000;

/// A claim that is not repeated for this long is dropped.
const FORGOTTEN_NS: u64 = 30_000_000_000;

/// The process that has an identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) node: NodeId,
    pub(crate) run: u64,
    pub(crate) address: String,
    /// It has reported lately.
    pub(crate) is_up: bool,
    /// Seconds since it has had the identity.
    pub(crate) held_seconds: u64,
}

/// What was found at the holder's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// The holder.
    Holder,
    /// Nothing listens there, or another process does.
    Gone,
    /// No answer: it hangs, or the network does.
    Silence,
}

#[derive(Clone, Debug)]
struct Claim {
    holder_run: u64,
    address: String,
    found: Option<Found>,
    found_ns: u64,
    claimed_ns: u64,
}

/// Claims that are open, by the identity and the newcomer.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    open: Mutex<BTreeMap<(NodeId, u64), Claim>>,
    come: Condvar,
}

impl Claims {
    /// Whether a newcomer, the process `run`, may have the identity. Errors: `Unavailable` while its holder is being
    /// asked, `InUse` when the holder answers, `Invalid` while the holder may be alive.
    pub(crate) fn judge(&self, holder: &Holder, run: u64, now_ns: u64) -> Outcome<()> {
        let mut open = self.open();
        open.retain(|_, claim| now_ns.saturating_sub(claim.claimed_ns) < FORGOTTEN_NS);
        let key = (holder.node, run);
        let known = open.get_mut(&key).filter(|claim| {
            claim.holder_run == holder.run
                && claim.address == holder.address
                && (claim.found.is_none() || now_ns.saturating_sub(claim.found_ns) < FRESH_NS)
        });
        let found = known.and_then(|claim| {
            claim.claimed_ns = now_ns;
            claim.found
        });
        let (node, address) = (holder.node, &holder.address);
        match found {
            Some(Found::Gone) => {
                open.remove(&key);
                Ok(())
            }
            Some(Found::Holder) => Err(Fault::new(
                Code::InUse,
                format!(
                    "{node} is served by another process, at {address} for {} s, which answers. One of the two has a \
                     copy of the other's directory: stop this one, or stop that one first. A new node needs a name \
                     and empty directories of its own",
                    holder.held_seconds
                ),
            )),
            Some(Found::Silence) if holder.is_up => Err(Fault::new(
                Code::Invalid,
                format!(
                    "{node} is served by another process, at {address}, which has reported lately and does not answer: \
                     end it, or wait until it has been silent for 10 s"
                ),
            )),
            Some(Found::Silence) => {
                open.remove(&key);
                Ok(())
            }
            None => {
                if open.len() < CLAIMS_MAX || open.contains_key(&key) {
                    let (holder_run, address) = (holder.run, address.clone());
                    let claim = Claim { holder_run, address, found: None, found_ns: 0, claimed_ns: now_ns };
                    open.insert(key, claim);
                    self.come.notify_all();
                }
                let text = format!("asking at {address} whether the process that had {node} before is gone");
                Err(Fault::new(Code::Unavailable, text))
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<(NodeId, u64), Claim>> {
        self.open.lock()
    }

    /// Blocks up to `timeout` for a claim that has to be settled.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut open = self.open();
        let is_settled = |open: &mut BTreeMap<_, Claim>| open.values().all(|claim| claim.found.is_some());
        self.come.wait_while_for(&mut open, is_settled, timeout);
    }

    /// Probes the addresses of all unsettled holders in parallel. True when no claim is left to be probed.
    pub(crate) fn settle(&self, transport: &dyn Transport) -> bool {
        let unsettled: Vec<((NodeId, u64), Claim)> = {
            let open = self.open();
            let unsettled = open.iter().filter(|(_, claim)| claim.found.is_none());
            unsettled.map(|(key, claim)| (*key, claim.clone())).collect()
        };
        let deadline_ns = transport.clock().now_ns().saturating_add(ANSWER_NS_MAX);
        let ask = |(key, claim): ((NodeId, u64), Claim)| {
            let request = proto::PingRequest::default();
            let call = submit::<op::Ping>(transport, &claim.address, &request, &[], deadline_ns);
            (key, claim, call)
        };
        let asked: Vec<_> = unsettled.into_iter().map(ask).collect();
        for (key, claim, call) in asked {
            let answer = call.wait().map(|(response, _)| response.run);
            let found = find(transport, &claim, answer, deadline_ns);
            let is_of =
                |now: &&mut Claim| (now.holder_run, &now.address) == (claim.holder_run, &claim.address);
            // Race: the claim may have been replaced by one against another holder.
            if let Some(claim) = self.open().get_mut(&key).filter(is_of) {
                (claim.found, claim.found_ns) = (found, transport.clock().now_ns());
            }
        }
        self.open().values().all(|claim| claim.found.is_some())
    }
}

/// What the answer to a Ping says about the holder; `None`: probe again.
fn find(
    transport: &dyn Transport,
    claim: &Claim,
    answer: Result<u64, Fault>,
    deadline_ns: u64,
) -> Option<Found> {
    match answer.map_err(|fault| fault.code) {
        // A process without a number cannot be distinguished from the holder.
        Ok(run) if run == claim.holder_run || run == 0 => Some(Found::Holder),
        Ok(_) => Some(Found::Gone),
        // The process is starting, and so it is not the holder; or it is stopping, and soon gone.
        Err(Code::Unavailable | Code::Overloaded) => None,
        // The cached connection led to a process that has ended: the retry makes a new one.
        Err(Code::Disconnected) => None,
        Err(Code::Unreachable) => match transport.presence(&claim.address, deadline_ns) {
            Presence::Nobody => Some(Found::Gone),
            Presence::Somebody => None,
            Presence::Unknown => Some(Found::Silence),
        },
        // Another program, or a server of another cluster: only one process can have the port, so the holder is gone.
        Err(Code::Unauthenticated | Code::VersionMismatch | Code::BadRequest | Code::Unsupported) => {
            Some(Found::Gone)
        }
        Err(_) => Some(Found::Silence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vazao_meter::{Clock, ManualClock};
    use vazao_wire::inline::{Fate, InlineTransport};
    use vazao_wire::service::{Request, Responder, Service};

    /// Answers Ping with its number.
    struct Process(u64);

    impl Service for Process {
        fn handle(&self, _request: Request<'_>, responder: &mut dyn Responder) {
            responder.reply(&prost::Message::encode_to_vec(&proto::PingResponse { run: self.0 }));
        }
    }

    struct Rig {
        clock: Arc<ManualClock>,
        transport: Arc<InlineTransport>,
        claims: Arc<Claims>,
    }

    /// The process that has the identity.
    fn holder(run: u64, is_up: bool) -> Holder {
        Holder { node: NodeId(2), run, address: "data1:7".to_owned(), is_up, held_seconds: 5 }
    }

    impl Rig {
        fn new() -> Rig {
            let clock = Arc::new(ManualClock::default());
            let transport = InlineTransport::new(Arc::clone(&clock) as Arc<dyn Clock>);
            Rig { clock, transport, claims: Arc::default() }
        }

        fn serve(&self, run: u64) {
            self.transport.serve("data1:7", Arc::new(Process(run)));
        }

        /// The answer to a newcomer, after the holder was probed.
        fn claim(&self, run: u64, is_up: bool) -> Result<(), Code> {
            let code = |fault: Fault| fault.code;
            self.judge(run, is_up).map_err(code).expect_err("asked first");
            self.claims.settle(&*self.transport);
            self.judge(run, is_up).map_err(code)
        }

        fn judge(&self, run: u64, is_up: bool) -> Outcome<()> {
            self.claims.judge(&holder(1, is_up), run, self.clock.now_ns())
        }
    }

    /// A second server with a copy of a target was accepted within 50 ms while the first was up.
    #[test]
    fn a_copy_is_refused_while_the_original_answers_and_taken_in_once_it_is_gone() {
        let rig = Rig::new();
        rig.serve(1);
        assert_eq!(rig.claim(2, true), Err(Code::InUse));
        assert_eq!(
            rig.judge(2, false).expect_err("refused").code,
            Code::InUse,
            "also one that cannot report"
        );
        rig.transport.stop("data1:7");
        rig.clock.advance(Duration::from_secs(3));
        assert_eq!(rig.claim(2, true), Ok(()));
    }

    #[test]
    fn a_server_that_was_restarted_answers_at_its_old_address_itself() {
        let rig = Rig::new();
        rig.serve(2);
        assert_eq!(rig.claim(2, true), Ok(()));
        assert!(rig.judge(3, true).is_err(), "what was found was found for one newcomer");
    }

    #[test]
    fn somebody_else_at_the_old_address_is_not_the_holder() {
        let rig = Rig::new();
        rig.serve(77);
        assert_eq!(rig.claim(2, true), Ok(()));
    }

    #[test]
    fn a_silent_holder_keeps_its_identity_while_it_has_reported_lately() {
        let rig = Rig::new();
        rig.serve(1);
        rig.transport.set_fates(Some(Box::new(|_, _| Fate::LoseRequest)));
        assert_eq!(rig.claim(2, true), Err(Code::Invalid));
        assert_eq!(rig.judge(2, false), Ok(()), "once it has been silent for long");
    }

    #[test]
    fn a_broken_connection_says_nothing_and_it_is_asked_again() {
        let rig = Rig::new();
        rig.serve(1);
        let mut breaks = true;
        rig.transport.set_fates(Some(Box::new(move |_, _| {
            if std::mem::take(&mut breaks) { Fate::BreakBefore } else { Fate::Deliver }
        })));
        assert_eq!(rig.claim(2, true), Err(Code::Unavailable));
        rig.claims.settle(&*rig.transport);
        assert_eq!(rig.judge(2, true).expect_err("refused").code, Code::InUse);
    }

    /// Of two newcomers the second one took the identity from the first, as the holder before that was gone.
    #[test]
    fn an_answer_about_one_holder_says_nothing_of_the_next() {
        let rig = Rig::new();
        rig.serve(77);
        rig.judge(3, true).expect_err("asked first");
        let claims = Arc::clone(&rig.claims);
        rig.transport.set_fates(Some(Box::new(move |_, _| {
            claims.judge(&holder(2, true), 3, 0).expect_err("asked first");
            Fate::Deliver
        })));
        rig.claims.settle(&*rig.transport);
        rig.transport.set_fates(None);
        let now_ns = rig.clock.now_ns();
        let second = rig.claims.judge(&holder(2, true), 3, now_ns).expect_err("it has not been asked yet");
        assert_eq!(second.code, Code::Unavailable);
    }

    #[test]
    fn claims_are_bounded_and_forgotten() {
        let rig = Rig::new();
        for run in 2..1000 {
            assert_eq!(rig.judge(run, true).expect_err("asked").code, Code::Unavailable);
        }
        assert_eq!(rig.claims.open().len(), CLAIMS_MAX);
        rig.clock.advance(Duration::from_secs(31));
        assert!(rig.judge(2, true).is_err());
        assert_eq!(rig.claims.open().len(), 1);
    }
}
