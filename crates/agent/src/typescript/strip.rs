//! Removes types from expressions, functions and statements.
//!
//! If the text around a removed type would be parsed differently, a character stays: `;` ends a
//! statement that the type ended, a parenthesis moves over a line break.

use super::edits::{Edits, is_newline};
use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;
use std::collections::HashSet;

pub struct Strip<'s> {
    pub edits: Edits<'s>,
    /// Syntax that is not supported, and its offset.
    pub unsupported: Option<(String, u32)>,
    /// The functions, classes, enums and namespaces of each list of statements around.
    pub scopes: Vec<HashSet<String>>,
    /// Whether imports and exports stay, as in a file.
    pub keeps_modules: bool,
}

/// A word or a single character between two parts of the syntax. Comments are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lexeme<'s> {
    pub start: u32,
    pub text: &'s str,
}

impl<'s> Strip<'s> {
    pub fn new(edits: Edits<'s>) -> Strip<'s> {
        Strip { edits, unsupported: None, scopes: Vec::new(), keeps_modules: false }
    }

    pub fn program(&mut self, program: &Program) {
        self.visit_program(program);
    }

    pub fn text(&self, span: Span) -> &'s str {
        &self.edits.source[span.start as usize..span.end as usize]
    }

    pub fn refuse(&mut self, what: &str, span: Span) {
        self.unsupported.get_or_insert_with(|| (what.to_owned(), span.start));
    }

    /// Removes a statement or a member of a class.
    pub fn drop_whole(&mut self, span: Span) {
        self.edits.leave(';', span.start, span.end);
    }

    pub fn blank(&mut self, span: Span) {
        self.edits.blank(span.start, span.end);
    }

    /// The tokens of a range.
    pub fn tokens(&self, start: u32, end: u32) -> Vec<Lexeme<'s>> {
        let mut found = Vec::new();
        let mut at = start;
        while let Some(token) = self.next_token(at).filter(|token| token.start < end) {
            at = token.start + token.text.len() as u32;
            found.push(token);
        }
        found
    }

    /// The first token from an offset on.
    pub fn next_token(&self, start: u32) -> Option<Lexeme<'s>> {
        let mut rest = &self.edits.source[start as usize..];
        loop {
            rest = rest.trim_start();
            let length = if rest.starts_with("//") {
                rest.find(is_newline).unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else {
                break;
            };
            rest = &rest[length..];
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let first = rest.chars().next()?;
        let length = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let start = (self.edits.source.len() - rest.len()) as u32;
        Some(Lexeme { start, text: &rest[..length] })
    }

    /// Removes `?` and `!` between a name and its type or value.
    pub fn drop_marks(&mut self, start: u32, end: u32) {
        for token in self.tokens(start, end) {
            if matches!(token.text, "?" | "!") {
                self.edits.blank(token.start, token.start + 1);
            }
        }
    }

    fn has_newline(&self, span: Span) -> bool {
        self.text(span).contains(is_newline)
    }

    /// Removes a suffix of an expression: `as T`, `satisfies T`.
    fn drop_after(&mut self, whole: Span, expression: Span) {
        let gap = self.next_token(whole.end);
        let joins = gap.is_some_and(|next| {
            let between = Span::new(whole.end, next.start);
            ["(", "[", "`"].contains(&next.text) && self.has_newline(between)
        });
        match (joins, self.tokens(expression.end, whole.end).first().copied()) {
            (true, Some(word)) => {
                self.edits.blank(expression.end, word.start);
                self.edits.leave(';', word.start, whole.end);
            }
            _ => self.edits.blank(expression.end, whole.end),
        }
    }
}

/// Whether a declaration leaves nothing behind.
pub fn is_type(declaration: &Declaration) -> bool {
    match declaration {
        Declaration::VariableDeclaration(it) => it.declare,
        Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
        Declaration::ClassDeclaration(it) => it.declare,
        Declaration::TSEnumDeclaration(it) => it.declare,
        Declaration::TSNamespaceDeclaration(it) => it.declare || is_empty_space(&it.body),
        Declaration::TSImportEqualsDeclaration(it) => it.import_kind == ImportOrExportKind::Type,
        Declaration::TSTypeAliasDeclaration(_)
        | Declaration::TSInterfaceDeclaration(_)
        | Declaration::TSExternalModuleDeclaration(_)
        | Declaration::TSGlobalDeclaration(_) => true,
    }
}

fn is_empty_space(body: &TSNamespaceDeclarationBody) -> bool {
    match body {
        TSNamespaceDeclarationBody::TSNamespaceDeclaration(it) => is_empty_space(&it.body),
        TSNamespaceDeclarationBody::TSModuleBlock(block) => {
            block.body.iter().all(|one| match one {
                Statement::ExportDeclaration(it) => is_type(&it.declaration),
                one => one.as_declaration().is_some_and(is_type),
            })
        }
    }
}

/// The name that a function or class gives to a list of statements.
fn named(declaration: &Declaration) -> Option<String> {
    let id = match declaration {
        Declaration::FunctionDeclaration(it) if it.body.is_some() => it.id.as_ref(),
        Declaration::ClassDeclaration(it) => it.id.as_ref(),
        _ => None,
    };
    id.map(|id| id.name.to_string())
}

impl<'a> Visit<'a> for Strip<'_> {
    fn visit_statements(&mut self, it: &oxc_allocator::Vec<'a, Statement<'a>>) {
        let declared = it.iter().filter_map(|one| match one {
            Statement::ExportDeclaration(it) => named(&it.declaration),
            one => one.as_declaration().and_then(named),
        });
        self.scopes.push(declared.collect());
        walk::walk_statements(self, it);
        self.scopes.pop();
    }

    fn visit_statement(&mut self, it: &Statement<'a>) {
        if let Some(declaration) = it.as_declaration() {
            return self.visit_declaration(declaration);
        }
        match it.as_module_declaration() {
            Some(module) => self.module(module),
            None => walk::walk_statement(self, it),
        }
    }

    fn visit_declaration(&mut self, it: &Declaration<'a>) {
        match it {
            it if is_type(it) => self.drop_whole(it.span()),
            Declaration::TSEnumDeclaration(it) => self.enumeration(it),
            Declaration::TSNamespaceDeclaration(it) => self.namespace(it),
            // as long as `import`
            Declaration::TSImportEqualsDeclaration(it) => {
                self.edits.replace(it.span.start, it.span.start + 6, "const ");
            }
            it => walk::walk_declaration(self, it),
        }
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if let (true, Some(kind)) = (it.definite, &it.type_annotation) {
            self.drop_marks(it.id.span().end, kind.span.start);
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        if let Some(this) = &it.this_param {
            let first = it.params.items.first().map(|one| one.span.start);
            let rest = it.params.rest.as_ref().map(|rest| rest.span.start);
            let next = first.or(rest).unwrap_or(it.params.span.end - 1);
            self.edits.blank(this.span.start, next);
        }
        walk::walk_function(self, it, flags);
    }

    fn visit_ts_this_parameter(&mut self, _it: &TSThisParameter<'a>) {}

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        let pattern = it.pattern.span();
        let start = it.decorators.last().map_or(it.span.start, |one| one.span.end);
        self.drop_modifiers(start, pattern.start, false);
        if it.optional {
            let kind = it.type_annotation.as_ref().map(|kind| kind.span.start);
            let value = it.initializer.as_ref().map(|value| value.span().start);
            self.drop_marks(pattern.end, kind.or(value).unwrap_or(it.span.end));
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        // no line may end between `async` or `return` and `(`, nor between `)` and `=>`
        if let Some(kinds) = it.type_parameters.as_ref().filter(|one| self.has_newline(one.span)) {
            self.edits.leave('(', kinds.span.start, kinds.span.end);
            self.edits.blank(it.params.span.start, it.params.span.start + 1);
        }
        if let Some(kind) = it.return_type.as_ref().filter(|one| self.has_newline(one.span)) {
            self.edits.blank(it.params.span.end - 1, it.params.span.end);
            self.edits.blank(kind.span.start, kind.span.end - 1);
            self.edits.leave(')', kind.span.end - 1, kind.span.end);
        }
        walk::walk_arrow_function_expression(self, it);
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        self.class(it);
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        self.member(it);
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.drop_after(it.span, it.expression.span());
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.drop_after(it.span, it.expression.span());
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        let inner = it.expression.span();
        let kind = Span::new(it.span.start, inner.start);
        let begins = |word| self.text(inner).starts_with(word);
        // code that would be a statement or a body without the type, or end with its line
        if self.has_newline(kind) || begins("{") || begins("function") || begins("class") {
            self.edits.leave('(', kind.start, kind.end);
            self.visit_expression(&it.expression);
            self.edits.insert(it.span.end, ")");
        } else {
            self.blank(kind);
            self.visit_expression(&it.expression);
        }
    }
}
