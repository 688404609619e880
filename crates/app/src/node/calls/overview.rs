//! Calls about the whole cluster: its state, and what limits whom.

use super::arguments::Arguments;
use super::record::Record;
use crate::commands::{status, top};
use crate::failure::Outcome;
use vazao_client::Client;
use vazao_client::overview::Overview;
use vazao_luarpc::Value;
use vazao_meter::Clock;

/// Times that a limit is watched for: as `vazao top`, and less than the usual time-out of a call.
const LIMIT_S_MIN: f64 = 0.2;
const LIMIT_S_MAX: f64 = 10.0;

pub(super) fn status(client: &Client) -> Outcome<Vec<Value>> {
    Ok(vec![status::text(client, status::START_ON_MACHINE)?.into()])
}

pub(super) fn status_json(client: &Client) -> Outcome<Vec<Value>> {
    Ok(vec![status::json(client, status::START_ON_MACHINE)?.to_string().into()])
}

pub(super) fn limit(client: &Client, arguments: &Arguments<'_>, clock: &dyn Clock) -> Outcome<Vec<Value>> {
    let seconds = arguments.seconds(0, LIMIT_S_MIN, LIMIT_S_MAX)?;
    let mut overview = Overview::default();
    overview.look(client);
    clock.sleep(seconds);
    let parts = overview.look(client);
    let records = parts.iter().flat_map(|shown| Record::default().json("", &top::part_json(shown)).line());
    Ok(vec![records.collect::<Vec<u8>>().into()])
}
