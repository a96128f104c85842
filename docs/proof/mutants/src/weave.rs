//! Writes all mutants of a file into it, each behind its switch.
//!
//! | genre | written as |
//! |---|---|
//! | function value | `if crate::switch::on(7) { return VALUE; }` at the head of its body |
//! | match arm | `PATTERN if !crate::switch::on(7) => …` |
//! | anything else | the smallest expression around it: `(if crate::switch::on(7) { MUTATED } else { … })` |
//!
//! The mutated expression has no further mutants in it: one process runs with one mutant, and the
//! text grows no faster than mutants times depth. The other side goes on being woven.

use std::{collections::BTreeMap, ops::Range};

use syn::{
    BinOp, Expr, ExprMatch, ImplItemFn, ItemFn, Pat, Signature,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::mutant::{Genre, Mutant};

/// A file with its mutants in it.
pub(crate) struct Woven {
    pub(crate) text: String,
    /// What was written for a mutant, or around it; the narrowest says whom an error is about.
    marks: Vec<(Range<usize>, usize)>,
    /// Mutants that cannot be written so, and whether cargo-mutants can: of a condition with `let` in it, which cannot stand in
    /// parentheses; arms without which a match does not name everything; opaque types.
    pub(crate) left: Vec<(usize, &'static str)>,
}

impl Woven {
    /// The mutants to which the narrowest text around `place` belongs.
    pub(crate) fn at(&self, place: usize) -> Vec<usize> {
        let around = || self.marks.iter().filter(|(range, _)| range.contains(&place));
        let Some(narrowest) = around().map(|(range, _)| range.len()).min() else { return vec![] };
        around().filter(|(range, _)| range.len() == narrowest).map(|(_, id)| *id).collect()
    }
}

/// Where a change stands: by its beginning, what is only put in first, the outer before the inner.
type Key = (usize, bool, std::cmp::Reverse<usize>);

/// What is written at a place, by mutant: alternatives of an expression, or text that is put in.
type Change = Vec<(usize, String)>;

/// Writes `mutants`, all of one file, into its `source`.
pub(crate) fn weave(source: &str, mutants: &[&Mutant]) -> Woven {
    let mut finder = Finder {
        wanted: mutants.iter().map(|mutant| (mutant.range(source), *mutant)).collect(),
        found: BTreeMap::new(),
        consts: Vec::new(),
    };
    finder.visit_file(&syn::parse_file(source).expect("the library is valid Rust"));
    let mut source = source.to_owned();
    for word in &finder.consts {
        source.replace_range(word.clone(), &" ".repeat(word.len()));
    }
    let source = &*source;
    let mut changes = BTreeMap::<Key, Change>::new();
    let mut left = Vec::new();
    for (range, mutant) in &finder.wanted {
        let id = mutant.id;
        let head = (range.start..range.start, mutant.is_opaque());
        let place =
            if mutant.genre == Genre::FnValue { Some(&head) } else { finder.found.get(&id) };
        let Some((place, false)) = place else {
            // No `let` stands beside `||`.
            let never = matches!(place, Some((_, true))) && mutant.replacement == "||";
            left.push((id, if never { "unviable" } else { "left" }));
            continue;
        };
        let text = match mutant.genre {
            Genre::FnValue => {
                format!("if crate::switch::on({id}) {{ return {}; }} ", mutant.replacement)
            }
            Genre::MatchArm => format!(" if !crate::switch::on({id})"),
            _ => [
                &source[place.start..range.start],
                &mutant.replacement,
                &source[range.end..place.end],
            ]
            .concat(),
        };
        let key = (place.start, !place.is_empty(), std::cmp::Reverse(place.end));
        changes.entry(key).or_default().push((id, text));
    }
    let changes = changes
        .into_iter()
        .map(|((start, _, end), change)| (start..end.0, change))
        .collect::<Vec<_>>();
    let mut writer = Writer { source, text: String::new(), marks: Vec::new() };
    writer.write(0..source.len(), &changes);
    Woven { text: writer.text, marks: writer.marks, left }
}

struct Writer<'a> {
    source: &'a str,
    text: String,
    marks: Vec<(Range<usize>, usize)>,
}

impl Writer<'_> {
    /// Writes this part of the source with the changes within it.
    fn write(&mut self, part: Range<usize>, mut changes: &[(Range<usize>, Change)]) {
        let mut at = part.start;
        while let Some(((range, change), others)) = changes.split_first() {
            self.text.push_str(&self.source[at..range.start]);
            let within = others.partition_point(|(other, _)| other.start < range.end);
            let (inner, rest) = others.split_at(if range.is_empty() { 0 } else { within });
            if range.is_empty() {
                change.iter().for_each(|(id, text)| self.mark(*id, text));
            } else {
                self.choose(range.clone(), change, inner);
            }
            (at, changes) = (range.end, rest);
        }
        self.text.push_str(&self.source[at..part.end]);
    }

    /// An expression with its alternatives.
    fn choose(&mut self, range: Range<usize>, change: &Change, inner: &[(Range<usize>, Change)]) {
        let start = self.text.len();
        self.text.push('(');
        for (id, text) in change {
            self.mark(*id, &format!("if crate::switch::on({id}) {{ {text} }}"));
            self.text.push_str(" else ");
        }
        self.text.push_str("{ ");
        self.write(range, inner);
        self.text.push_str(" })");
        let whole = start..self.text.len();
        self.marks.extend(change.iter().map(|(id, _)| (whole.clone(), *id)));
    }

    fn mark(&mut self, id: usize, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        self.marks.push((start..self.text.len(), id));
    }
}

/// Finds where each mutant is written, and whether it cannot be.
struct Finder<'a> {
    wanted: Vec<(Range<usize>, &'a Mutant)>,
    found: BTreeMap<usize, (Range<usize>, bool)>,
    consts: Vec<Range<usize>>,
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        let around = expr.span().byte_range();
        for (range, mutant) in &self.wanted {
            let fits = match mutant.genre {
                Genre::FnValue | Genre::MatchArm => false,
                Genre::StructField => matches!(expr, Expr::Struct(_)),
                _ => true,
            };
            // The parent comes first: the last that fits is the smallest.
            if fits && around.start <= range.start && range.end <= around.end {
                self.found.insert(mutant.id, (around.clone(), has_let(expr)));
            }
        }
        visit::visit_expr(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast ExprMatch) {
        // `_ if guard` is a `Pat::Guard`. Without `_` the match must name everything.
        if expr.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_))) {
            for arm in &expr.arms {
                let (start, end) = (arm.span().byte_range().start, arm.pat.span().byte_range().end);
                for (range, mutant) in &self.wanted {
                    if mutant.genre == Genre::MatchArm && range.start == start {
                        self.found.insert(mutant.id, (end..end, false));
                    }
                }
            }
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.unconst(&item.sig, item.span().byte_range());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.unconst(&item.sig, item.span().byte_range());
        visit::visit_impl_item_fn(self, item);
    }
}

impl Finder<'_> {
    /// A constant function cannot ask the switch; few are called where nothing else could be.
    fn unconst(&mut self, signature: &Signature, whole: Range<usize>) {
        if self.wanted.iter().any(|(range, _)| whole.contains(&range.start)) {
            self.consts.extend(signature.constness.map(|word| word.span.byte_range()));
        }
    }
}

/// Whether this is a condition with a `let` in it.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => {
            has_let(&both.left) || has_let(&both.right)
        }
        _ => false,
    }
}
