//! `#[entity_impl]` and `#[rpc_group_impl]`, on the impl block.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Ident, ImplItem, ItemImpl, Path, Type};

use crate::attribute::{Errors, unknown};
use crate::client;
use crate::method::{Argument, Method};

/// Names that the macros themselves use.
const TAKEN: [&str; 4] = ["register", "entity", "new", "inside"];

/// An impl block, its attributes taken off.
struct Block {
    item: ItemImpl,
    name: Ident,
    methods: Vec<Method>,
    errors: Errors,
}

impl Block {
    fn read(item: TokenStream) -> syn::Result<Self> {
        let mut item: ItemImpl = syn::parse2(item)?;
        let mut errors = Errors::default();
        if let Some((_, path, _)) = &item.trait_ {
            errors
                .push(syn::Error::new_spanned(path, "#[rpc] methods are the type's own: write `impl Type`"));
        }
        if !item.generics.params.is_empty() {
            let message =
                "an entity cannot be generic: its methods are found by name, and need one type each";
            errors.push(syn::Error::new_spanned(&item.generics, message));
        }
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.get_ident().cloned(),
            _ => None,
        };
        let Some(name) = name else {
            let message = "expected the plain name of a struct of this module";
            return Err(syn::Error::new_spanned(&item.self_ty, message));
        };
        let mut methods: Vec<Method> = Vec::new();
        for function in &mut item.items {
            let ImplItem::Fn(function) = function else { continue };
            let Some(method) = Method::take(function, &mut errors) else { continue };
            if methods.iter().any(|before| before.name == method.name) {
                let message =
                    format!("there are two methods `{}`: callers could not tell them apart", method.name);
                errors.at(method.name.span(), message);
            }
            if TAKEN.iter().any(|taken| method.name == taken) {
                let message =
                    format!("`{}` is a function that the macro makes: use another name", method.name);
                errors.at(method.name.span(), message);
            }
            methods.push(method);
        }
        Ok(Self { item, name, methods, errors })
    }

    /// The impl block and what was made of it; or, where that is not possible, the block and the errors.
    fn with(self, expanded: impl FnOnce(&Ident, &[Method]) -> TokenStream) -> TokenStream {
        let item = &self.item;
        let rest = match self.errors.take() {
            Some(error) => error.into_compile_error(),
            None => expanded(&self.name, &self.methods),
        };
        quote!(#item #rest)
    }
}

pub fn entity(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let block = Block::read(item)?;
    let mut groups: Vec<Path> = Vec::new();
    let read = syn::meta::parser(|meta| {
        if !meta.path.is_ident("rpc_groups") {
            return Err(unknown(&meta, "rpc_groups(GroupA, GroupB)"));
        }
        meta.parse_nested_meta(|group| {
            groups.push(group.path);
            Ok(())
        })
    })
    .parse2(options);
    let mut block = block;
    if let Err(error) = read {
        block.errors.push(error);
    }
    Ok(block.with(|name, methods| {
        let serve = serve(name, methods);
        let client = client::of_entity(name, methods);
        let register = register(name, &groups);
        quote!(#serve #register #client)
    }))
}

pub fn group(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut block = Block::read(item)?;
    if let Err(error) =
        syn::meta::parser(|meta| Err(unknown(&meta, "#[rpc_group_impl] alone"))).parse2(options)
    {
        block.errors.push(error);
    }
    for method in &block.methods {
        for argument in &method.arguments {
            if let Argument::Reads(state) | Argument::Changes(state) = argument {
                let message = "an RPC group has no state, because it is composed into several types: take what it \
                    needs as the request, or keep it in the group's own fields";
                block.errors.push(syn::Error::new_spanned(state, message));
            }
        }
    }
    Ok(block.with(|name, methods| {
        let serve = serve(name, methods);
        let client = client::of_group(name, methods);
        quote!(#serve #client)
    }))
}

/// What can be asked, and the way of each message to its method.
fn serve(name: &Ident, methods: &[Method]) -> TokenStream {
    let definitions = methods.iter().map(Method::definition);
    let arms = methods.iter().map(arm);
    quote! {
        impl ::cleat_runner::entity::native::Serve for #name {
            fn methods(&self) -> ::std::vec::Vec<(&'static str, ::cleat_runner::entity::Method)> {
                ::std::vec![#((#methods, #definitions)),*]
            }

            fn serve<'a>(
                &'a self,
                call: &'a mut ::cleat_runner::entity::Call,
            ) -> ::cleat_runner::entity::native::Serving<'a> {
                ::std::boxed::Box::pin(async move {
                    match call.method() {
                        #(#arms)*
                        _ => ::core::result::Result::Err(::cleat_runner::entity::native::unknown_method(call)),
                    }
                })
            }
        }
    }
}

/// One message: its input, its state, the method, the answer.
fn arm(method: &Method) -> TokenStream {
    let mut steps = TokenStream::new();
    let mut arguments = Vec::new();
    let wants_context = method.arguments.iter().any(|argument| matches!(argument, Argument::Context));
    let context = if wants_context { format_ident!("context") } else { format_ident!("_context") };
    let mut has_state = false;
    for argument in &method.arguments {
        match argument {
            Argument::Request(ty) => {
                // Before the state is borrowed.
                let read = quote_spanned!(ty.span()=> let request = call.input::<#ty>()?;);
                steps = quote!(#read #steps);
                arguments.push(quote!(request));
            }
            Argument::Reads(ty) | Argument::Changes(ty) => {
                let how =
                    if matches!(argument, Argument::Reads(_)) { quote!(reading) } else { quote!(writing) };
                has_state = true;
                steps.extend(quote_spanned! {ty.span()=>
                    let (#context, state) = ::cleat_runner::entity::native::#how::<Self, #ty>(call)?;
                });
                arguments.push(quote!(state));
            }
            Argument::Context => arguments.push(quote!(context)),
        }
    }
    if wants_context && !has_state {
        steps.extend(quote!(let context = call.context();));
    }
    let (function, error) = (&method.name, &method.error);
    let answer = quote_spanned!(error.span()=> call.answer::<_, #error>(result));
    quote! {
        #method => {
            #steps
            let result = self.#function(#(#arguments),*).await;
            #answer
        }
    }
}

/// `register`, with one parameter for each group.
fn register(name: &Ident, groups: &[Path]) -> TokenStream {
    let client = format_ident!("{name}Client");
    let parameters: Vec<_> = (0..groups.len()).map(|at| format_ident!("group_{at}")).collect();
    let inside = format_ident!("{name}Inside");
    let traits = groups.iter().map(client::trait_of);
    let parts = groups.iter().zip(&parameters).map(
        |(group, parameter)| quote_spanned!(group.span()=> ::cleat_runner::entity::native::group(#parameter)),
    );
    quote! {
        #[allow(dead_code, reason = "a type may be asked without being served here")]
        impl #name {
            /// Registers this type of entity, and gives the client that asks it.
            ///
            /// # Errors
            /// What contradicts itself, such as two methods of the same name.
            pub fn register(
                self,
                runtime: &(impl ::cleat_runner::client::Runtime + ?Sized),
                #(#parameters: #groups,)*
            ) -> ::core::result::Result<#client, ::cleat_runner::entity::InvalidDefinition> {
                let settings = <Self as ::cleat_runner::entity::native::Declared>::settings();
                let parts: ::std::vec::Vec<::std::sync::Arc<dyn ::cleat_runner::entity::native::Serve>> =
                    ::std::vec![::std::sync::Arc::new(self), #(#parts),*];
                ::cleat_runner::entity::native::Service::new(settings, parts)?.register(runtime)
            }
        }

        #(impl #traits for #client {})*
        #(impl ::cleat_runner::entity::native::Has<#groups> for #inside {})*
    }
}
