//! `[luarpc]` of node.toml: which remote calls a node answers, and to whom.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vazao_client::config::{is_address, is_loopback};

/// What is done about a missing secret.
pub(crate) const SECRET_NEEDED: &str = "write secret_file = \"luarpc.secret\" into [luarpc] and make the file: (umask 077; openssl rand -hex 32 > luarpc.secret)";

/// What a call asks of the cluster ends by then: before the usual time-out of those who call.
pub(crate) const DEADLINE_MS: u32 = 20_000;

/// The section.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LuarpcSection {
    /// `host:port` to answer on.
    pub(crate) listen: String,
    /// Callers may change files and begin copies.
    #[serde(default, skip_serializing_if = "is_no")]
    pub(crate) write: bool,
    /// The secret that callers prove to know. Only an address that no other machine reaches does without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_file: Option<PathBuf>,
}

fn is_no(value: &bool) -> bool {
    !*value
}

impl LuarpcSection {
    /// Errors: what is wrong with it, and what to write instead.
    pub(crate) fn check(&self) -> Result<(), String> {
        let listen = &self.listen;
        if !is_address(listen) {
            return Err(format!("[luarpc] listen has \"{listen}\", which is not \"host:port\""));
        }
        let host = listen.rsplit_once(':').map_or("", |(host, _)| host);
        if is_loopback(host) || self.secret_file.is_some() {
            return Ok(());
        }
        Err(format!("[luarpc] listen = \"{listen}\" is reached from other machines; {SECRET_NEEDED}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_secret_only_this_machine_may_call() {
        let section = |listen: &str, secret_file: Option<PathBuf>| {
            LuarpcSection { listen: listen.to_owned(), write: false, secret_file }.check()
        };
        assert_eq!(section("127.0.0.1:8080", None), Ok(()));
        assert_eq!(section("0.0.0.0:8080", Some("s".into())), Ok(()));
        let said = section("0.0.0.0:8080", None).expect_err("refused");
        assert!(said.contains("secret_file") && said.contains("openssl rand -hex 32"), "{said}");
        assert!(section("8080", None).expect_err("refused").contains("host:port"));
    }
}
