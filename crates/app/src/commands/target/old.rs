//! `vazao target accept-old`: what may be old on a target whose disk is an older copy, and the decision to go on with
//! it.

use super::search::Search;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format;
use crate::location::show_volume;
use crate::output::Output;
use vazao_model::{Attributes, Target, TargetState, Timestamp};

/// Clocks of clients and of the server may differ by this much.
const CLOCKS_SECONDS: i64 = 120;

/// Lists what may be old, or goes on with the target as it is.
pub(super) fn accept(context: &Context, name: &str, yes_lose_writes: bool) -> Outcome {
    let client = context.client()?;
    let map = client.refresh_map()?;
    let id = client.administration().find_target(name)?;
    let target = map.target(id).filter(|target| target.state == TargetState::Stale);
    let Some(target) = target else {
        return Err(Failure::new(format!(
            "target {id} is not stale: there is nothing to accept; see `vazao status`"
        )));
    };
    if yes_lose_writes {
        println!("{}", client.administration().accept_old_target(id, target.found)?);
        return Ok(());
    }
    let mut output = Output::new(false);
    let (since, mut listed) = (since(target), 0);
    let is_recent = |attributes: &Attributes| attributes.modified >= since || attributes.changed >= since;
    let is_complete = Search::new(&client, id).run(&mut output, is_recent, |output, found| {
        if !found.is_good {
            return Ok(());
        }
        listed += 1;
        let modified = format::minute(found.attributes.modified);
        output.line(&format!("{modified}  {}", show_volume(&found.path)))
    })?;
    output.finish()?;
    let least = if is_complete { "" } else { "at least " };
    let count = format!("{least}{}", format::count(listed, "file", "files"));
    Err(Failure::new(format!(
        "target {id}: {}\n{count} on it changed since and may be old or broken, as listed. If the right disk is lost, \
         `vazao target accept-old {id} --yes-lose-writes` serves it as it is; restore these files from copies then",
        target.trouble
    )))
}

/// What changed before this moment is on the disk. 1970 where nothing is known of the disk's age.
fn since(target: &Target) -> Timestamp {
    let written = Timestamp::from_seconds(target.found_seconds);
    Timestamp { seconds: written.seconds - CLOCKS_SECONDS, ..written }
}
