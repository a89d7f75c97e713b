//! The webhook and the controllers as processes: their ids, and the webhook behind a proxy.

use anyhow::Result;

use super::{Installation, WEBHOOK};
use crate::control_plane::unpoisoned;
use crate::proxy::Proxy;

impl Installation {
    /// Stops the webhook, and starts it again with `proxy` between it and the API server.
    ///
    /// # Errors
    /// As for [`Installation::start_webhook`].
    pub async fn restart_webhook_through(&mut self, proxy: &Proxy) -> Result<()> {
        self.stop_webhook().await?;
        self.write_kubeconfig(WEBHOOK, &proxy.url(), "webhook/kubeconfig").await?;
        self.start_webhook().await
    }

    /// The id of the running webhook's process, for tests and benchmarks that read `/proc`.
    ///
    /// # Errors
    /// It does not run.
    pub fn webhook_process(&self) -> Result<u32> {
        unpoisoned(&self.processes).id(WEBHOOK)
    }

    /// The id of a running controller's process, for tests and benchmarks that read `/proc`.
    ///
    /// # Errors
    /// It does not run.
    pub fn controller_process(&self, index: usize) -> Result<u32> {
        unpoisoned(&self.processes).id(&self.running_controller(index)?)
    }
}
