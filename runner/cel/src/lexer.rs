//! Tokens of the language.

use std::sync::Arc;

use crate::ast::Literal;
use crate::parser::Error;

/// A token and the byte offset at which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spanned {
    pub token: Token,
    pub at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A constant; `true`, `false` and `null` included.
    Literal(Literal),
    /// An integer without sign, kept apart because `-9223372036854775808` has no positive counterpart.
    Number(u64),
    Ident(Arc<str>),
    /// A field name in backquotes.
    Quoted(Arc<str>),
    /// An operator or punctuation.
    Symbol(&'static str),
    End,
}

impl Token {
    /// The token as messages name it.
    pub fn describe(&self) -> String {
        match self {
            Self::Literal(literal) => format!("'{}'", crate::print::literal(literal)),
            Self::Number(number) => format!("'{number}'"),
            Self::Ident(name) => format!("'{name}'"),
            Self::Quoted(name) => format!("'`{name}`'"),
            Self::Symbol(symbol) => format!("'{symbol}'"),
            Self::End => "'<EOF>'".to_owned(),
        }
    }
}

/// Longest first, so that the first match is the right one.
const SYMBOLS: [&str; 26] = [
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "<", ">", "=", "&",
];

/// Splits `source` into tokens; the last one is always [`Token::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<Spanned>, Error> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        tokens.push(Spanned { token, at });
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or("")
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']).len();
            self.at += blank;
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn take(&mut self, while_: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !while_(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    fn next(&mut self) -> Result<Token, Error> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let second = rest.chars().nth(1);
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if let Some(prefix) = string_prefix(rest) {
            return self.string(prefix);
        }
        if first == '_' || first.is_ascii_alphabetic() {
            let name = self.take(|c| c == '_' || c.is_ascii_alphanumeric());
            return Ok(match name {
                "true" => Token::Literal(Literal::Bool(true)),
                "false" => Token::Literal(Literal::Bool(false)),
                "null" => Token::Literal(Literal::Null),
                "in" => Token::Symbol("in"),
                _ => Token::Ident(Arc::from(name)),
            });
        }
        if first == '`' {
            let start = self.at;
            self.at += 1;
            let name = self.take(|c| c.is_ascii_alphanumeric() || "_-./ ".contains(c));
            if name.is_empty() || !self.rest().starts_with('`') {
                return Err(Error::syntax(
                    start,
                    "a quoted field name takes letters, digits, '_', '-', '.', '/' and blanks",
                ));
            }
            self.at += 1;
            return Ok(Token::Quoted(Arc::from(name)));
        }
        match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) if !matches!(*symbol, "=" | "&") => {
                self.at += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            _ => Err(Error::syntax(self.at, format!("token recognition error at: '{first}'"))),
        }
    }

    fn number(&mut self) -> Result<Token, Error> {
        let start = self.at;
        let rest = self.rest();
        if let Some(digits) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            self.at += 2 + end;
            let digits = digits.get(..end).unwrap_or("");
            return self.integer(start, digits, 16);
        }
        let whole = self.take(|c| c.is_ascii_digit());
        let mut float = false;
        let rest = self.rest();
        if rest.starts_with('.') && rest.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
            self.take(|c| c.is_ascii_digit());
            float = true;
        }
        if self.rest().starts_with(['e', 'E']) {
            let sign = usize::from(self.rest().chars().nth(1).is_some_and(|c| c == '+' || c == '-'));
            if self.rest().chars().nth(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1 + sign;
                self.take(|c| c.is_ascii_digit());
                float = true;
            }
        }
        if !float {
            return self.integer(start, whole, 10);
        }
        let text = self.source.get(start..self.at).unwrap_or("");
        self.no_letters(start)?;
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Token::Literal(Literal::Double(number))),
            _ => Err(Error::syntax(start, "invalid double literal")),
        }
    }

    fn integer(&mut self, start: usize, digits: &str, radix: u32) -> Result<Token, Error> {
        let unsigned = self.rest().starts_with(['u', 'U']);
        if unsigned {
            self.at += 1;
        }
        self.no_letters(start)?;
        let number = u64::from_str_radix(digits, radix).map_err(|_| {
            Error::syntax(start, if unsigned { "invalid uint literal" } else { "invalid int literal" })
        })?;
        Ok(if unsigned { Token::Literal(Literal::Uint(number)) } else { Token::Number(number) })
    }

    fn no_letters(&self, start: usize) -> Result<(), Error> {
        match self.rest().chars().next() {
            Some(c) if c == '_' || c.is_alphanumeric() => {
                Err(Error::syntax(start, format!("a number cannot be followed by '{c}'")))
            }
            _ => Ok(()),
        }
    }

    fn string(&mut self, prefix: Prefix) -> Result<Token, Error> {
        let start = self.at;
        self.at += prefix.len;
        let quote = self.rest().chars().next().unwrap_or('"');
        let triple = self.rest().get(..3).is_some_and(|text| text.chars().all(|c| c == quote));
        let fence: String = std::iter::repeat_n(quote, if triple { 3 } else { 1 }).collect();
        self.at += fence.len();
        let mut text = String::new();
        let mut bytes = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(&fence) {
                self.at += fence.len();
                break;
            }
            let Some(c) = rest.chars().next() else {
                return Err(Error::syntax(start, "a string that does not end"));
            };
            if !triple && (c == '\n' || c == '\r') {
                return Err(Error::syntax(start, "a string that does not end on its line"));
            }
            self.at += c.len_utf8();
            match c {
                '\\' if !prefix.raw => match self.escape(prefix.bytes)? {
                    Escape::Char(c) => push(&mut text, &mut bytes, prefix.bytes, c),
                    Escape::Byte(byte) => bytes.push(byte),
                },
                c => push(&mut text, &mut bytes, prefix.bytes, c),
            }
        }
        Ok(Token::Literal(if prefix.bytes {
            Literal::Bytes(Arc::from(bytes))
        } else {
            Literal::String(Arc::from(text))
        }))
    }

    fn escape(&mut self, bytes: bool) -> Result<Escape, Error> {
        let start = self.at - 1;
        let invalid = |what: &str| Error::syntax(start, format!("invalid escape in a string: {what}"));
        let c = self.rest().chars().next().ok_or_else(|| invalid("the text ends"))?;
        self.at += c.len_utf8();
        let plain = match c {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '?' | '"' | '\'' | '`' => c,
            'x' | 'X' => return self.code(start, 2, 16, bytes),
            'u' if !bytes => return self.code(start, 4, 16, bytes),
            'U' if !bytes => return self.code(start, 8, 16, bytes),
            '0'..='3' => {
                self.at -= 1;
                return self.code(start, 3, 8, bytes);
            }
            other => return Err(invalid(&format!("\\{other}"))),
        };
        Ok(Escape::Char(plain))
    }

    fn code(&mut self, start: usize, digits: usize, radix: u32, bytes: bool) -> Result<Escape, Error> {
        let text = self.rest().get(..digits).unwrap_or("");
        let invalid =
            || Error::syntax(start, format!("invalid escape in a string: {digits} digits expected"));
        if text.is_empty() || !text.chars().all(|c| c.is_digit(radix)) {
            return Err(invalid());
        }
        let code = u32::from_str_radix(text, radix).map_err(|_| invalid())?;
        self.at += digits;
        if bytes {
            return u8::try_from(code).map(Escape::Byte).map_err(|_| invalid());
        }
        char::from_u32(code)
            .map(Escape::Char)
            .ok_or_else(|| Error::syntax(start, "invalid escape in a string: no unicode code point"))
    }
}

enum Escape {
    Char(char),
    Byte(u8),
}

fn push(text: &mut String, bytes: &mut Vec<u8>, is_bytes: bool, c: char) {
    if is_bytes {
        bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        text.push(c);
    }
}

#[derive(Clone, Copy)]
struct Prefix {
    len: usize,
    raw: bool,
    bytes: bool,
}

/// The letters before a string's opening quote, if a string begins here.
fn string_prefix(rest: &str) -> Option<Prefix> {
    let len = rest.find(|c: char| !matches!(c, 'r' | 'R' | 'b' | 'B'))?;
    let letters = rest.get(..len)?.to_ascii_lowercase();
    let quoted = rest.get(len..)?.starts_with(['"', '\'']);
    (quoted && matches!(letters.as_str(), "" | "r" | "b" | "rb" | "br")).then(|| Prefix {
        len,
        raw: letters.contains('r'),
        bytes: letters.contains('b'),
    })
}
