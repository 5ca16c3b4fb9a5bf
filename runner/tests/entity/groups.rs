//! RPC groups: methods that several types of entities share.

use std::sync::{Arc, Mutex};

use cleat_runner::entity::InvalidDefinition;
use cleat_runner::prelude::*;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    methods_of_a_group_are_on_the_clients_of_all_entities_that_have_it,
    a_group_has_what_it_was_registered_with,
    two_methods_of_one_name_are_refused_when_they_are_put_together,
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    entity: String,
    action: String,
}

#[rpc_group]
#[derive(Clone, Default)]
pub struct Auditable {
    log: Arc<Mutex<Vec<Entry>>>,
}

#[rpc_group_impl]
impl Auditable {
    #[rpc(persisted)]
    pub async fn log_action(&self, context: &mut Context, action: String) -> Result<Entry, Never> {
        let entry = Entry { entity: context.address().to_string(), action };
        self.log.lock().unwrap().push(entry.clone());
        Ok(entry)
    }

    #[rpc]
    pub async fn audit_log(&self, context: &Context) -> Result<Vec<Entry>, Never> {
        let me = context.address().to_string();
        Ok(self.log.lock().unwrap().iter().filter(|entry| entry.entity == me).cloned().collect())
    }
}

mod tags {
    use super::*;

    #[rpc_group]
    pub struct Taggable;

    #[rpc_group_impl]
    impl Taggable {
        #[rpc]
        pub async fn tag(&self) -> Result<String, Never> {
            Ok("new".to_owned())
        }
    }
}

#[entity(state = String)]
struct User;

#[entity_impl(rpc_groups(Auditable, tags::Taggable))]
impl User {
    #[rpc(persisted)]
    async fn update_email(&self, email: &mut String, new: String) -> Result<String, Never> {
        Ok(std::mem::replace(email, new))
    }
}

#[entity]
struct Document;

#[entity_impl(rpc_groups(Auditable))]
impl Document {
    #[rpc]
    async fn title(&self) -> Result<String, Never> {
        Ok("untitled".to_owned())
    }
}

#[entity]
struct Clashing;

#[entity_impl(rpc_groups(tags::Taggable))]
impl Clashing {
    #[rpc]
    async fn tag(&self) -> Result<String, Never> {
        Ok("old".to_owned())
    }
}

async fn methods_of_a_group_are_on_the_clients_of_all_entities_that_have_it(place: Place) {
    use tags::TaggableClient;

    let world = World::new(place).await;
    let user = User.register(&world.host, Auditable::default(), tags::Taggable).unwrap();
    let document = Document.register(&world.host, Auditable::default()).unwrap();

    assert_eq!(user.update_email("u-1", &"a@b.c".to_owned()).await.unwrap(), "");
    assert_eq!(user.update_email("u-1", &"d@e.f".to_owned()).await.unwrap(), "a@b.c");
    let entry = user.log_action("u-1", &"login".to_owned()).await.unwrap();
    assert_eq!(entry, Entry { entity: "user/u-1".into(), action: "login".into() });
    assert_eq!(user.audit_log("u-1").await.unwrap(), [entry]);
    assert_eq!(user.tag("u-1").await.unwrap(), "new");

    assert_eq!(document.title("d-1").await.unwrap(), "untitled");
    document.log_action("d-1", &"print".to_owned()).key("p-1").await.unwrap();
    document.log_action("d-1", &"print".to_owned()).key("p-1").await.unwrap();
    assert_eq!(document.audit_log("d-1").await.unwrap().len(), 1);
}

async fn a_group_has_what_it_was_registered_with(place: Place) {
    let world = World::new(place).await;
    let audit = Auditable::default();
    let user = User.register(&world.host, audit.clone(), tags::Taggable).unwrap();
    let document = Document.register(&world.host, audit.clone()).unwrap();
    user.log_action("u-1", &"login".to_owned()).await.unwrap();
    document.log_action("d-1", &"print".to_owned()).await.unwrap();
    assert_eq!(audit.log.lock().unwrap().len(), 2);
    assert_eq!(document.audit_log("d-1").await.unwrap().len(), 1);
}

async fn two_methods_of_one_name_are_refused_when_they_are_put_together(place: Place) {
    let world = World::new(place).await;
    let error = Clashing.register(&world.host, tags::Taggable).unwrap_err();
    assert!(matches!(&error, InvalidDefinition::Duplicate { method, .. } if method == "tag"), "{error:?}");
}
