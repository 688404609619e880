//! Programs that people run in a mount. Each must be installed: `./x test` sees to it.

use crate::cluster::{Cluster, Mounted, with_cluster, with_mount};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use vazao_testing::programs::RunBounded;

/// Runs a shell script in `directory`; its output. Panics with both outputs when it fails.
fn sh(directory: &Path, script: &str) -> String {
    let mut shell = Command::new("sh");
    let output = shell.args(["-ec", script]).current_dir(directory).env("LC_ALL", "C").run_bounded();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{said}\n{complained}");
    said
}

/// A tree with what trees have: many small files, some larger, links, modes, empty things.
fn make_tree(cluster: &Cluster) -> std::path::PathBuf {
    let tree = cluster.outside("tree");
    for directory in 0..10 {
        let path = tree.join(format!("d{directory}/inner"));
        fs::create_dir_all(&path).expect("writable");
        for file in 0..20u32 {
            let bytes = (file * file * 97) as usize;
            fs::write(path.join(format!("f{file}")), vec![file as u8; bytes]).expect("writable");
        }
    }
    fs::write(tree.join("large"), vec![42; 3_000_000]).expect("writable");
    fs::create_dir(tree.join("empty")).expect("writable");
    fs::write(tree.join("run.sh"), b"#!/bin/sh\necho ran\n").expect("writable");
    fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o750)).expect("writable");
    symlink("d1/inner/f3", tree.join("link")).expect("writable");
    symlink("nowhere", tree.join("dangling")).expect("writable");
    fs::hard_link(tree.join("large"), tree.join("second")).expect("writable");
    tree
}

fn same_tree(m: &Mounted, tree: &Path, name: &str) {
    sh(m.root(), &format!("diff -r --no-dereference {} {name}", tree.display()));
    let times = |path: &Path| sh(path, "find . -printf '%P %m %T@ %y %l %n\\n' | grep -v '^ ' | sort");
    let copied = times(&m.path(name));
    let copied: Vec<&str> = copied.lines().collect();
    let original = times(tree);
    for (copied, original) in copied.iter().zip(original.lines()) {
        // Directories count links differently on different file systems.
        if !original.contains(" d ") {
            assert_eq!(*copied, original);
        }
    }
    assert_eq!(copied.len(), original.lines().count());
}

#[test]
fn cp_keeps_contents_modes_times_and_links() {
    with_cluster(|cluster| {
        let tree = make_tree(cluster);
        let m = cluster.mount();
        sh(m.root(), &format!("cp -a {} copy", tree.display()));
        same_tree(&m, &tree, "copy");
        sh(m.root(), "cp -a copy again");
        same_tree(&m, &tree, "again");
        assert_eq!(sh(m.root(), "./copy/run.sh"), "ran\n");
        sh(m.root(), "rm -r copy again && test -z \"$(ls -A)\"");
        m.unmount();
    });
}

#[test]
fn tar_packs_and_unpacks() {
    with_cluster(|cluster| {
        let tree = make_tree(cluster);
        let m = cluster.mount();
        sh(
            m.root(),
            &format!(
                "tar --format=posix -cf all.tar -C {} . && mkdir out && tar -xpf all.tar -C out",
                tree.display()
            ),
        );
        same_tree(&m, &tree, "out");
        sh(m.root(), "tar -cf - out | tar -tf - | wc -l");
        m.unmount();
    });
}

#[test]
fn git_clones_commits_and_finds_its_objects_whole() {
    with_cluster(|cluster| {
        let tree = make_tree(cluster);
        let m = cluster.mount();
        let commit = "git -c user.name=n -c user.email=e@x commit -q -m";
        sh(&tree, &format!("git init -q -b main && git add -A && {commit} first"));
        sh(m.root(), &format!("git clone -q {} clone", tree.display()));
        let script = format!(
            "test -z \"$(git status --porcelain)\" && echo new > new && git add new && {commit} second && git gc -q && git fsck --strict"
        );
        sh(&m.path("clone"), &script);
        sh(m.root(), "git clone -q clone twice && cd twice && git log --oneline | wc -l | grep -qx 2");
        m.unmount();
    });
}

#[test]
fn sqlite_keeps_its_database_whole_with_both_journals_and_mapped_memory() {
    with_mount(|m| {
        let rows = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000) insert into t select x, hex(randomblob(50)) from c;";
        for (journal, name) in [("delete", "a.db"), ("wal", "b.db")] {
            let sql = format!(
                "pragma journal_mode={journal}; pragma mmap_size=268435456; create table t(a integer primary key, b); begin; {rows} commit; update t set b = 'x' where a % 7 = 0; delete from t where a % 3 = 0;"
            );
            sh(m.root(), &format!("sqlite3 {name} \"{sql}\""));
            let checked =
                sh(m.root(), &format!("sqlite3 {name} 'pragma integrity_check; select count(*) from t;'"));
            assert_eq!(checked, "ok\n3334\n", "{journal}");
        }
        // Two processes at once, each waiting for the other's lock.
        let insert = "i=0; while [ $i -lt 20 ]; do sqlite3 -cmd '.timeout 20000' a.db \"insert into t(b) values('p')\"; i=$((i+1)); done";
        sh(m.root(), &format!("({insert}) & ({insert}); wait"));
        let checked =
            sh(m.root(), "sqlite3 a.db \"pragma integrity_check; select count(*) from t where b = 'p';\"");
        assert_eq!(checked, "ok\n40\n");
    });
}

#[test]
fn make_builds_a_c_project_and_only_once() {
    with_mount(|m| {
        let makefile = "CFLAGS=-O1\nprogram: main.o part.o\n\t$(CC) -o $@ $^\n%.o: %.c part.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n";
        fs::write(m.path("Makefile"), makefile).expect("written");
        fs::write(m.path("part.h"), "int twice(int);\n").expect("written");
        fs::write(m.path("part.c"), "#include \"part.h\"\nint twice(int x) { return 2 * x; }\n")
            .expect("written");
        let main = "#include <stdio.h>\n#include \"part.h\"\nint main(void) { printf(\"%d\\n\", twice(21)); return 0; }\n";
        fs::write(m.path("main.c"), main).expect("written");
        sh(m.root(), "make -s -j4");
        assert_eq!(sh(m.root(), "./program"), "42\n");
        sh(m.root(), "make -q");
        sh(m.root(), "touch part.c && ! make -q && make -s && ./program");
        assert!(fs::metadata(m.path("program")).expect("built").mode() & 0o111 != 0);
    });
}

#[test]
fn usual_tools_agree_about_a_file() {
    with_cluster(|cluster| {
        let tree = make_tree(cluster);
        let m = cluster.mount();
        sh(
            m.root(),
            &format!(
                "cp {}/large large && dd if=large of=copy bs=3000 2> /dev/null && cmp large copy",
                tree.display()
            ),
        );
        sh(m.root(), "split -b 1000000 large part. && cat part.* | cmp - large && sort -R /dev/null");
        sh(
            m.root(),
            "sed -i s/x/y/ copy; mv copy moved; test ! -e copy; rm -f part.* moved; test \"$(du -sb large | cut -f1)\" = 3000000",
        );
        m.unmount();
    });
}

/// Of each 1,000 opens of a file that three programs replace without pause 60 ended with `ESTALE`, and so did `fstat`
/// of descriptors that had come just before a replacement.
#[test]
fn a_file_that_others_replace_without_pause_is_there_for_every_open_and_look() {
    with_mount(|m| {
        let mut program = Command::new("python3");
        let program = program.args(["-c", include_str!("replaced.py")]).arg(m.root());
        let output = program.args(["3", "700"]).run_bounded();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "none failed\n", "{}", String::from_utf8_lossy(&output.stderr));
    });
}
