//! Which files of a tree are copied: patterns, of which the first that fits decides.

/// Patterns in their order.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Vec<(bool, Vec<u8>)>,
}

impl Filter {
    /// Reads `+PATTERN` and `-PATTERN`. In a pattern `*` stands for anything but a slash, `**` for anything, `?` for
    /// one byte. One with a slash in it is compared with the path below what is copied, any other with the last name.
    pub fn parse(rules: &[String]) -> Result<Filter, String> {
        let rule = |text: &String| match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(pattern), _) if !pattern.is_empty() => Ok((true, pattern.as_bytes().to_vec())),
            (_, Some(pattern)) if !pattern.is_empty() => Ok((false, pattern.as_bytes().to_vec())),
            _ => Err(format!("{text:?}: a filter is +PATTERN or -PATTERN")),
        };
        Ok(Filter { rules: rules.iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// Whether a file at `path` below what is copied is copied too.
    pub fn takes_file(&self, path: &[u8]) -> bool {
        let decided = self.rules.iter().find(|(_, pattern)| fits(pattern, path));
        // Where all rules include, they say what is wanted; else they say what is not.
        decided
            .map_or_else(|| self.rules.is_empty() || self.rules.iter().any(|(takes, _)| !takes), |(t, _)| *t)
    }

    /// Whether a directory is looked into.
    pub fn enters(&self, path: &[u8]) -> bool {
        let decided = self.rules.iter().find(|(_, pattern)| {
            let pattern = pattern.strip_suffix(b"/").unwrap_or(pattern);
            fits(pattern, path)
        });
        decided.is_none_or(|(takes, _)| *takes)
    }
}

fn fits(pattern: &[u8], path: &[u8]) -> bool {
    match pattern.contains(&b'/') {
        true => matches(pattern.strip_prefix(b"/").unwrap_or(pattern), path),
        false => matches(pattern, path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)),
    }
}

/// Whether `text` is what `pattern` stands for, in time proportional to the product of their lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // reach[i]: the pattern so far stands for the first i bytes.
    let mut reach = vec![false; text.len() + 1];
    reach[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        match pattern[at] {
            b'*' => {
                let any = pattern.get(at + 1) == Some(&b'*');
                at += usize::from(any);
                for i in 0..text.len() {
                    reach[i + 1] |= reach[i] && (any || text[i] != b'/');
                }
            }
            one => {
                for i in (0..text.len()).rev() {
                    reach[i + 1] = reach[i] && (one == text[i] || (one == b'?' && text[i] != b'/'));
                }
                reach[0] = false;
            }
        }
        at += 1;
    }
    reach[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        Filter::parse(&rules.iter().map(|&rule| rule.to_owned()).collect::<Vec<_>>()).expect("rules")
    }

    #[test]
    fn patterns_stand_for_what_they_say() {
        for (pattern, text, fits) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "a/b.txt", false),
            ("a/**", "a/b/c", true),
            ("**/c", "a/b/c", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("", "", true),
            ("*", "", true),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let all = filter(&[]);
        assert!(all.takes_file(b"x") && all.enters(b"d"));
        let no_logs = filter(&["-*.log", "-tmp/"]);
        assert!(no_logs.takes_file(b"a/x.txt") && !no_logs.takes_file(b"a/x.log"));
        assert!(no_logs.enters(b"a"));
        let only = filter(&["+*.c", "+*.h"]);
        assert!(only.takes_file(b"d/x.c") && !only.takes_file(b"x.o") && only.enters(b"d"));
        let but = filter(&["+keep.log", "-*.log"]);
        assert!(but.takes_file(b"keep.log") && !but.takes_file(b"other.log") && but.takes_file(b"x"));
        assert!(!filter(&["-tmp"]).enters(b"a/tmp"));
    }

    #[test]
    fn a_rule_without_a_sign_is_refused() {
        assert!(Filter::parse(&["x".to_owned()]).is_err() && Filter::parse(&["+".to_owned()]).is_err());
    }
}
