//! Which operation serves which method. The one place where the two meet.

use crate::ops;
use crate::service::MetaService;
use crate::service::answer::Settled;
use crate::service::fault::Outcome;
use crate::service::transactions::decode;
use prost::Message;
use vazao_model::Code;
use vazao_wire::service::Fault;
use vazao_wire::{Method, Operation, op, proto};

pub(crate) fn run(service: &MetaService, method: Method, message: &[u8]) -> Outcome<Settled> {
    let viewed = match method {
        Method::Ping => Ok(proto::PingResponse { run: service.run() }.encode_to_vec()),
        Method::Lookup => service.view::<op::Lookup>(message, ops::lookup::run),
        Method::Resolve => service.view::<op::Resolve>(message, ops::resolve::run),
        Method::GetAttributes => service.view::<op::GetAttributes>(message, ops::attributes::get),
        Method::List => service.view_encoded::<op::List>(message, ops::list::run),
        Method::GetLayoutHint => service.view::<op::GetLayoutHint>(message, ops::layout::get_hint),
        Method::GetXattr => service.view::<op::GetXattr>(message, ops::xattr::get),
        Method::ListXattrs => service.view::<op::ListXattrs>(message, ops::xattr::list),
        Method::Space => ops::space::run(service).map(|response| response.encode_to_vec()),
        Method::GetClusterMap => ops::cluster::map(service).map(|response| response.encode_to_vec()),
        Method::OpenSession => direct::<op::OpenSession>(service, message, ops::session::open),
        Method::RenewSession => direct::<op::RenewSession>(service, message, ops::session::renew),
        Method::CloseSession => direct::<op::CloseSession>(service, message, ops::session::close),
        Method::TestLock => direct::<op::TestLock>(service, message, ops::locks::test),
        Method::CancelLock => direct::<op::CancelLock>(service, message, ops::locks::cancel),
        Method::ReclaimLocks => direct::<op::ReclaimLocks>(service, message, ops::locks::reclaim),
        Method::CheckMetadata => direct::<op::CheckMetadata>(service, message, ops::check::run),
        Method::Release => direct::<op::Release>(service, message, ops::session::release),
        _ => return change(service, method, message),
    };
    viewed.map(|message| Settled { answer: Ok(message), durable_at: None })
}

fn change(service: &MetaService, method: Method, message: &[u8]) -> Outcome<Settled> {
    match method {
        Method::SetAttributes => service.change::<op::SetAttributes>(message, ops::attributes::set),
        Method::Open => service.change::<op::Open>(message, ops::open::run),
        Method::Create => service.change::<op::Create>(message, ops::create::run),
        Method::Link => service.change::<op::Link>(message, ops::link::run),
        Method::Unlink => service.change::<op::Unlink>(message, ops::unlink::run),
        Method::Rename => service.change::<op::Rename>(message, ops::rename::run),
        Method::AssignLayout => service.change::<op::AssignLayout>(message, ops::layout::assign),
        Method::Commit => service.change::<op::Commit>(message, ops::commit::run),
        Method::SetLayoutHint => service.change::<op::SetLayoutHint>(message, ops::layout::set_hint),
        Method::BeginConversion => service.change::<op::BeginConversion>(message, ops::convert::begin),
        Method::SwitchLayout => service.change::<op::SwitchLayout>(message, ops::convert::switch),
        Method::EndConversion => service.change::<op::EndConversion>(message, ops::convert::end),
        Method::SetXattr => service.change::<op::SetXattr>(message, ops::xattr::set),
        Method::RemoveXattr => service.change::<op::RemoveXattr>(message, ops::xattr::remove),
        Method::GetGroups => ops::members::get(service, &decode::<op::GetGroups>(message)?),
        Method::AcceptOld => ops::accept::run(service, &decode::<op::AcceptOld>(message)?),
        Method::ReplaceTarget => ops::replace::run(service, &decode::<op::ReplaceTarget>(message)?),
        Method::SetLock => ops::locks::set(service, &decode::<op::SetLock>(message)?),
        Method::Sync => ops::sync::run(service),
        Method::RegisterNode => ops::cluster::register(service, &decode::<op::RegisterNode>(message)?),
        other => {
            let text = format!("{} is not an operation of the metadata service", other.name());
            Err(Fault::new(Code::Unsupported, text))
        }
    }
}

fn direct<O: Operation>(
    service: &MetaService,
    message: &[u8],
    run: fn(&MetaService, &O::Request) -> Outcome<O::Response>,
) -> Outcome<Vec<u8>> {
    let request = decode::<O>(message)?;
    run(service, &request).map(|response| response.encode_to_vec())
}
