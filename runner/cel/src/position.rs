//! Where in a source text something is.

use std::fmt;

/// A place in an expression's source: 1-based line and column, counted in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl Position {
    /// The first character.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The position of the byte at `offset`; an offset behind the end is the end.
    pub fn of(source: &str, offset: usize) -> Self {
        let mut end = offset.min(source.len());
        while !source.is_char_boundary(end) {
            end -= 1;
        }
        let before = source.get(..end).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX - 1) + 1;
        Self {
            line: count(before.bytes().filter(|byte| *byte == b'\n').count()),
            column: count(before.get(line_start..).map_or(0, |text| text.chars().count())),
        }
    }

    /// The line of `source` that holds this position with a caret under the column, in the form compilers print:
    ///
    /// ```text
    ///  | self.x
    ///  | ....^
    /// ```
    pub fn snippet(&self, source: &str) -> String {
        let index = usize::try_from(self.line.saturating_sub(1)).unwrap_or(0);
        let line = source.split('\n').nth(index).unwrap_or("").replace('\t', " ");
        let dots = ".".repeat(usize::try_from(self.column.saturating_sub(1)).unwrap_or(0));
        format!(" | {line}\n | {dots}^")
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let source = "äb\ncd";
        assert_eq!(Position::of(source, 0), Position::START);
        assert_eq!(Position::of(source, 2), Position { line: 1, column: 2 });
        assert_eq!(Position::of(source, 4), Position { line: 2, column: 1 });
        assert_eq!(Position::of(source, 99), Position { line: 2, column: 3 });
    }

    #[test]
    fn a_snippet_points_at_the_column() {
        assert_eq!(Position::of("self.x", 4).snippet("self.x"), " | self.x\n | ....^");
    }
}
