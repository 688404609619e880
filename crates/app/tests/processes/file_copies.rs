//! How many copies new files get: what is set, shown and refused.

use crate::support::{Cluster, VAZAO, failed};
use serde_json::Value;
use std::process::{Command, Output};
use vazao_testing::programs::RunBounded;

fn json(cluster: &Cluster, arguments: &[&str]) -> Value {
    serde_json::from_str(&cluster.ok(arguments)).expect("JSON")
}

#[test]
fn a_cluster_on_one_machine_has_copies_for_trying_out_and_says_so() {
    let cluster = Cluster::unstarted();
    let refused = failed(up(&cluster, &["--data-servers", "2", "--copies", "3"]), 2);
    assert!(
        refused.contains("3 copies need 3 data servers") && refused.contains("--data-servers 3"),
        "{refused}"
    );
    assert!(!cluster.dir().join("FORMAT").exists(), "nothing is left of it");
    let started = up(&cluster, &["--data-servers", "3", "--copies", "2", "--detach"]);
    let said = String::from_utf8_lossy(&started.stderr).into_owned();
    assert!(started.status.success(), "{said}");
    assert!(said.contains("count as 3 hosts") && said.contains("trying out"), "{said}");
    let root = json(&cluster, &["layout", "--json", "vz:/"]);
    assert_eq!((&root["set"]["copies"], &root["effective"]["copies"]), (&2.into(), &2.into()));
    cluster.ok(&["mkdir", "vz:/d"]);
    let said = cluster.ok(&["layout", "vz:/d"]);
    assert!(said.contains("copies       2 (inherited)"), "{said}");
    let said = cluster.ok(&["layout", "vz:/d", "--copies", "3"]);
    assert!(said.contains("copies       3 (set here)"), "{said}");
    assert!(cluster.ok(&["layout", "vz:/d", "--copies", "inherit"]).contains("copies       2 (inherited)"));
    let status = json(&cluster, &["status", "--json"]);
    assert_eq!(status["copies"]["short"], 0);
    assert_eq!(status["copies"]["groups"], 2 * 3 * 64, "of two and of three");
    let said = cluster.ok(&["status"]);
    assert!(said.contains("all copies are there: 384 placement groups"), "{said}");
    // A cluster that runs takes another number as well.
    let again = up(&cluster, &["--copies", "1", "--detach"]);
    assert!(again.status.success());
    assert_eq!(json(&cluster, &["layout", "--json", "vz:/"])["set"]["copies"], 1);
}

fn up(cluster: &Cluster, arguments: &[&str]) -> Output {
    Command::new(VAZAO).args(["up", "--dir"]).arg(cluster.dir()).args(arguments).run_bounded()
}

#[test]
fn numbers_of_copies_that_cannot_be_are_refused_in_words_and_nothing_is_set() {
    let cluster = Cluster::start(2);
    cluster.ok(&["mkdir", "vz:/d"]);
    let before = cluster.ok(&["layout", "--json", "vz:/d"]);
    for (copies, word) in [("0", "cannot have 0 copies"), ("4", "cannot have 4 copies"), ("x", "no number")] {
        let said = failed(cluster.run(&["layout", "vz:/d", "--copies", copies]), 2);
        assert!(said.contains(word) && said.contains("2 or 3"), "{said}");
    }
    let said = cluster.fails(&["layout", "vz:/d", "--copies", "2"]);
    assert!(said.contains("2 copies need 2 hosts, there are 1"), "{said}");
    assert!(said.contains("vz:/d") && said.contains("--same-host"), "{said}");
    let said = cluster.fails(&["layout", "vz:/d", "--copies", "3", "--same-host"]);
    assert!(said.contains("3 copies need 3 hosts, there are 2"), "{said}");
    let said = failed(cluster.run(&["layout", "vz:/d", "--same-host"]), 2);
    assert!(said.contains("--copies"), "{said}");
    assert_eq!(cluster.ok(&["layout", "--json", "vz:/d"]), before);
    assert!(!cluster.ok(&["status"]).contains("all copies"), "there are none to speak of");
    // Of a file that has data.
    let file = crate::support::noise_file(&cluster.local("f"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/d/f"]);
    let said = cluster.fails(&["layout", "vz:/d/f", "--copies", "2"]);
    assert!(
        said.contains("no conversion to another one is built") && said.contains("copy it to a new file"),
        "{said}"
    );
    let said = failed(cluster.run(&["layout", "vz:/d/f", "--convert", "--copies", "2"]), 2);
    assert!(said.contains("a conversion to another one is not built"), "{said}");
    let shown: Value = json(&cluster, &["layout", "--json", "vz:/d/f"]);
    assert_eq!(
        (&shown["slots"][0]["copies"], &shown["slots"][0]["members"][0]["state"]),
        (&1.into(), &"primary".into())
    );
    assert!(!cluster.ok(&["layout", "vz:/d/f"]).contains("COPIES"), "one copy needs no table of them");
    // It can be set once servers count as hosts, and is converted with as many copies as it has.
    cluster.ok(&["layout", "vz:/d", "--copies", "2", "--same-host"]);
    cluster.ok(&["layout", "vz:/d/f", "--convert", "--width", "1"]);
    assert_eq!(json(&cluster, &["layout", "--json", "vz:/d/f"])["slots"][0]["copies"], 1);
}
