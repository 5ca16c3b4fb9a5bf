//! From source text to a tree.
//!
//! A recursive descent along the grammar of the language, with limits on length and depth so that no input overflows
//! the stack, here or in what later walks the tree.

use std::sync::Arc;

use crate::ast::{Entry, Expr, Item, Kind, Literal, Operator};
use crate::lexer::{self, Spanned, Token};
use crate::macros;
use crate::position::Position;

/// The longest source that is parsed, in bytes.
pub const MAX_SOURCE: usize = 100_000;

/// The deepest tree that is built. Every walk over a tree recurses at most this deep.
pub const MAX_DEPTH: u16 = 120;

/// A source that is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub(crate) at: usize,
    /// What is wrong.
    pub message: String,
    /// Where.
    pub position: Position,
}

impl Error {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), position: Position::START }
    }

    pub(crate) fn syntax(at: usize, message: impl std::fmt::Display) -> Self {
        Self::new(at, format!("Syntax error: {message}"))
    }
}

/// Parses one expression.
///
/// # Errors
/// The first [`Error`] found. Besides wrong syntax that is a source longer than [`MAX_SOURCE`] or nested deeper than
/// [`MAX_DEPTH`].
pub fn parse(source: &str) -> Result<Expr, Error> {
    let locate = |mut error: Error| {
        error.position = Position::of(source, error.at);
        error
    };
    if source.len() > MAX_SOURCE {
        return Err(Error::new(0, format!("expression code point size exceeds limit: {MAX_SOURCE}")));
    }
    let tokens = lexer::tokens(source).map_err(locate)?;
    let mut parser = Parser { tokens, next: 0, depth: 0 };
    let expr = parser.expr().map_err(|error| locate(*error))?;
    match parser.peek() {
        Token::End => Ok(*expr),
        other => Err(locate(Error::syntax(
            parser.at(),
            format!("extraneous input {} expecting <EOF>", other.describe()),
        ))),
    }
}

/// Boxed, because debug builds give each of the many values on the way down a place of its own on the stack.
type Parsed = Result<Box<Expr>, Box<Error>>;

struct Parser {
    tokens: Vec<Spanned>,
    next: usize,
    depth: u16,
}

/// Words that no name may be, although the language does nothing with them.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |spanned| &spanned.token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |spanned| spanned.at)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(found) if *found == symbol);
        if found {
            self.next += 1;
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Box<Error>> {
        if self.accept(symbol) {
            return Ok(());
        }
        let message = format!("mismatched input {} expecting '{symbol}'", self.peek().describe());
        Err(Error::syntax(self.at(), message).into())
    }

    fn node(&self, kind: Kind, at: usize) -> Parsed {
        let expr = Box::new(Expr::new(kind, at));
        if expr.depth > MAX_DEPTH { Err(too_deep(at)) } else { Ok(expr) }
    }

    /// Guards every recursion: a pair of parentheses leaves no node behind, so the depth of nodes alone is not enough.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Box<Error>>) -> Result<T, Box<Error>> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep(self.at()));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn expr(&mut self) -> Parsed {
        self.nested(|this| {
            let condition = this.or()?;
            let at = this.at();
            if !this.accept("?") {
                return Ok(condition);
            }
            let then = this.or()?;
            this.expect(":")?;
            let otherwise = this.expr()?;
            this.node(Kind::Ternary(condition, then, otherwise), at)
        })
    }

    fn or(&mut self) -> Parsed {
        let first = self.and()?;
        let at = self.at();
        if !matches!(self.peek(), Token::Symbol("||")) {
            return Ok(first);
        }
        let mut terms = vec![*first];
        while self.accept("||") {
            terms.push(*self.and()?);
        }
        self.node(Kind::Or(terms), at)
    }

    fn and(&mut self) -> Parsed {
        let first = self.binary(3)?;
        let at = self.at();
        if !matches!(self.peek(), Token::Symbol("&&")) {
            return Ok(first);
        }
        let mut terms = vec![*first];
        while self.accept("&&") {
            terms.push(*self.binary(3)?);
        }
        self.node(Kind::And(terms), at)
    }

    fn binary(&mut self, lowest: u8) -> Parsed {
        let mut left = self.unary()?;
        while let Some(operator) = self.operator().filter(|operator| operator.precedence() >= lowest) {
            let at = self.at();
            self.next += 1;
            let right = self.binary(operator.precedence() + 1)?;
            left = self.node(Kind::Binary(operator, left, right), at)?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<Operator> {
        let Token::Symbol(symbol) = self.peek() else { return None };
        Some(match *symbol {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterEqual,
            "in" => Operator::In,
            "+" => Operator::Add,
            "-" => Operator::Subtract,
            "*" => Operator::Multiply,
            "/" => Operator::Divide,
            "%" => Operator::Remainder,
            _ => return None,
        })
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        if self.accept("!") {
            let operand = self.nested(Self::unary)?;
            return self.node(Kind::Not(operand), at);
        }
        if self.accept("-") {
            return self.minus(at);
        }
        let primary = self.primary()?;
        self.members(primary)
    }

    /// A minus before a number belongs to it.
    fn minus(&mut self, at: usize) -> Parsed {
        let literal = match *self.peek() {
            Token::Number(number) => {
                let number = 0_i64.checked_sub_unsigned(number);
                Literal::Int(number.ok_or_else(|| Error::syntax(at, "invalid int literal"))?)
            }
            Token::Literal(Literal::Double(number)) => Literal::Double(-number),
            _ => {
                let operand = self.nested(Self::unary)?;
                return self.node(Kind::Negate(operand), at);
            }
        };
        self.next += 1;
        let literal = self.node(Kind::Literal(literal), at)?;
        self.members(literal)
    }

    fn members(&mut self, mut expr: Box<Expr>) -> Parsed {
        loop {
            let at = self.at();
            expr = if self.accept(".") {
                self.member(expr, at)?
            } else if self.accept("[") {
                let optional = self.accept("?");
                let index = self.expr()?;
                self.expect("]")?;
                self.node(Kind::Index { operand: expr, index, optional }, at)?
            } else if matches!(self.peek(), Token::Symbol("{")) && expr.dotted().is_some() {
                self.next += 1;
                let name = expr.dotted().unwrap_or_default();
                let fields = self.fields()?;
                self.node(Kind::Message(Arc::from(name), fields), at)?
            } else {
                return Ok(expr);
            }
        }
    }

    /// What follows a dot: a field, or a call.
    fn member(&mut self, target: Box<Expr>, at: usize) -> Parsed {
        let optional = self.accept("?");
        let name_at = self.at();
        let (name, quoted) = match self.take() {
            Token::Ident(name) => (name, false),
            Token::Quoted(name) => (name, true),
            other => {
                let message = format!("no viable alternative at input {}", other.describe());
                return Err(Error::syntax(name_at, message).into());
            }
        };
        let call_at = self.at();
        if optional || quoted || !self.accept("(") {
            return self.node(Kind::Select { operand: target, field: name, optional }, at);
        }
        let args = self.arguments(")")?;
        let kind = macros::member(target, &name, args, call_at)?;
        self.node(kind, call_at)
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        if self.accept(".") && !matches!(self.peek(), Token::Ident(_)) {
            let message = format!("no viable alternative at input '.{}'", self.peek().describe());
            return Err(Error::syntax(at, message).into());
        }
        match self.take() {
            Token::Ident(name) => self.name(name, at),
            Token::Literal(literal) => self.node(Kind::Literal(literal), at),
            Token::Number(number) => {
                let number = i64::try_from(number).map_err(|_| Error::syntax(at, "invalid int literal"))?;
                self.node(Kind::Literal(Literal::Int(number)), at)
            }
            Token::Symbol("(") => {
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            Token::Symbol("[") => {
                let items = self.items()?;
                self.node(Kind::List(items), at)
            }
            Token::Symbol("{") => {
                let entries = self.entries()?;
                self.node(Kind::Map(entries), at)
            }
            other => {
                let message = format!("mismatched input {} expecting an expression", other.describe());
                Err(Error::syntax(at, message).into())
            }
        }
    }

    fn name(&mut self, name: Arc<str>, at: usize) -> Parsed {
        let call_at = self.at();
        if self.accept("(") {
            let args = self.arguments(")")?;
            let kind = macros::global(&name, args, call_at)?;
            return self.node(kind, call_at);
        }
        if RESERVED.contains(&&*name) {
            return Err(Error::new(at, format!("reserved identifier: {name}")).into());
        }
        self.node(Kind::Ident(name), at)
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>, Box<Error>> {
        let mut args = Vec::new();
        if self.accept(close) {
            return Ok(args);
        }
        loop {
            args.push(*self.expr()?);
            if self.accept(close) {
                return Ok(args);
            }
            self.expect(",").map_err(|_| {
                Error::syntax(
                    self.at(),
                    format!("mismatched input {} expecting '{close}'", self.peek().describe()),
                )
            })?;
        }
    }

    fn items(&mut self) -> Result<Vec<Item>, Box<Error>> {
        let mut items = Vec::new();
        while !self.accept("]") {
            let optional = self.accept("?");
            items.push(Item { value: *self.expr()?, optional });
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(items)
    }

    fn entries(&mut self) -> Result<Vec<Entry>, Box<Error>> {
        let mut entries = Vec::new();
        while !self.accept("}") {
            let optional = self.accept("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry { key: *key, value: *self.expr()?, optional });
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(entries)
    }

    fn fields(&mut self) -> Result<Vec<(Arc<str>, Expr)>, Box<Error>> {
        let mut fields = Vec::new();
        while !self.accept("}") {
            let at = self.at();
            let name = match self.take() {
                Token::Ident(name) | Token::Quoted(name) => name,
                other => {
                    let message = format!("mismatched input {} expecting a field", other.describe());
                    return Err(Error::syntax(at, message).into());
                }
            };
            self.expect(":")?;
            fields.push((name, *self.expr()?));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(fields)
    }
}

fn too_deep(at: usize) -> Box<Error> {
    Error::new(at, format!("expression recursion limit exceeded: {MAX_DEPTH}")).into()
}
