//! Enums and namespaces as values.
//!
//!   enum E { A, B = A << 1 }       var E = ((E) => { const A = E["A"] = 0; ... return E; })({});
//!   namespace N { export ... }     var N = ((N) => { ... N.x = x; ... return N; })({});
//!
//! A second one of the same name in a list of statements adds to the first, also to a function or a
//! class. Outside functions and blocks the name is a `var`, which can be declared again.

use super::strip::{Strip, is_type};
use crate::Language;
use crate::javascript::JavaScript;
use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::GetSpan;

impl Strip<'_> {
    /// The text before and after the body of an enum or a namespace, which make or extend a value.
    fn around(&mut self, name: &str) -> (String, String) {
        let is_top = self.scopes.len() == 1;
        let known = self.scopes.last_mut().is_some_and(|names| !names.insert(name.to_owned()));
        if known {
            return (format!(";(({name}) => {{"), format!(" }})({name});"));
        }
        let kind = if is_top { "var" } else { "let" };
        (format!("{kind} {name} = (({name}) => {{"), format!(" return {name}; }})({{}});"))
    }

    pub fn enumeration(&mut self, it: &TSEnumDeclaration) {
        let name = it.id.name.as_str();
        let (open, close) = self.around(name);
        self.edits.replace(it.span.start, it.body.span.start + 1, open);
        let mut before: Option<String> = None;
        for (index, member) in it.body.members.iter().enumerate() {
            let next = it.body.members.get(index + 1).map(|next| next.span.start);
            let key = self.enum_member(name, member, before.as_deref());
            self.drop_commas(member.span.end, next.unwrap_or(it.body.span.end - 1));
            before = Some(key);
        }
        self.edits.replace(it.body.span.end - 1, it.body.span.end, close);
    }

    /// A member; where its value is found.
    fn enum_member(&mut self, of: &str, it: &TSEnumMember, before: Option<&str>) -> String {
        let name = match &it.id {
            TSEnumMemberName::Identifier(id) => id.name.to_string(),
            TSEnumMemberName::String(text) | TSEnumMemberName::ComputedString(text) => {
                text.value.to_string()
            }
            TSEnumMemberName::ComputedTemplateString(text) => {
                text.quasis.iter().map(|one| one.value.raw.as_str()).collect()
            }
        };
        let quoted = serde_json::Value::from(name.as_str()).to_string();
        let place = format!("{of}[{quoted}]");
        // other members name it without the enum
        let is_local = JavaScript.is_identifier(&name) && name != of;
        let local = if is_local { format!("const {name} = ") } else { String::new() };
        let back = format!("if (typeof {place} === \"number\") {of}[{place}] = {quoted};");
        match &it.initializer {
            None => {
                let value = before.map_or_else(|| "0".into(), |before| format!("{before} + 1"));
                let text = format!("{local}{place} = {value}; {of}[{place}] = {quoted};");
                self.edits.replace(it.span.start, it.span.end, text);
            }
            Some(value) => {
                let text = format!("{local}{place} = (");
                self.edits.replace(it.span.start, value.span().start, text);
                self.visit_expression(value);
                let is_text = matches!(value, Expression::StringLiteral(_));
                let back = if is_text { String::new() } else { format!(" {back}") };
                self.edits.insert(value.span().end, format!(");{back}"));
            }
        }
        place
    }

    fn drop_commas(&mut self, start: u32, end: u32) {
        for token in self.tokens(start, end) {
            if token.text == "," {
                self.edits.blank(token.start, token.start + 1);
            }
        }
    }

    pub fn namespace(&mut self, it: &TSNamespaceDeclaration) {
        let name = it.id.name.as_str();
        let (mut open, mut close) = self.around(name);
        let (mut body, mut of) = (&it.body, name);
        // `namespace A.B`
        while let TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) = body {
            let own = inner.id.name.as_str();
            open += &format!(" {of}.{own} = (({own}) => {{");
            close = format!(" return {own}; }})({of}.{own} ?? {{}});{close}");
            (body, of) = (&inner.body, own);
        }
        let TSNamespaceDeclarationBody::TSModuleBlock(block) = body else { return };
        let functions = block.body.iter().filter_map(|one| match one {
            Statement::ExportDeclaration(it) => function(&it.declaration),
            _ => None,
        });
        open.extend(functions.map(|own| format!(" {of}.{own} = {own};")));
        self.edits.replace(it.span.start, block.span.start + 1, open);
        self.scopes.push(Default::default());
        for one in &block.body {
            match one {
                Statement::ExportDeclaration(export) if !is_type(&export.declaration) => {
                    self.exported(of, export);
                }
                one => self.visit_statement(one),
            }
        }
        self.scopes.pop();
        self.edits.replace(block.span.end - 1, block.span.end, close);
    }

    /// A declaration that a namespace exports: the name within, and beside it a property.
    fn exported(&mut self, of: &str, it: &ExportDeclaration) {
        let declaration = &it.declaration;
        self.edits.blank(it.span.start, declaration.span().start);
        self.visit_declaration(declaration);
        let names: Vec<String> = match declaration {
            Declaration::VariableDeclaration(it) => {
                let all = it.declarations.iter().flat_map(|one| one.id.get_binding_identifiers());
                all.map(|id| id.name.to_string()).collect()
            }
            Declaration::ClassDeclaration(it) => {
                it.id.iter().map(|id| id.name.to_string()).collect()
            }
            Declaration::TSEnumDeclaration(it) => vec![it.id.name.to_string()],
            Declaration::TSNamespaceDeclaration(it) => vec![it.id.name.to_string()],
            Declaration::TSImportEqualsDeclaration(it) => vec![it.id.name.to_string()],
            _ => Vec::new(),
        };
        let is_variable = matches!(declaration, Declaration::VariableDeclaration(it)
            if !it.kind.is_const());
        let text = names.iter().map(|name| match is_variable {
            true => format!(
                " Object.defineProperty({of}, \"{name}\", {{ get: () => {name}, set: (value) => \
                 {{ {name} = value; }}, enumerable: true, configurable: true }});"
            ),
            false => format!(" {of}.{name} = {name};"),
        });
        let text: String = text.collect();
        if !text.is_empty() {
            self.edits.insert(it.span.end, format!(";{text}"));
        }
    }
}

/// The name of a function with a body: it exists before the statements run.
fn function(declaration: &Declaration) -> Option<String> {
    let Declaration::FunctionDeclaration(it) = declaration else { return None };
    it.body.as_ref()?;
    it.id.as_ref().map(|id| id.name.to_string())
}
