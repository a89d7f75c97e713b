//! A piece of the loopback network for each control plane.
//!
//! All of 127.0.0.0/8 is local, so a control plane gets 256 addresses of its own: they are its
//! Service range (a local process can listen on a Service's cluster address, and the API server
//! reaches a webhook the way it does in production), and its own programs listen on the last of
//! them. Several control planes on a machine never meet, and no port has to be guessed: "free a
//! moment ago" is the classic cause of a start that fails once in a hundred.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Result, bail};

use crate::real::network;

/// Held while a control plane starts, until its API server holds its own port.
const CLAIM: u16 = 26442;

/// The addresses of a control plane: 256 loopback addresses, or those of the namespace that it
/// shares with real nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    host: Ipv4Addr,
    api: Ipv4Addr,
    /// The first address, and the length of the prefix.
    services: (Ipv4Addr, u8),
}

/// Unusual ports below the range that the kernel hands out: what listens on all addresses of the
/// machine (a k3s on 6443, say) would take ours too.
impl Range {
    pub(super) const API: u16 = 26443;
    pub(super) const ETCD: u16 = 26379;
    pub(super) const ETCD_PEER: u16 = 26380;
    pub(super) const CONTROLLER_MANAGER: u16 = 26257;
    pub(super) const SCHEDULER: u16 = 26259;
    pub(super) const KWOK: u16 = 26247;

    /// Takes a range that no control plane uses. It is ours as long as the listener lives or the
    /// API server listens.
    pub(super) fn claim() -> Result<(Self, TcpListener)> {
        let random = RandomState::new();
        let mut last = None;
        for attempt in 0_u8..32 {
            let [second, third, ..] = random.hash_one(attempt).to_be_bytes();
            // 127.64 to 127.126: away from 127.0.0.1, and from resolvers on 127.0.0.53.
            let range = Self::loopback(64 + second % 63, third);
            match range.try_claim() {
                Ok(claim) => return Ok((range, claim)),
                Err(error) => last = Some(error),
            }
        }
        bail!(
            "no free loopback addresses for a control plane; does something listen on port \
             {CLAIM} or {} of all addresses? ({})",
            Self::API,
            last.map_or_else(String::new, |error| error.to_string()),
        )
    }

    fn loopback(second: u8, third: u8) -> Self {
        let host = Ipv4Addr::new(127, second, third, 255);
        Self { host, api: host, services: (Ipv4Addr::new(127, second, third, 0), 24) }
    }

    /// The addresses in the namespace that the control plane shares with real nodes. The loopback
    /// device is the namespace's own.
    pub(super) fn real() -> Self {
        Self { host: Ipv4Addr::LOCALHOST, api: network::CONTROL_PLANE, services: network::SERVICES }
    }

    fn try_claim(self) -> std::io::Result<TcpListener> {
        let claim = TcpListener::bind((self.host(), CLAIM))?;
        TcpListener::bind((self.host(), Self::API))?;
        Ok(claim)
    }

    /// Where the control plane's own programs listen. The API server never gives the last address
    /// of a range to a Service.
    pub(super) fn host(self) -> Ipv4Addr {
        self.host
    }

    /// Where the API server is reached, by nodes too.
    pub(super) fn api(self) -> SocketAddr {
        (self.api, Self::API).into()
    }

    /// The first address: the Service `kubernetes`.
    pub(super) fn kubernetes_service(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.services.0.to_bits() + 1)
    }

    /// As the API server wants it.
    pub(super) fn cidr(self) -> String {
        format!("{}/{}", self.services.0, self.services.1)
    }

    /// Where the programs listen, with a port.
    pub(super) fn socket(self, port: u16) -> SocketAddr {
        (self.host(), port).into()
    }

    /// `preferred`, or any other port where something listens on that one of all addresses.
    pub(super) fn port(self, preferred: u16) -> Result<u16> {
        let listener = TcpListener::bind((self.host(), preferred))
            .or_else(|_| TcpListener::bind((self.host(), 0)))?;
        Ok(listener.local_addr()?.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_range_cannot_be_claimed_again() {
        let (range, claim) = Range::claim().unwrap();
        assert!(range.try_claim().is_err());
        // As when the start is over: the API server listens, the claim is gone.
        let api = TcpListener::bind(range.socket(Range::API)).unwrap();
        drop(claim);
        assert!(range.try_claim().is_err());
        drop(api);
        crate::wait::once_closed(|| range.try_claim().ok());
    }
}
