//! Runs every house rule over the repository.

use vazao_tidy::{RULES, Tree};

#[test]
fn the_repository_keeps_the_house_rules() {
    let tree = Tree::of_this_repository().expect("the source tree can be read");
    assert!(
        tree.files.iter().filter(|file| file.is_rust()).count() > 20,
        "the source tree was not found at {}",
        tree.root.display()
    );
    let mut report = String::new();
    for rule in RULES {
        for finding in (rule.check)(&tree) {
            report.push_str(&format!("\n{}: {finding}", rule.name));
        }
    }
    assert!(report.is_empty(), "house rules are broken (see CONTRIBUTING.md):{report}");
}
