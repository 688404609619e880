//! Finds examples: blocks, and commands named within sentences.

/// A help text, a document or a source file.
pub(super) struct Text {
    /// For people.
    pub(super) place: String,
    pub(super) blocks: Vec<Block>,
    /// Words of `vazao …` in backticks.
    pub(super) spans: Vec<Vec<String>>,
}

/// Lines that stand apart from sentences.
pub(super) struct Block {
    /// What is written behind the fence.
    label: String,
    pub(super) lines: Vec<String>,
}

impl Block {
    /// Whether it begins as a configuration does.
    pub(super) fn is_toml(&self) -> bool {
        let mut lines = self.lines.iter().map(|line| line.trim());
        let first = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
        let is_key = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let is_setting = first.split_once(" = ").is_some_and(|(key, _)| is_key(key));
        let is_section =
            first.starts_with('[') && first.ends_with(']') && is_key(first.trim_matches(['[', ']']));
        self.label == "toml" || (self.label.is_empty() && (is_setting || is_section))
    }
}

/// A help text: its blocks are indented.
pub(super) fn help(place: &str, text: &str) -> Text {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_indented = line.starts_with("  ");
        if is_indented && !is_open {
            blocks.push(Block { label: String::new(), lines: Vec::new() });
        }
        if let (true, Some(block)) = (is_indented, blocks.last_mut()) {
            block.lines.push(line.to_owned());
        }
        is_open = is_indented;
    }
    Text { place: place.to_owned(), blocks, spans: spans(text) }
}

/// A document: its blocks are fenced.
pub(super) fn document(place: &str, text: &str) -> Text {
    let (mut blocks, mut sentences) = (Vec::new(), String::new());
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(label), None) => open = Some(Block { label: label.to_owned(), lines: Vec::new() }),
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => sentences += &format!("{line}\n"),
        }
    }
    Text { place: place.to_owned(), blocks, spans: spans(&sentences) }
}

/// A source file: fenced blocks in its comments, and commands that comments and messages name. Help texts, which have
/// blocks of their own kind, come from the command line itself.
pub(super) fn source(place: &str, text: &str) -> Text {
    let comment = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("//!").or(line.strip_prefix("///"))?;
        Some(text.strip_prefix(' ').unwrap_or(text).to_owned())
    };
    let comments: Vec<String> = text.lines().filter_map(comment).collect();
    let blocks = document(place, &comments.join("\n")).blocks;
    let mut joined = String::new();
    for line in text.lines().filter(|line| !line.contains("after_help")) {
        // A message that goes on in the next line.
        match line.strip_suffix('\\') {
            Some(begun) => joined += begun,
            None => joined += &format!("{line}\n"),
        }
    }
    Text { place: place.to_owned(), blocks, spans: spans(&joined) }
}

/// Commands in backticks, each on one line.
fn spans(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in text.lines() {
        for begun in line.split("`vazao ").skip(1) {
            if let Some((span, _)) = begun.split_once('`') {
                let words = ["vazao"].into_iter().chain(span.split_whitespace());
                found.push(words.map(str::to_owned).collect());
            }
        }
    }
    found
}
