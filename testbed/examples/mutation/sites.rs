//! Where an expression can be changed, and into what.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// A change of one expression of one file.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The file, from `core/src` on.
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    /// The bytes that are replaced; none where something is only inserted.
    pub(crate) range: Range<usize>,
    /// The text that is written there, with [`IN_FORCE`].
    pub(crate) text: String,
    /// The change, for people.
    words: String,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.words)
    }
}

impl Site {
    /// The folder or file of `core/src`, or of `core/src/systems`, that it belongs to.
    pub(crate) fn room(&self) -> &str {
        let path = self.file.to_str().unwrap_or_default();
        let end = |path: &str| path.find(['/', '.']).unwrap_or(path.len());
        match path.strip_prefix("systems/") {
            Some(below) => &path[..path.len() - below.len() + end(below)],
            None => &path[..end(path)],
        }
    }
}

/// Stands for a condition that is true if this change is in force.
pub(crate) const IN_FORCE: &str = "IN_FORCE";

/// Modules whose code decides nothing: the simulation is a part of the tests.
const LEFT_OUT: [&str; 1] = ["simulation"];

/// Finds each possible change in the sources below a folder, in files whose path begins with `only`.
pub(crate) fn find(sources: &Path, only: &str) -> Result<Vec<Site>> {
    let mut sites = Vec::new();
    let mut modules = vec![PathBuf::from("lib.rs")];
    while let Some(file) = modules.pop() {
        let text =
            fs::read_to_string(sources.join(&file)).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        let folder =
            if file == Path::new("lib.rs") { PathBuf::new() } else { file.with_extension("") };
        let mut finder = Finder { text: &text, file: &file, sites: Vec::new(), below: Vec::new() };
        finder.visit_file(&parsed);
        let below = finder.below.into_iter().filter(|name| !LEFT_OUT.contains(&name.as_str()));
        modules.extend(below.map(|name| folder.join(name).with_extension("rs")));
        if file.to_str().is_some_and(|path| path.starts_with(only)) {
            sites.extend(finder.sites);
        }
    }
    Ok(sites)
}

/// Orders them by the digests of a seed and of what they are.
pub(crate) fn shuffle(mut sites: Vec<Site>, seed: u64) -> Vec<Site> {
    sites.sort_by_cached_key(|site| {
        Sha256::digest(format!("{seed} {} {:?} {}", site.file.display(), site.range, site.text))
    });
    sites
}

struct Finder<'t> {
    text: &'t str,
    file: &'t Path,
    sites: Vec<Site>,
    /// The modules that are files of their own.
    below: Vec<String>,
}

impl<'t> Finder<'t> {
    fn of(&self, range: Range<usize>) -> &'t str {
        &self.text[range]
    }

    fn add(&mut self, at: proc_macro2::Span, range: Range<usize>, text: String, words: &str) {
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        self.sites.push(Site {
            file: self.file.to_owned(),
            line: at.start().line,
            range,
            text,
            words,
        });
    }

    /// Adds the changes of a function's body into a value of its type.
    fn visit_body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() || block.stmts.is_empty() {
            return;
        }
        let values: &[&str] = match &signature.output {
            syn::ReturnType::Default => &[""],
            syn::ReturnType::Type(_, of) => {
                match &*self.of(of.span().byte_range()).replace(' ', "") {
                    "bool" => &["true", "false"],
                    "u16" | "u32" | "u64" | "usize" | "i32" | "i64" | "i128" => &["0", "1"],
                    "String" => &["String::new()"],
                    text if text.starts_with("Option<") => &["None"],
                    text if text.starts_with("Vec<") => &["Vec::new()"],
                    text if text.starts_with("Result<(),") => &["Ok(())"],
                    _ => &[],
                }
            }
        };
        let body = self.of(block.span().byte_range());
        let start = block.span().byte_range().start + 1;
        for value in values {
            if body.trim_matches(['{', '}']).trim() != *value {
                let words = format!("{} returns {value} at once", signature.ident);
                let text = format!(" if {IN_FORCE} {{ return {value}; }}");
                self.add(signature.ident.span(), start..start, text, &words);
            }
        }
    }

    /// Returns false for items of tests.
    fn is_product(attributes: &[syn::Attribute]) -> bool {
        !attributes.iter().any(|of| {
            let is_test = of.path().is_ident("test");
            is_test
                || of.path().is_ident("cfg")
                    && of
                        .meta
                        .require_list()
                        .is_ok_and(|list| list.tokens.to_string().contains("test"))
        })
    }
}

/// Returns true for a condition that binds names: it cannot be an operand elsewhere.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(of) => has_let(&of.left) || has_let(&of.right),
        _ => false,
    }
}

/// Returns the operators into which one is changed.
fn others(operator: &syn::BinOp) -> &'static [&'static str] {
    use syn::BinOp::{Add, AddAssign, And, Eq, Ge, Gt, Le, Lt, Mul, Ne, Or, Sub, SubAssign};
    match operator {
        Eq(_) => &["!="],
        Ne(_) => &["=="],
        Lt(_) => &["<=", ">"],
        Le(_) => &["<", ">"],
        Gt(_) => &[">=", "<"],
        Ge(_) => &[">", "<"],
        And(_) => &["||"],
        Or(_) => &["&&"],
        Add(_) => &["-"],
        Sub(_) => &["+"],
        Mul(_) => &["+"],
        AddAssign(_) => &["-="],
        SubAssign(_) => &["+="],
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(of) => &of.attrs,
            syn::Item::Impl(of) => &of.attrs,
            syn::Item::Mod(of) => &of.attrs,
            // What is known while compiling has no environment.
            syn::Item::Const(_) | syn::Item::Static(_) => return,
            _ => return visit::visit_item(self, item),
        };
        if Self::is_product(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.content.is_none() {
            self.below.push(module.ident.to_string());
        }
        visit::visit_item_mod(self, module);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.visit_body(&function.sig, &function.block);
        if function.sig.constness.is_none() {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if Self::is_product(&function.attrs) && function.sig.constness.is_none() {
            self.visit_body(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let range = binary.span().byte_range();
            let left = self.of(binary.left.span().byte_range());
            let right = self.of(binary.right.span().byte_range());
            let operator = self.of(binary.op.span().byte_range());
            for other in others(&binary.op) {
                let choice = format!(
                    "if {IN_FORCE} {{ {left} {other} {right} }} else {{ {left} {operator} {right} }}"
                );
                let text = match operator {
                    "+=" | "-=" => choice,
                    _ => format!("({choice})"),
                };
                let words = format!("{left} {operator} {right}: {other}");
                self.add(binary.op.span(), range.clone(), text, &words);
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, syn::UnOp::Not(_)) {
            let range = unary.span().byte_range();
            let whole = self.of(range.clone());
            let text = format!("({IN_FORCE} != ({whole}))");
            self.add(unary.span(), range, text, &format!("{whole}: without !"));
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard
            && !has_let(guard)
        {
            let range = guard.span().byte_range();
            let whole = self.of(range.clone());
            let always = format!("({IN_FORCE} || ({whole}))");
            let never = format!("(!{IN_FORCE} && ({whole}))");
            for (value, text) in [("true", always), ("false", never)] {
                self.add(guard.span(), range.clone(), text, &format!("if {whole}: {value}"));
            }
        }
        visit::visit_arm(self, arm);
    }
}
