//! CheckMetadata: starts or stops the search for damage, and says what is known of it.

use crate::service::MetaService;
use crate::service::fault::Outcome;
use vazao_wire::proto;
use vazao_wire::shell::scrub::Action;

pub(crate) fn run(
    service: &MetaService,
    request: &proto::CheckMetadataRequest,
) -> Outcome<proto::CheckMetadataResponse> {
    match Action::try_from(request.action)? {
        Action::Report => {}
        Action::Start => service.start_check(request.rate_bytes)?,
        Action::Stop => service.integrity().stop(),
    }
    Ok(service.check_report())
}
