//! The cluster key: 32 random bytes shared by all daemons and clients of a cluster, secret to all others.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const KEY_BYTES: usize = 32;

/// The length of a proof.
pub const PROOF_BYTES: usize = 32;

/// A cluster's secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey {
    bytes: [u8; KEY_BYTES],
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

fn refused(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cluster key {}: {what}", path.display()))
}

impl ClusterKey {
    /// A new key from the kernel's randomness.
    pub fn generate() -> io::Result<ClusterKey> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
        Ok(ClusterKey { bytes })
    }

    /// The well-known key of clusters that run without one (`--insecure`): it provides no authentication.
    pub fn insecure() -> ClusterKey {
        ClusterKey { bytes: [0; KEY_BYTES] }
    }

    /// Reads a key file: 64 hexadecimal digits and a newline, readable by its owner only.
    pub fn load(path: &Path) -> io::Result<ClusterKey> {
        let unread = |e: io::Error| {
            let remedy = match e.kind() {
                io::ErrorKind::NotFound => "; copy it from a node of the cluster, or correct `key_file`",
                io::ErrorKind::PermissionDenied => "; its owner may read it, or root",
                _ => "",
            };
            io::Error::new(e.kind(), format!("cluster key {}: {e}{remedy}", path.display()))
        };
        let file = fs::metadata(path).map_err(unread)?;
        if file.is_dir() {
            return Err(refused(path, "is a directory; name the key file in it"));
        }
        if file.mode() & 0o077 != 0 {
            return Err(refused(path, "others can read it; run `chmod 600` on it and consider a new key"));
        }
        let text = fs::read_to_string(path).map_err(unread)?;
        ClusterKey::parse(&text)
            .map_err(|why| refused(path, &format!("{why}; copy the file from a node that works")))
    }

    /// Reads the text of a key file. Errors: why it is none.
    pub fn parse(text: &str) -> Result<ClusterKey, &'static str> {
        let digits = text.trim_end().as_bytes();
        if digits.len() != 2 * KEY_BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err("not 64 hexadecimal digits");
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
        let mut bytes = [0; KEY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(ClusterKey { bytes })
    }

    /// Writes a key file that only its owner can read. The file must not exist.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let digits: String = self.bytes.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(file, "{digits}")?;
        file.sync_all()
    }

    /// HMAC-SHA-256 (RFC 2104) of the parts one after the other.
    pub fn prove(&self, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Checks a proof in constant time.
    pub fn verify(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(&self.bytes).expect("HMAC takes keys of any length");
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_file_is_read_back_and_only_its_owner_may_read_it() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("cluster.key");
        let key = ClusterKey::generate().expect("randomness");
        key.save(&path).expect("written");
        assert_eq!(ClusterKey::load(&path).expect("read"), key);
        assert!(key.save(&path).is_err(), "a key is never overwritten");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("chmod");
        assert!(ClusterKey::load(&path).expect_err("refused").to_string().contains("chmod 600"));
    }

    #[test]
    fn a_key_that_cannot_be_read_comes_with_what_to_do() {
        let directory = tempfile::tempdir().expect("temporary directory");
        // As `mkdir` makes it, open to others: that is not what is wrong with it.
        let is_directory = ClusterKey::load(directory.path()).expect_err("refused").to_string();
        assert!(is_directory.contains("is a directory"), "{is_directory}");
        let missing = ClusterKey::load(&directory.path().join("none")).expect_err("refused").to_string();
        assert!(missing.contains("copy it from a node"), "{missing}");
    }

    #[test]
    fn a_proof_holds_for_its_key_and_parts_only() {
        let key = ClusterKey::generate().expect("randomness");
        let proof = key.prove(&[b"a", b"b"]);
        assert!(key.verify(&[b"ab"], &proof));
        assert!(!key.verify(&[b"ba"], &proof));
        assert!(!ClusterKey::insecure().verify(&[b"ab"], &proof));
    }
}
