//! kubectl, of the oldest and of the newest version that have to work, does its daily work on the embedded server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use cleat_apiserver::{Logs, LogsError, LogsRequest, Options, start};
use e2e::{Kubectl, Program, progress};
use futures::StreamExt;
use futures::stream::{BoxStream, once};
use tokio::io::{AsyncBufReadExt, BufReader};

/// What is expected comes within this.
const PATIENCE: Duration = Duration::from_secs(30);

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Wide, type: integer, jsonPath: .spec.replicas, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            properties:
              size: {type: string, enum: [S, M]}
              replicas: {type: integer, default: 1, description: How many.}
"#;

fn widget(spec: &str) -> String {
    format!("apiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: a}}\nspec: {{{spec}}}\n")
}

/// What a command must come to: its arguments, its input, whether it succeeds, and text that it prints.
type Row = (&'static str, String, bool, &'static [&'static str]);

fn rows() -> Vec<Row> {
    let none = String::new;
    vec![
        ("version", none(), true, &["Server Version: v1.36"]),
        ("get ns", none(), true, &["default", "Active"]),
        ("apply -f -", DEFINITION.into(), true, &["widgets.example.com created"]),
        ("wait --for condition=Established crd/widgets.example.com", none(), true, &["condition met"]),
        ("apply -f -", widget("size: S"), true, &["widget.example.com/a created"]),
        ("apply -f -", widget("size: M"), true, &["widget.example.com/a configured"]),
        ("apply -f -", widget("size: M"), true, &["widget.example.com/a unchanged"]),
        ("apply --server-side -f -", widget("size: S"), true, &["serverside-applied"]),
        (
            "apply --server-side --field-manager=other -f -",
            widget("size: M"),
            false,
            &["conflict with \"kubectl\"", ".spec.size"],
        ),
        (
            "apply --server-side --field-manager=other --force-conflicts -f -",
            widget("size: S"),
            true,
            &["serverside-applied"],
        ),
        (
            "apply --server-side --force-conflicts --dry-run=server -f -",
            widget("size: M"),
            true,
            &["(server dry run)"],
        ),
        ("diff -f -", widget("size: M"), false, &["-  size: S", "+  size: M"]),
        ("diff -f -", widget("size: S"), true, &[]),
        ("diff --server-side --force-conflicts -f -", widget("size: M"), false, &["+  size: M"]),
        ("apply -f -", widget("size: S, nope: 1"), false, &["unknown field", "spec.nope"]),
        (
            "create --validate=strict -f -",
            widget("size: S, nope: 1"),
            false,
            &["unknown field \"spec.nope\""],
        ),
        (
            "apply -f -",
            widget("size: X"),
            false,
            &["spec.size: Unsupported value: \"X\": supported values: \"S\", \"M\""],
        ),
        (
            "explain widget.spec",
            none(),
            true,
            &["What is wanted.", "replicas\t<integer>", "-required-", "enum: S, M"],
        ),
        ("explain deployment.spec.template.spec.containers", none(), true, &["imagePullPolicy"]),
        ("get wd", none(), true, &["NAME   SIZE", "a      S"]),
        ("get wd -o wide", none(), true, &["NAME   SIZE   WIDE", "a      S      1"]),
        ("get all", none(), true, &["widget.example.com/a"]),
        ("scale widget/a --replicas=4", none(), true, &["scaled"]),
        ("patch widget a --type=merge -p {\"spec\":{\"size\":\"M\"}}", none(), true, &["patched"]),
        (
            "patch widget a --type=json -p [{\"op\":\"test\",\"path\":\"/spec/size\",\"value\":\"S\"}]",
            none(),
            false,
            &["rejected"],
        ),
        ("label widget a x=y", none(), true, &["labeled"]),
        (
            "get widgets -l x=y -o jsonpath={.items[*].spec}",
            none(),
            true,
            &["{\"replicas\":4,\"size\":\"M\"}"],
        ),
        ("get widget a -o yaml --show-managed-fields", none(), true, &["managedFields:", "f:spec"]),
        ("get widgets --sort-by={.spec.size} -o name", none(), true, &["widget.example.com/a"]),
        ("get widgets -A --no-headers -o custom-columns=N:.metadata.name", none(), true, &["a"]),
        ("annotate widget a note=read", none(), true, &["annotated"]),
        (
            "get --raw /apis/example.com/v1/namespaces/default/widgets/a/scale",
            none(),
            true,
            &["\"replicas\":4"],
        ),
        ("explain widget --recursive", none(), true, &["replicas\t<integer>"]),
        ("describe widget a", none(), true, &["Kind:         Widget"]),
        ("create ns t", none(), true, &["created"]),
        ("-n t create configmap c --from-literal=k=v", none(), true, &["created"]),
        ("-n t create secret generic s --from-literal=k=v", none(), true, &["created"]),
        ("-n t create deployment d --image=nginx", none(), true, &["created"]),
        ("-n t set image deployment/d nginx=nginx:2", none(), true, &["image updated"]),
        ("-n t expose deployment d --port=80", none(), true, &["exposed"]),
        ("-n t create role r --verb=get --resource=pods", none(), true, &["created"]),
        ("-n t create rolebinding b --role=r --user=u", none(), true, &["created"]),
        (
            "-n t get deploy,svc,cm,secret,role,rolebinding",
            none(),
            true,
            &["deployment.apps/d", "Opaque", "Role/r"],
        ),
        ("-n t run p --image=nginx --restart=Never", none(), true, &["pod/p created"]),
        ("-n t logs p", none(), true, &["p/p says hello"]),
        ("-n t logs p -c other", none(), false, &["container other is not valid for pod p"]),
        ("-n t get events", none(), true, &["No resources found"]),
        ("-n t scale deployment d --replicas=3", none(), true, &["scaled"]),
        ("-n t get deployment d -o jsonpath={.spec.replicas}", none(), true, &["3"]),
        ("-n t rollout history deployment d", none(), true, &["deployment.apps/d"]),
        ("-n t delete cm --all", none(), true, &["configmap \"c\" deleted"]),
        ("cluster-info", none(), true, &["is running at"]),
        ("api-versions", none(), true, &["example.com/v1", "apps/v1"]),
        ("api-resources --api-group=example.com", none(), true, &["widgets", "wd", "Widget"]),
        ("auth can-i create pods", none(), true, &["yes"]),
        ("auth whoami", none(), true, &["cleat-admin"]),
        ("api-resources --categories=all", none(), true, &["widgets", "deployments"]),
        ("delete ns t --timeout=10s", none(), true, &["deleted"]),
        ("-n t get cm", none(), true, &["No resources found"]),
        ("delete widget a", none(), true, &["deleted"]),
        ("delete crd widgets.example.com --timeout=10s", none(), true, &["deleted"]),
        ("get wd", none(), false, &[]),
    ]
}

/// What the pods of these tests have said.
#[derive(Debug)]
struct Said;

#[async_trait]
impl Logs for Said {
    async fn logs(&self, request: LogsRequest) -> Result<BoxStream<'static, Bytes>, LogsError> {
        let text = format!("{}/{} says hello\n", request.pod, request.container);
        Ok(once(async { Bytes::from(text) }).boxed())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_1_36_does_its_daily_work() -> Result<()> {
    daily_work(Program::Kubectl).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_1_32_does_its_daily_work() -> Result<()> {
    daily_work(Program::Kubectl132).await
}

async fn daily_work(program: Program) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let options =
        Options { kubeconfig: Some(kubeconfig.clone()), logs: Some(Arc::new(Said)), ..Options::default() };
    let server = start(options).await?;
    let kubectl = Kubectl::new(program, &kubeconfig).await?;
    let rows = rows();
    let count = rows.len();
    for (arguments, input, succeeds, prints) in rows {
        let outcome = kubectl.attempt(arguments, &input).await?;
        let text = outcome.output + &outcome.errors;
        ensure!(outcome.success == succeeds, "{arguments}\n{input}\n{text}");
        let readable = text.replace("\\\"", "\"");
        for part in prints {
            ensure!(readable.contains(part), "{arguments}: no {part:?} in\n{text}");
        }
    }
    follows_changes(&kubectl).await?;
    edits(&kubectl).await?;
    waits(&kubectl).await?;
    progress(format_args!("{}: {count} commands, get -w, edit and wait", program.name()));
    server.shutdown().await;
    Ok(())
}

/// `get -w` prints an object when it is there, and again when it has changed.
async fn follows_changes(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("create configmap seen --from-literal=a=1").await?;
    let mut watching = kubectl.command("get configmap seen -w -o jsonpath={.data.a}{\"\\n\"}").spawn()?;
    let mut lines = BufReader::new(watching.stdout.take().context("no output")?).lines();
    let mut next = async || anyhow::Ok(tokio::time::timeout(PATIENCE, lines.next_line()).await??);
    ensure!(next().await? == Some("1".to_owned()), "the object is not printed");
    kubectl.run("patch configmap seen -p {\"data\":{\"a\":\"2\"}}").await?;
    ensure!(next().await? == Some("2".to_owned()), "its change is not printed");
    watching.kill().await?;
    Ok(())
}

/// `edit` sends what an editor has made of the object.
async fn edits(kubectl: &Kubectl) -> Result<()> {
    let mut editing = kubectl.command("edit configmap seen");
    let done = editing.env("KUBE_EDITOR", r#"sed -i 's/a: "2"/a: "3"/'"#).output().await?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let value = kubectl.run("get configmap seen -o jsonpath={.data.a}").await?;
    ensure!(value == "3", "the edit has left {value}");
    Ok(())
}

/// `wait` ends when what it waits for comes true, and not before.
async fn waits(kubectl: &Kubectl) -> Result<()> {
    let mut waiting =
        kubectl.command("wait --for=jsonpath={.data.a}=4 configmap/seen --timeout=60s").spawn()?;
    let early = tokio::time::timeout(Duration::from_millis(500), waiting.wait()).await;
    ensure!(early.is_err(), "it did not wait");
    kubectl.run("patch configmap seen -p {\"data\":{\"a\":\"4\"}}").await?;
    ensure!(tokio::time::timeout(PATIENCE, waiting.wait()).await??.success(), "it has waited in vain");
    let outcome = kubectl.attempt("wait --for=delete configmap/seen --timeout=1s", "").await?;
    ensure!(!outcome.success, "it did not wait for the deletion");
    kubectl.run("delete configmap seen --wait").await?;
    Ok(())
}
