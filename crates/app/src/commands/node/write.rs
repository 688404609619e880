//! Writes the files of a node, or shows them, and says what to run next.

use super::plan::Plan;
use super::{Own, SYSTEM_DIRECTORY};
use crate::failure::{At, Failure, Outcome};
use crate::node::files::replace;
use crate::output::Output;
use serde_json::{Value, json};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use vazao_client::config::is_loopback;
use vazao_wire::key::ClusterKey;

/// What becomes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It is not there, or says something else and may be replaced.
    Written,
    /// It is there already, and right.
    Kept,
    /// It says something else.
    Refused,
}

/// A file of the node.
struct Planned {
    path: PathBuf,
    /// `None`: a secret, which is not shown.
    text: Option<String>,
    fate: Fate,
}

/// Writes all of it, or nothing where a file is in the way.
pub(super) fn write(plan: &Plan, own: &Own) -> Outcome {
    let files = files(plan, own.force)?;
    let in_the_way: Vec<String> = files
        .iter()
        .filter(|file| file.fate == Fate::Refused)
        .map(|file| file.path.display().to_string())
        .collect();
    if !in_the_way.is_empty() {
        return Err(Failure::new(format!(
            "{}: there already, with other contents; nothing was written. If this machine is to be set up anew, add \
             --force; for a second node on it, give another --dir",
            in_the_way.join(", ")
        )));
    }
    if !own.dry_run {
        write_all(plan, &files)?;
    }
    say(plan, own, &files)
}

fn files(plan: &Plan, may_replace: bool) -> Outcome<Vec<Planned>> {
    let judge = |is_there: bool, is_same: bool| match (is_there, is_same) {
        (true, true) => Fate::Kept,
        (true, false) if !may_replace => Fate::Refused,
        _ => Fate::Written,
    };
    let key = plan.key_file();
    let there = match key.exists() {
        true => Some(ClusterKey::load(&key).map_err(|error| Failure::new(error.to_string()))?),
        false => None,
    };
    let is_same = there.is_some() && plan.key.as_ref().is_none_or(|key| Some(key) == there.as_ref());
    let mut files = vec![Planned { path: key, text: None, fate: judge(there.is_some(), is_same) }];
    let texts = [
        (plan.client_file(), plan.client_text()),
        (plan.config_file(), plan.config_text()?),
        (plan.unit.file.clone(), plan.unit.text.clone()),
    ];
    for (path, text) in texts {
        let present = match fs::read_to_string(&path) {
            Ok(present) => Some(present),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).at(path.display()),
        };
        let fate = judge(present.is_some(), present.as_ref() == Some(&text));
        files.push(Planned { path, text: Some(text), fate });
    }
    Ok(files)
}

fn write_all(plan: &Plan, files: &[Planned]) -> Outcome {
    let directory = &plan.directory;
    let made = DirBuilder::new().recursive(true).mode(0o755).create(directory).at(directory.display());
    made.map_err(with_remedy)?;
    for file in files.iter().filter(|file| file.fate == Fate::Written) {
        let written = match &file.text {
            None => write_key(plan, &file.path),
            Some(text) => replace(&file.path, text).and_then(|()| make_readable(&file.path)),
        };
        written.map_err(with_remedy)?;
    }
    Ok(())
}

fn with_remedy(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(why) if why.ends_with("permission denied") => Failure::Failed(format!(
            "{why}; run it as root, or give a --dir of yours instead of {SYSTEM_DIRECTORY}"
        )),
        other => other,
    }
}

/// Whatever the umask of the command, daemons and clients of other users can read it.
fn make_readable(path: &Path) -> Outcome {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).at(path.display())
}

/// The key is never there with a mode by which others could read it, and never in half.
fn write_key(plan: &Plan, path: &Path) -> Outcome {
    let key = match &plan.key {
        Some(key) => key.clone(),
        None => ClusterKey::generate().at("making the cluster key")?,
    };
    let new = path.with_extension("key.new");
    // Of a run that was killed.
    let _ = fs::remove_file(&new);
    key.save(&new).at(new.display())?;
    fs::rename(&new, path).at(path.display())
}

fn say(plan: &Plan, own: &Own, files: &[Planned]) -> Outcome {
    let mut output = Output::new(own.results.json);
    if output.json {
        output.value(&to_json(plan, own, files))?;
        return output.finish();
    }
    let name = &plan.config.name;
    if own.dry_run {
        output.line(&format!("node {name} would have these files:"))?;
        for file in files {
            output.line(&format!("\n==> {}{}", file.path.display(), remark(file.fate)))?;
            output.text(file.text.as_deref().unwrap_or("(64 hexadecimal digits, mode 600; not shown)\n"))?;
        }
        output.line("")?;
    } else {
        output.line(&format!("node {name} has its files:"))?;
        for file in files {
            output.line(&format!("  {}{}", file.path.display(), remark(file.fate)))?;
        }
    }
    output.line(&format!("start it:\n  {}", plan.start_command()))?;
    output.line("then make the next machine a node, on that machine, with its own disk for DIR:")?;
    output.line(&format!("  {}", plan.next_command()))?;
    output.line(&format!("look at all of them:\n  {}", plan.status_command()))?;
    let metrics = plan.config.metrics.as_deref().unwrap_or_default();
    let reach = match metrics.rsplit_once(':').is_some_and(|(host, _)| is_loopback(host)) {
        true => ", from this machine only (--metrics HOST:PORT for others)",
        false => ", without the key",
    };
    output.line(&format!("counters for Prometheus{reach}:\n  {}", plan.metrics_url()))?;
    if plan.config.advertise.is_some() {
        output.line(&format!("firewalls have to let in: TCP {}", plan.ports().join(" and ")))?;
    }
    output.finish()
}

fn remark(fate: Fate) -> &'static str {
    if fate == Fate::Kept { "  (as it was)" } else { "" }
}

fn to_json(plan: &Plan, own: &Own, files: &[Planned]) -> Value {
    let file = |file: &Planned| {
        let text = file.text.as_ref().filter(|_| own.dry_run);
        json!({"path": file.path.to_string_lossy(), "text": text, "written": file.fate == Fate::Written && !own.dry_run})
    };
    json!({
        "name": plan.config.name,
        "metadata": plan.metadata,
        "files": files.iter().map(file).collect::<Vec<_>>(),
        "start": plan.start_command(),
        "next": plan.next_command(),
        "status": plan.status_command(),
        "metrics": plan.metrics_url(),
        "ports": plan.ports(),
    })
}
