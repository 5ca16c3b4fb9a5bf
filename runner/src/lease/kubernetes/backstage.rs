//! What a person with kubectl does, for the conformance suite.

use async_trait::async_trait;
use kube::api::DeleteParams;

use super::Kubernetes;
use crate::lease::Name;
use crate::lease::conformance::Backstage;
use crate::shard::ShardId;

#[async_trait]
impl Backstage for Kubernetes {
    async fn delete_runner(&self, name: &Name) {
        self.delete(name.as_str()).await;
    }

    async fn delete_shard(&self, shard: &ShardId) {
        self.delete(&super::record::shard_name(&self.options.cluster, shard)).await;
    }
}

impl Kubernetes {
    async fn delete(&self, name: &str) {
        self.shards.delete(name, &DeleteParams::default()).await.expect("the Lease can be deleted");
    }
}
