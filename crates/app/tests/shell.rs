//! `vazao` in a shell: completions, manual pages, misspelt words.

mod support;

use std::fs;
use std::process::{Command, Output};
use support::{VAZAO, succeeded, text};

fn vazao(arguments: &[&str]) -> Output {
    Command::new(VAZAO).args(arguments).output().expect("it runs")
}

#[test]
fn shells_are_told_the_commands_and_options_and_man_has_pages() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    for shell in ["bash", "zsh", "fish"] {
        let script = succeeded(vazao(&["completions", shell]));
        for word in ["umount", "bwlimit", "overwrite", "accept-old"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    // As bash asks for it.
    let script = scratch.path().join("vazao");
    fs::write(&script, succeeded(vazao(&["completions", "bash"]))).expect("written");
    let ask =
        "source \"$1\"; COMP_WORDS=(vazao um); COMP_CWORD=1; _vazao vazao um vazao; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    let answer = succeeded(bash.args(["-c", ask, "bash"]).arg(&script).output().expect("bash runs"));
    assert_eq!(answer.trim(), "umount");
    succeeded(vazao(&["man", &text(scratch.path())]));
    let page = fs::read_to_string(scratch.path().join("vazao-cp.1")).expect("a page");
    assert!(page.contains(".TH") && page.contains("bwlimit") && page.contains("Examples"), "{page}");
    assert!(scratch.path().join("vazao.1").exists() && scratch.path().join("vazao-area-add.1").exists());
}

#[test]
fn a_misspelt_word_is_answered_with_the_right_one() {
    let said = |line: &[&str]| {
        let output = vazao(line);
        assert_eq!(output.status.code(), Some(2), "{line:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&["statsu"]).contains("'status'"));
    assert!(said(&["cp", "--overwrit", "a", "b"]).contains("--overwrite"));
    let help = succeeded(vazao(&["-h"]));
    assert!(help.contains("Usage: vazao") && !help.contains('\x1b'), "{help}");
}
