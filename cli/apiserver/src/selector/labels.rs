//! Label selectors: `a=b,c!=d,e in (f,g),h,!i`.

use super::Error;
use crate::schema::{FieldError, names, path};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A parsed label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

impl Labels {
    /// Parses the form that stands in a query.
    ///
    /// # Errors
    /// Text that is not a selector, and keys or values that are not labels.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut parser = Parser { tokens: tokens(text), position: 0 };
        parser.selector().map(|requirements| Self { requirements }).map_err(Error)
    }

    /// Reads a LabelSelector object (`matchLabels`, `matchExpressions`). An empty one selects everything.
    ///
    /// # Errors
    /// An operator that is not known, or values that do not go with it.
    pub fn from_object(selector: &Value) -> Result<Self, Error> {
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = BTreeSet::from([value.as_str().unwrap_or_default().to_owned()]);
            requirements.push(Requirement::new(key, Operator::In, values)?);
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
            let values: BTreeSet<String> = expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(Error(format!("\"{other}\" is not a valid label selector operator"))),
            };
            requirements.push(Requirement::new(text("key"), operator, values)?);
        }
        Ok(Self { requirements })
    }

    /// Whether this selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether `object` (its `metadata.labels`) is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.requirements.iter().all(|requirement| {
            requirement
                .matches(labels.and_then(|labels| labels.get(&requirement.key)).and_then(Value::as_str))
        })
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, values: BTreeSet<String>) -> Result<Self, Error> {
        check_key(key).map_err(Error)?;
        let list = || json!(values.iter().collect::<Vec<_>>());
        let wrong = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            _ => None,
        };
        if let Some(detail) = wrong {
            return Err(Error(FieldError::invalid("values", list(), detail).to_string()));
        }
        for (position, value) in values.iter().enumerate() {
            let at = path::index("values", position);
            if matches!(operator, Operator::Greater | Operator::Less) && value.parse::<i64>().is_err() {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                return Err(Error(FieldError::invalid(at, json!(value), detail).to_string()));
            }
            let faults = names::label_value(value);
            if !faults.is_empty() {
                let error = FieldError::invalid(path::key(&at, key), json!(value), faults.join("; "));
                return Err(Error(error.to_string()));
            }
        }
        Ok(Self { key: key.to_owned(), operator, values })
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = || self.values.first().and_then(|value| number(value));
        match self.operator {
            Operator::In => label.is_some_and(|label| self.values.contains(label)),
            Operator::NotIn => label.is_none_or(|label| !self.values.contains(label)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Greater => {
                label.and_then(number).zip(bound()).is_some_and(|(label, bound)| label > bound)
            }
            Operator::Less => label.and_then(number).zip(bound()).is_some_and(|(label, bound)| label < bound),
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let faults = names::qualified(key);
    if faults.is_empty() {
        return Ok(());
    }
    Err(FieldError::invalid("", json!(key), faults.join("; ")).to_string())
}

/// A piece of a selector: a symbol, or the text of a key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Symbol(&'static str),
    Text(String),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Symbol(text) => text,
            Self::Text(text) => text,
            Self::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            found.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find(|character| is_space(character) || "=!(),><".contains(character));
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            found.push(Token::Text(word.to_owned()));
            rest = after;
        }
        rest = rest.trim_start_matches(is_space);
    }
    found.push(Token::End);
    found
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Text(_) | Token::Symbol("!") => {
                    let requirement = self.requirement();
                    requirements
                        .push(requirement.map_err(|error| format!("unable to parse requirement: {error}"))?);
                    match self.next() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            let after = self.peek();
                            if !matches!(after, Token::Text(_) | Token::Symbol("!")) {
                                let found = after.text();
                                return Err(format!("found '{found}', expected: identifier after ','"));
                            }
                        }
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.text()
                            ));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Text(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        check_key(&key)?;
        let alone = matches!(self.peek(), Token::End | Token::Symbol(","));
        if negated || alone {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Requirement::new(&key, operator, BTreeSet::new()).map_err(|error| error.0);
        }
        let token = self.next();
        let (operator, values) = match token.text() {
            "=" | "==" => (Operator::In, self.value()?),
            "!=" => (Operator::NotIn, self.value()?),
            ">" => (Operator::Greater, self.value()?),
            "<" => (Operator::Less, self.value()?),
            "in" => (Operator::In, self.values()?),
            "notin" => (Operator::NotIn, self.values()?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Requirement::new(&key, operator, values).map_err(|error| error.0)
    }

    fn value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next() {
            Token::Text(value) => Ok(BTreeSet::from([value])),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        match self.peek() {
            Token::Text(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.next();
                return Ok(BTreeSet::from([String::new()]));
            }
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Token::Text(value) => {
                    values.insert(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            values.insert(String::new());
                            break;
                        }
                        Token::Symbol(",") => {
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
        self.next();
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: Value) -> bool {
        Labels::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    fn refused(selector: &str) -> String {
        Labels::parse(selector).unwrap_err().0
    }

    #[test]
    fn all_requirements_must_hold() {
        assert!(selects("", json!({})));
        assert!(selects("a=b,c!=d", json!({"a": "b"})));
        assert!(!selects("a=b,c!=d", json!({"a": "b", "c": "d"})));
        assert!(selects("a==b, c in (d, e),!f", json!({"a": "b", "c": "e"})));
        assert!(selects("a notin (b)", json!({})) && !selects("a notin (b)", json!({"a": "b"})));
        assert!(selects("a", json!({"a": ""})) && !selects("!a", json!({"a": ""})));
        assert!(selects("a=", json!({"a": ""})) && selects("in in (in,notin)", json!({"in": "notin"})));
        assert!(selects("n>3,n<5", json!({"n": "4"})) && !selects("n>3", json!({"n": "x"})));
    }

    #[test]
    fn faults_are_named_as_the_api_names_them() {
        assert_eq!(refused("a in"), "unable to parse requirement: found '' expected: '('");
        assert_eq!(refused("a,"), "found '', expected: identifier after ','");
        assert_eq!(refused("=a"), "found '=', expected: !, identifier, or 'end of string'");
        assert_eq!(
            refused("a b"),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert!(
            refused("-=b")
                .starts_with(r#"unable to parse requirement: <nil>: Invalid value: "-": name part must"#)
        );
        assert!(refused("a=-").contains(r#"values[0][a]: Invalid value: "-": a valid label must"#));
    }

    #[test]
    fn a_selector_object_means_the_same() {
        let selector = json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}, {"key": "e", "operator": "Exists"}],
        });
        let selector = Labels::from_object(&selector).unwrap();
        assert!(selector.matches(&json!({"metadata": {"labels": {"a": "b", "e": "1"}}})));
        assert!(!selector.matches(&json!({"metadata": {"labels": {"a": "b", "c": "d", "e": "1"}}})));
        let odd = json!({"matchExpressions": [{"key": "c", "operator": "Like"}]});
        assert_eq!(
            Labels::from_object(&odd).unwrap_err().0,
            "\"Like\" is not a valid label selector operator"
        );
    }
}
