//! One server for several roles: requests go by the range of their method's number.
//!
//! The server listens before its roles are open, because they want to know the address they are reached at, and because
//! reading a long log is no reason to look dead: until then requests are answered `Unavailable`, which is tried again.

use std::sync::{Arc, OnceLock};
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::service::{Fault, Request, Responder, Service};

/// A role's place in the router.
#[derive(Default)]
pub(crate) struct Slot {
    expected: bool,
    service: OnceLock<Arc<dyn Service>>,
}

impl Slot {
    fn service(&self, role: &str) -> Result<&Arc<dyn Service>, Fault> {
        self.service.get().ok_or_else(|| match self.expected {
            true => {
                Fault::new(Code::Unavailable, format!("the {role} service of this node is still starting"))
            }
            false => Fault::new(Code::Unsupported, format!("this node has no {role} role")),
        })
    }

    /// Puts the service in, once it is open.
    pub(crate) fn fill(&self, service: Arc<dyn Service>) {
        let _ = self.service.set(service);
    }
}

/// The roles of this node, behind one port.
#[derive(Default)]
pub(crate) struct Router {
    /// Serves methods 0x01xx.
    pub(crate) meta: Slot,
    /// Serves methods 0x02xx.
    pub(crate) data: Slot,
    /// Serves methods 0x0300 to 0x031F; every node may export areas.
    pub(crate) area: Slot,
    /// Serves `Measure`.
    pub(crate) measures: Slot,
    /// Serves methods 0x0320 to 0x033F: copies and jobs.
    pub(crate) mover: Slot,
}

/// The first method of copies.
const MOVER_FIRST: u16 = 0x0320;

/// Methods of areas that came when those below were given away.
const AREA_AGAIN: std::ops::RangeInclusive<u16> = 0x0352..=0x035F;

impl Router {
    /// A router for the roles that will come.
    pub(crate) fn new(meta: bool, data: bool) -> Router {
        let slot = |expected| Slot { expected, service: OnceLock::new() };
        Router {
            meta: slot(meta),
            data: slot(data),
            area: slot(true),
            measures: slot(true),
            mover: slot(true),
        }
    }

    fn service(&self, method: Method) -> Result<&Arc<dyn Service>, Fault> {
        if method == Method::Measure {
            return self.measures.service("measuring");
        }
        match method.number() >> 8 {
            0x01 => self.meta.service("metadata"),
            // A data server that moved has left its address to this node: who asks has an old map.
            0x02 if !self.data.expected => {
                Err(Fault::new(Code::WrongTarget, "this node has no data role, and so no targets"))
            }
            0x02 => self.data.service("data"),
            0x03 if AREA_AGAIN.contains(&method.number()) => self.area.service("area"),
            0x03 if method.number() >= MOVER_FIRST => self.mover.service("copy"),
            0x03 => self.area.service("area"),
            // Any role answers what belongs to none.
            _ if self.meta.expected => self.meta.service("metadata"),
            _ if self.data.expected => self.data.service("data"),
            _ => self.area.service("area"),
        }
    }
}

impl Service for Router {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        match self.service(request.method) {
            Ok(service) => service.handle(request, responder),
            Err(fault) => responder.fail(&fault),
        }
    }

    fn flush(&self) -> Result<(), Fault> {
        let all = [&self.meta, &self.data, &self.area, &self.mover];
        let services = all.into_iter().filter_map(|slot| slot.service.get());
        services.into_iter().try_for_each(|service| service.flush())
    }

    /// Asked before the services are there: of all roles only data servers use disks in the server's own threads.
    fn may_hang(&self) -> bool {
        self.data.expected
    }

    fn look(&self) {
        if let Some(data) = self.data.service.get() {
            data.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::Action;

    /// Answers with its own name.
    struct Named(&'static str);

    impl Service for Named {
        fn handle(&self, _request: Request<'_>, responder: &mut dyn Responder) {
            responder.reply(self.0.as_bytes());
        }
    }

    #[derive(Default)]
    struct Heard(Option<Result<Vec<u8>, Code>>);

    impl Responder for Heard {
        fn reply(&mut self, message: &[u8]) {
            self.0 = Some(Ok(message.to_vec()));
        }
        fn try_reply_with(
            &mut self,
            _message: &[u8],
            _length: usize,
            _fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
        ) -> bool {
            unreachable!("the services of this test send no attachments");
        }
        fn fail(&mut self, fault: &Fault) {
            self.0 = Some(Err(fault.code));
        }
        fn defer(&mut self) -> vazao_wire::service::Deferred {
            unreachable!("the services of this test answer at once");
        }
    }

    fn ask(router: &Router, method: Method) -> Result<Vec<u8>, Code> {
        let mut heard = Heard::default();
        let request = Request { method, id: 1, message: &[], attachment: &[], deadline_ns: u64::MAX };
        router.handle(request, &mut heard);
        heard.0.expect("every request is answered")
    }

    #[test]
    fn requests_reach_the_role_that_serves_them() {
        let router = Router::new(true, true);
        assert_eq!(ask(&router, Method::Lookup), Err(Code::Unavailable));
        router.meta.fill(Arc::new(Named("meta")));
        router.data.fill(Arc::new(Named("data")));
        assert_eq!(ask(&router, Method::Lookup), Ok(b"meta".to_vec()));
        assert_eq!(ask(&router, Method::ListObjects), Ok(b"data".to_vec()));
        assert_eq!(ask(&router, Method::Ping), Ok(b"meta".to_vec()));
        assert_eq!(ask(&router, Method::AreaStat), Err(Code::Unavailable));
        router.area.fill(Arc::new(Named("area")));
        assert_eq!(ask(&router, Method::AreaStat), Ok(b"area".to_vec()));
        assert_eq!(ask(&router, Method::CopyBegin), Err(Code::Unavailable));
        router.mover.fill(Arc::new(Named("mover")));
        assert_eq!(ask(&router, Method::ListJobs), Ok(b"mover".to_vec()));
    }

    #[test]
    fn a_role_that_the_node_has_not_is_refused_for_good() {
        let router = Router::new(false, true);
        router.data.fill(Arc::new(Named("data")));
        assert_eq!(ask(&router, Method::Lookup), Err(Code::Unsupported));
        assert_eq!(ask(&router, Method::Ping), Ok(b"data".to_vec()));
    }

    /// A running program whose data server had been started again at another port failed for good, where another node
    /// had taken the old one.
    #[test]
    fn a_node_without_targets_at_the_address_of_a_data_server_has_its_clients_ask_for_the_map() {
        let router = Router::new(true, false);
        router.meta.fill(Arc::new(Named("meta")));
        for method in [Method::Read, Method::Write, Method::ListObjects] {
            let code = ask(&router, method).expect_err("it has no targets");
            assert_eq!(code.action(), Action::Refresh, "{method:?}");
        }
    }
}
