//! The types that the checker reasons with.

use std::fmt;
use std::sync::Arc;

use crate::value::Identity;

/// The type of an expression, as far as it is known before it runs. Cloning is cheap.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are those of the language")]
pub enum Type {
    /// Known only when it runs.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// A type as a value.
    Type,
    List(Arc<ListType>),
    Map(Arc<(Type, Type)>),
    Object(Arc<Object>),
    Optional(Arc<Type>),
    /// A library type, by its name.
    Opaque(&'static str),
    /// A type parameter of an overload.
    Param(u8),
}

/// The type of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListType {
    /// The type of the items.
    pub item: Type,
    /// What makes two such lists equal.
    pub identity: Identity,
}

/// The type of an object with declared fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The fields, by the names that expressions use.
    pub(crate) fields: Vec<Field>,
    /// The type of fields that are not declared; without one they are errors.
    pub(crate) rest: Option<Type>,
    /// Whether the object is more than a map: a Kubernetes object can neither be indexed nor walked over.
    pub(crate) sealed: bool,
}

/// A declared field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    /// The name in expressions.
    pub name: Arc<str>,
    /// The name in JSON.
    pub key: Arc<str>,
    pub ty: Type,
}

impl Object {
    pub(crate) fn field(&self, name: &str) -> Option<&Type> {
        let declared = self.fields.iter().find(|field| &*field.name == name);
        declared.map(|field| &field.ty).or(self.rest.as_ref())
    }
}

impl Type {
    /// A list of `item`.
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(ListType { item, identity: Identity::Sequence }))
    }

    /// A map.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// An optional.
    pub fn optional(inner: Self) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// An object with exactly these fields.
    pub fn object<N: Into<Arc<str>>>(fields: impl IntoIterator<Item = (N, Self)>) -> Self {
        let field = |(name, ty): (N, Self)| {
            let name = name.into();
            Field { key: name.clone(), name, ty }
        };
        Self::Object(Arc::new(Object {
            fields: fields.into_iter().map(field).collect(),
            rest: None,
            sealed: false,
        }))
    }

    /// Whether a value of this type may turn out to be of the type `other`.
    pub fn accepts(&self, other: &Self) -> bool {
        assign(self, other, &mut Bound::default())
    }
}

/// What the type parameters of an overload stand for.
#[derive(Debug, Default)]
pub(crate) struct Bound([Option<Type>; 4]);

impl Bound {
    /// `ty` with its parameters replaced; one that nothing determines is dyn.
    pub fn apply(&self, ty: &Type) -> Type {
        match ty {
            Type::Param(index) => self.0.get(usize::from(*index)).cloned().flatten().unwrap_or(Type::Dyn),
            Type::List(list) => Type::list(self.apply(&list.item)),
            Type::Map(entry) => Type::map(self.apply(&entry.0), self.apply(&entry.1)),
            Type::Optional(inner) => Type::optional(self.apply(inner)),
            other => other.clone(),
        }
    }
}

/// Whether an argument of type `arg` fits the parameter type `param`.
pub(crate) fn assign(param: &Type, arg: &Type, bound: &mut Bound) -> bool {
    match (param, arg) {
        (Type::Param(index), _) => {
            let index = usize::from(*index);
            match bound.0.get(index).cloned().flatten() {
                None | Some(Type::Dyn) => {
                    if let Some(slot) = bound.0.get_mut(index)
                        && (slot.is_none() || *arg != Type::Dyn)
                    {
                        *slot = Some(arg.clone());
                    }
                    true
                }
                Some(known) => {
                    if assign(&known, arg, bound) {
                        return true;
                    }
                    let wider = assign(arg, &known, bound);
                    if let (true, Some(slot)) = (wider, bound.0.get_mut(index)) {
                        *slot = Some(arg.clone());
                    }
                    wider
                }
            }
        }
        (Type::Dyn, _) | (_, Type::Dyn) => true,
        (
            Type::Object(_) | Type::Opaque(_) | Type::Duration | Type::Timestamp | Type::Optional(_),
            Type::Null,
        ) => true,
        (Type::List(param), Type::List(arg)) => assign(&param.item, &arg.item, bound),
        (Type::Map(param), Type::Map(arg)) => {
            assign(&param.0, &arg.0, bound) && assign(&param.1, &arg.1, bound)
        }
        (Type::Map(param), Type::Object(object)) if !object.sealed => {
            assign(&param.0, &Type::String, bound) && assign(&param.1, &Type::Dyn, bound)
        }
        (Type::Object(object), Type::Map(arg)) if !object.sealed => assign(&Type::String, &arg.0, bound),
        (Type::Object(a), Type::Object(b)) if !a.sealed && !b.sealed => true,
        (Type::Optional(param), Type::Optional(arg)) => assign(param, arg, bound),
        (param, arg) => param == arg,
    }
}

/// The type of what is one or the other; `None` when no type but dyn says it.
pub(crate) fn join(a: &Type, b: &Type) -> Option<Type> {
    if a == b || *a == Type::Dyn {
        return Some(a.clone());
    }
    if *b == Type::Dyn || b.accepts(a) && !a.accepts(b) {
        return Some(b.clone());
    }
    a.accepts(b).then(|| widen(a, b))
}

/// Two types that accept each other: dyn where either is.
fn widen(a: &Type, b: &Type) -> Type {
    match (a, b) {
        (Type::Dyn, _) | (_, Type::Dyn) => Type::Dyn,
        (Type::List(a), Type::List(b)) => Type::list(widen(&a.item, &b.item)),
        (Type::Map(a), Type::Map(b)) => Type::map(widen(&a.0, &b.0), widen(&a.1, &b.1)),
        (Type::Optional(a), Type::Optional(b)) => Type::optional(widen(a, b)),
        (Type::Object(_), Type::Object(_)) if a != b => Type::map(Type::String, Type::Dyn),
        _ => a.clone(),
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Type => f.write_str("type"),
            Self::List(list) => write!(f, "list({})", list.item),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Opaque(name) => f.write_str(name),
            Self::Param(index) => write!(f, "{}", char::from(b'A'.saturating_add(*index))),
        }
    }
}
