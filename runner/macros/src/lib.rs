//! The attributes with which entities are written in Rust. Use them through `cleat_runner::prelude`, which says more about what the
//! code they make stands on.
//!
//! The expansion is small: what it does lives in `cleat_runner::entity::native`, and each method becomes one arm of a `match` and one
//! function of a client.

mod activity;
mod attribute;
mod client;
mod declaration;
mod method;
mod service;
mod workflow;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;

/// Declares a struct as a type of entity, and makes its client, `NameClient`.
///
/// Everything in it is optional:
///
/// | option | meaning |
/// | --- | --- |
/// | `name = "inventory"` | the type's name; otherwise the struct's in kebab case |
/// | `state = Stock` | each instance has a durable state, `Default` before its first change |
/// | `shard_group = "premium"` | the shard group that instances live in |
/// | `idle = "5m"` or `max_idle_time_secs = 300` | when instances that are not asked anything leave memory |
/// | `mailbox_capacity = 50` | how many messages may wait for one instance |
/// | `concurrency = 4` | how many messages one instance handles at once; 0 for all that come |
#[proc_macro_attribute]
pub fn entity(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(declaration::entity(options.into(), item.into()))
}

/// Makes the `#[rpc]` methods of an impl block what can be asked of an entity, `register` and the functions of its client.
///
/// `#[entity_impl(rpc_groups(Auditable, Taggable))]` adds the methods of RPC groups.
///
/// A method is `async fn name(&self, ...) -> Result<Reply, Error>` with any of these parameters, each at most once and in any
/// order: the request by value, the state as `&State` (looks at it, together with others) or `&mut State` (changes it, alone; only
/// persisted methods), and `&mut Context`. `Error` is any type that can be written, read and shown, `Never`, or `OrRetry` of one.
#[proc_macro_attribute]
pub fn entity_impl(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(service::entity(options.into(), item.into()))
}

/// Declares a struct as an RPC group: methods that can be composed into several types of entities.
#[proc_macro_attribute]
pub fn rpc_group(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(declaration::group(options.into(), item.into()))
}

/// Makes the `#[rpc]` methods of an impl block those of an RPC group, and a trait `NameClient` with which the clients of the
/// entities that have it can ask for them.
#[proc_macro_attribute]
pub fn rpc_group_impl(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(service::group(options.into(), item.into()))
}

/// Something that can be asked of an entity. At most once, unless it is `#[rpc(persisted)]`: then at least once, deduplicated, its
/// reply kept, and with `&mut State` state, reply and sends commit together, exactly once.
///
/// | option | meaning |
/// | --- | --- |
/// | `persisted` | the message is stored, also across crashes |
/// | `effects = "outside"` | a method with `&mut State` does something elsewhere, too: it is stored before it runs |
/// | `effects = "inside"` | a method without `&mut State` does nothing elsewhere: message and reply are one commit |
/// | `attempts = 5` or `retries = 4` | how often it is tried before it is a dead letter |
/// | `backoff = "200ms"` | the pause after the first failure; it doubles |
/// | `timeout = "5s"` | how long one attempt may take |
/// | `uninterruptible`, or `= "client"`, `"server"` | whose interrupts it ignores once it runs |
#[proc_macro_attribute]
pub fn rpc(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("rpc", item)
}

/// An `#[rpc]` that only other entities and workflows may ask for. It is not on the client, but on `client.inside()`, for
/// `context.call(...)`.
#[proc_macro_attribute]
pub fn protected(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("protected", item)
}

/// An `#[rpc]` that only the entity itself may ask for. It is not on the client.
#[proc_macro_attribute]
pub fn private(_: TokenStream, item: TokenStream) -> TokenStream {
    misplaced("private", item)
}

/// Declares a struct as a workflow.
///
/// | option | meaning |
/// | --- | --- |
/// | `name = "order"` | its name; otherwise the struct's in kebab case |
/// | `shard_group = "premium"` | the shard group that executions live in |
/// | `timeout = "24h"` | how long an execution may take |
#[proc_macro_attribute]
pub fn workflow(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(workflow::workflow(options.into(), item.into()))
}

/// Makes `execute` of an impl block the function of a workflow and its `#[activity]`s what is done outside; makes `register` and the
/// client, `NameClient`.
///
/// | option | meaning |
/// | --- | --- |
/// | `key = \|order: &Order\| order.id.clone()` | what makes two starts one execution; otherwise the input |
/// | `hash = true` | the execution's id is the digest of the key, and not the key itself |
/// | `activity_groups(Inventory, Payments)` | the activities of groups are there, too |
///
/// In `execute`, `self` is a `NameRun`: it has the struct's fields, what the trait `Steps` offers, and a function for each
/// activity. In an activity, `self` is a `NameActivity`: it has the struct's fields, `tx`, and what the trait `Acting` offers. Other
/// functions stay the struct's own; those that take steps go to an `impl NameRun`.
#[proc_macro_attribute]
pub fn workflow_impl(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(workflow::workflow_impl(options.into(), item.into()))
}

/// Declares a struct as an activity group: activities that can be composed into several workflows.
#[proc_macro_attribute]
pub fn activity_group(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(workflow::group(options.into(), item.into()))
}

/// Makes the `#[activity]`s of an impl block those of an activity group, and a trait `NameActivities` with which workflows that have
/// it do them.
#[proc_macro_attribute]
pub fn activity_group_impl(options: TokenStream, item: TokenStream) -> TokenStream {
    finish(workflow::group_impl(options.into(), item.into()))
}

/// Something that a workflow does outside: at least once, remembered, and exactly once as far as it uses `self.tx`. Its arguments are
/// cloned for each attempt.
///
/// | option | meaning |
/// | --- | --- |
/// | `retries = 4` or `attempts = 5` | how often an error is tried again; otherwise not at all |
/// | `backoff = "constant"`, `"exponential"` or a `fn(u32) -> Duration` | how the pauses grow |
/// | `interval = "1s"`, `max_interval = "1m"` | the first pause and the longest |
/// | `no_retry = \|error\| error.is_final()` | which errors no attempt will change |
/// | `timeout = "5s"` | how long one attempt may take |
/// | `deadline = "1m"` | how long all attempts together may take |
/// | `heartbeat = "10s"` | how long it may be silent |
/// | `name = "charge"` | what the journal calls it; otherwise as the function is called |
#[proc_macro_attribute]
pub fn activity(_: TokenStream, item: TokenStream) -> TokenStream {
    let message = "#[activity] belongs on a method of an impl block that has #[workflow_impl] or #[activity_group_impl]";
    let error = syn::Error::new(proc_macro2::Span::call_site(), message).into_compile_error();
    let item = Tokens::from(item);
    quote::quote!(#error #item).into()
}

fn finish(expanded: syn::Result<Tokens>) -> TokenStream {
    expanded.unwrap_or_else(|error| error.into_compile_error()).into()
}

/// The attributes of methods are read by the impl block's; alone they mean nothing.
fn misplaced(name: &str, item: TokenStream) -> TokenStream {
    let message = format!(
        "#[{name}] belongs on a method of an impl block that has #[entity_impl] or #[rpc_group_impl]"
    );
    let error = syn::Error::new(proc_macro2::Span::call_site(), message).into_compile_error();
    let item = Tokens::from(item);
    quote::quote!(#error #item).into()
}
