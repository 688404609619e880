//! Where a node keeps its state: what it remembers, its jobs and journals of copies, its lock and its notice.
//!
//! Configuration is `node.toml` with `areas.toml` and `targets.toml` beside it, which commands of its operator write.
//! Everything that the daemon itself writes is state.

use super::config::NodeConfig;
use crate::failure::{At, Failure, Outcome};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file by which state is recognised; every node that was a member once has it.
pub(crate) const MEMORY: &str = "member.json";

/// What is taken along when state moves.
const MOVABLE: &str = "member.json, and where they are there jobs, arriving, arriving-volume and pairs";

/// Configuration that lies here has its state elsewhere.
const CONFIGURATION_ROOT: &str = "/etc";

/// Where the state is of nodes whose configuration lies there, each in a directory of its name.
const STATE_ROOT: &str = "/var/lib/vazao";

/// The directory of the state of a node whose node.toml lies in `directory`, which is absolute. State that lies beside
/// node.toml already stays in use, so that an installation goes on as it was.
pub(crate) fn directory(config: &NodeConfig, directory: &Path) -> Outcome<PathBuf> {
    let is_beside = directory.join(MEMORY).exists();
    let Some(given) = &config.state_dir else {
        let is_elsewhere = directory.starts_with(CONFIGURATION_ROOT) && !is_beside;
        let elsewhere = || Path::new(STATE_ROOT).join(&config.name);
        return Ok(if is_elsewhere { elsewhere() } else { directory.to_owned() });
    };
    // Without the components "." that make messages longer.
    let given: PathBuf = directory.join(given).components().collect();
    // A node that does not remember its targets takes the empty directory of an unmounted disk for a new one.
    if is_beside && given != directory && !given.join(MEMORY).exists() {
        let (given, directory) = (given.display(), directory.display());
        return Err(Failure::new(format!(
            "node {}: state_dir is {given}, and its state is in {directory}; move it there ({MOVABLE}), or take state_dir \
             out of its configuration",
            config.name
        )));
    }
    Ok(given)
}

/// Makes the directory where it is not there.
pub(crate) fn make(directory: &Path, name: &str) -> Outcome {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(directory).at(directory.display());
    made.map_err(|failure| {
        let why = failure.message().unwrap_or_default();
        Failure::new(format!(
            "node {name}: its state: {why}; make that directory for the daemon's user, or name another one with state_dir in \
             its configuration"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn config(state_dir: Option<&str>) -> NodeConfig {
        let text = "name = \"n7\"\nroles = [\"area\"]\nlisten = \"127.0.0.1:0\"\nmetadata = [\"m:1\"]\n";
        let config = NodeConfig::parse(text).expect("valid");
        NodeConfig { state_dir: state_dir.map(PathBuf::from), ..config }
    }

    #[test]
    fn state_is_beside_the_configuration_except_in_etc() {
        let at = |given, place: &str| directory(&config(given), Path::new(place)).expect("found");
        assert_eq!(at(None, "/srv/n7"), Path::new("/srv/n7"));
        assert_eq!(at(None, "/etc/vazao-of-no-machine"), Path::new("/var/lib/vazao/n7"));
        assert_eq!(at(Some("/ssd/state"), "/etc/vazao-of-no-machine"), Path::new("/ssd/state"));
        assert_eq!(at(Some("state"), "/srv/n7"), Path::new("/srv/n7/state"));
        assert_eq!(at(Some("."), "/etc/vazao-of-no-machine"), Path::new("/etc/vazao-of-no-machine"));
    }

    #[test]
    fn state_that_is_there_is_not_left_behind() {
        let place = tempfile::tempdir().expect("a temporary directory");
        fs::write(place.path().join(MEMORY), "{}").expect("written");
        assert_eq!(directory(&config(None), place.path()), Ok(place.path().to_owned()));
        let refused = directory(&config(Some("state")), place.path()).expect_err("refused");
        assert!(refused.message().is_some_and(|m| m.contains("move it there (member.json")), "{refused:?}");
        let moved = place.path().join("state");
        make(&moved, "n7").expect("made");
        fs::rename(place.path().join(MEMORY), moved.join(MEMORY)).expect("moved");
        assert_eq!(directory(&config(Some("state")), place.path()), Ok(moved));
    }
}
