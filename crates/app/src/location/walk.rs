//! Directories of the volume, page by page: nothing holds more than a page unless its caller does.

use super::show_volume;
use crate::failure::{At, Outcome};
use vazao_client::{Client, Entry};
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{InodeId, VolumePath};

/// Calls `each` with every page of a directory until it fails or the directory ends.
pub(crate) fn pages(
    client: &Client,
    directory: InodeId,
    path: &VolumePath,
    with_attributes: bool,
    mut each: impl FnMut(Vec<Entry>) -> Outcome,
) -> Outcome {
    let mut cookie = 0;
    loop {
        let page = client.list(directory, cookie, LIST_ENTRIES_MAX, with_attributes).at(show_volume(path))?;
        let (end, last) = (page.end, page.entries.last().map(|entry| entry.cookie));
        each(page.entries)?;
        match last {
            Some(last) if !end => cookie = last,
            _ => return Ok(()),
        }
    }
}
