//! Within a crate: files import one another in circles of four at most, the methods of a type stand in four files at
//! most, and no more than fifteen modules lie side by side at the top.
//!
//! Imports are read from `use` items and from paths that begin with `crate`, `self` or `super`. A name that a module
//! only hands on counts as that of the file that has it. Tests do not count.

use crate::tree::{Finding, SourceFile, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Files that may import one another in a circle.
const CIRCLE_MAX: usize = 4;

/// Files that the methods of one type may stand in.
const METHOD_FILES_MAX: usize = 4;

/// Modules at the top of a crate.
const TOP_MODULES_MAX: usize = 15;

/// Crates that do not keep the rule yet, with the longest circle, the files of the most spread type and the modules at
/// the top that they are allowed. The figures only go down.
const NOT_YET: [(&str, [usize; 3]); 4] =
    [("area", [7, 4, 16]), ("meta", [14, 7, 15]), ("store", [9, 23, 15]), ("wire", [4, 4, 15])];

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// The module files of one crate, without its tests.
struct Crate<'a> {
    limits: [usize; 3],
    modules: BTreeMap<Module, (&'a SourceFile, Names)>,
}

/// What one file imports and what it defines.
#[derive(Default)]
struct Names {
    /// Paths in its code, with the names they are imported under (the last segment for those in place).
    imported: Vec<(Module, String)>,
    /// Names that it imports only to hand them on.
    handed_on: BTreeSet<String>,
    /// Types with inherent methods here.
    types: BTreeSet<String>,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, _) in tree.manifests() {
        let one = Crate::read(tree, name);
        findings.extend(one.circles());
        findings.extend(one.spread_types());
        findings.extend(one.too_many_modules());
    }
    findings
}

/// The module that a file is, `None` for tests, examples and programs beside the library.
fn module_of(path: &str, name: &str) -> Option<Module> {
    let inside = path.strip_prefix(&format!("crates/{name}/src/"))?.strip_suffix(".rs")?;
    let mut module: Module = inside.split('/').map(str::to_owned).collect();
    let is_test = |part: &String| part == "tests" || part.ends_with("_tests") || part == "bin";
    if module.iter().any(is_test) {
        return None;
    }
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    Some(module)
}

/// The code of a file before its tests.
fn code_of(file: &SourceFile) -> String {
    let mut code = file.code();
    if let Some(at) = code.find("#[cfg(test)]\nmod tests {") {
        code.truncate(at);
    }
    code
}

/// The paths of a `use` item, with the names that they are imported under.
fn expand(prefix: &str, item: &str, into: &mut Vec<(Module, String)>) {
    let item = item.trim();
    if let Some((head, tail)) = item.split_once('{') {
        let inside = tail.trim_end().strip_suffix('}').unwrap_or(tail);
        let (mut depth, mut start) = (0, 0);
        for (at, character) in inside.char_indices().chain([(inside.len(), ',')]) {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&format!("{prefix}{head}"), &inside[start..at], into);
                    start = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    if item.is_empty() {
        return;
    }
    let (path, alias) =
        item.split_once(" as ").map_or((item, None), |(path, name)| (path, Some(name.trim())));
    let mut path: Module = format!("{prefix}{path}").split("::").map(|part| part.trim().to_owned()).collect();
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(name) = alias.map(str::to_owned).or_else(|| path.last().cloned()) {
        into.push((path, name));
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// True when `name` stands in `code` as a word.
fn has_word(code: &str, name: &str) -> bool {
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(is_word) && !code[at + name.len()..].starts_with(is_word))
}

impl Names {
    fn read(code: &str) -> Names {
        let mut names = Names::default();
        let (mut rest, mut body) = (code, String::new());
        let mut public = Vec::new();
        while let Some(at) = rest.find("use ") {
            let is_item = !rest[..at].ends_with(is_word);
            let Some(end) = rest[at..].find(';').filter(|_| is_item) else {
                body.push_str(&rest[..at + 4]);
                rest = &rest[at + 4..];
                continue;
            };
            let before = names.imported.len();
            expand("", &rest[at + 4..at + end], &mut names.imported);
            let line = rest[..at].rsplit('\n').next().unwrap_or_default();
            if line.trim_start().starts_with("pub") {
                public.extend(names.imported[before..].iter().map(|(_, name)| name.clone()));
            }
            body.push_str(&rest[..at]);
            rest = &rest[at + end + 1..];
        }
        body.push_str(rest);
        names.handed_on = public.into_iter().filter(|name| !has_word(&body, name)).collect();
        for start in ["crate::", "self::", "super::"] {
            let is_start = |at: usize| !body[..at].ends_with(|c| is_word(c) || c == ':');
            for (at, _) in body.match_indices(start).filter(|(at, _)| is_start(*at)) {
                let path: String = body[at..].chars().take_while(|c| is_word(*c) || *c == ':').collect();
                let path: Module =
                    path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
                let name = path.last().cloned().unwrap_or_default();
                names.imported.push((path, name));
            }
        }
        names.types = types_with_methods(&body);
        names
    }
}

/// Types with an `impl` block of their own, not of a trait.
fn types_with_methods(code: &str) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    for line in code.lines() {
        let Some(mut rest) = line.strip_prefix("impl").filter(|rest| rest.starts_with([' ', '<'])) else {
            continue;
        };
        if let Some(generics) = rest.strip_prefix('<') {
            rest = generics.split_once("> ").map_or("", |(_, rest)| rest);
        }
        if !rest.contains(" for ") {
            types.insert(rest.trim().chars().take_while(|c| is_word(*c)).collect());
        }
    }
    types.remove("");
    types
}

impl<'a> Crate<'a> {
    fn read(tree: &'a Tree, name: &str) -> Crate<'a> {
        let files = tree.rust_files().filter_map(|file| Some((module_of(&file.path, name)?, file)));
        let modules = files.map(|(module, file)| (module, (file, Names::read(&code_of(file))))).collect();
        let usual = [CIRCLE_MAX, METHOD_FILES_MAX, TOP_MODULES_MAX];
        let limits =
            NOT_YET.iter().find(|(crate_name, _)| *crate_name == name).map_or(usual, |(_, more)| *more);
        Crate { limits, modules }
    }

    /// A path as it is seen from the root of the crate; `None` for one of another crate.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Module> {
        let joined = |base: &[String], rest: &[String]| [base, rest].concat();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some(joined(from, &path[1..])),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                Some(joined(from.get(..from.len().checked_sub(up)?)?, &path[up..]))
            }
            child => {
                let child = joined(from, &[child.to_owned()]);
                self.modules.contains_key(&child).then(|| joined(from, path))
            }
        }
    }

    /// The module that has what a path leads to, whichever modules hand it on.
    fn home(&self, path: &[String], depth: usize) -> Option<Module> {
        let length = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]))?;
        let module = path[..length].to_vec();
        let handed_on = path.get(length).filter(|_| depth < 8).and_then(|name| {
            let (_, names) = &self.modules[&module];
            let (onward, _) = names.imported.iter().find(|(_, imported)| imported == name)?;
            let onward = self.absolute(&module, onward).filter(|onward| onward != path)?;
            self.home(&[&onward[..], &path[length + 1..]].concat(), depth + 1)
        });
        Some(handed_on.unwrap_or(module))
    }

    /// Which modules each one imports.
    fn imports(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let mut imports = BTreeMap::new();
        for (module, (_, names)) in &self.modules {
            let used = names.imported.iter().filter(|(_, name)| !names.handed_on.contains(name));
            let homes = used.filter_map(|(path, _)| self.home(&self.absolute(module, path)?, 0));
            imports.insert(module, homes.filter(|home| home != module).collect());
        }
        imports
    }

    /// One finding for each circle that is too long.
    fn circles(&self) -> Vec<Finding> {
        let imports = self.imports();
        let reach: BTreeMap<&Module, BTreeSet<&Module>> =
            imports.keys().map(|module| (*module, reachable(module, &imports))).collect();
        let mut seen: BTreeSet<&Module> = BTreeSet::new();
        let mut findings = Vec::new();
        for (module, reached) in &reach {
            if seen.contains(module) {
                continue;
            }
            let circle: BTreeSet<&Module> =
                reached.iter().filter(|other| reach[*other].contains(module)).copied().collect();
            seen.extend(&circle);
            if circle.len() > self.limits[0] {
                let names: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
                let message = format!(
                    "{} files import one another in a circle, {} may: {}",
                    circle.len(),
                    self.limits[0],
                    names.join(", ")
                );
                findings.push(self.modules[*module].0.finding(0, message));
            }
        }
        findings
    }

    fn spread_types(&self) -> Vec<Finding> {
        let mut files: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
        for (file, names) in self.modules.values() {
            names.types.iter().for_each(|name| files.entry(name).or_default().push(file));
        }
        let spread = files.into_iter().filter(|(_, files)| files.len() > self.limits[1]);
        let message = |(name, files): (&str, Vec<&SourceFile>)| {
            let count = files.len();
            let message = format!("methods of `{name}` stand in {count} files, {} may", self.limits[1]);
            files[0].finding(0, message)
        };
        spread.map(message).collect()
    }

    fn too_many_modules(&self) -> Vec<Finding> {
        let top: BTreeSet<&String> = self.modules.keys().filter_map(|module| module.first()).collect();
        let Some((root, _)) = self.modules.get(&Vec::new()).filter(|_| top.len() > self.limits[2]) else {
            return Vec::new();
        };
        let message = format!("{} modules at the top of the crate, {} may be", top.len(), self.limits[2]);
        vec![root.finding(0, message)]
    }
}

/// All modules that one imports, directly or through others.
fn reachable<'a>(
    from: &'a Module,
    imports: &'a BTreeMap<&'a Module, BTreeSet<Module>>,
) -> BTreeSet<&'a Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        let next = imports.get(module).into_iter().flatten();
        open.extend(next.filter(|next| reached.insert(*next)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("crates/a/Cargo.toml", "")];
        all.extend(files);
        check(&Tree::of(&all)).into_iter().map(|finding| finding.message).collect()
    }

    /// Files of which each imports the next one in its own way, the last one `last`.
    fn chain(last: &str) -> Vec<String> {
        messages(&[
            ("crates/a/src/lib.rs", "mod one;\nmod two;\nmod four;\nmod five;"),
            ("crates/a/src/one.rs", "use crate::two::{Two, three::Three};"),
            (
                "crates/a/src/two/mod.rs",
                "mod three;\npub(crate) use three::Three;\nfn f() { self::three::g() }\nstruct Two;",
            ),
            ("crates/a/src/two/three.rs", "pub(crate) struct Three(super::super::four::Four, super::Two);"),
            (
                "crates/a/src/four.rs",
                "use crate::five;\n#[cfg(test)]\nmod tests {\n    use crate::one::One;\n}",
            ),
            ("crates/a/src/five.rs", last),
        ])
    }

    #[test]
    fn a_circle_of_five_files_is_found_and_one_of_four_is_not() {
        let found = chain("fn f() { crate::one::f() }");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("5 files import one another in a circle"), "{found:?}");
        assert!(chain("use crate::two::Three;").is_empty(), "what is handed on is the file's that has it");
        assert!(chain("").is_empty());
    }

    #[test]
    fn a_type_with_methods_in_five_files_is_found() {
        let names: Vec<String> = (0..5).map(|number| format!("crates/a/src/part{number}.rs")).collect();
        let text = "impl<'a> Whole<'a> {\n}\nimpl Drop for Whole<'_> {\n}\nimpl Other {\n}";
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text)).collect();
        assert_eq!(messages(&files[..4]), [""; 0]);
        let found = messages(&files);
        assert!(found.len() == 2 && found[1].starts_with("methods of `Whole` stand in 5 files"), "{found:?}");
    }

    #[test]
    fn sixteen_modules_at_the_top_are_found() {
        let names: Vec<String> = (0..16).map(|number| format!("crates/a/src/part{number}.rs")).collect();
        let mut files = vec![("crates/a/src/lib.rs", "")];
        files.extend(names.iter().map(|name| (name.as_str(), "")));
        assert_eq!(messages(&files[..16]), [""; 0]);
        assert_eq!(messages(&files), ["16 modules at the top of the crate, 15 may be"]);
    }
}
