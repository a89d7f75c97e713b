//! When the webhook's own CA and certificate are made, published and replaced.
//!
//! [`plan`] is a pure function: from what is in the two Secrets and in the caBundles it computes
//! the next step. After each step everything is read again, so a step that was lost, or that
//! another process has done, needs no memory.
//!
//! The caBundle that an API server uses cannot be observed. So a new CA (the old one is due, was deleted
//! or was replaced by hand) is in all caBundles for a time, the overlap, before it signs the
//! certificate, and the old one stays for one more overlap, because replicas need some time to serve the new
//! certificate; that they do is not checked. Nothing is recorded: a new leader waits for the overlap from its start.
//!
//! If API servers do not trust the certificate anyway (there is none, or it has expired), nothing
//! is gained by waiting, and it is signed at once.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// The identity of a certificate: the SHA-256 of its DER.
pub(crate) type Id = [u8; 32];

/// How far certificates are dated back, for API servers whose clocks are behind.
pub(crate) const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// The most certificates of other CAs that stay in a caBundle until the present CA has signed the
/// certificate for an overlap.
pub(crate) const MOST_OTHERS: usize = 14;

/// The longest time between two looks at what is there.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// How long certificates live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    pub ca_lifetime: Duration,
    pub leaf_lifetime: Duration,
    /// How long API servers and replicas may take to see a change.
    pub overlap: Duration,
}

impl Terms {
    /// The longest life of a CA: later dates could not be written into certificates.
    const LONGEST_LIFE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// Returns how often everything is read and planned again even if nothing changes. An overlap is the
    /// shortest time that matters.
    pub(crate) fn interval(&self) -> Duration {
        (self.overlap / 6).clamp(Duration::from_secs(1), LONGEST_INTERVAL)
    }

    /// Checks that the times fit each other.
    ///
    /// # Errors
    /// Returns the problem, with the flags' names, and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { ca_lifetime, leaf_lifetime, overlap } = *self;
        let problem = if overlap < Duration::from_secs(1) {
            "--ca-overlap is less than a second: API servers need some time to read a new CA; set it \
             to 1h"
        } else if leaf_lifetime < overlap * 6 {
            // A certificate is renewed when a third of its life has passed, and a new CA signs after
            // an overlap.
            "--leaf-lifetime is less than six times --ca-overlap, so the certificate could be renewed \
             before API servers trust a new CA: set it to at least six times the overlap"
        } else if ca_lifetime < leaf_lifetime * 4 {
            // The old CA signs for an overlap after a third of its life is left.
            "--ca-lifetime is less than four times --leaf-lifetime, so a certificate could outlive \
             its CA: set it to at least four times the certificate's"
        } else if ca_lifetime > Self::LONGEST_LIFE {
            "--ca-lifetime is more than 100 years: set a shorter one"
        } else {
            return Ok(());
        };
        Err(problem.to_owned())
    }
}

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

impl Span {
    /// That of a certificate that is made now.
    pub(crate) fn starting(now: SystemTime, lifetime: Duration) -> Self {
        Self { not_before: now - BACKDATE, not_after: now + lifetime }
    }

    fn contains(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// When the certificate was made.
    fn made(&self) -> SystemTime {
        self.not_before + BACKDATE
    }

    fn life(&self) -> Duration {
        self.not_after.duration_since(self.made()).unwrap_or_default()
    }

    /// When only this much of its life is left, in thirds.
    fn thirds_left(&self, thirds: u32) -> SystemTime {
        self.not_after - self.life() / 3 * thirds
    }
}

/// The CA whose key stowplan has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ca {
    pub id: Id,
    pub span: Span,
    /// Since when this process has seen it in every caBundle.
    pub published_since: Option<SystemTime>,
}

/// The webhook's certificate, if it is for the names of the Service and has its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Leaf {
    /// The certificates, of the CA and in caBundles, that verify it.
    pub issuers: Vec<(Id, Span)>,
    pub span: Span,
}

/// The content of the Secrets and of the caBundles. What cannot be used is not in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct State {
    pub ca: Option<Ca>,
    pub leaf: Option<Leaf>,
    /// The caBundle of each webhook that calls the Service.
    pub bundles: Vec<BTreeSet<Id>>,
}

/// The next write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Make a CA in place of the present one.
    MakeCa,
    /// Write these certificates into every caBundle that has others.
    Publish(BTreeSet<Id>),
    /// Make the webhook's certificate, signed by the CA.
    Sign,
}

/// Computes the next step. `None`: nothing is left to do at this time.
pub(crate) fn plan(state: &State, terms: &Terms, now: SystemTime) -> Option<Step> {
    let ca = state.ca.as_ref().filter(|ca| ca.span.contains(now));
    let Some(ca) = ca else { return Some(Step::MakeCa) };
    let leaf = state.leaf.as_ref().filter(|leaf| leaf.span.contains(now));
    let is_issuer = |id: &Id| leaf.is_some_and(|leaf| leaf.issuers.iter().any(|(of, _)| of == id));
    let is_of_ca = is_issuer(&ca.id);

    let mut target = BTreeSet::from([ca.id]);
    let is_served = leaf.is_some_and(|leaf| leaf.span.made() + terms.overlap <= now);
    if !(is_of_ca && is_served) {
        // A replica may still serve a certificate that only these verify.
        let others: BTreeSet<Id> = state.bundles.iter().flatten().copied().collect();
        let others = others.into_iter().filter(|id| *id != ca.id);
        let (first, then): (Vec<Id>, Vec<Id>) = others.partition(is_issuer);
        target.extend(first.into_iter().chain(then).take(MOST_OTHERS));
    }
    if state.bundles.iter().any(|bundle| *bundle != target) {
        return Some(Step::Publish(target));
    }

    // All API servers that have seen the present caBundles trust the certificate.
    let is_trusted = is_of_ca
        || !state.bundles.is_empty()
            && state.bundles.iter().all(|bundle| {
                let mut issuers = leaf.iter().flat_map(|leaf| &leaf.issuers);
                issuers.any(|(id, span)| span.contains(now) && bundle.contains(id))
            });
    let has_to_sign = match leaf.filter(|_| is_trusted) {
        None => true,
        Some(leaf) if is_of_ca => leaf.span.thirds_left(2) <= now,
        // At the latest before it expires: a leader that has just begun has not seen the caBundles.
        Some(leaf) => {
            let is_known = ca.published_since.is_some_and(|since| since + terms.overlap <= now);
            is_known || leaf.span.not_after - terms.overlap <= now
        }
    };
    if has_to_sign {
        return Some(Step::Sign);
    }
    (ca.span.thirds_left(1) <= now).then_some(Step::MakeCa)
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
