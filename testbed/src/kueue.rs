//! Kueue, a queue: pods wait behind its gate until their queue has quota for them.
//!
//! The real program runs as a process, with the manifests of its default installation. It listens on the
//! address of its Service, so that the API server reaches its webhooks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::tools::{KueueTools, to_stderr};
use crate::wait::{Seen, until};

/// The namespace of its installation.
pub const NAMESPACE: &str = "kueue-system";

/// The version of its objects.
pub const VERSION: &str = "kueue.x-k8s.io/v1beta2";

const SERVICE: &str = "kueue-webhook-service";
const SECRET: &str = "kueue-webhook-server-cert";

/// The files of its certificate, as keys of the Secret.
const CERTIFICATE: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// The port of its webhooks: 443 needs more rights than a test has.
const PORT: u16 = 26444;

/// Kueue starts within seconds; a machine that does something else needs more.
const LIMIT: Duration = Duration::from_secs(120);

/// The frameworks whose objects it queues. Each other one has a kind that is not defined here.
const FRAMEWORKS: [&str; 4] = ["batch/job", "pod", "deployment", "statefulset"];

/// Starts it on a control plane, with which it ends. The first call on a machine builds it. Returns its log.
///
/// `settings` are members of its `Configuration`, beside those that the testbed sets, such as
/// `waitForPodsReady`. It has an administrator's rights.
///
/// # Errors
/// It cannot be built, or not be started; or it does not answer in time.
pub async fn start(plane: &ControlPlane, settings: &Value) -> Result<PathBuf> {
    let tools = tokio::task::spawn_blocking(|| KueueTools::ensure(&to_stderr)).await??;
    let manifests = fs::read_to_string(tools.manifests())?;
    let (first, webhooks) = prepare(&manifests)?;
    plane.apply(&first).context("cannot create its objects")?;

    let client = plane.client().await?;
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = services.get(SERVICE).await?.spec.unwrap_or_default();
    let address = spec.cluster_ip.with_context(|| format!("Service {SERVICE} has no address"))?;
    let folder = plane.dir().join("kueue");
    fs::create_dir_all(&folder)?;
    let file = folder.join("configuration.json");
    fs::write(&file, configuration(&address, &folder, settings)?.to_string())?;
    // It waits for the CA in the configurations of its webhooks, and then answers to them.
    plane.apply(&webhooks).context("cannot create its webhooks")?;

    let program = tools.program().display().to_string();
    let variable = format!("KUBECONFIG={}", plane.kubeconfig().display());
    let arguments = [variable, program, "--config".to_owned(), file.display().to_string()];
    let log = plane.start_program("kueue", "env".as_ref(), &arguments)?;
    mount_certificate(plane, &client, &folder).await?;
    until("Kueue to answer", LIMIT, async || {
        plane.check()?;
        Ok(plane.apply(&[resource_flavor("default", &json!({}))]).into())
    })
    .await?;
    Ok(log)
}

/// A ResourceFlavor, with nodes of these labels.
#[must_use]
pub fn resource_flavor(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    })
}

/// Writes what the kubelet would: the certificate that Kueue has put into its Secret, as files.
async fn mount_certificate(plane: &ControlPlane, client: &Client, folder: &Path) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    until("Kueue's certificate", LIMIT, async || {
        plane.check()?;
        let data = secrets.get(SECRET).await?.data.unwrap_or_default();
        for file in CERTIFICATE {
            let Some(content) = data.get(file) else {
                return Ok(Seen::NotYet(format!("Secret {SECRET} has no {file}")));
            };
            fs::write(folder.join(file), &content.0)?;
        }
        Ok(Seen::Done(()))
    })
    .await
}

/// Its `Configuration`: webhooks on this address, with the certificate of a folder.
fn configuration(address: &str, folder: &Path, settings: &Value) -> Result<Value> {
    let mut all = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": address, "port": PORT, "certDir": folder},
        "leaderElection": {"leaderElect": false},
        "featureGates": {"VisibilityOnDemand": false},
        "integrations": {"frameworks": FRAMEWORKS},
    });
    let settings = settings.as_object().context("the settings are an object")?;
    for (name, setting) in settings {
        ensure!(all.get(name).is_none(), "the testbed sets {name} itself");
        all[name] = setting.clone();
    }
    Ok(all)
}

/// Reads the objects of its manifests that the testbed needs: those that exist before it starts, and its webhooks.
fn prepare(manifests: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(manifests).context("Kueue's manifests are not YAML")?;
    let (mut first, mut webhooks) = (Vec::new(), Vec::new());
    for mut object in objects {
        match object["kind"].as_str().context("an object without a kind")? {
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                let list = object["webhooks"].as_array_mut().context("no webhooks")?;
                for webhook in list {
                    webhook["clientConfig"]["service"]["port"] = json!(PORT);
                }
                webhooks.push(object);
            }
            "CustomResourceDefinition" => {
                if let Some(webhook) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
                    webhook["service"]["port"] = json!(PORT);
                }
                first.push(object);
            }
            "Service" if object["metadata"]["name"] == SERVICE => {
                object["spec"]["ports"][0]["port"] = json!(PORT);
                first.push(object);
            }
            "Namespace" | "Secret" => first.push(object),
            _ => {}
        }
    }
    ensure!(
        webhooks.len() == 2,
        "Kueue's manifests have {} webhook configurations",
        webhooks.len()
    );
    Ok((first, webhooks))
}
