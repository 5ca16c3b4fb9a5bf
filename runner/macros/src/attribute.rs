//! Reads the options of attributes.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::meta::ParseNestedMeta;
use syn::{LitInt, LitStr};

/// An option that nobody knows, and those that there are.
pub fn unknown(meta: &ParseNestedMeta<'_>, known: &str) -> syn::Error {
    let name = meta.path.to_token_stream().to_string();
    meta.error(format!("there is no option `{name}`: use {known}"))
}

pub fn number<N>(meta: &ParseNestedMeta<'_>) -> syn::Result<N>
where
    N: std::str::FromStr,
    N::Err: std::fmt::Display,
{
    meta.value()?.parse::<LitInt>()?.base10_parse()
}

pub fn text(meta: &ParseNestedMeta<'_>) -> syn::Result<LitStr> {
    meta.value()?.parse()
}

/// A duration such as `500ms`, `5s`, `2m` or `24h`, as an expression.
pub fn duration(meta: &ParseNestedMeta<'_>) -> syn::Result<TokenStream> {
    let literal = text(meta)?;
    let millis = read_duration(&literal.value())
        .and_then(|duration| u64::try_from(duration.as_millis()).ok())
        .ok_or_else(|| {
            syn::Error::new(
                literal.span(),
                "expected a duration such as \"500ms\", \"5s\", \"2m\" or \"24h\"",
            )
        })?;
    Ok(quote!(::core::time::Duration::from_millis(#millis)))
}

fn read_duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(millis)?))
}

/// All errors that were found, as one.
#[derive(Default)]
pub struct Errors(Option<syn::Error>);

impl Errors {
    pub fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    pub fn take(self) -> Option<syn::Error> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        let millis = |text| read_duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("5s"), Some(5_000));
        assert_eq!(millis("2m"), Some(120_000));
        assert_eq!(millis("24h"), Some(86_400_000));
        for wrong in ["", "5", "s", "1d", "1.5s", "-1s", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }
}
