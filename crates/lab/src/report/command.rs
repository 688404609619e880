//! `vazao lab report`: makes the tables of a result file again at any time, without measuring.
//!
//! Knows every kind of result file, so it stands above them all.

use super::print;
use crate::{Context, Error, bench, experiment, mounts, psplit};
use std::fs;
use std::path::Path;

/// `vazao lab report`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vazao lab report --markdown results.json\n  vazao lab report lab-results"
)]
pub struct Args {
    /// Result file of `vazao lab psplit`, `bench` or `mounts` with `--json`, or a directory of `vazao lab run`
    #[arg(value_name = "FILE")]
    pub file: String,
    /// Markdown instead of aligned text
    #[arg(long)]
    pub markdown: bool,
}

/// Prints the tables of a result file.
pub fn run(args: Args, context: &mut Context<'_>) -> Result<(), Error> {
    if Path::new(&args.file).is_dir() {
        let page = experiment::report(Path::new(&args.file))?;
        return print(&page, context);
    }
    let text = fs::read_to_string(&args.file).map_err(Error::at(&args.file))?;
    let wrong =
        |error: serde_json::Error| Error::Failed(format!("{}: not a result file: {error}", args.file));
    let value: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    let report = match value.get("format").and_then(|format| format.as_str()) {
        Some(psplit::FORMAT) => {
            let results: psplit::Results = serde_json::from_value(value).map_err(wrong)?;
            results.report(args.markdown)
        }
        Some(bench::FORMAT) => {
            let results: bench::Results = serde_json::from_value(value).map_err(wrong)?;
            results.report(args.markdown)
        }
        Some(mounts::FORMAT) => {
            let results: mounts::Results = serde_json::from_value(value).map_err(wrong)?;
            results.report(args.markdown)
        }
        _ => {
            let known = [psplit::FORMAT, bench::FORMAT, mounts::FORMAT].join(", ");
            return Err(Error::Failed(format!("{}: no format known here ({known})", args.file)));
        }
    };
    print(&report, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_result_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Vec::new();
        for text in ["not json", "{}", "{\"format\": \"vazao-lab-psplit-2\"}", "[]"] {
            let path = directory.path().join("result.json");
            fs::write(&path, text).unwrap();
            let connect = || Err("not needed".to_owned());
            let clock = vazao_meter::clock::system();
            let mut context =
                Context { clock, connect: &connect, stop: Default::default(), output: &mut output };
            let file = path.display().to_string();
            let error = run(Args { file: file.clone(), markdown: false }, &mut context).unwrap_err();
            assert!(error.to_string().starts_with(&file), "{error}");
        }
        assert!(output.is_empty());
    }
}
