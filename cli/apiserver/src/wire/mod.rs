//! Objects of built-in types in protobuf, as kubectl sends them when it creates one from flags.
//!
//! Only reading is needed: whoever writes protobuf accepts JSON in return.

mod types;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Number, Value, json};
use types::{Field, Kind, Shape};

/// Why bytes are not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The four bytes that mark the encoding are missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix k8s")]
    Prefix,
    /// The bytes end too early or have no meaning.
    #[error("the protobuf message is damaged")]
    Damaged,
    /// Messages are nested deeper than any type is.
    #[error("the protobuf message is nested too deeply")]
    Depth,
    /// The type is not one of the built-in ones.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Unknown {
        /// `apiVersion`.
        version: String,
        /// `kind`.
        kind: String,
    },
}

/// The bytes that every object starts with.
const PREFIX: &[u8] = b"k8s\0";
/// No built-in type is nested so deeply.
const DEPTH: usize = 64;

/// A value as it stands on the wire.
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Error::Damaged)?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Damaged)
    }

    /// The next field and its number.
    fn field(&mut self) -> Result<Option<(u64, Raw<'a>)>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let raw = match tag & 7 {
            0 => Raw::Number(self.varint()?),
            1 => Raw::Number(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Error::Damaged)?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Error::Damaged)?;
                Raw::Bytes(self.take(length)?)
            }
            5 => Raw::Number(u64::from(u32::from_le_bytes(
                self.take(4)?.try_into().map_err(|_| Error::Damaged)?,
            ))),
            _ => return Err(Error::Damaged),
        };
        Ok(Some((tag >> 3, raw)))
    }
}

fn text(bytes: &[u8]) -> Result<String, Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Damaged)
}

/// The first length-delimited field of a number, empty if there is none.
fn bytes_at(message: &[u8], number: u64) -> Result<&[u8], Error> {
    let mut reader = Reader(message);
    while let Some((found, raw)) = reader.field()? {
        if let (true, Raw::Bytes(bytes)) = (found == number, raw) {
            return Ok(bytes);
        }
    }
    Ok(&[])
}

/// The first number of a field, zero if there is none.
fn number_at(message: &[u8], number: u64) -> Result<i64, Error> {
    let mut reader = Reader(message);
    while let Some((found, raw)) = reader.field()? {
        if let (true, Raw::Number(value)) = (found == number, raw) {
            return Ok(value.cast_signed());
        }
    }
    Ok(0)
}

/// Reads an object in its envelope.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Error> {
    let envelope = body.strip_prefix(PREFIX).ok_or(Error::Prefix)?;
    let kind = bytes_at(envelope, 1)?;
    let (version, kind) = (text(bytes_at(kind, 1)?)?, text(bytes_at(kind, 2)?)?);
    let shape = types::of_kind(&version, &kind)
        .ok_or_else(|| Error::Unknown { version: version.clone(), kind: kind.clone() })?;
    let mut object = Map::new();
    read_message(shape, bytes_at(envelope, 2)?, &mut object, 0)?;
    object.insert("apiVersion".to_owned(), json!(version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn read_message(
    shape: &Shape,
    message: &[u8],
    into: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(Error::Depth);
    }
    let mut reader = Reader(message);
    while let Some((number, raw)) = reader.field()? {
        // A field that is not known is one of a newer type: JSON would drop it, too.
        let Some(field) = shape.field(number) else { continue };
        if let (None, Kind::Message(name), Raw::Bytes(inner)) = (&field.name, &field.kind, &raw) {
            read_message(types::named(name), inner, into, depth + 1)?;
            continue;
        }
        read_field(field, raw, into, depth)?;
    }
    Ok(())
}

fn read_field(field: &Field, raw: Raw<'_>, into: &mut Map<String, Value>, depth: usize) -> Result<(), Error> {
    let Some(name) = &field.name else { return Err(Error::Damaged) };
    if let (Kind::Map(inner), Raw::Bytes(entry)) = (&field.kind, &raw) {
        let key = text(bytes_at(entry, 1)?)?;
        let value = match read_value(inner, Raw::Bytes(bytes_at(entry, 2)?), depth)? {
            Some(value) => value,
            None => json!(""),
        };
        if let Value::Object(map) = into.entry(name.clone()).or_insert_with(|| json!({})) {
            map.insert(key, value);
        }
        return Ok(());
    }
    let value = read_value(&field.kind, raw, depth)?;
    if field.repeated {
        if let Value::Array(list) = into.entry(name.clone()).or_insert_with(|| json!([])) {
            list.push(value.unwrap_or_default());
        }
        return Ok(());
    }
    let Some(value) = value else { return Ok(()) };
    let empty = value == json!("") || value == json!(0) || value == json!(false);
    if field.kept || !empty {
        into.insert(name.clone(), value);
    }
    Ok(())
}

/// A value as JSON writes it; nothing for a time that is not set.
fn read_value(kind: &Kind, raw: Raw<'_>, depth: usize) -> Result<Option<Value>, Error> {
    Ok(Some(match (kind, raw) {
        (Kind::Bool, Raw::Number(number)) => json!(number != 0),
        (Kind::Int, Raw::Number(number)) => json!(number.cast_signed()),
        (Kind::Float, Raw::Number(number)) => {
            Number::from_f64(f64::from_bits(number)).map(Value::Number).ok_or(Error::Damaged)?
        }
        (Kind::Text, Raw::Bytes(bytes)) => json!(text(bytes)?),
        (Kind::Bytes, Raw::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Kind::Quantity, Raw::Bytes(bytes)) => json!(text(bytes_at(bytes, 1)?)?),
        (Kind::Json, Raw::Bytes(bytes)) => {
            serde_json::from_slice(bytes_at(bytes, 1)?).map_err(|_| Error::Damaged)?
        }
        (Kind::IntOrText, Raw::Bytes(bytes)) => {
            if number_at(bytes, 1)? == 0 {
                json!(number_at(bytes, 2)?)
            } else {
                json!(text(bytes_at(bytes, 3)?)?)
            }
        }
        (Kind::Duration, Raw::Bytes(bytes)) => json!(format!("{}ns", number_at(bytes, 1)?)),
        (Kind::Time | Kind::MicroTime, Raw::Bytes([])) => return Ok(None),
        (Kind::Time | Kind::MicroTime, Raw::Bytes(bytes)) => {
            let nanos = u32::try_from(number_at(bytes, 2)?).map_err(|_| Error::Damaged)?;
            let time = DateTime::from_timestamp(number_at(bytes, 1)?, nanos).ok_or(Error::Damaged)?;
            let precision =
                if matches!(kind, Kind::Time) { SecondsFormat::Secs } else { SecondsFormat::Micros };
            json!(time.to_rfc3339_opts(precision, true))
        }
        (Kind::Message(name), Raw::Bytes(bytes)) => {
            let mut inner = Map::new();
            read_message(types::named(name), bytes, &mut inner, depth + 1)?;
            Value::Object(inner)
        }
        _ => return Err(Error::Damaged),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    }

    fn envelope(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
        let kind = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [PREFIX.to_vec(), field(1, &kind), field(2, message)].concat()
    }

    #[test]
    fn a_config_map_is_read_as_json_would_be() {
        let metadata = field(1, &[field(1, b"a"), field(2, b""), field(8, b"")].concat());
        let entry = |key: &str, value: &str| [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
        let data = [field(2, &entry("k", "v")), field(2, &entry("l", ""))].concat();
        let object = decode(&envelope("v1", "ConfigMap", &[metadata, data].concat())).unwrap();
        let wanted = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "k": "v", "l": "" } });
        assert_eq!(object, wanted);
    }

    #[test]
    fn numbers_that_are_zero_on_purpose_are_kept() {
        // spec { replicas: 0, minReadySeconds: 0 }
        let spec = field(2, &[0x08, 0x00, 0x28, 0x00]);
        let object = decode(&envelope("apps/v1", "Deployment", &spec)).unwrap();
        assert_eq!(object["spec"], json!({ "replicas": 0 }));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert_eq!(decode(b"{}"), Err(Error::Prefix));
        assert!(matches!(decode(&envelope("v1", "Else", b"")), Err(Error::Unknown { .. })));
        assert_eq!(decode(&envelope("v1", "Pod", &[0x0a, 0x7f])), Err(Error::Damaged));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&envelope("v1", "Pod", &bytes));
            let _ = decode(&[PREFIX, bytes.as_slice()].concat());
        }
    }
}
