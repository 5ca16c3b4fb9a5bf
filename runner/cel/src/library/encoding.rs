//! Base64.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::Value;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function { name: "base64.encode", overloads: &["+base64.encode(bytes) string"], call: encode },
    Function { name: "base64.decode", overloads: &["+base64.decode(string) bytes"], call: decode },
];

fn encode(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::Bytes(bytes)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(bytes.len().div_ceil(3).saturating_mul(4))?;
    Ok(Value::from(STANDARD.encode(bytes)))
}

fn decode(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(text.len())?;
    let bytes = STANDARD.decode(&**text).or_else(|_| STANDARD_NO_PAD.decode(&**text));
    bytes.map(|bytes| Value::Bytes(bytes.into())).map_err(|_| Fault::invalid("invalid base64"))
}
