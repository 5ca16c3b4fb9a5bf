//! kubectl works on this server. It is not part of a plain test run, which needs nothing but cargo: name the programs in
//! `CLEAT_KUBECTL`, separated by colons, and run the ignored tests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use cleat_apiserver::{Options, start};
use std::path::Path;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

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

async fn run(kubectl: &str, kubeconfig: &Path, arguments: &str, input: &str) -> (bool, String) {
    let mut child = Command::new(kubectl)
        .args(arguments.split(' '))
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", kubeconfig.parent().unwrap())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, named in CLEAT_KUBECTL"]
async fn kubectl_does_its_daily_work() {
    let programs = std::env::var("CLEAT_KUBECTL").expect("CLEAT_KUBECTL names one or more kubectl");
    for kubectl in programs.split(':') {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let handle =
            start(Options { kubeconfig: Some(kubeconfig.clone()), ..Options::default() }).await.unwrap();
        for (arguments, input, succeeds, prints) in rows() {
            let (success, text) = run(kubectl, &kubeconfig, arguments, &input).await;
            assert_eq!(success, succeeds, "{kubectl} {arguments}\n{input}\n{text}");
            let readable = text.replace("\\\"", "\"");
            for part in prints {
                assert!(readable.contains(part), "{kubectl} {arguments}: no {part:?} in\n{text}");
            }
        }
        handle.shutdown().await;
    }
}
