//! `vazao` in a shell: pipes, patterns, completions, manual pages, exit codes, errors for programs.

use crate::support::{Cluster, VAZAO, noise, noise_file, succeeded, text, wait_until};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use vazao_testing::programs::{RunBounded, WaitBounded};

fn vazao(arguments: &[&str]) -> Output {
    Command::new(VAZAO).args(arguments).run_bounded()
}

/// A command with `input` as its standard input.
fn fed(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(input).expect("it reads");
    child.output_bounded()
}

#[test]
fn standard_input_and_output_are_copied_from_and_to() {
    let cluster = Cluster::start(2);
    let bytes = noise(9_000_001);
    let copied = fed(cluster.command(&["cp", "-", "vz:/in"]), &bytes);
    let said = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(copied.status.success() && said.starts_with("1 file, 8.6 MiB"), "{said}");
    let out = cluster.run(&["cp", "vz:/in", "-"]);
    assert!(out.status.success() && out.stdout == bytes);
    // Holes are there as zeros.
    let hole = fs::File::create(cluster.local("hole")).expect("created");
    hole.set_len(3_000_000).expect("grown");
    cluster.ok(&["cp", &text(&cluster.local("hole")), "vz:/hole"]);
    assert!(cluster.run(&["cp", "vz:/hole", "-"]).stdout == vec![0; 3_000_000]);
    // Into the place of a file, and nothing of it when there is nothing.
    assert!(fed(cluster.command(&["cp", "-", "vz:/in"]), b"").status.success());
    assert!(cluster.run(&["cat", "vz:/in"]).stdout.is_empty());
    cluster.ok(&["mkdir", "vz:/d"]);
    for (line, words) in [
        (&["cp", "-", "vz:/d"][..], "what standard input is to be called"),
        (&["cp", "--resume", "-", "vz:/x"], "begins anew"),
        (&["cp", "-p", "-", "vz:/x"], "neither owner nor times"),
        (&["cp", "--json", "vz:/hole", "-"], "standard output has the file"),
        (&["cp", "-", "-"], "cat(1)"),
    ] {
        let refused = fed(cluster.command(line), b"");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{line:?}: {said}");
    }
}

#[test]
fn patterns_stand_for_names_in_the_volume_and_in_areas() {
    let cluster = Cluster::start(1);
    let (dir, area) = (text(&cluster.dir()), cluster.local("area"));
    fs::create_dir(&area).expect("made");
    cluster.ok(&["area", "add", "data", &text(&area), "--dir", &dir]);
    wait_until("it is exported", || cluster.ok(&["area", "list"]).contains("data"));
    cluster.ok(&["mkdir", "-p", "vz:/runs/one", "vz:/runs/two"]);
    let file = noise_file(&cluster.local("file"), 100);
    for path in ["one/a.dat", "one/b.txt", "two/c.dat", "two/.d.dat"] {
        cluster.ok(&["cp", &file, &format!("vz:/runs/{path}")]);
        fs::write(area.join(path.replace('/', "-")), "x").expect("written");
    }
    assert_eq!(cluster.ok(&["ls", "vz:/runs/*/*.dat"]), "vz:/runs/one/a.dat\nvz:/runs/two/c.dat\n");
    assert_eq!(cluster.ok(&["ls", "data1:/data/one-?.*"]), "data1:/data/one-a.dat\ndata1:/data/one-b.txt\n");
    cluster.ok(&["mkdir", "vz:/to"]);
    cluster.ok(&["cp", "vz:/runs/*/*.dat", "vz:/to"]);
    assert_eq!(cluster.ok(&["ls", "vz:/to"]), "a.dat\nc.dat\n");
    cluster.ok(&["cp", "data1:/data/*.txt", "vz:/to"]);
    assert_eq!(cluster.ok(&["ls", "vz:/to"]), "a.dat\nc.dat\none-b.txt\n");
    // Where a file was called `*`, the pattern meant that one only: others were left out of a copy, with exit code 0.
    cluster.ok(&["cp", &file, "vz:/to/*"]);
    let here = cluster.local("here");
    fs::create_dir(&here).expect("made");
    cluster.ok(&["cp", "vz:/to/*", &text(&here)]);
    assert_eq!(fs::read_dir(&here).expect("listed").count(), 4);
    cluster.ok(&["cp", r"vz:/to/\*", &text(&here.join("one"))]);
    assert_eq!(cluster.ok(&["ls", r"vz:/to/\*"]), "vz:/to/*\n");
    cluster.ok(&["rm", r"vz:/to/\*"]);
    assert_eq!(cluster.ok(&["ls", "vz:/to"]), "a.dat\nc.dat\none-b.txt\n");
    // A pattern that nothing fits is named.
    assert!(cluster.fails(&["rm", "vz:/to/*.iso"]).contains("vz:/to/*.iso"));
    cluster.ok(&["rm", "vz:/to/*"]);
    assert_eq!(cluster.ok(&["ls", "vz:/to"]), "");
    // A node alone is a directory of its areas.
    for node in ["data1:", "data1:/"] {
        assert_eq!(cluster.ok(&["ls", node]), "data\n", "{node}");
    }
    let listed: Value = serde_json::from_str(&cluster.ok(&["ls", "--json", "data1:"])).expect("JSON");
    assert_eq!(listed["path"], "data1:/data");
    assert!(cluster.fails(&["ls", "data9:"]).contains("vazao status"));
}

#[test]
fn a_copy_as_an_archive_keeps_times_and_a_verbose_one_names_its_files() {
    let cluster = Cluster::start(1);
    let tree = cluster.local("tree");
    fs::create_dir(&tree).expect("made");
    noise_file(&tree.join("a"), 10);
    let copied = cluster.run(&["cp", "-a", "-v", &text(&tree), "vz:/tree"]);
    let said = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(copied.status.success(), "{said}");
    assert!(said.contains(&format!("{}/a → vz:/tree/a\n", tree.display())), "{said}");
    let modified = |path: &str| -> Value {
        serde_json::from_str::<Value>(&cluster.ok(&["stat", "--json", path])).expect("JSON")["modified"]
            .clone()
    };
    let back = cluster.local("back");
    cluster.ok(&["cp", "-a", "vz:/tree", &text(&back)]);
    let times =
        [&tree, &back].map(|tree| fs::metadata(tree.join("a")).and_then(|a| a.modified()).expect("a time"));
    assert_eq!(times[0], times[1]);
    assert!(modified("vz:/tree/a").is_string());
    let job = cluster.run(&["cp", "-v", "n1:/a/x", "n2:/b/"]);
    assert!(
        job.status.code() == Some(2) && String::from_utf8_lossy(&job.stderr).contains("--dry-run"),
        "{job:?}"
    );
}

#[test]
fn errors_are_json_where_results_are() {
    let cluster = Cluster::start(1);
    for (line, code) in [
        (&["stat", "--json", "vz:/missing"][..], 1),
        (&["ls", "--json", "s3://bucket/x"], 2),
        (&["cp", "--json", "--no-such-option", "a", "b"], 2),
        (&["df", "--json", "--cluster", "/no/such/file"], 1),
    ] {
        let output = cluster.run(line);
        assert_eq!(output.status.code(), Some(code), "{line:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let error: Value = serde_json::from_str(said.trim()).unwrap_or_else(|_| panic!("{line:?}: {said}"));
        assert_eq!(error["exit_code"], code, "{said}");
        assert!(error["error"].as_str().is_some_and(|text| text.len() > 10), "{said}");
    }
    assert!(cluster.fails(&["stat", "vz:/missing"]).starts_with("vazao: vz:/missing: "));
}

#[test]
fn an_error_has_one_cause_and_paths_instead_of_numbers() {
    let cluster = Cluster::start(1);
    cluster.ok(&["mkdir", "vz:/d"]);
    for (line, said) in [
        (&["mkdir", "vz:/d"][..], "vazao: vz:/d: file exists\n"),
        (&["stat", "vz:/d/x"], "vazao: vz:/d/x: no such file or directory\n"),
        (&["mv", "vz:/d/x", "vz:/y"], "vazao: vz:/d/x to vz:/y: no such file or directory\n"),
        (&["rm", "vz:/d/x"], "vazao: vz:/d/x: no such file or directory\n"),
    ] {
        let found = cluster.fails(line);
        assert_eq!(found, said, "{line:?}");
    }
    let key = cluster.dir().join("cluster.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("opened");
    let said = cluster.fails(&["df"]);
    assert!(said.contains("chmod 600") && said.ends_with("consider a new key\n"), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("closed");
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
    let answer = succeeded(bash.args(["-c", ask, "bash"]).arg(&script).run_bounded());
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
    assert!(said(&["cp", "--recrusive", "a", "b"]).contains("--recursive"));
    let help = succeeded(vazao(&["-h"]));
    assert!(help.contains("Usage: vazao") && !help.contains('\x1b'), "{help}");
}
