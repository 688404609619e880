//! `vazao completions`: what a shell needs to complete commands and options.

use crate::cli;
use crate::failure::Outcome;
use crate::output::Output;
use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// Arguments of `vazao completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao completions bash > ~/.local/share/bash-completion/completions/vazao\n  vazao completions zsh > ~/.zfunc/_vazao             where fpath has ~/.zfunc\n  vazao completions fish > ~/.config/fish/completions/vazao.fish\n\n`./x install` of the source tree installs all three."
)]
pub(crate) struct Arguments {
    /// Whose
    shell: Known,
}

/// Shells whose completions are tested.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Prints them.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let shell = match arguments.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "vazao", &mut script);
    let mut output = Output::new(false);
    output.bytes(&script)?;
    output.finish()
}
