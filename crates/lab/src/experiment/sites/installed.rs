//! Whether the programs of others that are measured with are installed, and Debian's packages of those that are not.

use crate::Error;
use std::path::Path;

/// Daemons are not in the path of every user.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Fails unless all of these are there: programs, each with its package.
pub(super) fn require(programs: &[(&str, &str)]) -> Result<(), Error> {
    let is_there =
        |program: &str| DIRECTORIES.iter().any(|directory| Path::new(directory).join(program).exists());
    let mut missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("not installed; install Debian's packages {}", missing.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_package_is_named_once() {
        assert!(require(&[("sh", "dash")]).is_ok());
        let error =
            require(&[("sh", "dash"), ("no-such-1", "one"), ("no-such-2", "one"), ("no-such-3", "two")]);
        assert!(error.expect_err("missing").to_string().ends_with("install Debian's packages one, two"));
    }
}
