//! The paths a disk accepts: relative, and never above its root.

use std::io;

/// The components of `path`; none for the root. Errors: `InvalidInput` for what is absolute, has `..` or a NUL.
pub(crate) fn components(path: &str) -> io::Result<Vec<&str>> {
    let refused =
        |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("disk path {path:?} {why}"));
    if path.starts_with('/') {
        return Err(refused("is absolute"));
    }
    if path.contains('\0') {
        return Err(refused("contains a NUL"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(refused("contains `..`"));
    }
    Ok(parts)
}

/// The components of the directory that `path` lies in, and its own name. Errors as [`components`], and for the root.
pub(crate) fn split_last(path: &str) -> io::Result<(Vec<&str>, &str)> {
    let mut parts = components(path)?;
    match parts.pop() {
        Some(name) => Ok((parts, name)),
        None => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "disk path names the root, not a file in it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_root_are_refused() {
        for bad in ["/a", "../a", "a/../../b", "a\0"] {
            assert_eq!(components(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
    }

    #[test]
    fn the_root_is_the_empty_path_or_a_dot() {
        assert!(components("").unwrap().is_empty() && components(".").unwrap().is_empty());
        assert_eq!(split_last("a//b/c").unwrap(), (vec!["a", "b"], "c"));
        assert!(split_last(".").is_err());
    }
}
