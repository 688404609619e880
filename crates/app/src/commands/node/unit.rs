//! The unit by which systemd runs a node; systemd.service(5), systemd.unit(5).

use crate::node::config::NodeConfig;
use std::path::{Path, PathBuf};

/// A node ends within this time even when a disk of its targets hangs.
const STOP_SECONDS_MAX: u32 = 90;

/// A unit file.
#[derive(Default)]
pub(super) struct Unit {
    pub(super) file: PathBuf,
    pub(super) text: String,
    /// It is written to where systemd looks.
    pub(super) is_installed: bool,
}

/// A path as a word of a unit file: quoted, and without specifiers and variables.
fn word(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('%', "%%"))
}

/// The text of the unit of a node.
pub(super) fn unit(config: &NodeConfig, program: &Path, config_file: &Path) -> String {
    let mut needed: Vec<&PathBuf> = config.meta.iter().map(|meta| &meta.directory).collect();
    needed.extend(config.data.iter().flat_map(|data| &data.targets));
    // Areas are none of them: one whose disk is not mounted is in trouble by itself.
    let needed = needed.iter().map(|path| word(path)).collect::<Vec<_>>().join(" ");
    let mounts = if needed.is_empty() { String::new() } else { format!("RequiresMountsFor={needed}\n") };
    let execute =
        [word(program), "serve --config".to_owned(), word(config_file)].join(" ").replace('$', "$$");
    format!(
        "# Written by `vazao node`.\n\
         [Unit]\n\
         Description=Vazao node {}\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         {mounts}\n\
         [Service]\n\
         ExecStart={execute}\n\
         Restart=on-failure\n\
         RestartSec=5\n\
         TimeoutStopSec={STOP_SECONDS_MAX}\n\
         LimitNOFILE=1048576\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        config.name
    )
}

#[test]
fn a_unit_waits_for_the_disks_and_survives_odd_paths() {
    let text = "name = \"d\"\nroles = [\"data\"]\nlisten = \"h:1\"\nmetadata = [\"h:2\"]\n[data]\ntargets = [\"/disk 1/v\", \"/d2\"]\n";
    let config = NodeConfig::parse(text).expect("valid");
    let unit = unit(&config, Path::new("/opt/100% $new/vazao"), Path::new("/etc/vazao/node.toml"));
    assert!(unit.contains("RequiresMountsFor=\"/disk 1/v\" \"/d2\"\n"), "{unit}");
    let line = "ExecStart=\"/opt/100%% $$new/vazao\" serve --config \"/etc/vazao/node.toml\"\n";
    assert!(unit.contains(line), "{unit}");
    assert!(unit.ends_with("WantedBy=multi-user.target\n") && !unit.contains("\n "), "{unit}");
}
