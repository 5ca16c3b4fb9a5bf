//! The tree of a parsed expression.

use std::sync::Arc;

/// A node: what it is and where it begins.
///
/// The position is that of the token that tells what the node does: the operator of a binary operation, the dot of a
/// selection, the parenthesis of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What the node is.
    pub kind: Kind,
    /// The byte offset in the source.
    pub at: usize,
    /// The number of nodes on the longest way down, this one included.
    pub(crate) depth: u16,
}

/// A constant in the source.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the language")]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// An operator between two operands; `&&` and `||` are nodes of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the operators")]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    /// The operator as it is written.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::In => "in",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }

    /// The name under which overloads are declared and reported: `_+_`, `@in`.
    pub(crate) const fn function(self) -> &'static str {
        match self {
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterEqual => "_>=_",
            Self::In => "@in",
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Remainder => "_%_",
        }
    }

    /// How tightly the operator binds.
    pub(crate) const fn precedence(self) -> u8 {
        match self {
            Self::Equal
            | Self::NotEqual
            | Self::Less
            | Self::LessEqual
            | Self::Greater
            | Self::GreaterEqual
            | Self::In => 3,
            Self::Add | Self::Subtract => 4,
            Self::Multiply | Self::Divide | Self::Remainder => 5,
        }
    }
}

/// What a macro does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Macro {
    /// `range.all(v, condition)`
    All,
    /// `range.exists(v, condition)`
    Exists,
    /// `range.exists_one(v, condition)`
    ExistsOne,
    /// `range.filter(v, condition)`
    Filter,
    /// `range.map(v, value)` or `range.map(v, condition, value)`
    Map,
    /// `range.transformList(k, v, value)` or with a condition
    TransformList,
    /// `range.transformMap(k, v, value)` or with a condition
    TransformMap,
    /// `range.transformMapEntry(k, v, {key: value})` or with a condition
    TransformMapEntry,
    /// `list.sortBy(v, key)`
    SortBy,
    /// `cel.bind(v, value, body)`
    Bind,
    /// `optional.optMap(v, value)`
    OptMap,
    /// `optional.optFlatMap(v, optional)`
    OptFlatMap,
}

/// The kinds of nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A constant.
    Literal(Literal),
    /// A name.
    Ident(Arc<str>),
    /// `operand.field`, `operand.?field`
    Select {
        /// What is selected from.
        operand: Box<Expr>,
        /// The field.
        field: Arc<str>,
        /// Whether an absent field gives an empty optional.
        optional: bool,
    },
    /// `has(operand.field)`
    Has {
        /// What is selected from.
        operand: Box<Expr>,
        /// The field.
        field: Arc<str>,
    },
    /// `operand[index]`, `operand[?index]`
    Index {
        /// The list or map.
        operand: Box<Expr>,
        /// The index or key.
        index: Box<Expr>,
        /// Whether an absent item gives an empty optional.
        optional: bool,
    },
    /// `name(args)` or `target.name(args)`
    Call {
        /// The receiver.
        target: Option<Box<Expr>>,
        /// The function.
        name: Arc<str>,
        /// The arguments without the receiver.
        args: Vec<Expr>,
    },
    /// `!operand`
    Not(Box<Expr>),
    /// `-operand`
    Negate(Box<Expr>),
    /// `left operator right`
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `a && b && …`, at least two
    And(Vec<Expr>),
    /// `a || b || …`, at least two
    Or(Vec<Expr>),
    /// `condition ? then : otherwise`
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `[a, ?b]`
    List(Vec<Item>),
    /// `{k: v, ?k: v}`
    Map(Vec<Entry>),
    /// `Name{field: value}`; no message types exist, so that no environment accepts it.
    Message(Arc<str>, Vec<(Arc<str>, Expr)>),
    /// A macro over a range or a value.
    Macro {
        /// Which one.
        kind: Macro,
        /// The range, the optional, or the bound value.
        range: Box<Expr>,
        /// The variables it introduces: one or two.
        variables: Vec<Arc<str>>,
        /// The conditions and values, evaluated with the variables set.
        bodies: Vec<Expr>,
    },
}

/// An element of a list literal.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The value.
    pub value: Expr,
    /// Whether the value is an optional that is left out when empty.
    pub optional: bool,
}

/// An entry of a map literal.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Whether the value is an optional whose entry is left out when it is empty.
    pub optional: bool,
}

impl Expr {
    pub(crate) fn new(kind: Kind, at: usize) -> Self {
        let mut deepest = 0;
        kind.each_child(&mut |child| deepest = deepest.max(child.depth));
        Self { kind, at, depth: deepest.saturating_add(1) }
    }

    /// The dotted name this node spells, if it is nothing but names: `a.b.c`.
    pub(crate) fn dotted(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select { operand, field, optional: false } => {
                let mut name = operand.dotted()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }

    /// The first name of a dotted name.
    pub(crate) fn root(&self) -> Option<&Arc<str>> {
        match &self.kind {
            Kind::Ident(name) => Some(name),
            Kind::Select { operand, optional: false, .. } => operand.root(),
            _ => None,
        }
    }
}

impl Kind {
    /// Calls `visit` with each direct child, in the order of the source.
    pub fn each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match self {
            Self::Literal(_) | Self::Ident(_) => {}
            Self::Select { operand, .. } | Self::Has { operand, .. } => visit(operand),
            Self::Not(operand) | Self::Negate(operand) => visit(operand),
            Self::Index { operand, index, .. } => {
                visit(operand);
                visit(index);
            }
            Self::Call { target, args, .. } => {
                target.iter().for_each(|target| visit(target));
                args.iter().for_each(visit);
            }
            Self::Binary(_, left, right) => {
                visit(left);
                visit(right);
            }
            Self::And(terms) | Self::Or(terms) => terms.iter().for_each(visit),
            Self::Ternary(condition, then, otherwise) => {
                visit(condition);
                visit(then);
                visit(otherwise);
            }
            Self::List(items) => items.iter().for_each(|item| visit(&item.value)),
            Self::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            Self::Message(_, fields) => fields.iter().for_each(|(_, value)| visit(value)),
            Self::Macro { range, bodies, .. } => {
                visit(range);
                bodies.iter().for_each(visit);
            }
        }
    }
}
