//! The parsed modules as a flat list: every rule with what it names. Names are resolved as Rego does: variables
//! that a rule declares shadow imports, imports shadow rules of the package.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{AssignOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleAssign, RuleHead, Span};

use super::error::Location;

/// A path from a root: `["data", "p", "a"]`, or the parts of a builtin's name.
pub(super) type Path = Vec<String>;

/// One rule as written; a rule of several bodies or clauses is several of these with one path.
pub(super) struct Definition {
    pub(super) path: Path,
    pub(super) at: Location,
    pub(super) is_function: bool,
    pub(super) uses: Vec<Use>,
    /// Statements of each of its queries, inner ones too.
    pub(super) queries: Vec<usize>,
}

/// One thing that a rule names.
pub(super) struct Use {
    pub(super) path: Path,
    pub(super) at: Location,
    pub(super) role: Role,
}

/// How a thing is named.
pub(super) enum Role {
    /// Its value is read.
    Read,
    /// It is called; with its first argument, if that is a literal string.
    Called(Option<String>),
    /// `with <path> as …` puts this in the place of the path.
    Replaces(Path),
}

/// An import and the package that it stands in.
pub(super) struct Import {
    pub(super) package: Path,
    pub(super) path: Path,
    pub(super) at: Location,
}

/// All rules of the modules.
pub(super) fn definitions(modules: &[Ref<Module>]) -> Vec<Definition> {
    let mut names: BTreeMap<Path, BTreeSet<String>> = BTreeMap::new();
    for module in modules {
        let package = names.entry(package_of(module)).or_default();
        package.extend(module.policy.iter().filter_map(|rule| head_path(rule).into_iter().next()));
    }
    let mut definitions = Vec::new();
    for module in modules {
        let package = package_of(module);
        let imports = imports_of(module).into_iter().map(|(name, import)| (name, import.path)).collect();
        let rules = names.get(&package);
        for (path, rule) in rules_of(module) {
            let mut walk =
                Walk { package: &package, imports: &imports, rules, scopes: Vec::new(), found: Found::default() };
            walk.rule(rule);
            let Found { uses, queries } = walk.found;
            definitions.push(Definition {
                path,
                at: place(rule.span()),
                is_function: is_function(rule),
                uses,
                queries,
            });
        }
    }
    definitions
}

/// The rules of a module with their paths.
pub(super) fn rules_of(module: &Module) -> impl Iterator<Item = (Path, &Rule)> {
    let package = package_of(module);
    module.policy.iter().map(move |rule| (package.iter().cloned().chain(head_path(rule)).collect(), &**rule))
}

/// The package of every module.
pub(super) fn packages(modules: &[Ref<Module>]) -> Vec<Path> {
    modules.iter().map(|module| package_of(module)).collect()
}

/// All imports of the modules.
pub(super) fn imports(modules: &[Ref<Module>]) -> Vec<Import> {
    modules.iter().flat_map(|module| imports_of(module).into_values()).collect()
}

fn imports_of(module: &Module) -> BTreeMap<String, Import> {
    let package = package_of(module);
    let mut imports = BTreeMap::new();
    for import in &module.imports {
        let Some(Chain { root, parts, .. }) = chain(&import.refr) else { continue };
        let path: Path = std::iter::once(root).chain(parts).collect();
        let name = import.r#as.as_ref().map(|name| name.text().to_owned()).or_else(|| path.last().cloned());
        if let Some(name) = name {
            imports.insert(name, Import { package: package.clone(), path, at: place(&import.span) });
        }
    }
    imports
}

fn package_of(module: &Module) -> Path {
    let Some(Chain { root, parts, .. }) = chain(&module.package.refr) else { return vec!["data".to_owned()] };
    ["data".to_owned(), root].into_iter().chain(parts).collect()
}

fn head_of(rule: &Rule) -> &Expr {
    match rule {
        Rule::Spec {
            head: RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. } | RuleHead::Func { refr, .. },
            ..
        }
        | Rule::Default { refr, .. } => refr,
    }
}

fn head_path(rule: &Rule) -> Path {
    chain(head_of(rule)).map(|chain| std::iter::once(chain.root).chain(chain.parts).collect()).unwrap_or_default()
}

fn is_function(rule: &Rule) -> bool {
    match rule {
        Rule::Spec { head, .. } => matches!(head, RuleHead::Func { .. }),
        Rule::Default { args, .. } => !args.is_empty(),
    }
}

/// Where a span begins.
pub(super) fn place(span: &Span) -> Location {
    Location { file: span.source.get_path().clone(), line: span.line, column: span.col }
}

/// `root.a["b"][x].c`: the root, the parts that are fixed up to the first that is not, and all indices.
struct Chain<'a> {
    root: String,
    parts: Path,
    indices: Vec<&'a Expr>,
}

/// None where the root is no name (a call, a literal).
fn chain(expr: &Expr) -> Option<Chain<'_>> {
    let mut parts = Vec::new();
    let mut indices = Vec::new();
    let mut at = expr;
    loop {
        match at {
            Expr::Var { span, .. } => {
                parts.reverse();
                let fixed = parts.into_iter().map_while(|part| part).collect();
                return Some(Chain { root: span.text().to_owned(), parts: fixed, indices });
            }
            Expr::RefDot { refr, field, .. } => {
                parts.push(Some(field.0.text().to_owned()));
                at = refr;
            }
            Expr::RefBrack { refr, index, .. } => {
                match &**index {
                    Expr::String { value, .. } | Expr::RawString { value, .. } => {
                        parts.push(value.as_string().ok().map(ToString::to_string));
                    }
                    other => {
                        parts.push(None);
                        indices.push(other);
                    }
                }
                at = refr;
            }
            _ => return None,
        }
    }
}

#[derive(Default)]
struct Found {
    uses: Vec<Use>,
    queries: Vec<usize>,
}

struct Walk<'a> {
    package: &'a Path,
    imports: &'a BTreeMap<String, Path>,
    rules: Option<&'a BTreeSet<String>>,
    scopes: Vec<BTreeSet<String>>,
    found: Found,
}

impl Walk<'_> {
    fn rule(&mut self, rule: &Rule) {
        if let Some(head) = chain(head_of(rule)) {
            for index in head.indices {
                self.expr(index);
            }
        }
        match rule {
            Rule::Default { args, value, .. } => {
                self.within(args.iter().flat_map(|arg| names_in(arg)).collect(), |walk| walk.expr(value));
            }
            Rule::Spec { head, bodies, .. } => {
                let args = match head {
                    RuleHead::Func { args, .. } => args.iter().flat_map(|arg| names_in(arg)).collect(),
                    _ => BTreeSet::new(),
                };
                self.within(args, |walk| {
                    if bodies.is_empty() {
                        walk.head(head);
                    }
                    for body in bodies {
                        walk.query(&body.query, |walk| {
                            walk.assigned(body.assign.as_ref());
                            if !body.is_else {
                                walk.head(head);
                            }
                        });
                    }
                });
            }
        }
    }

    fn head(&mut self, head: &RuleHead) {
        match head {
            RuleHead::Compr { assign, .. } | RuleHead::Func { assign, .. } => self.assigned(assign.as_ref()),
            RuleHead::Set { key, .. } => self.exprs(key),
        }
    }

    fn assigned(&mut self, assign: Option<&RuleAssign>) {
        if let Some(assign) = assign {
            self.expr(&assign.value);
        }
    }

    fn within(&mut self, names: BTreeSet<String>, with: impl FnOnce(&mut Self)) {
        self.scopes.push(names);
        with(self);
        self.scopes.pop();
    }

    /// A query, and `with` under the names that it declares.
    fn query(&mut self, query: &Query, with: impl FnOnce(&mut Self)) {
        self.found.queries.push(query.stmts.len());
        self.within(declared_in(query), |walk| {
            for stmt in &query.stmts {
                walk.stmt(stmt);
            }
            with(walk);
        });
    }

    fn stmt(&mut self, stmt: &LiteralStmt) {
        match &stmt.literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn { key, value, collection, .. } => {
                self.exprs(key);
                self.expr(value);
                self.expr(collection);
            }
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
            Literal::Every { key, value, domain, query, .. } => {
                self.expr(domain);
                let names = key.iter().chain([value]).map(|name| name.text().to_owned()).collect();
                self.within(names, |walk| walk.query(query, |_| {}));
            }
        }
        for with in &stmt.with_mods {
            self.expr(&with.r#as);
            if let (Some(target), Some(by)) = (chain(&with.refr), chain(&with.r#as))
                && let (Some(target), Some(path)) = (self.resolve(&target, true), self.resolve(&by, true))
            {
                self.found.uses.push(Use { path, at: place(&with.span), role: Role::Replaces(target) });
            }
        }
    }

    fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Ref<Expr>>) {
        for expr in exprs {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. } => {}
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => self.reference(expr),
            Expr::Array { items, .. } | Expr::Set { items, .. } => self.exprs(items),
            Expr::Object { fields, .. } => {
                for (_, key, value) in fields {
                    self.expr(key);
                    self.expr(value);
                }
            }
            Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
                self.query(query, |walk| walk.expr(term));
            }
            Expr::ObjectCompr { key, value, query, .. } => self.query(query, |walk| {
                walk.expr(key);
                walk.expr(value);
            }),
            Expr::Call { span, fcn, params, .. } => {
                if let Some(called) = chain(fcn) {
                    let literal = params.first().and_then(|param| match &**param {
                        Expr::String { value, .. } | Expr::RawString { value, .. } => value.as_string().ok(),
                        _ => None,
                    });
                    if let Some(path) = self.resolve(&called, true) {
                        let role = Role::Called(literal.map(ToString::to_string));
                        self.found.uses.push(Use { path, at: place(span), role });
                    }
                }
                self.exprs(params);
            }
            Expr::UnaryExpr { expr, .. } => self.expr(expr),
            Expr::BinExpr { lhs, rhs, .. }
            | Expr::BoolExpr { lhs, rhs, .. }
            | Expr::ArithExpr { lhs, rhs, .. }
            | Expr::AssignExpr { lhs, rhs, .. } => {
                self.expr(lhs);
                self.expr(rhs);
            }
            Expr::Membership { key, value, collection, .. } => {
                self.exprs(key);
                self.expr(value);
                self.expr(collection);
            }
        }
    }

    fn reference(&mut self, expr: &Expr) {
        if let Some(chain) = chain(expr) {
            if let Some(path) = self.resolve(&chain, false) {
                self.found.uses.push(Use { path, at: place(expr.span()), role: Role::Read });
            }
            for index in chain.indices {
                self.expr(index);
            }
            return;
        }
        // The root is a call or a literal: `f(x).a`, `[1, 2][i]`.
        match expr {
            Expr::RefDot { refr, .. } => self.expr(refr),
            Expr::RefBrack { refr, index, .. } => {
                self.expr(refr);
                self.expr(index);
            }
            _ => {}
        }
    }

    /// The full path of a name; none for variables and `input`. What is called and is none of ours is a builtin. A
    /// variable cannot be called, so no variable hides a function.
    fn resolve(&self, named: &Chain<'_>, called: bool) -> Option<Path> {
        let root = &named.root;
        let hidden = !called && self.scopes.iter().any(|names| names.contains(root));
        if hidden || root == "input" {
            return None;
        }
        let base = if root == "data" {
            vec![root.clone()]
        } else if let Some(path) = self.imports.get(root) {
            // An import of `input` names nothing of ours.
            path.first().filter(|first| *first == "data").map(|_| path.clone())?
        } else if self.rules.is_some_and(|rules| rules.contains(root)) {
            self.package.iter().chain([root]).cloned().collect()
        } else if called {
            vec![root.clone()]
        } else {
            return None;
        };
        Some(base.into_iter().chain(named.parts.iter().cloned()).collect())
    }
}

/// The variables that a query declares for itself, its rule's head and everything inside.
fn declared_in(query: &Query) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for stmt in &query.stmts {
        match &stmt.literal {
            Literal::SomeVars { vars, .. } => names.extend(vars.iter().map(|name| name.text().to_owned())),
            Literal::SomeIn { key, value, .. } => {
                key.iter().chain([value]).for_each(|pattern| names.extend(names_in(pattern)));
            }
            Literal::Expr { expr, .. } => {
                if let Expr::AssignExpr { op: AssignOp::ColEq, lhs, .. } = &**expr {
                    names.extend(names_in(lhs));
                }
            }
            Literal::NotExpr { .. } | Literal::Every { .. } => {}
        }
    }
    names
}

/// The variables of a pattern.
fn names_in(pattern: &Expr) -> BTreeSet<String> {
    match pattern {
        Expr::Var { span, .. } => BTreeSet::from([span.text().to_owned()]),
        Expr::Array { items, .. } => items.iter().flat_map(|item| names_in(item)).collect(),
        Expr::Object { fields, .. } => fields.iter().flat_map(|(_, _, value)| names_in(value)).collect(),
        _ => BTreeSet::new(),
    }
}
