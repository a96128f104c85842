//! Goal: modules that stand beside each other import in one direction, and only the clock imports
//! timers. Method: reads the `use` lines of each package as text; an import deep inside two
//! siblings is one of the siblings. A parent and its children may import each other; code for tests
//! alone is left out.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The path of a module, or of an import: its names.
type Names = Vec<String>;

/// Siblings and imports: the parent, the importing child, the imported one.
type Edges = BTreeSet<(Names, String, String)>;

/// The sources of a package by the paths of the modules.
struct Package(BTreeMap<Names, String>);

impl Package {
    fn read(source: &Path) -> Self {
        let mut package = Self(BTreeMap::new());
        package.add(source, &["lib.rs", "main.rs"].map(|file| source.join(file)), vec![]);
        assert!(!package.0.is_empty(), "{}", source.display());
        package
    }

    /// Adds the module in one of the files, and its children in the folder.
    fn add(&mut self, folder: &Path, files: &[impl AsRef<Path>], module: Names) {
        for file in files.iter().filter(|file| file.as_ref().is_file()) {
            let text = fs::read_to_string(file).unwrap();
            let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            for child in children(&text) {
                let path = [module.as_slice(), std::slice::from_ref(&child)].concat();
                self.add(&folder.join(&child), &[folder.join(format!("{child}.rs"))], path);
            }
            self.0.entry(module.clone()).or_default().push_str(&text);
        }
    }

    /// The module that defines the item which this one imports; `None` for one of another crate.
    fn resolve(&self, module: &[String], import: &[String], depth: usize) -> Option<Names> {
        let supers = import.iter().take_while(|name| *name == "super").count();
        let child = |at: &[String], name: &String| [at, std::slice::from_ref(name)].concat();
        let (mut at, mut rest) = match import[0].as_str() {
            "crate" => (vec![], &import[1..]),
            "self" => (module.to_vec(), &import[1..]),
            "super" => (module[..module.len() - supers].to_vec(), &import[supers..]),
            _ if self.0.contains_key(&child(module, &import[0])) => (module.to_vec(), import),
            _ => return None,
        };
        while !rest.is_empty() && self.0.contains_key(&child(&at, &rest[0])) {
            at = child(&at, &rest[0]);
            rest = &rest[1..];
        }
        let name = rest.first().filter(|name| !["self", "*"].contains(&name.as_str()));
        let defined = name.and_then(|name| self.definition(&at, name, depth));
        Some(defined.unwrap_or(at))
    }

    /// Follows the imports of a module to the definition of a name.
    fn definition(&self, at: &[String], name: &str, depth: usize) -> Option<Names> {
        let kinds = ["struct", "enum", "trait", "fn", "const", "type"];
        let ends = [" ", "(", "<", ":", ";", "{"];
        let text = &self.0[at];
        let is_here = |kind| ends.iter().any(|end| text.contains(&format!("{kind} {name}{end}")));
        if kinds.into_iter().any(is_here) {
            return Some(at.to_vec());
        }
        // Two modules that import all of each other would never end.
        let depth = depth.checked_sub(1)?;
        imports(text).iter().find_map(|import| match import.split_last().unwrap() {
            (last, _) if last == name => self.resolve(at, import, depth),
            (last, from) if last == "*" && !from.is_empty() => {
                let from = self.resolve(at, from, depth).filter(|from| from != at)?;
                self.definition(&from, name, depth)
            }
            _ => None,
        })
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (module, text) in &self.0 {
            for import in imports(text) {
                let Some(target) = self.resolve(module, &import, 8) else { continue };
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                    edges.insert((module[..shared].to_vec(), from.clone(), to.clone()));
                }
            }
        }
        edges
    }
}

/// The modules that a text declares in separate files, but those for tests alone.
fn children(text: &str) -> Vec<String> {
    let (mut children, mut is_for_tests) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("#[cfg(") {
            is_for_tests =
                !line.contains("not(") && (line.contains("test") || line.contains("sim"));
        } else if let Some((_, name)) = line.split_once("mod ").filter(|_| line.ends_with(';')) {
            if !is_for_tests && !line.starts_with("//") {
                children.push(name.trim_end_matches(';').to_owned());
            }
            is_for_tests = false;
        }
    }
    children
}

/// The paths that a text imports, one for each name.
fn imports(text: &str) -> Vec<Names> {
    let mut paths = Vec::new();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>();
    for (start, _) in text.match_indices("use ") {
        let before = text[..start].rsplit('\n').next().unwrap().trim();
        if before.is_empty() || before.starts_with("pub") {
            expand("", text[start + 4..].split(';').next().unwrap(), &mut paths);
        }
    }
    paths
}

/// Splits `a::{b, c::{d, e}}` into its paths.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<Names>) {
    let Some((head, list)) = tree.split_once('{') else {
        // Behind the last comma.
        if tree.trim().is_empty() {
            return;
        }
        let path = format!("{prefix}{}", tree.trim().split(" as ").next().unwrap());
        paths.push(path.split("::").map(|name| name.trim().to_owned()).collect());
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut item) = (0, String::new());
    for letter in list.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if depth < 0 || depth == 0 && letter == ',' {
            expand(&prefix, &std::mem::take(&mut item), paths);
        } else {
            item.push(letter);
        }
    }
}

/// A cycle of siblings that starts with this one.
fn cycle(edges: &Edges, parent: &Names, start: &str) -> Option<Names> {
    let (mut paths, mut seen) = (vec![vec![start.to_owned()]], BTreeSet::new());
    while let Some(path) = paths.pop() {
        let last = path.last().unwrap();
        for (_, _, to) in edges.iter().filter(|(at, from, _)| at == parent && from == last) {
            let longer = [path.as_slice(), std::slice::from_ref(to)].concat();
            if to == start {
                return Some(longer);
            }
            if seen.insert(to.clone()) {
                paths.push(longer);
            }
        }
    }
    None
}

#[test]
fn sibling_modules_have_no_import_cycle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for package in [".", "channels", "strategies", "workloads", "cli"] {
        let edges = Package::read(&root.join(package).join("src")).edges();
        for (parent, from, _) in &edges {
            let cycle = cycle(&edges, parent, from);
            assert_eq!(cycle, None, "in the package at {package}, module {}", parent.join("::"));
        }
    }
}

/// Other waits would not follow an injected clock.
#[test]
fn only_the_clock_has_timers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_timer = |import: &Names| import.len() > 1 && import[..2] == ["tokio", "time"];
    for package in [".", "strategies"] {
        for (module, text) in Package::read(&root.join(package).join("src")).0 {
            let has_timers = text.contains("tokio::time::") || imports(&text).iter().any(is_timer);
            assert_eq!(has_timers, module == ["clock"], "{package}: {}", module.join("::"));
        }
    }
}

#[test]
fn cycle_through_reexports_is_found() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Names>();
    let package = Package(BTreeMap::from([
        (vec![], "pub use crate::{a::A, b::*};".into()),
        (module("a"), "use crate::{B,\n    c::C};\npub struct A;".into()),
        (module("b"), "pub struct B;".into()),
        (module("b::d"), "use crate::A;".into()),
        (module("c"), "use std::fmt;\npub struct C;".into()),
    ]));
    let found = cycle(&package.edges(), &vec![], "a").unwrap();
    assert_eq!(found, ["a", "b", "a"]);
    assert_eq!(cycle(&package.edges(), &vec![], "c").map(|found| found.len()), None);
}
