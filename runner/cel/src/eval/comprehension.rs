//! The macros: loops over lists and maps, bindings, and optionals with a body.

use super::{Located, Machine};
use crate::ast::Macro;
use crate::fault::Fault;
use crate::library::sort;
use crate::plan::Node;
use crate::value::{Key, Map, Value};

/// What a body is evaluated for.
enum Verdict {
    Yes,
    No,
    Failed(Located),
}

impl Machine<'_> {
    #[inline(never)]
    pub(super) fn comprehension(
        &mut self,
        node: &Node,
        kind: Macro,
        range: &Node,
        base: usize,
        two: bool,
        bodies: &[Node],
    ) -> Result<Value, Located> {
        let range = self.eval(range)?;
        // Slots are absolute: what a fault further down left behind must not shift them.
        self.locals.truncate(base);
        match kind {
            Macro::Bind => {
                self.locals.push(range);
                self.body(node, bodies)
            }
            Macro::OptMap | Macro::OptFlatMap => self.optional(node, kind, range, bodies),
            Macro::All => self.quantify(node, &range, base, two, bodies, false),
            Macro::Exists => self.quantify(node, &range, base, two, bodies, true),
            Macro::ExistsOne => self.exists_one(node, &range, base, two, bodies),
            Macro::Filter | Macro::Map | Macro::TransformList => {
                self.collect(node, kind, &range, base, two, bodies)
            }
            Macro::TransformMap | Macro::TransformMapEntry => {
                self.collect_map(node, kind, &range, base, two, bodies)
            }
            Macro::SortBy => self.sort_by(node, &range, base, bodies),
        }
    }

    /// The last body, which is the value of the macro.
    fn body(&mut self, node: &Node, bodies: &[Node]) -> Result<Value, Located> {
        match bodies.last() {
            Some(body) => self.eval(body),
            None => Err(Located { fault: Fault::NoSuchOverload, at: node.at }),
        }
    }

    fn optional(
        &mut self,
        node: &Node,
        kind: Macro,
        range: Value,
        bodies: &[Node],
    ) -> Result<Value, Located> {
        let Value::Optional(inner) = range else {
            return Err(Located { fault: Fault::NoSuchOverload, at: node.at });
        };
        let Some(inner) = inner else { return Ok(Value::none()) };
        self.locals.push((*inner).clone());
        let value = self.body(node, bodies)?;
        match (kind, value) {
            (Macro::OptMap, value) => {
                self.pay(node, |budget| budget.allocate(size_of::<Value>()))?;
                Ok(Value::some(value))
            }
            (_, value @ Value::Optional(_)) => Ok(value),
            _ => Err(Located { fault: Fault::NoSuchOverload, at: node.at }),
        }
    }

    /// How many times the loop runs.
    fn length(&self, node: &Node, range: &Value) -> Result<usize, Located> {
        match range {
            Value::List(list) => Ok(list.len()),
            Value::Map(map) => Ok(map.len()),
            _ => Err(Located { fault: Fault::NoSuchOverload, at: node.at }),
        }
    }

    /// Sets the variables of the loop for its `turn`-th time, and gives the item that a filter keeps.
    fn bind(
        &mut self,
        node: &Node,
        range: &Value,
        turn: usize,
        base: usize,
        two: bool,
    ) -> Result<Value, Located> {
        self.pay(node, |budget| budget.step(1))?;
        self.locals.truncate(base);
        let (first, second) = match range {
            Value::List(list) => {
                (crate::library::count(turn), list.get(turn).cloned().unwrap_or(Value::Null))
            }
            Value::Map(map) => match (**map).get(turn) {
                Some((key, value)) => (key.to_value(), value.clone()),
                None => (Value::Null, Value::Null),
            },
            _ => (Value::Null, Value::Null),
        };
        if two {
            self.locals.push(first);
            self.locals.push(second.clone());
            return Ok(second);
        }
        let item = if matches!(range, Value::Map(_)) { first } else { second };
        self.locals.push(item.clone());
        Ok(item)
    }

    fn verdict(&mut self, body: &Node) -> Result<Verdict, Located> {
        match self.eval(body) {
            Ok(Value::Bool(true)) => Ok(Verdict::Yes),
            Ok(Value::Bool(false)) => Ok(Verdict::No),
            Ok(_) => Ok(Verdict::Failed(Located { fault: Fault::NoSuchOverload, at: body.at })),
            Err(error @ Located { fault: Fault::Exceeded(_), .. }) => Err(error),
            Err(error) => Ok(Verdict::Failed(error)),
        }
    }

    /// `all` and `exists`: the deciding value wins over faults, as in `&&` and `||`.
    fn quantify(
        &mut self,
        node: &Node,
        range: &Value,
        base: usize,
        two: bool,
        bodies: &[Node],
        deciding: bool,
    ) -> Result<Value, Located> {
        let [condition] = bodies else { return Err(Located { fault: Fault::NoSuchOverload, at: node.at }) };
        let mut failed = None;
        for turn in 0..self.length(node, range)? {
            self.bind(node, range, turn, base, two)?;
            match self.verdict(condition)? {
                Verdict::Yes if deciding => return Ok(Value::Bool(true)),
                Verdict::No if !deciding => return Ok(Value::Bool(false)),
                Verdict::Yes | Verdict::No => {}
                Verdict::Failed(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn exists_one(
        &mut self,
        node: &Node,
        range: &Value,
        base: usize,
        two: bool,
        bodies: &[Node],
    ) -> Result<Value, Located> {
        let [condition] = bodies else { return Err(Located { fault: Fault::NoSuchOverload, at: node.at }) };
        let mut found = 0_usize;
        for turn in 0..self.length(node, range)? {
            self.bind(node, range, turn, base, two)?;
            match self.verdict(condition)? {
                Verdict::Yes => found += 1,
                Verdict::No => {}
                Verdict::Failed(error) => return Err(error),
            }
        }
        Ok(Value::Bool(found == 1))
    }

    /// Whether the condition before the last body, if there is one, holds.
    fn admitted(&mut self, bodies: &[Node]) -> Result<bool, Located> {
        let [condition, _] = bodies else { return Ok(true) };
        match self.verdict(condition)? {
            Verdict::Yes => Ok(true),
            Verdict::No => Ok(false),
            Verdict::Failed(error) => Err(error),
        }
    }

    fn collect(
        &mut self,
        node: &Node,
        kind: Macro,
        range: &Value,
        base: usize,
        two: bool,
        bodies: &[Node],
    ) -> Result<Value, Located> {
        let mut items = Vec::new();
        for turn in 0..self.length(node, range)? {
            let item = self.bind(node, range, turn, base, two)?;
            let item = if kind == Macro::Filter {
                let [condition] = bodies else {
                    return Err(Located { fault: Fault::NoSuchOverload, at: node.at });
                };
                match self.verdict(condition)? {
                    Verdict::Yes => item,
                    Verdict::No => continue,
                    Verdict::Failed(error) => return Err(error),
                }
            } else {
                if !self.admitted(bodies)? {
                    continue;
                }
                self.body(node, bodies)?
            };
            self.pay(node, |budget| budget.allocate(size_of::<Value>()))?;
            items.push(item);
        }
        Ok(Value::list(items))
    }

    fn collect_map(
        &mut self,
        node: &Node,
        kind: Macro,
        range: &Value,
        base: usize,
        two: bool,
        bodies: &[Node],
    ) -> Result<Value, Located> {
        let fail = |fault: Fault| Located { fault, at: node.at };
        let mut entries: Vec<(Key, Value)> = Vec::new();
        for turn in 0..self.length(node, range)? {
            self.bind(node, range, turn, base, two)?;
            let key = self.locals.get(base).and_then(Key::from_value);
            if !self.admitted(bodies)? {
                continue;
            }
            let value = self.body(node, bodies)?;
            match (kind, key, value) {
                (Macro::TransformMap, Some(key), value) => {
                    self.pay(node, |budget| budget.allocate(size_of::<(Key, Value)>()))?;
                    entries.push((key, value));
                }
                (_, _, Value::Map(map)) => {
                    self.pay(node, |budget| budget.step(map.len()))?;
                    self.pay(node, |budget| budget.allocate(map.len() * size_of::<(Key, Value)>()))?;
                    entries.extend(map.iter().cloned());
                }
                _ => return Err(fail(Fault::NoSuchOverload)),
            }
        }
        distinct(entries).map(Value::Map).map_err(fail)
    }

    fn sort_by(
        &mut self,
        node: &Node,
        range: &Value,
        base: usize,
        bodies: &[Node],
    ) -> Result<Value, Located> {
        let Value::List(list) = range else {
            return Err(Located { fault: Fault::NoSuchOverload, at: node.at });
        };
        let mut keys = Vec::new();
        for turn in 0..list.len() {
            self.bind(node, range, turn, base, false)?;
            let key = self.body(node, bodies)?;
            self.pay(node, |budget| budget.allocate(size_of::<Value>()))?;
            keys.push(key);
        }
        sort::by_keys(list, &keys, self.budget).map_err(|fault| Located { fault, at: node.at })
    }
}

/// A map of entries that all have different keys.
fn distinct(entries: Vec<(Key, Value)>) -> Result<Map, Fault> {
    let mut keys: Vec<Key> = entries.iter().map(|(key, _)| key.clone()).collect();
    let map = Map::new(entries);
    if map.len() == keys.len() {
        return Ok(map);
    }
    keys.sort();
    let twice = keys.windows(2).find(|pair| matches!(pair, [a, b] if a == b)).and_then(<[Key]>::first);
    let shown = twice.and_then(|key| key.to_value().to_json().ok()).unwrap_or_default();
    let shown = shown.as_str().map_or_else(|| shown.to_string(), ToOwned::to_owned);
    Err(Fault::invalid(format!("insert failed: key {shown} already exists")))
}
