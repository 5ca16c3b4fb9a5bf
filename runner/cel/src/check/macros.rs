//! Macros: the types of their variables and of what they give.

use std::sync::Arc;

use super::Checker;
use crate::ast::{Expr, Macro};
use crate::print::macro_name;
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn comprehension(
        &mut self,
        expr: &Expr,
        kind: Macro,
        range: &Expr,
        variables: &[Arc<str>],
        bodies: &[Expr],
    ) -> Type {
        if kind == Macro::Bind && self.env.is_kubernetes() {
            return self.problem(expr.at, super::undeclared("cel"), None);
        }
        let range_ty = self.expr(range);
        let (key, value) = match kind {
            Macro::Bind => (Type::Dyn, range_ty.clone()),
            Macro::OptMap | Macro::OptFlatMap => match &range_ty {
                Type::Optional(inner) => (Type::Dyn, (**inner).clone()),
                Type::Dyn => (Type::Dyn, Type::Dyn),
                other => {
                    let message =
                        format!("found no matching overload for '{}' applied to '{other}'", macro_name(kind));
                    (Type::Dyn, self.problem(expr.at, message, None))
                }
            },
            _ => self.range(&range_ty, range.at),
        };
        let depth = self.locals.len();
        let over_map = matches!(range_ty, Type::Map(_) | Type::Object(_));
        match variables {
            [first, second] => {
                self.locals.push((first.clone(), key.clone()));
                self.locals.push((second.clone(), value.clone()));
            }
            [only] => {
                let ty = if over_map && !matches!(kind, Macro::Bind | Macro::OptMap | Macro::OptFlatMap) {
                    key.clone()
                } else {
                    value.clone()
                };
                self.locals.push((only.clone(), ty));
            }
            _ => {}
        }
        let item = if variables.len() == 1 && over_map { key.clone() } else { value };
        let types: Vec<Type> = bodies.iter().map(|body| self.expr(body)).collect();
        self.locals.truncate(depth);
        let conditions = match kind {
            Macro::All | Macro::Exists | Macro::ExistsOne | Macro::Filter => types.len(),
            Macro::Map | Macro::TransformList | Macro::TransformMap | Macro::TransformMapEntry => {
                types.len().saturating_sub(1)
            }
            _ => 0,
        };
        for (ty, body) in types.iter().zip(bodies).take(conditions) {
            if Type::Bool.accepts(ty) {
                continue;
            }
            let collected = match kind {
                Macro::ExistsOne => Some(Type::Int),
                Macro::Filter => Some(Type::list(item.clone())),
                Macro::Map | Macro::TransformList => types.last().cloned().map(Type::list),
                _ => None,
            };
            if let Some(list) = collected.filter(|_| self.env.is_kubernetes()) {
                let message =
                    format!("found no matching overload for '_?_:_' applied to '({ty}, {list}, {list})'");
                self.problem(expr.at, message, None);
            } else {
                self.problem(body.at, format!("expected type 'bool' but found '{ty}'"), None);
            }
        }
        let last = types.last().cloned().unwrap_or(Type::Dyn);
        match kind {
            Macro::All | Macro::Exists | Macro::ExistsOne => Type::Bool,
            Macro::Filter => Type::list(item),
            Macro::Map | Macro::TransformList => Type::list(last),
            Macro::TransformMap => Type::map(key, last),
            Macro::TransformMapEntry => match last {
                ty @ (Type::Map(_) | Type::Dyn) => ty,
                other => {
                    self.problem(expr.at, format!("expected type 'map(dyn, dyn)' but found '{other}'"), None)
                }
            },
            Macro::SortBy => self.sorted(expr, range_ty, &last),
            Macro::Bind => last,
            Macro::OptMap => Type::optional(last),
            Macro::OptFlatMap => match last {
                ty @ (Type::Optional(_) | Type::Dyn) => ty,
                other => self.problem(
                    expr.at,
                    format!("expected type 'optional_type({other})' but found '{other}'"),
                    None,
                ),
            },
        }
    }

    /// The types of the keys or indices, and of the values, of what is walked over.
    fn range(&mut self, ty: &Type, at: usize) -> (Type, Type) {
        match ty {
            Type::List(list) => (Type::Int, list.item.clone()),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Object(object) if !object.sealed => (Type::String, Type::Dyn),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.problem(at, message, None);
                (Type::Dyn, Type::Dyn)
            }
        }
    }

    fn sorted(&mut self, expr: &Expr, range: Type, key: &Type) -> Type {
        let sortable = matches!(
            key,
            Type::Dyn
                | Type::Bool
                | Type::Int
                | Type::Uint
                | Type::Double
                | Type::String
                | Type::Bytes
                | Type::Duration
                | Type::Timestamp
        );
        if !sortable || !matches!(range, Type::List(_) | Type::Dyn) {
            return self.problem(
                expr.at,
                format!("found no matching overload for 'sortBy' applied to '{range}.({key})'"),
                None,
            );
        }
        range
    }
}
