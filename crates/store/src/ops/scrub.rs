//! Scrub: starts or stops the scrub of a target, and says how far it has come.

use crate::target::Target;
use std::sync::Arc;
use vazao_model::Code;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// What a request asks for, as in `ScrubRequest.action`.
const REPORT: u32 = 0;
const START: u32 = 1;
const STOP: u32 = 2;

/// Does it, and reports.
pub(crate) fn scrub(
    target: &Arc<Target>,
    request: &proto::ScrubRequest,
    is_inline: bool,
) -> Result<proto::ScrubResponse, Fault> {
    match request.action {
        REPORT => {}
        START => target.start_scrub(request.rate_bytes, is_inline)?,
        STOP => target.scrub.stop(),
        other => return Err(Fault::new(Code::BadRequest, format!("scrub: action {other}"))),
    }
    Ok(target.scrub.report())
}
