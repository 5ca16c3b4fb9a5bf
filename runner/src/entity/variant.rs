//! The name of an enum's variant, as serde knows it.

use std::fmt;

use serde::Serialize;
use serde::ser::{self, Serializer};

/// The variant of a value that is an enum, or wraps one.
pub(super) fn variant_of(value: &impl Serialize) -> Option<&'static str> {
    value.serialize(Variant).ok().flatten()
}

/// Writes nothing; only the first enum that it meets, from the outside, counts.
struct Variant;

/// The fields of something whose name is known already.
struct Fields(Option<&'static str>);

macro_rules! nameless {
    ($($function:ident($type:ty)),* $(,)?) => {
        $(fn $function(self, _: $type) -> Result<Self::Ok, fmt::Error> {
            Ok(None)
        })*
    };
}

impl Serializer for Variant {
    type Ok = Option<&'static str>;
    type Error = fmt::Error;
    type SerializeSeq = Fields;
    type SerializeTuple = Fields;
    type SerializeTupleStruct = Fields;
    type SerializeTupleVariant = Fields;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Fields;

    nameless!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str),
    );

    fn serialize_none(self) -> Result<Self::Ok, fmt::Error> {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, fmt::Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Self::Ok, fmt::Error> {
        Ok(None)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
    ) -> Result<Self::Ok, fmt::Error> {
        Ok(Some(name))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: &T,
    ) -> Result<Self::Ok, fmt::Error> {
        Ok(Some(name))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Fields, fmt::Error> {
        Ok(Fields(None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Fields, fmt::Error> {
        Ok(Fields(None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Fields, fmt::Error> {
        Ok(Fields(None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Fields, fmt::Error> {
        Ok(Fields(Some(name)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields, fmt::Error> {
        Ok(Fields(None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, fmt::Error> {
        Ok(Fields(None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Fields, fmt::Error> {
        Ok(Fields(Some(name)))
    }
}

macro_rules! fields {
    ($($trait:ident { $function:ident($($name:ty)?) }),* $(,)?) => {
        $(impl ser::$trait for Fields {
            type Ok = Option<&'static str>;
            type Error = fmt::Error;

            fn $function<T: Serialize + ?Sized>(&mut self, $(_: $name,)? _: &T) -> Result<(), fmt::Error> {
                Ok(())
            }

            fn end(self) -> Result<Self::Ok, fmt::Error> {
                Ok(self.0)
            }
        })*
    };
}

fields!(
    SerializeSeq { serialize_element() },
    SerializeTuple { serialize_element() },
    SerializeTupleStruct { serialize_field() },
    SerializeTupleVariant { serialize_field() },
    SerializeStruct { serialize_field(&'static str) },
    SerializeStructVariant { serialize_field(&'static str) },
);

impl ser::SerializeMap for Fields {
    type Ok = Option<&'static str>;
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn end(self) -> Result<Self::Ok, fmt::Error> {
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    enum Shape {
        Point,
        Circle(u32),
        Line(u32, u32),
        Box {
            width: u32,
        },
        #[serde(rename = "round")]
        Renamed,
    }

    #[derive(Serialize)]
    struct Wrapped(Option<Shape>);

    #[derive(Serialize)]
    struct Holder {
        shape: Shape,
    }

    #[test]
    fn every_kind_of_variant_is_named() {
        let names =
            [Shape::Point, Shape::Circle(1), Shape::Line(1, 2), Shape::Box { width: 1 }, Shape::Renamed];
        let names: Vec<_> = names.iter().filter_map(variant_of).collect();
        assert_eq!(names, ["Point", "Circle", "Line", "Box", "round"]);
    }

    #[test]
    fn what_wraps_an_enum_is_named_by_it_and_what_has_one_is_not() {
        assert_eq!(variant_of(&Wrapped(Some(Shape::Point))), Some("Point"));
        assert_eq!(variant_of(&Wrapped(None)), None);
        assert_eq!(variant_of(&Holder { shape: Shape::Point }), None);
        assert_eq!(variant_of(&vec!["text"]), None);
        assert_eq!(variant_of(&std::collections::HashMap::from([("a", 1)])), None);
    }
}
