//! What functions cost, by their names.

use super::{Estimate, Estimator, LIST, Range, TRAVERSAL};
use crate::types::Type;

/// What one character of a regular expression costs, for each character of the text.
const REGEX: f64 = 0.25;
/// The longest regular expression of a named format.
const FORMAT: f64 = 128.0;

pub(super) struct Call {
    pub(super) cost: Range,
    /// The size of the result, where the function tells it.
    pub(super) size: Option<Range>,
}

impl Call {
    fn plain(cost: Range) -> Self {
        Self { cost, size: None }
    }

    /// A walk along a text that gives one of the same size.
    fn walked(text: Range) -> Self {
        Self { cost: text.times(TRAVERSAL), size: Some(text) }
    }
}

/// A call that makes a list, and walks along it.
fn made(list: Range, each: f64) -> Call {
    Call { cost: list.times(each).add(Range::fixed(1 + LIST)), size: Some(list) }
}

/// Sorting a list by keys of a type: at worst each is compared with each.
pub(super) fn sort(list: Range, keys: &Type) -> Call {
    let text = if matches!(keys, Type::String | Type::Bytes) { TRAVERSAL } else { 0.0 };
    made(list.multiply(list), 2.0 + text)
}

/// Values of these types are compared in one step.
pub(super) fn equal_at_once(left: &Type, right: &Type) -> bool {
    left == right
        && matches!(
            left,
            Type::Opaque(
                "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" | "kubernetes.URL"
            )
        )
}

/// What a call costs, without its target and its arguments.
pub(super) fn estimate(
    estimator: &Estimator<'_>,
    name: &str,
    target: Option<&Estimate>,
    args: &[Estimate],
) -> Call {
    let known = match (target, args) {
        (Some(target), args) => member(estimator, name, target, args),
        (None, args) => global(name, args),
    };
    known.unwrap_or_else(|| Call::plain(Range::fixed(1)))
}

fn global(name: &str, args: &[Estimate]) -> Option<Call> {
    let first = args.first()?.size();
    Some(match name {
        "url" | "jsonpatch.escapeKey" => Call::walked(first),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            Call::plain(first.times(TRAVERSAL))
        }
        "ip.isCanonical" => Call::plain(first.times(2.0 * TRAVERSAL)),
        "sets.contains" | "sets.intersects" | "sets.equivalent" => {
            let factor = if name == "sets.equivalent" { 2.0 } else { 1.0 };
            let pairs = first.multiply(args.get(1)?.size());
            Call::plain(pairs.times(factor).add(Range::fixed(1)))
        }
        "lists.range" => made(Range::fixed(args.first()?.number.unwrap_or(u64::MAX)), 1.0),
        "bytes" if matches!(args.first()?.ty, Type::String | Type::Dyn) => {
            let size = Range { min: first.min, max: first.max.saturating_mul(4) };
            Call { cost: first.times(TRAVERSAL), size: Some(size) }
        }
        "string" if matches!(args.first()?.ty, Type::Bytes | Type::Dyn) => {
            let size = Range { min: first.min / 4, max: first.max };
            Call { cost: first.times(TRAVERSAL), size: Some(size) }
        }
        "strings.quote" => {
            let size = Range {
                min: first.min.saturating_add(2),
                max: first.max.saturating_mul(2).saturating_add(2),
            };
            Call { cost: first.times(TRAVERSAL), size: Some(size) }
        }
        _ => return None,
    })
}

fn member(estimator: &Estimator<'_>, name: &str, target: &Estimate, args: &[Estimate]) -> Option<Call> {
    let size = target.size();
    let argument = |position: usize| args.get(position).map(Estimate::size);
    Some(match name {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => match items(estimator, target) {
            Some((ty, item)) => {
                let long = matches!(ty, Type::String | Type::Bytes);
                let each = if long { item.times(TRAVERSAL) } else { Range::ZERO };
                Call::plain(size.multiply(each.add(Range::fixed(1))))
            }
            None => Call::plain(size.times(TRAVERSAL)),
        },
        "lowerAscii" | "upperAscii" | "substring" | "trim" => Call::walked(size),
        "replace" => {
            let result = replaced(size, argument(0)?, argument(1)?);
            Call { cost: size.times(2.0 * TRAVERSAL), size: Some(result) }
        }
        "split" => {
            let max = args.get(1).and_then(|limit| limit.number).unwrap_or(size.max);
            Call { cost: size.times(2.0 * TRAVERSAL), size: Some(Range { min: 0, max }) }
        }
        "slice" => {
            let from = args.first()?.number.unwrap_or(0);
            made(Range::fixed(args.get(1)?.number.unwrap_or(size.max).saturating_sub(from)), 1.0)
        }
        "reverse" if matches!(target.ty, Type::List(_) | Type::Dyn) => made(size, 1.0),
        "flatten" => match args.first().map(|depth| depth.number) {
            Some(Some(depth)) => made(size, f64::from(u32::try_from(depth).unwrap_or(u32::MAX))),
            Some(None) => made(size, f64::from(u32::MAX)),
            None => made(size, 1.0),
        },
        "distinct" => made(size.multiply(size), 2.0),
        "sort" => sort(size, &items(estimator, target).map_or(Type::Dyn, |(ty, _)| ty)),
        "join" => {
            let mut result = items(estimator, target).map_or(Range::ZERO, |(_, item)| size.multiply(item));
            if let Some(separator) = argument(0) {
                let gaps = Range { min: size.min.saturating_sub(1), max: size.max.saturating_sub(1) };
                result = result.add(separator.multiply(gaps));
            }
            Call::walked(result)
        }
        "find" | "findAll" => {
            Call { cost: matched(size, argument(0)?), size: Some(Range { min: 0, max: size.max }) }
        }
        "matches" => Call::plain(matched(size, argument(0)?)),
        "contains" => Call::plain(size.times(TRAVERSAL).multiply(argument(0)?.times(TRAVERSAL))),
        "startsWith" | "endsWith" => Call::plain(argument(0)?.times(TRAVERSAL)),
        "format" => Call::plain(size.times(TRAVERSAL)),
        "validate" => Call::plain(argument(0)?.times(TRAVERSAL).times(FORMAT * REGEX)),
        "containsIP" | "containsCIDR" => {
            // An address has 4 bytes or 16, and two of them are compared.
            let address = Range { min: 4, max: 16 };
            let mut cost = address.add(address).times(TRAVERSAL);
            if name == "containsCIDR" {
                cost = cost.add(address.times(TRAVERSAL)).add(Range::fixed(1));
            }
            if matches!(args.first()?.ty, Type::String | Type::Dyn) {
                cost = cost.add(argument(0)?.times(TRAVERSAL));
            }
            Call::plain(cost)
        }
        _ => return None,
    })
}

/// What it costs to look for a regular expression; an empty text costs, too.
fn matched(text: Range, regex: Range) -> Range {
    text.add(Range::fixed(1)).times(TRAVERSAL).multiply(regex.times(REGEX))
}

/// The type and the size of the items of a list.
fn items(estimator: &Estimator<'_>, list: &Estimate) -> Option<(Type, Range)> {
    let ty = match &list.ty {
        Type::List(list) => list.item.clone(),
        Type::Map(entry) => entry.0.clone(),
        Type::Optional(inner) => (**inner).clone(),
        _ => return None,
    };
    let mut path = list.path.clone();
    let size = if path.is_empty() {
        None
    } else {
        path.push("@items".into());
        estimator.shape.size(&path)
    };
    Some((ty, size.unwrap_or(Range::UNKNOWN)))
}

/// How long a text is in which one part is replaced by another, wherever it is.
fn replaced(text: Range, part: Range, with: Range) -> Range {
    let (most, kept_most) = if part.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if with.max <= part.min {
        (0, text.max)
    } else {
        (text.max.div_ceil(part.min), 0)
    };
    let (least, kept_least) = if part.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if part.max <= with.min {
        (0, text.min)
    } else {
        (text.min.div_ceil(part.max), 0)
    };
    Range { min: least, max: most }.multiply(with).add(Range { min: kept_least, max: kept_most })
}
