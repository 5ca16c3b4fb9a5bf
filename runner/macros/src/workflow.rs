//! `#[workflow]`, `#[workflow_impl]`, `#[activity_group]` and `#[activity_group_impl]`.
//!
//! The functions of an impl block move: `execute` to a struct `NameRun`, which has the context of one execution, activities to
//! `NameActivity`, which has `tx` and what is known of one attempt. Both dereference to the user's struct. `NameRun` has a
//! function for each activity that gives a step.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Expr, Ident, ImplItem, ImplItemFn, ItemImpl, ItemStruct, LitBool, LitStr, Path, Type};

use crate::activity::{Activity, arguments};
use crate::attribute::{Errors, duration, text, unknown};
use crate::declaration::{kebab, plain};
use crate::method::result;

pub fn workflow(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let declared: ItemStruct = syn::parse2(item)?;
    let (mut name, mut group, mut timeout): (Option<LitStr>, Option<LitStr>, Option<TokenStream>) =
        (None, None, None);
    syn::meta::parser(|meta| {
        if meta.path.is_ident("name") {
            name = Some(text(&meta)?);
        } else if meta.path.is_ident("shard_group") {
            group = Some(text(&meta)?);
        } else if meta.path.is_ident("timeout") {
            timeout = Some(duration(&meta)?);
        } else {
            return Err(unknown(&meta, "name, shard_group or timeout"));
        }
        Ok(())
    })
    .parse2(options)?;
    plain(&declared, "a workflow")?;
    let (ident, vis) = (&declared.ident, &declared.vis);
    let name = name.map_or_else(|| kebab(&ident.to_string()), |name| name.value());
    let group = group.iter();
    let timeout = timeout.iter();
    let (acting, run) = (acting(&declared), run_of(&declared));
    let client = format_ident!("{ident}Client");
    let about = format!("Starts executions of [`{ident}`] and asks them.");
    Ok(quote! {
        #declared
        #acting
        #run

        #[doc = #about]
        #[allow(dead_code, reason = "a workflow may be there for others")]
        #vis type #client = ::cleat_runner::workflow::Client<#ident>;

        impl ::cleat_runner::workflow::Declared for #ident {
            fn definition() -> ::core::result::Result<
                ::cleat_runner::workflow::Definition,
                ::cleat_runner::entity::InvalidDefinition,
            > {
                let definition = ::cleat_runner::workflow::Definition::new(#name)?;
                #(let definition = definition.in_group(::cleat_runner::shard::GroupName::new(#group)?);)*
                #(let definition = definition.timeout(#timeout);)*
                ::core::result::Result::Ok(definition)
            }
        }
    })
}

pub fn group(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let declared: ItemStruct = syn::parse2(item)?;
    syn::meta::parser(|meta| Err(unknown(&meta, "#[activity_group] alone"))).parse2(options)?;
    plain(&declared, "an activity group")?;
    let acting = acting(&declared);
    Ok(quote!(#declared #acting))
}

/// The struct that is `self` in an activity.
fn acting(declared: &ItemStruct) -> TokenStream {
    let (name, vis) = (&declared.ident, &declared.vis);
    let acting = format_ident!("{name}Activity");
    let about = format!("An activity of [`{name}`] while it runs.");
    quote! {
        #[doc = #about]
        #[allow(dead_code, reason = "not every activity has a transaction")]
        #vis struct #acting {
            this: ::std::sync::Arc<#name>,
            /// A transaction that commits with the journal, if the activity succeeds.
            tx: ::cleat_runner::workflow::Tx,
            activity: ::cleat_runner::workflow::activity::Context,
        }

        impl ::core::ops::Deref for #acting {
            type Target = #name;

            fn deref(&self) -> &#name {
                &self.this
            }
        }

        impl ::cleat_runner::workflow::Acting for #acting {
            fn activity(&self) -> &::cleat_runner::workflow::activity::Context {
                &self.activity
            }
        }
    }
}

/// The struct that is `self` in `execute`.
fn run_of(declared: &ItemStruct) -> TokenStream {
    let (name, vis) = (&declared.ident, &declared.vis);
    let run = format_ident!("{name}Run");
    let about = format!("One execution of [`{name}`], as its function sees it.");
    quote! {
        #[doc = #about]
        #[derive(Clone)]
        #[allow(dead_code, reason = "not every workflow has groups")]
        #vis struct #run {
            this: ::std::sync::Arc<#name>,
            context: ::cleat_runner::workflow::Context,
            groups: <#name as ::cleat_runner::workflow::Grouped>::Groups,
        }

        impl ::core::ops::Deref for #run {
            type Target = #name;

            fn deref(&self) -> &#name {
                &self.this
            }
        }

        impl ::cleat_runner::workflow::Steps for #run {
            fn context(&self) -> &::cleat_runner::workflow::Context {
                &self.context
            }
        }
    }
}

/// An impl block, taken apart.
struct Block {
    name: Ident,
    execute: Option<ImplItemFn>,
    activities: Vec<Activity>,
    /// What stays where it is.
    rest: ItemImpl,
    errors: Errors,
}

impl Block {
    fn read(item: TokenStream) -> syn::Result<Self> {
        let item: ItemImpl = syn::parse2(item)?;
        let mut errors = Errors::default();
        if let Some((_, path, _)) = &item.trait_ {
            errors.push(syn::Error::new_spanned(path, "activities are the type's own: write `impl Type`"));
        }
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.get_ident().cloned(),
            _ => None,
        };
        let Some(name) = name else {
            let message = "expected the plain name of a struct of this module";
            return Err(syn::Error::new_spanned(&item.self_ty, message));
        };
        let mut rest = item.clone();
        rest.items.clear();
        let (mut execute, mut activities) = (None, Vec::new());
        for item in item.items {
            match item {
                ImplItem::Fn(function) if is_activity(&function) => {
                    activities.extend(Activity::take(&function, &mut errors));
                }
                ImplItem::Fn(function) if function.sig.ident == "execute" => execute = Some(function),
                other => rest.items.push(other),
            }
        }
        Ok(Self { name, execute, activities, rest, errors })
    }

    /// The activities' own functions.
    fn acting(&self) -> TokenStream {
        let acting = format_ident!("{}Activity", self.name);
        let functions = self.activities.iter().map(|activity| &activity.function);
        quote! {
            #[allow(dead_code, reason = "an activity may be there for others")]
            impl #acting {
                #(#functions)*
            }
        }
    }

    /// What was made of it; or its mistakes, with what keeps the compiler from complaining of what follows from them.
    fn finish(self, expanded: TokenStream, instead: TokenStream) -> TokenStream {
        let rest = &self.rest;
        match self.errors.take() {
            Some(error) => {
                let error = error.into_compile_error();
                quote!(#rest #error #instead)
            }
            None => quote!(#rest #expanded),
        }
    }
}

fn is_activity(function: &ImplItemFn) -> bool {
    function.attrs.iter().any(|attribute| attribute.path().is_ident("activity"))
}

/// What `#[workflow_impl(...)]` says.
#[derive(Default)]
struct Options {
    key: Option<Expr>,
    hash: bool,
    groups: Vec<Path>,
}

impl Options {
    fn read(options: TokenStream) -> syn::Result<Self> {
        let mut read = Self::default();
        syn::meta::parser(|meta| {
            if meta.path.is_ident("key") {
                read.key = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("hash") {
                read.hash = meta.value()?.parse::<LitBool>()?.value();
            } else if meta.path.is_ident("activity_groups") {
                meta.parse_nested_meta(|group| {
                    read.groups.push(group.path);
                    Ok(())
                })?;
            } else {
                return Err(unknown(&meta, "key, hash or activity_groups(GroupA, GroupB)"));
            }
            Ok(())
        })
        .parse2(options)?;
        Ok(read)
    }
}

pub fn workflow_impl(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut block = Block::read(item)?;
    let options = Options::read(options).unwrap_or_else(|error| {
        block.errors.push(error);
        Options::default()
    });
    let name = block.name.clone();
    let instead = quote!(impl ::cleat_runner::workflow::Grouped for #name { type Groups = (); });
    let Some(execute) = block.execute.take() else {
        let message =
            "a workflow has a function `async fn execute(&self, input: Input) -> Result<Output, Error>`";
        block.errors.at(block.name.span(), message);
        return Ok(block.finish(TokenStream::new(), instead));
    };
    let signature = &execute.sig;
    if signature.asyncness.is_none() {
        block.errors.at(signature.fn_token.span, "`execute` is async: write `async fn`");
    }
    let Some(inputs) = arguments(signature, "`execute`", &mut block.errors) else {
        return Ok(block.finish(TokenStream::new(), instead));
    };
    let (Some((output, error)), [(_, input)]) = (result(&signature.output), inputs.as_slice()) else {
        let message = "`execute` takes `&self` and one input, and returns `Result<Output, Error>`";
        block.errors.at(signature.ident.span(), message);
        return Ok(block.finish(TokenStream::new(), instead));
    };
    let key = match &options.key {
        Some(key) => {
            let how = if options.hash { format_ident!("Hashed") } else { format_ident!("Raw") };
            quote_spanned!(key.span()=> ::core::option::Option::Some(
                ::cleat_runner::workflow::Key::#how(::std::string::ToString::to_string(&::cleat_runner::workflow::apply(#key, input)))
            ))
        }
        None => quote!(::core::option::Option::None),
    };
    let typed = quote! {
        impl ::cleat_runner::workflow::Execute for #name {
            type Input = #input;
            type Output = #output;
            type Error = <#error as ::cleat_runner::entity::Refusal>::Error;

            fn definition() -> ::core::result::Result<
                ::cleat_runner::workflow::Definition,
                ::cleat_runner::entity::InvalidDefinition,
            > {
                <Self as ::cleat_runner::workflow::Declared>::definition()
            }

            fn key(input: &#input) -> ::core::option::Option<::cleat_runner::workflow::Key> {
                let _ = input;
                #key
            }
        }
    };
    let run = run(&block, &execute, &options.groups);
    let register = register(&name, &options.groups);
    let acting = block.acting();
    Ok(block.finish(quote!(#typed #run #acting #register), instead))
}

/// The function and a step for each activity.
fn run(block: &Block, execute: &ImplItemFn, groups: &[Path]) -> TokenStream {
    let name = &block.name;
    let (run, acting) = (format_ident!("{name}Run"), format_ident!("{name}Activity"));
    let this = quote!(&self.this);
    let steps = block.activities.iter().map(|activity| activity.step(&acting, &this, true));
    let grouped = groups.iter().enumerate().map(|(at, group)| {
        let (at, offers) = (syn::Index::from(at), activities_of(group));
        quote_spanned! {group.span()=>
            #[allow(private_interfaces, reason = "can be named where its types can")]
            impl #offers for #run {
                fn group(&self) -> &::std::sync::Arc<#group> {
                    &self.groups.#at
                }
            }
        }
    });
    quote! {
        impl ::cleat_runner::workflow::Grouped for #name {
            type Groups = (#(::std::sync::Arc<#groups>,)*);
        }

        #(#grouped)*

        #[allow(dead_code, reason = "not every activity is used")]
        impl #run {
            #execute
            #(#steps)*
        }
    }
}

fn register(name: &Ident, groups: &[Path]) -> TokenStream {
    let (run, client) = (format_ident!("{name}Run"), format_ident!("{name}Client"));
    let parameters: Vec<_> = (0..groups.len()).map(|at| format_ident!("group_{at}")).collect();
    quote! {
        #[allow(dead_code, reason = "a workflow may be asked without being run here")]
        impl #name {
            /// Registers this workflow, and gives the client that starts it.
            ///
            /// # Errors
            /// Its name or that of its shard group is malformed.
            pub fn register(
                self,
                runtime: &(impl ::cleat_runner::workflow::Runtime + ?Sized),
                #(#parameters: #groups,)*
            ) -> ::core::result::Result<#client, ::cleat_runner::entity::InvalidDefinition> {
                self.service(#(#parameters),*)?.register(runtime)
            }

            /// This workflow as an engine or a test runs it.
            ///
            /// # Errors
            /// Its name or that of its shard group is malformed.
            pub fn service(
                self,
                #(#parameters: #groups,)*
            ) -> ::core::result::Result<
                ::cleat_runner::workflow::Service<#name>,
                ::cleat_runner::entity::InvalidDefinition,
            > {
                let this = ::std::sync::Arc::new(self);
                let groups = (#(::std::sync::Arc::new(#parameters),)*);
                ::cleat_runner::workflow::Service::<#name>::new(move |context, input| {
                    let run = #run { this: ::std::sync::Arc::clone(&this), context, groups: groups.clone() };
                    ::std::boxed::Box::pin(async move { run.execute(input).await })
                })
            }
        }
    }
}

/// The trait of a group's activities.
fn activities_of(group: &Path) -> Path {
    let mut path = group.clone();
    if let Some(last) = path.segments.last_mut() {
        last.ident = format_ident!("{}Activities", last.ident);
    }
    path
}

pub fn group_impl(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut block = Block::read(item)?;
    if let Err(error) =
        syn::meta::parser(|meta| Err(unknown(&meta, "#[activity_group_impl] alone"))).parse2(options)
    {
        block.errors.push(error);
    }
    if let Some(execute) = &block.execute {
        let message = "a group has activities only: `execute` belongs to a workflow";
        block.errors.at(execute.sig.ident.span(), message);
    }
    let name = &block.name;
    let (offers, acting) = (format_ident!("{name}Activities"), format_ident!("{name}Activity"));
    let this = quote!(<Self as #offers>::group(self));
    let steps = block.activities.iter().map(|activity| activity.step(&acting, &this, false));
    let about = format!("The activities of [`{name}`], for workflows that have it.");
    let offered = quote! {
        #[doc = #about]
        #[allow(dead_code, private_interfaces, private_bounds, reason = "can be named where its types can")]
        pub trait #offers: ::cleat_runner::workflow::Steps {
            /// The group itself.
            fn group(&self) -> &::std::sync::Arc<#name>;

            #(#steps)*
        }
    };
    let acting = block.acting();
    Ok(block.finish(quote!(#offered #acting), TokenStream::new()))
}
