//! Finding the expressions in a string.

/// A part of a string.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(String),
    /// The source between the braces and its offset.
    Expression {
        source: &'a str,
        at: usize,
    },
}

/// The parts of `text`.
///
/// # Errors
/// The offset of a `${` that is not closed.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, usize> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("$${") {
            plain.push_str("${");
            at += 3;
        } else if let Some(inner) = rest.strip_prefix("${") {
            let end = end_of_expression(inner).ok_or(at)?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Expression { source: inner.get(..end).unwrap_or(""), at: at + 2 });
            at += 2 + end + 1;
        } else {
            let next = if rest.starts_with('$') { 1 } else { rest.find('$').unwrap_or(rest.len()) };
            plain.push_str(rest.get(..next).unwrap_or(rest));
            at += next;
        }
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// The offset of the brace that closes the expression: not one in a map, a string or a comment.
fn end_of_expression(source: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            b'"' | b'\'' => at = end_of_string(bytes, at)?,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes.get(at..)?.iter().position(|byte| *byte == b'\n')?;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The offset of the last quote of the string that begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> Option<usize> {
    let quote = *bytes.get(start)?;
    let prefix =
        bytes.get(..start)?.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_');
    let prefix: Vec<u8> = prefix.map(u8::to_ascii_lowercase).collect();
    let raw = matches!(prefix[..], [b'r'] | [b'r', b'b'] | [b'b', b'r']);
    let triple = bytes.get(start..start + 3) == Some(&[quote; 3]);
    let mut at = start + if triple { 3 } else { 1 };
    loop {
        match *bytes.get(at)? {
            b'\\' if !raw => at += 1,
            byte if byte == quote && !triple => return Some(at),
            byte if byte == quote && bytes.get(at..at + 3) == Some(&[quote; 3]) => return Some(at + 2),
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expression(source: &str, at: usize) -> Piece<'_> {
        Piece::Expression { source, at }
    }

    #[test]
    fn braces_in_maps_and_strings_do_not_end_an_expression() {
        assert_eq!(pieces("${ {'a': '}'}.a }").unwrap(), [expression(" {'a': '}'}.a ", 2)]);
        assert_eq!(pieces(r#"${"\"}"}"#).unwrap(), [expression(r#""\"}""#, 2)]);
        assert_eq!(pieces(r"${r'\'}").unwrap(), [expression(r"r'\'", 2)]);
        assert_eq!(pieces("${'''}'}'''}").unwrap(), [expression("'''}'}'''", 2)]);
        assert_eq!(pieces("${1 // }\n}").unwrap(), [expression("1 // }\n", 2)]);
    }

    #[test]
    fn a_doubled_dollar_sign_escapes_and_a_single_one_is_text() {
        let text = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(pieces("a $${b} $5 $").unwrap(), [text("a ${b} $5 $")]);
        assert_eq!(pieces("é$é${a}é").unwrap(), [text("é$é"), expression("a", 7), text("é")]);
        assert_eq!(pieces("").unwrap(), []);
    }

    #[test]
    fn an_open_expression_is_reported_where_it_begins() {
        assert_eq!(pieces("ab ${c"), Err(3));
        assert_eq!(pieces("${'}"), Err(0));
    }

    proptest! {
        #[test]
        fn text_without_expressions_stays_as_it_is(text in "[^$]*") {
            let expected: Vec<Piece<'_>> = if text.is_empty() { vec![] } else { vec![Piece::Text(text.clone())] };
            prop_assert_eq!(pieces(&text).unwrap(), expected);
        }

        #[test]
        fn any_text_is_scanned(text in r#"[$\{\}'"ré\\/\n a]{0,24}"#) {
            let _ = pieces(&text);
        }
    }
}
