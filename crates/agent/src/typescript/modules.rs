//! `import` and `export` at the top level.
//!
//!   import a, { b as c } from 'm'   const { default: a, b: c } = __stasis__.named(await
//!                                   import('m'), 'm', ["default", "b"]);
//!
//! An import is bound like `const`, at the position of the statement. Exports are declarations.

use super::strip::{Strip, is_type};
use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::{GetSpan, Span};

impl Strip<'_> {
    pub fn module(&mut self, it: &ModuleDeclaration) {
        if self.scopes.len() != 1 {
            return self.refuse("it is not at the top level; use import()", it.span());
        }
        if self.keeps_modules {
            return self.keep_module(it);
        }
        match it {
            ModuleDeclaration::ImportDeclaration(it) => self.import(it),
            ModuleDeclaration::ExportDeclaration(it) if is_type(&it.declaration) => {
                self.drop_whole(it.span);
            }
            ModuleDeclaration::ExportDeclaration(it) => {
                self.edits.blank(it.span.start, it.declaration.span().start);
                self.visit_declaration(&it.declaration);
            }
            ModuleDeclaration::ExportNamedDeclaration(it) => self.drop_whole(it.span),
            ModuleDeclaration::ExportDefaultDeclaration(it) => self.export_default(it),
            ModuleDeclaration::ExportFromDeclaration(it) => {
                self.load(it.span, it.export_kind, &it.source, it.with_clause.as_deref());
            }
            ModuleDeclaration::ExportAllDeclaration(it) => {
                self.load(it.span, it.export_kind, &it.source, it.with_clause.as_deref());
            }
            ModuleDeclaration::TSExportAssignment(it) => {
                self.refuse("`export =` is not supported at the top level", it.span);
            }
            ModuleDeclaration::TSNamespaceExportDeclaration(it) => self.drop_whole(it.span),
        }
    }

    /// Removes only types from an import or export.
    fn keep_module(&mut self, it: &ModuleDeclaration) {
        use ImportOrExportKind::Type;
        match it {
            ModuleDeclaration::ImportDeclaration(it) if it.import_kind == Type => {
                self.drop_whole(it.span);
            }
            ModuleDeclaration::ImportDeclaration(it) => {
                for one in it.specifiers.iter().flatten() {
                    if let ImportDeclarationSpecifier::ImportSpecifier(one) = one
                        && one.import_kind == Type
                    {
                        self.drop_listed(one.span);
                    }
                }
            }
            ModuleDeclaration::ExportDeclaration(it) if is_type(&it.declaration) => {
                self.drop_whole(it.span);
            }
            ModuleDeclaration::ExportDeclaration(it) => {
                let names = self.scopes.last();
                let has = |name: &str| names.is_some_and(|names| names.contains(name));
                // an addition to an earlier value of the name is not a declaration
                let adds = merged(&it.declaration).is_some_and(has);
                self.visit_declaration(&it.declaration);
                if adds {
                    self.edits.blank(it.span.start, it.declaration.span().start);
                }
            }
            ModuleDeclaration::ExportNamedDeclaration(it) if it.export_kind == Type => {
                self.drop_whole(it.span);
            }
            ModuleDeclaration::ExportNamedDeclaration(it) => {
                let types = it.specifiers.iter().filter(|one| one.export_kind == Type);
                types.for_each(|one| self.drop_listed(one.span));
            }
            ModuleDeclaration::ExportFromDeclaration(it) if it.export_kind == Type => {
                self.drop_whole(it.span);
            }
            ModuleDeclaration::ExportFromDeclaration(it) => {
                let types = it.specifiers.iter().filter(|one| one.export_kind == Type);
                types.for_each(|one| self.drop_listed(one.span));
            }
            ModuleDeclaration::ExportAllDeclaration(it) if it.export_kind == Type => {
                self.drop_whole(it.span);
            }
            ModuleDeclaration::ExportAllDeclaration(_) => {}
            ModuleDeclaration::ExportDefaultDeclaration(it) => self.keep_default(it),
            ModuleDeclaration::TSExportAssignment(it) => {
                // `export =` of CommonJS; of the same length as its replacement
                self.edits.replace(it.span.start, it.expression.span().start, "module.exports = ");
                self.visit_expression(&it.expression);
            }
            ModuleDeclaration::TSNamespaceExportDeclaration(it) => self.drop_whole(it.span),
        }
    }

    fn keep_default(&mut self, it: &ExportDefaultDeclaration) {
        match &it.declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(own) if own.body.is_none() => {
                self.drop_whole(it.span);
            }
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => self.drop_whole(it.span),
            inner => self.visit_export_default_declaration_kind(inner),
        }
    }

    /// Removes one name from a list, with the comma after it.
    fn drop_listed(&mut self, span: Span) {
        let comma = self.next_token(span.end).filter(|next| next.text == ",");
        self.edits.blank(span.start, comma.map_or(span.end, |comma| comma.start + 1));
    }

    /// A declaration if it has a name; else its value.
    fn export_default(&mut self, it: &ExportDefaultDeclaration) {
        let inner = it.declaration.span();
        let has_name = match &it.declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(own) if own.body.is_none() => {
                return self.drop_whole(it.span);
            }
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => {
                return self.drop_whole(it.span);
            }
            ExportDefaultDeclarationKind::FunctionDeclaration(it) => it.id.is_some(),
            ExportDefaultDeclarationKind::ClassDeclaration(it) => it.id.is_some(),
            _ => false,
        };
        let head = Span::new(it.span.start, inner.start);
        match has_name {
            true => self.blank(head),
            false => self.edits.replace(head.start, head.end, ";("),
        }
        self.visit_export_default_declaration_kind(&it.declaration);
        if !has_name {
            self.edits.insert(inner.end, ")");
        }
    }

    /// Loads a module for its side effects.
    fn load(
        &mut self,
        span: Span,
        kind: ImportOrExportKind,
        source: &StringLiteral,
        with: Option<&WithClause>,
    ) {
        if kind == ImportOrExportKind::Type {
            return self.drop_whole(span);
        }
        let text = format!("void {};", loaded(source, with));
        self.edits.replace(span.start, span.end, text);
    }

    fn import(&mut self, it: &ImportDeclaration) {
        if it.phase.is_some() {
            return self.refuse("phases of imports are not supported", it.span);
        }
        let Some(specifiers) = &it.specifiers else {
            return self.load(it.span, it.import_kind, &it.source, it.with_clause.as_deref());
        };
        if it.import_kind == ImportOrExportKind::Type {
            return self.drop_whole(it.span);
        }
        let mut space = None;
        let (mut names, mut bound) = (Vec::new(), Vec::new());
        for one in specifiers {
            match one {
                ImportDeclarationSpecifier::ImportSpecifier(one) => {
                    if one.import_kind == ImportOrExportKind::Value {
                        let name = quoted(&one.imported.name());
                        bound.push(format!("{name}: {}", one.local.name));
                        names.push(name);
                    }
                }
                ImportDeclarationSpecifier::ImportDefaultSpecifier(one) => {
                    bound.push(format!("default: {}", one.local.name));
                    names.push(quoted("default"));
                }
                ImportDeclarationSpecifier::ImportNamespaceSpecifier(one) => {
                    space = Some(one.local.name.to_string());
                }
            }
        }
        let loaded = loaded(&it.source, it.with_clause.as_deref());
        let from = quoted(&it.source.value);
        let checked = |what: &str| {
            let (bound, names) = (bound.join(", "), names.join(", "));
            format!("{{ {bound} }} = __stasis__.named({what}, {from}, [{names}])")
        };
        let text = match (space, bound.is_empty()) {
            (Some(space), true) => format!("const {space} = {loaded};"),
            (Some(space), false) => format!("const {space} = {loaded}, {};", checked(&space)),
            (None, true) => format!("void {loaded};"),
            (None, false) => format!("const {};", checked(&loaded)),
        };
        self.edits.replace(it.span.start, it.span.end, text);
    }
}

/// The name that an enum or a namespace makes or adds to.
fn merged<'a>(declaration: &Declaration<'a>) -> Option<&'a str> {
    match declaration {
        Declaration::TSEnumDeclaration(it) => Some(it.id.name.as_str()),
        Declaration::TSNamespaceDeclaration(it) => Some(it.id.name.as_str()),
        _ => None,
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The module, as an expression.
fn loaded(source: &StringLiteral, with: Option<&WithClause>) -> String {
    let attributes = with.map(|with| {
        let pairs = with.with_entries.iter().map(|one| {
            let key = match &one.key {
                ImportAttributeKey::Identifier(id) => id.name.to_string(),
                ImportAttributeKey::StringLiteral(text) => text.value.to_string(),
            };
            format!("{}: {}", quoted(&key), quoted(&one.value.value))
        });
        format!(", {{ with: {{ {} }} }}", pairs.collect::<Vec<_>>().join(", "))
    });
    format!("await import({}{})", quoted(&source.value), attributes.unwrap_or_default())
}
