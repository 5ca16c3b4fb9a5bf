//! The typed clients: one function for each method that anybody may ask for, and beside them those for other entities and workflows.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Ident, Path};

use crate::method::{Audience, Method};

/// The functions of an entity's client.
pub fn of_entity(name: &Ident, methods: &[Method]) -> TokenStream {
    let client = format_ident!("{name}Client");
    let inside = format_ident!("{name}Inside");
    let function = |method: &Method| {
        let (vis, docs, body) = (&method.vis, docs(method), body(method));
        quote!(#docs #vis fn #body)
    };
    let functions = for_audience(methods, Audience::Public).map(function);
    let protected = for_audience(methods, Audience::Protected).map(function);
    let about = format!("Asks [`{name}`] for its protected methods, as entities and workflows do.");
    quote! {
        #[allow(dead_code, clippy::ptr_arg, reason = "a client offers each method as it is, used or not")]
        impl #client {
            #(#functions)*

            /// The methods that only entities and workflows may ask for.
            pub fn inside(&self) -> #inside {
                #inside(self.0.clone().inside())
            }
        }

        #[doc = #about]
        #[derive(Clone, Debug)]
        #[allow(dead_code, reason = "not every entity has such methods")]
        pub struct #inside(::cleat_runner::client::EntityClient);

        #[allow(
            dead_code, private_interfaces, clippy::ptr_arg,
            reason = "a client offers each method as it is, used or not, and can be named where its types can"
        )]
        impl #inside {
            #(#protected)*
        }

        impl ::core::convert::AsRef<::cleat_runner::client::EntityClient> for #inside {
            fn as_ref(&self) -> &::cleat_runner::client::EntityClient {
                &self.0
            }
        }
    }
}

/// A trait with the functions of a group, for the clients of all entities that have it.
pub fn of_group(name: &Ident, methods: &[Method]) -> TokenStream {
    let client = format_ident!("{name}Client");
    let about = format!("Asks entities for the methods of [`{name}`].");
    let inside = format_ident!("{name}Inside");
    let function = |method: &Method| {
        let (docs, body) = (docs(method), body(method));
        quote!(#docs fn #body)
    };
    let functions = for_audience(methods, Audience::Public).map(function);
    let protected = for_audience(methods, Audience::Protected).map(function);
    let about_inside =
        format!("Asks entities for the protected methods of [`{name}`], as entities and workflows do.");
    quote! {
        #[doc = #about_inside]
        #[allow(
            dead_code, private_interfaces, private_bounds, clippy::ptr_arg,
            reason = "a client offers each method as it is, used or not, and can be named where its types can"
        )]
        pub trait #inside: ::core::convert::AsRef<::cleat_runner::client::EntityClient> {
            #(#protected)*
        }

        impl<T: ::cleat_runner::entity::native::Has<#name>> #inside for T {}

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

fn for_audience(methods: &[Method], audience: Audience) -> impl Iterator<Item = &Method> {
    methods.iter().filter(move |method| method.audience == audience)
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
