//! `vazao layout --convert`: files get another layout while they are in use.

use super::Arguments;
use super::options::shown;
use super::show::zones_of;
use crate::failure::{At, Failure, Outcome, report};
use crate::format;
use crate::location::walk;
use crate::location::{show_volume, volume_path};
use crate::output::Output;
use crate::signals::{self, Stop};
use indicatif::ProgressBar;
use serde_json::json;
use vazao_client::{Client, Convert, Converted};
use vazao_model::{FileKind, InodeId, Layout, LayoutHint, VolumePath};

/// What was done in all.
#[derive(Default)]
struct Total {
    files: u64,
    bytes: u64,
    unchanged: u64,
    failed: u64,
}

struct Converting<'a> {
    client: &'a Client,
    arguments: &'a Arguments,
    bar: ProgressBar,
    stop: Stop,
    total: Total,
}

/// Converts all that is named.
pub(super) fn run(client: &Client, output: &mut Output, arguments: &Arguments) -> Outcome {
    let bar = output.spinner();
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    stop.hangs_up(client);
    let mut converting = Converting { client, arguments, bar, stop, total: Total::default() };
    let paths = arguments.paths.iter().map(|path| volume_path(path)).collect::<Outcome<Vec<_>>>()?;
    for path in &paths {
        if converting.stop.is_asked() {
            break;
        }
        if let Err(failure) = converting.argument(output, path) {
            converting.fail(output, &failure)?;
        }
    }
    converting.bar.finish_and_clear();
    converting.finish(output)
}

impl Converting<'_> {
    fn argument(&mut self, output: &mut Output, path: &VolumePath) -> Outcome {
        let attributes = self.client.resolve(path, true).at(show_volume(path))?;
        match attributes.kind {
            FileKind::Directory if self.arguments.recursive => self.tree(output, path, attributes.inode),
            FileKind::Directory => {
                let text = "is a directory; -r converts the files in it";
                Err(Failure::new(format!("{}: {text}", show_volume(path))))
            }
            FileKind::File => {
                let above = path.split_last().map(|(above, _)| above).unwrap_or_else(|| path.clone());
                let directory = self.client.resolve(&above, true).at(show_volume(&above))?;
                let hint = self.hint(directory.inode, &above)?;
                self.file(output, path, attributes.inode, &hint)
            }
            other => {
                let text = format!("is a {} and has no layout", format::kind(other));
                Err(Failure::new(format!("{}: {text}", show_volume(path))))
            }
        }
    }

    /// What new files of a directory get, with what the command line says in its place.
    fn hint(&self, directory: InodeId, path: &VolumePath) -> Outcome<LayoutHint> {
        let (_, effective) = self.client.layout_hint(directory).at(show_volume(path))?;
        let wanted = self.arguments.hint.over(effective.clone())?;
        let (pattern, placement) =
            (wanted.pattern.or(effective.pattern), wanted.placement.or(effective.placement));
        // Each file keeps the number of copies that it has.
        Ok(LayoutHint { pattern, placement, copies: 0, ..wanted })
    }

    /// All files below a directory, one directory after the other.
    fn tree(&mut self, output: &mut Output, path: &VolumePath, inode: InodeId) -> Outcome {
        let mut directories = vec![(path.clone(), inode)];
        while let Some((path, inode)) = directories.pop() {
            if self.stop.is_asked() {
                break;
            }
            let hint = self.hint(inode, &path)?;
            let client = self.client;
            walk::pages(client, inode, &path, false, |page| {
                for entry in page {
                    if self.stop.is_asked() {
                        break;
                    }
                    let path = path.join(&entry.name);
                    match entry.kind {
                        FileKind::Directory => directories.push((path, entry.inode)),
                        FileKind::File => {
                            if let Err(failure) = self.file(output, &path, entry.inode, &hint) {
                                self.fail(output, &failure)?;
                            }
                        }
                        _ => {}
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn file(&mut self, output: &mut Output, path: &VolumePath, inode: InodeId, hint: &LayoutHint) -> Outcome {
        let how = Convert {
            hint: hint.clone(),
            is_dry_run: self.arguments.dry_run,
            rate_bytes_max: self.arguments.rate,
        };
        let (place, bar, stop) = (show_volume(path), self.bar.clone(), self.stop.clone());
        let progress = |bytes| {
            bar.set_message(format!("{place}: {} copied", format::size(bytes)));
            bar.tick();
            !stop.is_asked()
        };
        let converted = self.client.convert(inode, &how, &progress).at(&place)?;
        let would = self.arguments.dry_run && converted.from != converted.to;
        if converted.is_changed || would {
            self.total.files += 1;
            self.total.bytes += converted.bytes;
        } else {
            self.total.unchanged += 1;
        }
        self.show(output, &place, &converted, converted.is_changed || would)
    }

    fn show(&self, output: &mut Output, place: &str, converted: &Converted, is_other: bool) -> Outcome {
        let map = self.client.map();
        if output.json {
            let layout = |layout: &Option<Layout>| {
                layout.as_ref().map(|layout| {
                    json!({
                        "distribution": super::options::to_json(&layout.distribution.pattern()),
                        "stripe_unit_bytes": layout.distribution.unit_bytes(),
                        "width": layout.width(),
                        "zones": zones_of(layout, &map),
                    })
                })
            };
            return output.value(&json!({
                "path": place,
                "bytes": converted.bytes,
                "changed": converted.is_changed,
                "dry_run": self.arguments.dry_run,
                "from": layout(&converted.from),
                "to": layout(&converted.to),
            }));
        }
        let (true, Some(from), Some(to)) = (is_other, &converted.from, &converted.to) else { return Ok(()) };
        let words = |layout: &Layout| {
            let zones = zones_of(layout, &map).join("+");
            let zones = if zones.is_empty() { zones } else { format!(" in {zones}") };
            format!("{} over {}{zones}", shown(&layout.distribution.pattern()), layout.width())
        };
        let bytes = format::size(converted.bytes);
        self.bar.suspend(|| output.line(&format!("{place}: {bytes}, {} → {}", words(from), words(to))))
    }

    fn fail(&mut self, output: &mut Output, failure: &Failure) -> Outcome {
        self.total.failed += 1;
        output.flush()?;
        self.bar.suspend(|| report(failure));
        Ok(())
    }

    fn finish(&self, output: &mut Output) -> Outcome {
        let Total { files, bytes, unchanged, failed } = &self.total;
        if !output.json {
            let verb = if self.arguments.dry_run { "to convert" } else { "converted" };
            let files = format::count(*files, "file", "files");
            let bytes = format::size(*bytes);
            output
                .line(&format!("{files} {verb} ({bytes}), {unchanged} left as they are, {failed} failed"))?;
        }
        match (self.stop.is_asked(), *failed) {
            (true, _) => Err(Failure::new("interrupted; what is not converted is as it was")),
            (false, 0) => Ok(()),
            (false, _) => Err(Failure::Reported),
        }
    }
}
