//! Scrub: starts or stops the scrub of a target, and says how far it has come.

use crate::health::scrub::Repair;
use crate::targets::Target;
use std::sync::Arc;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::shell::scrub::Action;

/// Does it, and reports.
pub(crate) fn scrub(
    target: &Arc<Target>,
    request: &proto::ScrubRequest,
    repair: Repair,
    is_inline: bool,
) -> Result<proto::ScrubResponse, Fault> {
    match Action::try_from(request.action)? {
        Action::Report => {}
        Action::Start => target.start_scrub(request.rate_bytes, repair, is_inline)?,
        Action::Stop => target.scrub.stop(),
    }
    Ok(target.scrub_report())
}
