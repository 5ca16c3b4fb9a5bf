//! `#[entity]` and `#[rpc_group]`, on the struct.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{ItemStruct, LitStr, Type};

use crate::attribute::{duration, number, text, unknown};

/// What `#[entity(...)]` says.
#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    state: Option<Type>,
    group: Option<LitStr>,
    idle: Option<TokenStream>,
    mailbox: Option<usize>,
    concurrency: Option<usize>,
}

impl Options {
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let path = &meta.path;
        if path.is_ident("name") {
            self.name = Some(text(meta)?);
        } else if path.is_ident("state") {
            self.state = Some(meta.value()?.parse()?);
        } else if path.is_ident("shard_group") {
            self.group = Some(text(meta)?);
        } else if path.is_ident("idle") {
            self.idle = Some(duration(meta)?);
        } else if path.is_ident("max_idle_time_secs") {
            let seconds: u64 = number(meta)?;
            self.idle = Some(quote!(::core::time::Duration::from_secs(#seconds)));
        } else if path.is_ident("mailbox_capacity") {
            let capacity = number(meta)?;
            if capacity == 0 {
                return Err(meta.error("a mailbox has room for at least one message"));
            }
            self.mailbox = Some(capacity);
        } else if path.is_ident("concurrency") {
            self.concurrency = Some(number(meta)?);
        } else {
            let known = "name, state, shard_group, idle, max_idle_time_secs, mailbox_capacity or concurrency";
            return Err(unknown(meta, known));
        }
        Ok(())
    }
}

pub fn entity(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let declared: ItemStruct = syn::parse2(item)?;
    let mut read = Options::default();
    syn::meta::parser(|meta| read.read(&meta)).parse2(options)?;
    plain(&declared, "a type of entity")?;

    let ItemStruct { ident, vis, .. } = &declared;
    let name = read.name.as_ref().map_or_else(|| kebab(&ident.to_string()), LitStr::value);
    let group = read.group.iter().map(|group| quote!(.group(#group)));
    let state =
        read.state.iter().map(|state| quote!(.state(::cleat_runner::entity::StateType::of::<#state>())));
    let idle = read.idle.iter().map(|idle| quote!(.idle(#idle)));
    let mailbox = read.mailbox.iter().map(|capacity| quote!(.mailbox(#capacity)));
    let concurrency = read.concurrency.iter().map(|most| quote!(.concurrency(#most)));
    let stateful = read.state.iter().map(|state| {
        quote! {
            impl ::cleat_runner::entity::native::Stateful for #ident {
                type State = #state;
            }
        }
    });
    let client = format_ident!("{ident}Client");
    let about = format!("Asks entities of type `{name}`.");
    Ok(quote! {
        #declared

        impl ::cleat_runner::entity::native::Declared for #ident {
            type Client = #client;

            fn settings() -> ::cleat_runner::entity::native::Settings {
                ::cleat_runner::entity::native::Settings::new(#name)
                    #(#group)* #(#state)* #(#idle)* #(#mailbox)* #(#concurrency)*
            }
        }

        #(#stateful)*

        #[doc = #about]
        #[derive(Clone, Debug)]
        #vis struct #client(::cleat_runner::client::EntityClient);

        #[allow(dead_code, reason = "a client offers more than each program uses")]
        impl #client {
            /// A client for entities that are registered with this runtime or anywhere in its cluster.
            ///
            /// # Errors
            /// The names of the type or its shard group are not well formed.
            pub fn new(
                runtime: &(impl ::cleat_runner::client::Runtime + ?Sized),
            ) -> ::core::result::Result<Self, ::cleat_runner::entity::InvalidDefinition> {
                ::cleat_runner::entity::native::client::<#ident>(runtime)
            }

            /// The untyped client underneath.
            pub fn entity(&self) -> &::cleat_runner::client::EntityClient {
                &self.0
            }
        }

        impl ::core::convert::AsRef<::cleat_runner::client::EntityClient> for #client {
            fn as_ref(&self) -> &::cleat_runner::client::EntityClient {
                &self.0
            }
        }

        impl ::core::convert::From<::cleat_runner::client::EntityClient> for #client {
            fn from(client: ::cleat_runner::client::EntityClient) -> Self {
                Self(client)
            }
        }
    })
}

pub fn group(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let declared: ItemStruct = syn::parse2(item)?;
    syn::meta::parser(|meta| Err(unknown(&meta, "#[rpc_group] alone"))).parse2(options)?;
    plain(&declared, "an RPC group")?;
    let ident = &declared.ident;
    Ok(quote! {
        #declared

        impl ::cleat_runner::entity::native::Group for #ident {}
    })
}

pub fn plain(declared: &ItemStruct, what: &str) -> syn::Result<()> {
    if declared.generics.params.is_empty() {
        return Ok(());
    }
    let message = format!("{what} cannot be generic: its methods are found by name, and need one type each");
    Err(syn::Error::new_spanned(&declared.generics, message))
}

/// `UserProfile` as `user-profile`.
pub fn kebab(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let letters: Vec<char> = name.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        let after_word = at > 0 && !letters[at - 1].is_uppercase() && letters[at - 1] != '_';
        let before_word = at > 0 && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if *letter == '_' {
            out.push('-');
            continue;
        }
        if letter.is_uppercase() && (after_word || before_word) && !out.ends_with('-') {
            out.push('-');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::kebab;

    #[test]
    fn names_are_taken_apart_where_words_begin() {
        assert_eq!(kebab("Counter"), "counter");
        assert_eq!(kebab("UserProfile"), "user-profile");
        assert_eq!(kebab("HTTPServer"), "http-server");
        assert_eq!(kebab("V2Order"), "v2-order");
        assert_eq!(kebab("Odd_Name"), "odd-name");
    }
}
