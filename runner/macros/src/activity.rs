//! One `#[activity]` as the user wrote it.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, FnArg, Ident, ImplItemFn, LitStr, Pat, Receiver, Type, Visibility};

use crate::attribute::{Errors, duration, number, text, unknown};
use crate::method::result;

pub struct Activity {
    pub function: ImplItemFn,
    name: Ident,
    vis: Visibility,
    docs: Vec<Attribute>,
    arguments: Vec<(Ident, Type)>,
    gives: Type,
    error: Type,
    options: Options,
}

/// What `#[activity(...)]` says.
#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    attempts: Option<u32>,
    /// How the pauses grow.
    constant: bool,
    first: Option<TokenStream>,
    max: Option<TokenStream>,
    custom: Option<Expr>,
    timeout: Option<TokenStream>,
    deadline: Option<TokenStream>,
    heartbeat: Option<TokenStream>,
    last: Option<Expr>,
}

impl Options {
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let path = &meta.path;
        if path.is_ident("name") {
            self.name = Some(text(meta)?);
        } else if path.is_ident("retries") {
            self.attempts = Some(number::<u32>(meta)?.saturating_add(1));
        } else if path.is_ident("attempts") {
            let attempts = number(meta)?;
            if attempts == 0 {
                return Err(meta.error("there is at least one attempt"));
            }
            self.attempts = Some(attempts);
        } else if path.is_ident("backoff") {
            self.backoff(meta)?;
        } else if path.is_ident("interval") {
            self.first = Some(duration(meta)?);
        } else if path.is_ident("max_interval") {
            self.max = Some(duration(meta)?);
        } else if path.is_ident("timeout") {
            self.timeout = Some(duration(meta)?);
        } else if path.is_ident("deadline") {
            self.deadline = Some(duration(meta)?);
        } else if path.is_ident("heartbeat") {
            self.heartbeat = Some(duration(meta)?);
        } else if path.is_ident("no_retry") {
            self.last = Some(meta.value()?.parse()?);
        } else {
            let known = "name, retries, attempts, backoff, interval, max_interval, timeout, deadline, heartbeat or no_retry";
            return Err(unknown(meta, known));
        }
        Ok(())
    }

    /// `"exponential"`, `"constant"`, or a function of how many attempts have failed.
    fn backoff(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let value = meta.value()?;
        if !value.peek(LitStr) {
            self.custom = Some(value.parse()?);
            return Ok(());
        }
        let word: LitStr = value.parse()?;
        self.constant = match word.value().as_str() {
            "constant" => true,
            "exponential" => false,
            _ => {
                let message =
                    "backoff is \"exponential\", \"constant\" or a function of how many attempts have failed";
                return Err(syn::Error::new(word.span(), message));
            }
        };
        Ok(())
    }

    fn tokens(&self) -> TokenStream {
        let option = |value: &Option<TokenStream>| match value {
            Some(value) => quote!(::core::option::Option::Some(#value)),
            None => quote!(::core::option::Option::None),
        };
        let attempts = option(&self.attempts.map(|attempts| quote!(#attempts)));
        let (timeout, deadline, heartbeat) =
            (option(&self.timeout), option(&self.deadline), option(&self.heartbeat));
        let second = quote!(::core::time::Duration::from_secs(1));
        let first = self.first.clone().unwrap_or_else(|| quote!(::core::time::Duration::from_millis(100)));
        let backoff = match (&self.custom, self.constant) {
            (Some(function), _) => quote!(::cleat_runner::workflow::activity::Backoff::Custom(#function)),
            (None, true) => {
                let pause = self.first.clone().unwrap_or(second);
                quote!(::cleat_runner::workflow::activity::Backoff::Constant(#pause))
            }
            (None, false) => {
                let max = self.max.clone().unwrap_or_else(|| quote!(::core::time::Duration::from_secs(60)));
                quote!(::cleat_runner::workflow::activity::Backoff::Exponential {
                    first: #first, factor: 2.0, max: #max
                })
            }
        };
        quote! {
            ::cleat_runner::workflow::activity::Options {
                attempts: #attempts,
                backoff: #backoff,
                timeout: #timeout,
                deadline: #deadline,
                heartbeat: #heartbeat,
            }
        }
    }
}

impl Activity {
    /// Takes the attribute off a function. None if it is no `#[activity]`, or none that can be understood; then the errors say why.
    pub fn take(function: &ImplItemFn, errors: &mut Errors) -> Option<Self> {
        let attribute = function.attrs.iter().find(|attribute| attribute.path().is_ident("activity"))?;
        let mut options = Options::default();
        if !matches!(attribute.meta, syn::Meta::Path(_))
            && let Err(error) = attribute.parse_nested_meta(|meta| options.read(&meta))
        {
            errors.push(error);
        }
        let mut function = function.clone();
        function.attrs.retain(|attribute| !attribute.path().is_ident("activity"));
        let signature = &function.sig;
        if signature.asyncness.is_none() {
            errors.at(signature.fn_token.span, "an #[activity] is async: write `async fn`");
        }
        if !signature.generics.params.is_empty() {
            let message = "an #[activity] cannot be generic: what it gives is read as one type";
            errors.push(syn::Error::new_spanned(&signature.generics, message));
        }
        let arguments = arguments(signature, "an #[activity]", errors)?;
        let Some((gives, error)) = result(&signature.output) else {
            let message =
                "an #[activity] returns `Result<Value, Error>`; `Result<Value, Never>` if it cannot fail";
            errors.at(signature.ident.span(), message);
            return None;
        };
        let docs =
            function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
        let (name, vis) = (signature.ident.clone(), function.vis.clone());
        Some(Self { name, vis, docs, arguments, gives, error, options, function })
    }

    /// What the workflow's function calls: the same name and arguments, giving a step.
    pub fn step(&self, acting: &Ident, this: &TokenStream, visible: bool) -> TokenStream {
        let Self { name, vis, docs, arguments, gives, error, .. } = self;
        let vis = visible.then_some(vis);
        let label = self.options.name.clone().unwrap_or_else(|| LitStr::new(&name.to_string(), name.span()));
        let options = self.options.tokens();
        let parameters = arguments.iter().map(|(name, ty)| quote!(#name: #ty));
        let names: Vec<_> = arguments.iter().map(|(name, _)| name).collect();
        let clones = arguments
            .iter()
            .map(|(name, ty)| quote_spanned!(ty.span()=> let #name = ::core::clone::Clone::clone(&#name);));
        let last = match &self.options.last {
            Some(is_last) => {
                quote! {
                    match &result {
                        ::core::result::Result::Err(error) => {
                            ::cleat_runner::workflow::apply(#is_last, error)
                        }
                        ::core::result::Result::Ok(_) => false,
                    }
                }
            }
            None => quote!(false),
        };
        quote! {
            #(#docs)*
            #vis fn #name(
                &self,
                #(#parameters),*
            ) -> ::cleat_runner::workflow::Step<#gives, <#error as ::cleat_runner::entity::Refusal>::Error> {
                let this = ::std::sync::Arc::clone(#this);
                ::cleat_runner::workflow::Step::new(
                    ::cleat_runner::workflow::Steps::context(self),
                    #label,
                    #options,
                    move |activity| {
                        let me = #acting { this: ::std::sync::Arc::clone(&this), tx: activity.tx.clone(), activity };
                        #(#clones)*
                        ::std::boxed::Box::pin(async move {
                            let result = me.#name(#(#names),*).await;
                            let last = #last;
                            ::cleat_runner::workflow::attempted::<_, #error>(result, last)
                        })
                    },
                )
            }
        }
    }
}

/// What a function takes besides `&self`, each by a name.
pub fn arguments(signature: &syn::Signature, what: &str, errors: &mut Errors) -> Option<Vec<(Ident, Type)>> {
    let mut inputs = signature.inputs.iter();
    let no_self = format!("{what} takes `&self` first");
    match inputs.next() {
        Some(FnArg::Receiver(Receiver {
            reference: Some(_), mutability: None, colon_token: None, ..
        })) => {}
        Some(other) => errors.push(syn::Error::new_spanned(other, no_self)),
        None => errors.at(signature.paren_token.span.join(), no_self),
    }
    let mut arguments = Vec::new();
    for (at, input) in inputs.enumerate() {
        let FnArg::Typed(input) = input else { continue };
        if let Type::Reference(reference) = &*input.ty {
            let message =
                format!("{what} takes its arguments by value: it may run long after its caller has gone");
            errors.push(syn::Error::new_spanned(reference, message));
            return None;
        }
        let name = match &*input.pat {
            Pat::Ident(name) => name.ident.clone(),
            _ => format_ident!("argument_{at}"),
        };
        arguments.push((name, (*input.ty).clone()));
    }
    Some(arguments)
}
