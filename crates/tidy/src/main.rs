//! `./x tidy`: prints what the house rules find, or accepts the formats as they are now.

use std::io::Write;
use std::process::ExitCode;
use vazao_tidy::{RULES, Tree, accept};

const USAGE: &str = "usage: ./x tidy [RULE...]     print what the house rules find
       ./x tidy --accept      the formats on wire and disk and their documents were reviewed: record them";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tree = match Tree::of_this_repository() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read the source tree: {error}");
            return ExitCode::FAILURE;
        }
    };
    match arguments.first().map(String::as_str) {
        Some("--help" | "-h") => {
            println!("{USAGE}\nrules: {}", RULES.iter().map(|r| r.name).collect::<Vec<_>>().join(" "));
            ExitCode::SUCCESS
        }
        Some("--accept") => accept_formats(&tree),
        _ => report(&tree, &arguments),
    }
}

fn accept_formats(tree: &Tree) -> ExitCode {
    match accept(tree) {
        Ok(summary) => {
            print!("{summary}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tidy: cannot write docs/formats.lock: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report(tree: &Tree, names: &[String]) -> ExitCode {
    if let Some(unknown) = names.iter().find(|name| RULES.iter().all(|rule| rule.name != **name)) {
        eprintln!("tidy: there is no rule {unknown}\n{USAGE}");
        return ExitCode::from(2);
    }
    let mut count = 0;
    let mut report = String::new();
    for rule in RULES.iter().filter(|rule| names.is_empty() || names.iter().any(|name| name == rule.name)) {
        let findings = (rule.check)(tree);
        count += findings.len();
        findings.iter().for_each(|finding| report.push_str(&format!("{}: {finding}\n", rule.name)));
    }
    report.push_str(&format!("tidy: {count} findings\n"));
    // A reader of only the beginning (`| head`) closes the pipe, which is no failure.
    let _ = std::io::stdout().write_all(report.as_bytes());
    if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
