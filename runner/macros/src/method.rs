//! One `#[rpc]` method as the user wrote it.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{
    Attribute, FnArg, GenericArgument, Ident, ImplItemFn, PathArguments, Receiver, ReturnType, Type,
    Visibility,
};

use crate::attribute::{Errors, duration, number, text, unknown};

pub struct Method {
    pub name: Ident,
    pub vis: Visibility,
    pub docs: Vec<Attribute>,
    pub audience: Audience,
    /// What the function takes, in its order.
    pub arguments: Vec<Argument>,
    /// The reply, or one item of it if it is a stream.
    pub reply: Type,
    pub error: Type,
    pub gives: Gives,
    options: Options,
}

/// How the function gives its reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// It returns it.
    Reply,
    /// It gives items to an emitter.
    Items,
    /// It returns a stream of items.
    Stream {
        /// Once it was awaited.
        awaited: bool,
    },
}

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    Public,
    Protected,
    Private,
}

pub enum Argument {
    Request(Box<Type>),
    Reads(Box<Type>),
    Changes(Box<Type>),
    Context,
    /// What items of this type are given to.
    Emitter(Box<Type>),
}

/// What `#[rpc(...)]` says.
#[derive(Default)]
struct Options {
    persisted: bool,
    stream: bool,
    effects: Option<TokenStream>,
    attempts: Option<usize>,
    backoff: Option<TokenStream>,
    timeout: Option<TokenStream>,
    uninterruptible: Option<TokenStream>,
    /// Where the first option stands that only persisted methods have.
    durable: Option<(&'static str, Span)>,
}

impl Options {
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let path = &meta.path;
        let mut durable = None;
        if path.is_ident("persisted") {
            self.persisted = true;
        } else if path.is_ident("stream") {
            self.stream = true;
        } else if path.is_ident("effects") {
            durable = Some("effects");
            let word = text(meta)?;
            self.effects = Some(match word.value().as_str() {
                "inside" => quote!(Inside),
                "outside" => quote!(Outside),
                _ => return Err(syn::Error::new(word.span(), "effects are \"inside\" or \"outside\"")),
            });
        } else if path.is_ident("attempts") {
            durable = Some("attempts");
            self.attempts = Some(number(meta)?);
            if self.attempts == Some(0) {
                return Err(meta.error("there is at least one attempt"));
            }
        } else if path.is_ident("retries") {
            durable = Some("retries");
            self.attempts = Some(number::<usize>(meta)?.saturating_add(1));
        } else if path.is_ident("backoff") {
            durable = Some("backoff");
            self.backoff = Some(duration(meta)?);
        } else if path.is_ident("timeout") {
            self.timeout = Some(duration(meta)?);
        } else if path.is_ident("uninterruptible") {
            durable = Some("uninterruptible");
            self.uninterruptible = Some(if meta.input.peek(syn::Token![=]) {
                let word = text(meta)?;
                match word.value().as_str() {
                    "client" => quote!(Client),
                    "server" => quote!(Server),
                    "both" => quote!(Both),
                    _ => {
                        return Err(syn::Error::new(
                            word.span(),
                            "expected \"client\", \"server\" or \"both\"",
                        ));
                    }
                }
            } else {
                quote!(Both)
            });
        } else {
            let known = "persisted, stream, effects, attempts, retries, backoff, timeout or uninterruptible";
            return Err(unknown(meta, known));
        }
        if let Some(name) = durable {
            self.durable.get_or_insert((name, path.span()));
        }
        Ok(())
    }
}

impl Method {
    /// Takes the attributes of a method off it. None if it is no `#[rpc]`, or is none that can be understood; then the errors say why.
    pub fn take(function: &mut ImplItemFn, errors: &mut Errors) -> Option<Self> {
        let mut rpc = None;
        let mut audience: Option<(Audience, Span)> = None;
        function.attrs.retain(|attribute| {
            let whose = if attribute.path().is_ident("rpc") {
                rpc = Some(attribute.clone());
                return false;
            } else if attribute.path().is_ident("protected") {
                Audience::Protected
            } else if attribute.path().is_ident("private") {
                Audience::Private
            } else {
                return true;
            };
            if audience.replace((whose, attribute.span())).is_some_and(|(before, _)| before != whose) {
                errors.at(attribute.span(), "a method is #[protected] or #[private], not both");
            }
            false
        });
        let Some(rpc) = rpc else {
            if let Some((_, span)) = audience {
                errors.at(span, "only what can be asked has an audience: add #[rpc], or remove this");
            }
            return None;
        };
        let mut options = Options::default();
        if !matches!(rpc.meta, syn::Meta::Path(_))
            && let Err(error) = rpc.parse_nested_meta(|meta| options.read(&meta))
        {
            errors.push(error);
        }
        if let (false, Some((name, span))) = (options.persisted, options.durable) {
            errors.at(span, format!("`{name}` is for stored messages: write #[rpc(persisted, {name} ...)]"));
        }
        if let (Some((Audience::Private, _)), Visibility::Public(public)) = (audience, &function.vis) {
            errors.at(public.span(), "a #[private] method cannot be pub: remove one of the two");
        }
        let audience = audience.map_or(Audience::Public, |(audience, _)| audience);
        Self::read(function, options, audience, errors)
    }

    fn read(
        function: &ImplItemFn,
        options: Options,
        audience: Audience,
        errors: &mut Errors,
    ) -> Option<Self> {
        let signature = &function.sig;
        let returned = items(&signature.output);
        if signature.asyncness.is_none() && returned.is_none() {
            errors.at(signature.fn_token.span, "an #[rpc] method is async: write `async fn`");
        }
        if !signature.generics.params.is_empty() {
            let message = "an #[rpc] method cannot be generic: its input is read as one type";
            errors.push(syn::Error::new_spanned(&signature.generics, message));
        }
        let mut arguments = Vec::new();
        let mut inputs = signature.inputs.iter();
        match inputs.next() {
            Some(FnArg::Receiver(Receiver {
                reference: Some(_),
                mutability: None,
                colon_token: None,
                ..
            })) => {}
            Some(other) => errors.push(syn::Error::new_spanned(other, NO_SELF)),
            None => errors.at(signature.paren_token.span.join(), NO_SELF),
        }
        for input in inputs {
            let FnArg::Typed(input) = input else { continue };
            let argument = Argument::of(&input.ty);
            if arguments.iter().any(|before: &Argument| before.is_like(&argument)) {
                errors.push(syn::Error::new_spanned(input, argument.twice()));
            }
            if matches!(argument, Argument::Changes(_)) && !options.persisted {
                let message = "a volatile method cannot change the state, because nothing stores it: write \
                    #[rpc(persisted)], or take the state as `&`";
                errors.push(syn::Error::new_spanned(&input.ty, message));
            }
            arguments.push(argument);
        }
        let emitted = arguments.iter().find_map(|argument| match argument {
            Argument::Emitter(item) => Some(Type::clone(item)),
            _ => None,
        });
        let awaited = signature.asyncness.is_some();
        let given = match (options.stream, emitted, returned, result(&signature.output)) {
            (false, None, None, Some((reply, error))) => Ok((reply, error, Gives::Reply)),
            (true, Some(item), None, Some((Type::Tuple(unit), error))) if unit.elems.is_empty() => {
                Ok((item, error, Gives::Items))
            }
            (true, None, Some((item, error)), _) => Ok((item, error, Gives::Stream { awaited })),
            (false, None, None, None) => Err(NO_RESULT),
            (false, ..) => Err(NOT_STREAM),
            (true, Some(_), ..) => Err(EMITS),
            (true, None, None, _) => Err(NO_ITEMS),
        };
        let (reply, error, gives) = match given {
            Ok(given) => given,
            Err(message) => {
                match &signature.output {
                    ReturnType::Default => errors.at(signature.ident.span(), message),
                    ReturnType::Type(_, output) => errors.push(syn::Error::new_spanned(output, message)),
                }
                return None;
            }
        };
        Some(Self {
            name: signature.ident.clone(),
            vis: function.vis.clone(),
            docs: function
                .attrs
                .iter()
                .filter(|attribute| attribute.path().is_ident("doc"))
                .cloned()
                .collect(),
            audience,
            arguments,
            reply,
            error,
            gives,
            options,
        })
    }

    /// What callers give, if anything.
    pub fn request(&self) -> Option<&Type> {
        self.arguments.iter().find_map(|argument| match argument {
            Argument::Request(request) => Some(&**request),
            _ => None,
        })
    }

    /// The definition, as an expression.
    pub fn definition(&self) -> TokenStream {
        let options = &self.options;
        let delivery = if options.persisted { quote!(persisted) } else { quote!(volatile) };
        let access = self.arguments.iter().find_map(|argument| match argument {
            Argument::Reads(_) => Some(quote!(.with_state(::cleat_runner::entity::Access::Read))),
            Argument::Changes(_) => Some(quote!(.with_state(::cleat_runner::entity::Access::Write))),
            Argument::Request(_) | Argument::Context | Argument::Emitter(_) => None,
        });
        let stream = options.stream.then(|| quote!(.streaming()));
        let audience = match self.audience {
            Audience::Public => None,
            Audience::Protected => Some(quote!(Protected)),
            Audience::Private => Some(quote!(Private)),
        };
        let audience =
            audience.iter().map(|who| quote!(.visible_to(::cleat_runner::entity::Visibility::#who)));
        let effects = options
            .effects
            .iter()
            .map(|place| quote!(.with_effects(::cleat_runner::entity::Effects::#place)));
        let attempts = options.attempts.iter().map(|attempts| quote!(.attempts(#attempts)));
        let backoff = options.backoff.iter().map(|backoff| quote!(.backoff(#backoff)));
        let timeout = options.timeout.iter().map(|timeout| quote!(.timeout(#timeout)));
        let uninterruptible = options
            .uninterruptible
            .iter()
            .map(|by| quote!(.uninterruptible(::cleat_runner::message::Uninterruptible::#by)));
        quote! {
            ::cleat_runner::entity::Method::#delivery()
                #stream #access #(#audience)* #(#effects)* #(#attempts)* #(#backoff)* #(#timeout)* #(#uninterruptible)*
        }
    }
}

const NO_RESULT: &str =
    "an #[rpc] method returns `Result<Reply, Error>`; `Result<Reply, Never>` if it cannot fail";
const NOT_STREAM: &str = "only a stream gives items: write #[rpc(stream)]";
const EMITS: &str = "a stream that gives its items to an emitter returns `Result<(), Error>`";
const NO_ITEMS: &str = "a stream returns `impl Stream<Item = Result<Item, Error>>`, or takes `&mut Emitter<Item>` and \
    returns `Result<(), Error>`";

const NO_SELF: &str =
    "an #[rpc] method takes `&self` first: instances share the struct, and what changes is in the state";

impl Argument {
    fn of(ty: &Type) -> Self {
        let Type::Reference(reference) = ty else { return Self::Request(Box::new(ty.clone())) };
        let target = reference.elem.clone();
        if let Some(item) = parameter_of(&target, "Emitter") {
            return Self::Emitter(Box::new(item));
        }
        let is_context = matches!(&*target, Type::Path(path)
            if path.path.segments.last().is_some_and(|segment| segment.ident == "Context"));
        match (is_context, reference.mutability.is_some()) {
            (true, _) => Self::Context,
            (false, true) => Self::Changes(target),
            (false, false) => Self::Reads(target),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Request(_), Self::Request(_))
                | (Self::Context, Self::Context)
                | (Self::Emitter(_), Self::Emitter(_))
                | (Self::Reads(_) | Self::Changes(_), Self::Reads(_) | Self::Changes(_))
        )
    }

    fn twice(&self) -> &'static str {
        match self {
            Self::Request(_) => "a method has one request: put its inputs into one struct",
            Self::Context => "a method has one context",
            Self::Emitter(_) => {
                "a method has one emitter: give it an enum if there are several kinds of items"
            }
            Self::Reads(_) | Self::Changes(_) => {
                "a method has one state: what is taken by reference is the state, what is taken by value is the request"
            }
        }
    }
}

/// `T` of `Name<T>`.
fn parameter_of(ty: &Type, name: &str) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    })
}

/// `T` and `E` of `impl Stream<Item = Result<T, E>>`.
fn items(output: &ReturnType) -> Option<(Type, Type)> {
    let ReturnType::Type(_, output) = output else { return None };
    let Type::ImplTrait(stream) = &**output else { return None };
    stream.bounds.iter().find_map(|bound| {
        let syn::TypeParamBound::Trait(bound) = bound else { return None };
        let last = bound.path.segments.last().filter(|segment| segment.ident == "Stream")?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(item) if item.ident == "Item" => result_types(&item.ty),
            _ => None,
        })
    })
}

/// `T` and `E` of a function that returns `Result<T, E>`.
pub fn result(output: &ReturnType) -> Option<(Type, Type)> {
    let ReturnType::Type(_, output) = output else { return None };
    result_types(output)
}

fn result_types(ty: &Type) -> Option<(Type, Type)> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    let found = (types.next()?, types.next()?);
    types.next().is_none().then_some(found)
}

impl ToTokens for Method {
    /// The method's name as text, as it is asked for.
    fn to_tokens(&self, tokens: &mut TokenStream) {
        syn::LitStr::new(&self.name.to_string(), self.name.span()).to_tokens(tokens);
    }
}
