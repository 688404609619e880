//! Users and groups of this machine by name, as `/etc/passwd` and `/etc/group` have them (passwd(5), group(5)).
//!
//! Names that only a directory service knows are not found: that would need the C library. Numbers always do.

use crate::failure::{Failure, Outcome};
use vazao_area::Owner;

/// Reads `USER[:GROUP]`, names or numbers. Without a group it is the user's own.
pub(crate) fn find(text: &str) -> Outcome<Owner> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    find_in(text, &read("/etc/passwd"), &read("/etc/group")).map_err(Failure::usage)
}

/// The user of this process by name, as far as it has one.
pub(crate) fn own_name() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find(|line| field(line, 2) == Some(&uid));
    line.and_then(|line| field(line, 0)).map_or(uid, str::to_owned)
}

fn field(line: &str, index: usize) -> Option<&str> {
    line.split(':').nth(index)
}

fn find_in(text: &str, users: &str, groups: &str) -> Result<Owner, String> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let line_of = |lines: &'_ str, name: &str| {
        let is_it = |line: &&str| {
            field(line, 0) == Some(name) || field(line, 2) == Some(name) && name.parse::<u32>().is_ok()
        };
        lines.lines().find(is_it).map(str::to_owned)
    };
    let unknown = |what: &str, name: &str, file: &str| {
        format!("owner {text:?}: no {what} {name:?} in {file}; a number does in any case")
    };
    let number = |line: &Option<String>, name: &str| -> Option<u32> {
        name.parse().ok().or_else(|| field(line.as_deref()?, 2)?.parse().ok())
    };
    let line = line_of(users, user);
    let uid = number(&line, user).ok_or_else(|| unknown("user", user, "/etc/passwd"))?;
    let gid = match group {
        Some(group) => {
            number(&line_of(groups, group), group).ok_or_else(|| unknown("group", group, "/etc/group"))?
        }
        None => line.as_deref().and_then(|line| field(line, 3)?.parse().ok()).ok_or_else(|| {
            format!("owner {text:?}: user {user} is not in /etc/passwd; name the group too, as {user}:100")
        })?,
    };
    // All ones means "as it is" to the kernel.
    match uid == u32::MAX || gid == u32::MAX {
        true => Err(format!("owner {text:?}: {} is no number of a user or group", u32::MAX)),
        false => Ok(Owner { uid, gid }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nana:x:1000:100::/home/ana:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nusers:x:100:\nlab:x:200:ana\n";

    #[test]
    fn an_owner_is_found_by_names_and_numbers() {
        for (text, uid, gid) in [
            ("ana", 1000, 100),
            ("ana:lab", 1000, 200),
            ("1000", 1000, 100),
            ("7:8", 7, 8),
            ("root:lab", 0, 200),
        ] {
            assert_eq!(find_in(text, USERS, GROUPS), Ok(Owner { uid, gid }), "{text}");
        }
    }

    #[test]
    fn an_owner_that_is_none_is_named_with_what_would_do() {
        for (text, word) in [
            ("eva", "/etc/passwd"),
            ("ana:none", "/etc/group"),
            ("77", "name the group"),
            ("", "user"),
            ("-1", "user"),
            ("4294967295:1", "no number"),
        ] {
            let error = find_in(text, USERS, GROUPS).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
