//! The cluster that is used: the arguments, and the connection.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use stowplan_core::names::is_dns_label;

/// The arguments of a command that uses a cluster.
#[derive(Args, Debug)]
pub(in crate::cli) struct Access {
    /// The context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    context: Option<String>,
    /// The kubeconfig file [default: those in KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Access {
    /// Refuses the arguments for a command that reads files instead of a cluster.
    ///
    /// # Errors
    /// `problem`, if one of them is given.
    pub(in crate::cli) fn ensure_unused(&self, problem: &'static str) -> anyhow::Result<()> {
        ensure!(self.context.is_none() && self.kubeconfig.is_none(), problem);
        Ok(())
    }

    /// Connects to the cluster. No request is sent yet.
    ///
    /// # Errors
    /// Why the kubeconfig cannot be used.
    pub(in crate::cli) async fn connect(&self) -> anyhow::Result<Connection> {
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| {
                    anyhow!("--kubeconfig {}: {}", path.display(), first_line(&error))
                })?;
                Config::from_custom_kubeconfig(file, &options).await
            }
            None => match Config::from_kubeconfig(&options).await {
                // In a pod there is no kubeconfig. One that is named or broken is not passed over: the pod's
                // cluster may be another one.
                Err(error) if self.context.is_none() && is_absent(&error) => {
                    Config::incluster().map_err(|_| error)
                }
                read => read,
            },
        };
        let config = config.map_err(|error| {
            anyhow!(
                "no usable kubeconfig (set KUBECONFIG, or use --kubeconfig): {}",
                first_line(&error)
            )
        })?;
        let namespace = config.default_namespace.clone();
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).context("the kubeconfig's context is not usable")?;
        Ok(Connection { client, server, namespace })
    }
}

/// Returns true if no kubeconfig is named, and there is none at the usual place.
fn is_absent(error: &KubeconfigError) -> bool {
    let is_named = std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty());
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => !is_named && error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// The first line of an error, whose text has those of its causes. Further lines quote the file.
fn first_line(error: &KubeconfigError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A client of a cluster.
pub(in crate::cli) struct Connection {
    pub(in crate::cli) client: Client,
    /// The URL of the API server.
    pub(in crate::cli) server: String,
    /// The namespace of the kubeconfig's context.
    pub(in crate::cli) namespace: String,
}

/// Parses the name of a namespace on the command line.
///
/// # Errors
/// What names of namespaces consist of.
pub(in crate::cli) fn parse_namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err("not the name of a namespace: write 1 to 63 lower case letters, digits and -".to_owned())
}
