//! The source tree: every text file of the repository, read once.

use crate::lexer::{Token, tokens};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that hold nothing written by hand.
const SKIPPED_DIRECTORIES: [&str; 4] = ["target", ".git", ".venv", "__pycache__"];

/// Files that a rule may want to look at.
const TEXT_EXTENSIONS: [&str; 9] = ["rs", "toml", "md", "proto", "sh", "py", "lock", "json", "txt"];

/// Files without an extension that are read too.
const TEXT_NAMES: [&str; 2] = ["x", "run"];

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A text file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Its contents.
    pub text: String,
}

impl SourceFile {
    /// True for Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The text with everything blanked that `keep` refuses. Lines and columns stay where they are.
    pub(crate) fn masked(&self, keep: impl Fn(Token) -> bool) -> String {
        let mut masked = String::with_capacity(self.text.len());
        for (token, range) in tokens(&self.text) {
            let part = &self.text[range];
            if keep(token) {
                masked.push_str(part);
            } else {
                masked.extend(part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            }
        }
        masked
    }

    /// Only its code: comments and the insides of literals are blank.
    pub(crate) fn code(&self) -> String {
        self.masked(|token| token == Token::Code)
    }

    pub(crate) fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }
}

/// All text files of a repository.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Where it lies; `Cargo.toml` of the workspace is in it.
    pub root: PathBuf,
    /// Its files, sorted by path.
    pub files: Vec<SourceFile>,
}

impl Tree {
    /// The repository that this program was compiled from.
    pub fn of_this_repository() -> io::Result<Tree> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        Tree::read(&root)
    }

    /// The repository at `root`.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree { root: root.to_path_buf(), files: Vec::new() };
        tree.add_directory(root)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn add_directory(&mut self, directory: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                if !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
                    self.add_directory(&path)?;
                }
            } else if is_text(&path, &name) {
                let shown = path.strip_prefix(&self.root).unwrap_or(&path).to_string_lossy().into_owned();
                self.files.push(SourceFile { path: shown, text: std::fs::read_to_string(&path)? });
            }
        }
        Ok(())
    }

    /// The file at `path`.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether there is a file or directory at `path`, text or not.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
            || (!self.root.as_os_str().is_empty() && self.root.join(path).exists())
    }

    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// The manifest of each crate with the crate's directory name.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&str, &SourceFile)> {
        self.files.iter().filter_map(|file| {
            let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some((name, file))
        })
    }

    /// A tree of made-up files, for the rules' own tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let files =
            files.iter().map(|(p, t)| SourceFile { path: p.to_string(), text: t.to_string() }).collect();
        Tree { root: PathBuf::new(), files }
    }
}

fn is_text(path: &Path, name: &str) -> bool {
    match path.extension().and_then(|e| e.to_str()) {
        Some(extension) => TEXT_EXTENSIONS.contains(&extension),
        None => TEXT_NAMES.contains(&name),
    }
}
