//! The secret that remote callers prove to know, without sending it.
//!
//! The server gives out a challenge that it has never given out before, the caller answers with its HMAC-SHA-256
//! (RFC 2104). A listener learns neither the secret nor an answer that will do once more. What is not protected is in
//! docs/remote-calls-service.md: nothing is encrypted, and a connection can be taken over by who is on its path.

use crate::failure::{At, Failure, Outcome};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vazao_wire::key::ClusterKey;

/// So that a proof for this is one for nothing else.
const PURPOSE: &[u8] = b"vazao.lua:";

const CHALLENGE_BYTES: usize = 32;

/// A shared secret: 32 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Secret(ClusterKey);

impl Secret {
    /// Reads a file of 64 hexadecimal digits that only its owner may read.
    pub(crate) fn load(path: &Path) -> Outcome<Secret> {
        let shown = format!("secret {}", path.display());
        let file = fs::metadata(path).at(&shown)?;
        if file.is_dir() {
            return Err(Failure::new(format!("{shown}: is a directory; name the file")));
        }
        if file.mode() & 0o077 != 0 {
            return Err(Failure::new(format!(
                "{shown}: others can read it; run `chmod 600` on it and consider a new one"
            )));
        }
        let text = fs::read_to_string(path).at(&shown)?;
        let key = ClusterKey::parse(&text).map_err(|why| {
            Failure::new(format!(
                "{shown}: {why}; make one: (umask 077; openssl rand -hex 32 > {})",
                path.display()
            ))
        })?;
        Ok(Secret(key))
    }

    /// What a caller answers to a challenge.
    pub(crate) fn proof(&self, challenge: &[u8]) -> String {
        hexadecimal(&self.0.prove(&[PURPOSE, challenge]))
    }

    /// Checks an answer in constant time.
    pub(crate) fn is_proven(&self, challenge: &[u8], proof: &[u8]) -> bool {
        let digit = |digit: &u8| char::from(*digit).to_digit(16).map(|digit| digit as u8);
        let pairs = proof.chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        });
        let bytes: Option<Vec<u8>> = pairs.collect();
        bytes.is_some_and(|bytes| self.0.verify(&[PURPOSE, challenge], &bytes))
    }
}

/// A challenge that was never given out before.
pub(crate) fn challenge() -> Result<String, String> {
    let mut bytes = [0; CHALLENGE_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| format!("the kernel's random numbers: {error}"))?;
    Ok(hexadecimal(&bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("secret");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
        (directory, path)
    }

    /// Other implementations are checked against the same numbers.
    #[test]
    fn the_proof_is_the_hmac_of_the_purpose_and_the_challenge() {
        let (_directory, path) = file(&format!("{}\n", "0b".repeat(32)), 0o600);
        let secret = Secret::load(&path).expect("a secret");
        let proof = secret.proof(b"00ff");
        assert_eq!(proof, EXPECTED);
        assert!(secret.is_proven(b"00ff", proof.as_bytes()));
        assert!(secret.is_proven(b"00ff", proof.to_uppercase().as_bytes()));
        for wrong in ["", "zz", &proof[1..], &"00".repeat(32)] {
            assert!(!secret.is_proven(b"00ff", wrong.as_bytes()), "{wrong}");
        }
        assert!(!secret.is_proven(b"00fe", proof.as_bytes()), "of another challenge");
    }

    const EXPECTED: &str = "b951a9f077c01dd03e43e4760a58e2b30cd35011b3d088c1532d7abe9530220e";

    #[test]
    fn a_secret_that_others_can_read_or_that_is_none_is_refused_with_what_to_do() {
        let (_directory, path) = file(&"0b".repeat(32), 0o644);
        let said = Secret::load(&path).expect_err("refused");
        assert!(said.message().is_some_and(|m| m.contains("chmod 600")), "{said:?}");
        let (_directory, path) = file("word", 0o600);
        let said = Secret::load(&path).expect_err("refused");
        assert!(
            said.message().is_some_and(|m| m.contains("not 64 hexadecimal digits; make one:")),
            "{said:?}"
        );
        assert_ne!(challenge(), challenge());
    }
}
