//! Classes without types, and parameter properties as assignments.

use super::strip::Strip;
use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;

/// Words before a member, a parameter or a class that say something about types only.
const MODIFIERS: [&str; 7] =
    ["abstract", "declare", "override", "private", "protected", "public", "readonly"];

impl Strip<'_> {
    /// Removes modifiers from a range. The first of a member leaves `;`, because the member before
    /// it may have relied on the line break.
    pub fn drop_modifiers(&mut self, start: u32, end: u32, ends_member: bool) {
        for (index, token) in self.tokens(start, end).into_iter().enumerate() {
            let after = token.start + token.text.len() as u32;
            if !MODIFIERS.contains(&token.text) {
                continue;
            }
            match index == 0 && ends_member {
                true => self.edits.leave(';', token.start, after),
                false => self.edits.blank(token.start, after),
            }
        }
    }

    pub fn class(&mut self, it: &Class) {
        it.decorators.iter().for_each(|one| self.visit_decorator(one));
        let start = it.decorators.last().map_or(it.span.start, |one| one.span.end);
        let word = self.tokens(start, it.body.span.start).into_iter();
        let Some(word) = word.into_iter().find(|token| token.text == "class") else { return };
        self.drop_modifiers(start, word.start, false);
        let mut end = it.id.as_ref().map_or(word.start + 5, |id| id.span.end);
        if let Some(kinds) = &it.type_parameters {
            self.blank(kinds.span);
            end = kinds.span.end;
        }
        if let Some(heritage) = &it.heritage {
            self.visit_expression(&heritage.expression);
            end = heritage.expression.span().end;
            if let Some(kinds) = &heritage.type_arguments {
                self.blank(kinds.span);
                end = kinds.span.end;
            }
        }
        if !it.implements.is_empty() {
            self.edits.blank(end, it.body.span.start);
        }
        self.visit_class_body(&it.body);
    }

    pub fn member(&mut self, it: &ClassElement) {
        match it {
            ClassElement::StaticBlock(it) => walk::walk_static_block(self, it),
            ClassElement::MethodDefinition(it) => self.method(it),
            ClassElement::PropertyDefinition(it) => self.property(it),
            ClassElement::AccessorProperty(it) => self.accessor(it),
            ClassElement::TSIndexSignature(it) => self.drop_whole(it.span),
        }
    }

    fn method(&mut self, it: &MethodDefinition) {
        let is_abstract = it.r#type == MethodDefinitionType::TSAbstractMethodDefinition;
        if is_abstract || it.value.body.is_none() {
            return self.drop_whole(it.span);
        }
        self.before_key(it.span, &it.decorators, it.key.span());
        if it.optional {
            self.drop_marks(it.key.span().end, it.value.span.start);
        }
        self.visit_property_key(&it.key);
        if it.kind == MethodDefinitionKind::Constructor {
            self.assign_parameters(&it.value);
        }
        self.visit_function(&it.value, ScopeFlags::empty());
    }

    fn property(&mut self, it: &PropertyDefinition) {
        let is_abstract = it.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition;
        if is_abstract || it.declare {
            return self.drop_whole(it.span);
        }
        self.before_key(it.span, &it.decorators, it.key.span());
        let value = it.value.as_ref().map(|value| value.span().start);
        let kind = it.type_annotation.as_ref().map(|kind| kind.span.start);
        if it.optional || it.definite {
            self.drop_marks(it.key.span().end, kind.or(value).unwrap_or(it.span.end));
        }
        self.visit_property_key(&it.key);
        it.type_annotation.iter().for_each(|kind| self.blank(kind.span));
        it.value.iter().for_each(|value| self.visit_expression(value));
    }

    fn accessor(&mut self, it: &AccessorProperty) {
        if it.r#type == AccessorPropertyType::TSAbstractAccessorProperty {
            return self.drop_whole(it.span);
        }
        self.before_key(it.span, &it.decorators, it.key.span());
        self.visit_property_key(&it.key);
        it.type_annotation.iter().for_each(|kind| self.blank(kind.span));
        it.value.iter().for_each(|value| self.visit_expression(value));
    }

    fn before_key(&mut self, whole: Span, decorators: &[Decorator], key: Span) {
        decorators.iter().for_each(|one| self.visit_decorator(one));
        let start = decorators.last().map_or(whole.start, |one| one.span.end);
        self.drop_modifiers(start, key.start, decorators.is_empty());
    }

    /// `constructor(readonly x)` assigns `this.x`, after the call of `super` if there is one.
    fn assign_parameters(&mut self, it: &Function) {
        let is_property =
            |one: &&FormalParameter| one.accessibility.is_some() || one.readonly || one.r#override;
        let names = it.params.items.iter().filter(is_property).filter_map(|one| {
            let id = one.pattern.get_identifier_name()?;
            Some(format!(" this.{id} = {id};"))
        });
        let text: String = names.collect();
        let Some(body) = it.body.as_ref().filter(|_| !text.is_empty()) else { return };
        let first = body.directives.last().map_or(body.span.start + 1, |one| one.span.end);
        let call = body.statements.iter().find(|one| is_super_call(one));
        let (at, mark) = call.map_or((first, ""), |call| (call.span().end, ";"));
        self.edits.insert(at, format!("{mark}{text}"));
    }
}

fn is_super_call(statement: &Statement) -> bool {
    let Statement::ExpressionStatement(it) = statement else { return false };
    let Expression::CallExpression(call) = &it.expression else { return false };
    matches!(call.callee, Expression::Super(_))
}
