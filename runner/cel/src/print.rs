//! From a tree back to source text.

use std::fmt::{self, Display, Write};

use crate::ast::{Expr, Kind, Literal, Macro};

/// Prints with as few parentheses as the grammar needs; parsing what is printed gives the same tree, but for
/// positions.
impl Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expr(self, f)
    }
}

/// The constant as it is written in a source.
pub(crate) fn literal(literal: &Literal) -> String {
    match literal {
        Literal::Null => "null".to_owned(),
        Literal::Bool(value) => value.to_string(),
        Literal::Int(value) => value.to_string(),
        Literal::Uint(value) => format!("{value}u"),
        Literal::Double(value) => format!("{value:?}"),
        Literal::String(value) => quote(value),
        Literal::Bytes(value) => {
            let mut text = "b\"".to_owned();
            for byte in value.iter() {
                // Writing into a string cannot fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
            text.push('"');
            text
        }
    }
}

/// `text` in double quotes, escaped.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// How tightly the outermost operation of a node binds; 7 is a postfix operand.
fn precedence(kind: &Kind) -> u8 {
    match kind {
        Kind::Ternary(..) => 0,
        Kind::Or(_) => 1,
        Kind::And(_) => 2,
        Kind::Binary(operator, ..) => operator.precedence(),
        Kind::Not(_) | Kind::Negate(_) => 6,
        Kind::Literal(Literal::Int(value)) if *value < 0 => 6,
        Kind::Literal(Literal::Double(value)) if value.is_sign_negative() => 6,
        _ => 7,
    }
}

fn operand(child: &Expr, lowest: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if precedence(&child.kind) >= lowest {
        return expr(child, f);
    }
    f.write_char('(')?;
    expr(child, f)?;
    f.write_char(')')
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut print: impl FnMut(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        print(item, f)?;
    }
    Ok(())
}

/// A field name, in backquotes when it is no identifier.
fn field(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        && !matches!(name, "true" | "false" | "null" | "in");
    if plain { f.write_str(name) } else { write!(f, "`{name}`") }
}

fn terms(terms: &[Expr], symbol: &str, lowest: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, term) in terms.iter().enumerate() {
        if index > 0 {
            write!(f, " {symbol} ")?;
        }
        operand(term, lowest, f)?;
    }
    Ok(())
}

fn expr(node: &Expr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match &node.kind {
        Kind::Literal(value) => f.write_str(&literal(value)),
        Kind::Ident(name) => f.write_str(name),
        Kind::Select { operand: of, field: name, optional } => {
            operand(of, 7, f)?;
            f.write_str(if *optional { ".?" } else { "." })?;
            field(name, f)
        }
        Kind::Has { operand: of, field: name } => {
            f.write_str("has(")?;
            operand(of, 7, f)?;
            f.write_char('.')?;
            field(name, f)?;
            f.write_char(')')
        }
        Kind::Index { operand: of, index, optional } => {
            operand(of, 7, f)?;
            f.write_str(if *optional { "[?" } else { "[" })?;
            expr(index, f)?;
            f.write_char(']')
        }
        Kind::Call { target, name, args } => {
            if let Some(target) = target {
                operand(target, 7, f)?;
                f.write_char('.')?;
            }
            f.write_str(name)?;
            f.write_char('(')?;
            separated(f, args, expr)?;
            f.write_char(')')
        }
        Kind::Not(of) => {
            f.write_char('!')?;
            operand(of, 6, f)
        }
        Kind::Negate(of) => {
            f.write_char('-')?;
            // A minus before a number would be read as its sign.
            if begins_with_number(of) { parenthesized(of, f) } else { operand(of, 6, f) }
        }
        Kind::Binary(operator, left, right) => {
            operand(left, operator.precedence(), f)?;
            write!(f, " {} ", operator.symbol())?;
            operand(right, operator.precedence() + 1, f)
        }
        Kind::And(all) => terms(all, "&&", 3, f),
        Kind::Or(any) => terms(any, "||", 2, f),
        Kind::Ternary(condition, then, otherwise) => {
            operand(condition, 1, f)?;
            f.write_str(" ? ")?;
            operand(then, 1, f)?;
            f.write_str(" : ")?;
            operand(otherwise, 0, f)
        }
        Kind::List(items) => {
            f.write_char('[')?;
            separated(f, items, |item, f| {
                f.write_str(if item.optional { "?" } else { "" })?;
                expr(&item.value, f)
            })?;
            f.write_char(']')
        }
        Kind::Map(entries) => {
            f.write_char('{')?;
            separated(f, entries, |entry, f| {
                f.write_str(if entry.optional { "?" } else { "" })?;
                expr(&entry.key, f)?;
                f.write_str(": ")?;
                expr(&entry.value, f)
            })?;
            f.write_char('}')
        }
        Kind::Message(name, fields) => {
            write!(f, "{name}{{")?;
            separated(f, fields, |(name, value), f| {
                field(name, f)?;
                f.write_str(": ")?;
                expr(value, f)
            })?;
            f.write_char('}')
        }
        Kind::Macro { kind, range, variables, bodies } => {
            if *kind == Macro::Bind {
                write!(f, "cel.bind({}, ", variables.join(", "))?;
                expr(range, f)?;
            } else {
                operand(range, 7, f)?;
                write!(f, ".{}({}", macro_name(*kind), variables.join(", "))?;
            }
            for body in bodies {
                f.write_str(", ")?;
                expr(body, f)?;
            }
            f.write_char(')')
        }
    }
}

/// Whether the first token of what is printed is a number.
fn begins_with_number(node: &Expr) -> bool {
    match &node.kind {
        Kind::Literal(Literal::Int(_) | Literal::Double(_)) => true,
        Kind::Select { operand, .. } | Kind::Index { operand, .. } => begins_with_number(operand),
        Kind::Call { target: Some(target), .. } => begins_with_number(target),
        Kind::Macro { kind, range, .. } => *kind != Macro::Bind && begins_with_number(range),
        _ => false,
    }
}

fn parenthesized(node: &Expr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('(')?;
    expr(node, f)?;
    f.write_char(')')
}

pub(crate) const fn macro_name(kind: Macro) -> &'static str {
    match kind {
        Macro::All => "all",
        Macro::Exists => "exists",
        Macro::ExistsOne => "exists_one",
        Macro::Filter => "filter",
        Macro::Map => "map",
        Macro::TransformList => "transformList",
        Macro::TransformMap => "transformMap",
        Macro::TransformMapEntry => "transformMapEntry",
        Macro::SortBy => "sortBy",
        Macro::Bind => "bind",
        Macro::OptMap => "optMap",
        Macro::OptFlatMap => "optFlatMap",
    }
}
