//! Definitions from an API server.

use std::sync::Arc;
use std::time::Duration;

use cleat_apiserver::store::{Backend, Sqlite};
use cleat_apiserver::{Handle, Options, start};
use cleat_crds::{EntityType, SecretKey};
use cleat_runner::definitions::kubernetes::{KubernetesSecrets, watch};
use cleat_runner::definitions::{Kind, Secrets, Set};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::ApiResource;
use kube::{Api, Client, Config, Resource};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::world::{PATIENCE, Place, World};

/// An API server with its storage.
struct Server {
    folder: tempfile::TempDir,
    handle: Option<Handle>,
    port: u16,
    token: String,
    client: Client,
}

impl Server {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let handle = serve(&folder, 0, None).await;
        let port = handle.url().rsplit(':').next().unwrap().parse().unwrap();
        let token = handle.token().to_owned();
        let kubeconfig = Kubeconfig::from_yaml(&handle.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.unwrap();
        // Each start of the server has a certificate of its own.
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).unwrap();
        Self { folder, handle: Some(handle), port, token, client }
    }

    /// Installs the definitions of our kinds; with `loose`, what they say is not checked by the server.
    async fn install(&self, loose: bool) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in cleat_crds::all() {
            let mut crd = serde_json::to_value(crd).unwrap();
            if loose {
                let reference = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let spec = json!({"type": "object", "properties": {"clusterRef": reference}, "x-kubernetes-preserve-unknown-fields": true});
                crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
                    json!({"type": "object", "properties": {"spec": spec}});
            }
            let crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
            api.create(&PostParams::default(), &crd).await.unwrap();
        }
        let ready = async {
            while Api::<EntityType>::namespaced(self.client.clone(), "default")
                .list(&Default::default())
                .await
                .is_err()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.unwrap();
    }

    fn entity_types(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", &ApiResource::erase::<EntityType>(&()))
    }

    async fn put(&self, name: &str, spec: Json) {
        let object = json!({"apiVersion": "cleat.dev/v1alpha1", "kind": "EntityType", "metadata": {"name": name}, "spec": spec});
        let apply = PatchParams::apply("test").force();
        self.entity_types().patch(name, &apply, &Patch::Apply(&object)).await.unwrap();
    }

    async fn stop(&mut self) {
        self.handle.take().unwrap().shutdown().await;
    }

    async fn start(&mut self) {
        self.handle = Some(serve(&self.folder, self.port, Some(self.token.clone())).await);
    }
}

async fn serve(folder: &tempfile::TempDir, port: u16, token: Option<String>) -> Handle {
    let backend: Arc<dyn Backend> = Arc::new(Sqlite::open(&folder.path().join("objects.db")).await.unwrap());
    start(Options { port, token, backend, ..Options::default() }).await.unwrap()
}

fn echo(cluster: &str, text: &str) -> Json {
    json!({"clusterRef": {"name": cluster}, "methods": [{"name": "say", "delivery": "volatile", "cel": {"output": text}}]})
}

struct Watching {
    sets: tokio::sync::watch::Receiver<Option<Set>>,
    _stop: tokio_util::sync::DropGuard,
}

impl Watching {
    fn new(server: &Server) -> Self {
        let (told, sets) = tokio::sync::watch::channel(None);
        let stop = CancellationToken::new();
        let (client, stopped) = (server.client.clone(), stop.clone());
        tokio::spawn(async move { watch(client, "default", "main", told, stopped).await });
        Self { sets, _stop: stop.drop_guard() }
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Set) -> bool) -> Set {
        let found = self.sets.wait_for(|set| set.as_ref().is_some_and(&holds));
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("it never happened: {what}")).unwrap().clone().unwrap()
    }
}

fn names(set: &Set) -> Vec<&str> {
    set.entities.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn what_is_declared_for_the_cluster_is_served_as_it_changes() {
    let server = Server::new().await;
    server.install(false).await;
    server.put("mine", echo("main", "one")).await;
    server.put("other", echo("elsewhere", "one")).await;
    let world = World::new(Place::sqlite().await).await;
    let mut watching = Watching::new(&server);
    let keeper = world.keeper.clone();
    let sets = watching.sets.clone();
    let following = tokio::spawn(async move { keeper.follow(sets).await });
    let set = watching.until("it is there", |set| set.entities.contains_key("mine")).await;
    assert_eq!(names(&set), ["mine"], "that of another Cluster is not ours");
    let says = async |text: &str| {
        let said = async {
            while world.ask("mine/a", "say", Json::Null).await != Ok(json!(text)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, said).await.unwrap_or_else(|_| panic!("it never said {text}"));
    };
    says("one").await;
    server.put("mine", echo("main", "two")).await;
    says("two").await;
    let mut serving = world.keeper.serving();
    let second = serving
        .wait_for(|serving| serving.generations.get(&(Kind::EntityType, "mine".to_owned())) == Some(&2));
    tokio::time::timeout(PATIENCE, second).await.unwrap().unwrap();
    server.entity_types().delete("mine", &DeleteParams::default()).await.unwrap();
    watching.until("it is gone", |set| set.entities.is_empty()).await;
    following.abort();
}

#[tokio::test]
async fn an_outage_of_the_api_server_changes_nothing_and_is_made_up_for() {
    let mut server = Server::new().await;
    server.install(false).await;
    server.put("first", echo("main", "one")).await;
    server.put("second", echo("main", "one")).await;
    let mut watching = Watching::new(&server);
    watching.until("both are there", |set| set.entities.len() == 2).await;
    server.stop().await;
    let changed = tokio::time::timeout(Duration::from_secs(2), watching.sets.changed()).await;
    assert!(changed.is_err(), "an outage is no news");
    server.start().await;
    server.entity_types().delete("first", &DeleteParams::default()).await.unwrap();
    server.put("third", echo("main", "one")).await;
    let set = watching
        .until("all is known", |set| set.entities.contains_key("third") && set.entities.len() == 2)
        .await;
    assert_eq!(names(&set), ["second", "third"]);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_disturbs_no_other_and_is_served_as_it_was() {
    let server = Server::new().await;
    server.install(true).await;
    server.put("good", echo("main", "one")).await;
    server.put("odd", echo("main", "one")).await;
    let world = World::new(Place::sqlite().await).await;
    let mut watching = Watching::new(&server);
    let set = watching.until("both are there", |set| set.entities.len() == 2).await;
    world.keeper.apply(&set).await;
    server.put("odd", json!({"clusterRef": {"name": "main"}, "methods": "none"})).await;
    server.put("good", echo("main", "two")).await;
    let unread = |set: &Set| !set.unreadable.is_empty() && set.entities["good"].generation > 1;
    let set = watching.until("one cannot be read", unread).await;
    assert_eq!(names(&set), ["good"]);
    world.keeper.apply(&set).await;
    let problems = world.keeper.serving().borrow().problems.clone();
    assert_eq!((problems[0].name.as_str(), problems[0].fault.reason), ("odd", "Malformed"));
    assert_eq!(world.ask("odd/a", "say", Json::Null).await.unwrap(), json!("one"));
    assert_eq!(world.ask("good/a", "say", Json::Null).await.unwrap(), json!("two"));
}

#[tokio::test]
async fn secrets_are_read_by_name_and_survive_an_outage() {
    let mut server = Server::new().await;
    let api: Api<Secret> = Api::namespaced(server.client.clone(), "default");
    let mut secret = Secret::default();
    secret.meta_mut().name = Some("pricing".to_owned());
    secret.string_data = Some([("key".to_owned(), "s3cret".to_owned())].into());
    secret.data = Some([("key".to_owned(), k8s_openapi::ByteString(b"s3cret".to_vec()))].into());
    api.create(&PostParams::default(), &secret).await.unwrap();
    let secrets = KubernetesSecrets::new(server.client.clone(), "default");
    let key = |name: &str, key: &str| SecretKey { name: name.to_owned(), key: key.to_owned() };
    assert_eq!(secrets.get(&key("pricing", "key")).await.unwrap().as_ref(), b"s3cret");
    assert!(secrets.get(&key("pricing", "none")).await.unwrap_err().to_string().contains("no such key"));
    assert!(secrets.get(&key("none", "key")).await.unwrap_err().to_string().contains("no such Secret"));
    server.stop().await;
    assert_eq!(secrets.get(&key("pricing", "key")).await.unwrap().as_ref(), b"s3cret");
}
