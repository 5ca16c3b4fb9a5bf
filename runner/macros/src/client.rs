//! The typed clients: one function for each method that anybody may ask for.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Ident, Path};

use crate::method::{Audience, Gives, Method};

/// The functions of an entity's client.
pub fn of_entity(name: &Ident, methods: &[Method]) -> TokenStream {
    let client = format_ident!("{name}Client");
    let functions = public(methods).map(|method| {
        let (vis, docs, body) = (&method.vis, docs(method), body(method));
        quote!(#docs #vis fn #body)
    });
    quote! {
        #[allow(dead_code, clippy::ptr_arg, reason = "a client offers each method as it is, used or not")]
        impl #client {
            #(#functions)*
        }
    }
}

/// A trait with the functions of a group, for the clients of all entities that have it.
pub fn of_group(name: &Ident, methods: &[Method]) -> TokenStream {
    let client = format_ident!("{name}Client");
    let about = format!("Asks entities for the methods of [`{name}`].");
    let functions = public(methods).map(|method| {
        let (docs, body) = (docs(method), body(method));
        quote!(#docs fn #body)
    });
    quote! {
        #[doc = #about]
        #[allow(
            dead_code, private_interfaces, private_bounds, clippy::ptr_arg,
            reason = "a client offers each method as it is, used or not, and can be named where its types can"
        )]
        pub trait #client: ::core::convert::AsRef<::cleat_runner::client::EntityClient> {
            #(#functions)*
        }
    }
}

/// The trait of a group's methods.
pub fn trait_of(group: &Path) -> Path {
    let mut path = group.clone();
    if let Some(last) = path.segments.last_mut() {
        last.ident = format_ident!("{}Client", last.ident);
    }
    path
}

fn public(methods: &[Method]) -> impl Iterator<Item = &Method> {
    methods.iter().filter(|method| method.audience == Audience::Public)
}

/// What the user says about the method, or that it is one.
fn docs(method: &Method) -> TokenStream {
    if method.docs.is_empty() {
        let about = format!("Asks for `{}`.", method.name);
        return quote!(#[doc = #about]);
    }
    let docs = &method.docs;
    quote!(#(#docs)*)
}

fn body(method: &Method) -> TokenStream {
    let (name, reply, error) = (&method.name, &method.reply, &method.error);
    let reply = match method.gives {
        Gives::Reply => quote!(#reply),
        Gives::Items | Gives::Stream { .. } => quote!(::cleat_runner::client::Streamed<#reply>),
    };
    let (parameter, input) = match method.request() {
        Some(request) => (quote!(request: &#request,), quote!(request)),
        None => (quote!(), quote!(&())),
    };
    quote! {
        #name(
            &self,
            id: impl ::core::convert::AsRef<str>,
            #parameter
        ) -> ::cleat_runner::client::Call<#reply, <#error as ::cleat_runner::entity::Refusal>::Error> {
            ::core::convert::AsRef::<::cleat_runner::client::EntityClient>::as_ref(self).call(id, #method, #input)
        }
    }
}
