//! When the webhook's own CA and certificate are made, published and replaced.
//!
//! [`plan`] is a pure function: from what is in the two Secrets and in the caBundles it computes
//! the next step. After each step everything is read again, so a step that was lost, or that
//! another process has done, needs no memory.
//!
//! Which caBundle an API server uses cannot be observed. So what API servers have to trust is in
//! all caBundles for a time, the overlap, before a certificate needs it, and it stays for the
//! overlap after no certificate needs it any more:
//!
//! 1. a new CA is made when a third of the old one's life is left, and published beside the old one;
//! 2. after the overlap it signs the certificate;
//! 3. after the overlap again, the old CA is dropped.
//!
//! If API servers do not trust the certificate anyway (there is none, or it has expired), nothing
//! is gained by waiting, and it is signed at once.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// What identifies a certificate: the SHA-256 of its DER.
pub(crate) type Id = [u8; 32];

/// How far certificates are dated back, for API servers whose clocks are behind.
pub(crate) const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// The most certificates of other CAs that stay in a caBundle until the certificate is settled.
pub(crate) const MOST_OTHERS: usize = 14;

/// The longest time until everything is read and planned again.
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);

/// How long certificates live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    pub ca_lifetime: Duration,
    pub leaf_lifetime: Duration,
    /// How long API servers and replicas may take to see a change.
    pub overlap: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self {
            ca_lifetime: day * 365,
            leaf_lifetime: day * 30,
            overlap: Duration::from_secs(60 * 60),
        }
    }
}

impl Terms {
    /// The longest life of a CA: later dates could not be written into certificates.
    const LONGEST_LIFE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// Checks that the times fit each other.
    ///
    /// # Errors
    /// What is wrong, with the flags' names, and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { ca_lifetime, leaf_lifetime, overlap } = *self;
        if overlap < Duration::from_secs(1) {
            return Err(
                "--ca-overlap is less than a second: API servers need some time to read a \
                        new CA; set it to 1h"
                    .to_owned(),
            );
        }
        // A certificate is renewed when a third of its life has passed, and the old CA is dropped
        // an overlap after a renewal.
        if leaf_lifetime < overlap * 6 {
            return Err("--leaf-lifetime is less than six times --ca-overlap, so the certificate \
                        could be renewed before API servers trust a new CA: set it to at least \
                        six times the overlap"
                .to_owned());
        }
        // The old CA signs for an overlap after a third of its life is left.
        if ca_lifetime < leaf_lifetime * 4 {
            return Err("--ca-lifetime is less than four times --leaf-lifetime, so a certificate \
                        could outlive its CA: set it to at least four times the certificate's"
                .to_owned());
        }
        if ca_lifetime > Self::LONGEST_LIFE {
            return Err("--ca-lifetime is more than 100 years: set a shorter one".to_owned());
        }
        Ok(())
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

/// A CA whose key stowplan has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ca {
    pub id: Id,
    pub span: Span,
    /// Since when every caBundle has been known to contain it.
    pub trusted_since: Option<SystemTime>,
}

/// The webhook's certificate, if it is for the names of the Service and has its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Leaf {
    /// The certificates, of CAs and in caBundles, that verify it.
    pub issuers: Vec<(Id, Span)>,
    pub span: Span,
}

/// What is in the Secrets and in the caBundles. What cannot be used is not in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct State {
    /// The newest first.
    pub cas: Vec<Ca>,
    pub leaf: Option<Leaf>,
    /// The caBundle of each webhook that calls the Service.
    pub bundles: Vec<BTreeSet<Id>>,
}

/// The next write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Make a CA, and keep these of the old ones behind it.
    MakeCa { keep: Vec<Id> },
    /// Record since when all caBundles have had the CA; `None`: they do not.
    Record { ca: Id, since: Option<SystemTime> },
    /// Write these certificates into every caBundle that has others.
    Publish(BTreeSet<Id>),
    /// Make the webhook's certificate, signed by this CA.
    Sign(Id),
    /// Drop all CAs but the newest.
    Retire,
}

/// What to do now, and when to look again even if nothing changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Plan {
    pub step: Option<Step>,
    pub recheck_at: SystemTime,
}

/// Computes the next step.
pub(crate) fn plan(state: &State, terms: &Terms, now: SystemTime) -> Plan {
    let situation = Situation::new(state, terms, now);
    Plan { step: situation.step(), recheck_at: situation.recheck_at() }
}

/// The state, with what follows from it now.
struct Situation<'s> {
    state: &'s State,
    terms: &'s Terms,
    now: SystemTime,
    /// The CAs that are valid now, by their position.
    valid: Vec<usize>,
    /// The certificate, if it is valid now.
    leaf: Option<&'s Leaf>,
    /// The CA that has signed it, by its position.
    issuer: Option<usize>,
    /// Whether all API servers that have seen the present caBundles trust the certificate.
    is_trusted: bool,
}

impl<'s> Situation<'s> {
    fn new(state: &'s State, terms: &'s Terms, now: SystemTime) -> Self {
        let valid: Vec<_> =
            (0..state.cas.len()).filter(|at| state.cas[*at].span.contains(now)).collect();
        let leaf = state.leaf.as_ref().filter(|leaf| leaf.span.contains(now));
        let is_issuer = |at: &usize| {
            leaf.is_some_and(|leaf| leaf.issuers.iter().any(|(id, _)| *id == state.cas[*at].id))
        };
        let issuer = valid.iter().copied().find(is_issuer);
        let is_verified_by = |bundle: &BTreeSet<Id>| {
            leaf.is_some_and(|leaf| {
                let mut issuers = leaf.issuers.iter();
                issuers.any(|(id, span)| span.contains(now) && bundle.contains(id))
            })
        };
        let is_trusted = match state.bundles.is_empty() {
            true => issuer.is_some(),
            false => state.bundles.iter().all(is_verified_by),
        };
        Self { state, terms, now, valid, leaf, issuer, is_trusted }
    }

    /// Whether every caBundle has the CA. None does if there is no caBundle.
    fn is_published(&self, ca: &Ca) -> bool {
        let bundles = &self.state.bundles;
        !bundles.is_empty() && bundles.iter().all(|bundle| bundle.contains(&ca.id))
    }

    /// Whether every API server has read a caBundle with the CA.
    fn is_promoted(&self, ca: &Ca) -> bool {
        ca.trusted_since.is_some_and(|since| since + self.terms.overlap <= self.now)
    }

    /// Whether every replica serves the present certificate, and it was signed by a present CA.
    fn is_settled(&self) -> bool {
        let made = self.leaf.map(|leaf| leaf.span.made());
        self.issuer.is_some() && made.is_some_and(|made| made + self.terms.overlap <= self.now)
    }

    fn step(&self) -> Option<Step> {
        self.make_ca()
            .or_else(|| self.correct_record())
            .or_else(|| self.publish())
            .or_else(|| self.sign())
            .or_else(|| self.record())
            .or_else(|| self.retire())
    }

    fn make_ca(&self) -> Option<Step> {
        let Some(newest) = self.valid.first() else {
            return Some(Step::MakeCa { keep: Vec::new() });
        };
        let is_due = self.state.cas[*newest].span.thirds_left(1) <= self.now;
        // Of two old ones, the one that is in use.
        let keep = self.issuer.or_else(|| self.trusted_signer()).unwrap_or(*newest);
        is_due.then(|| Step::MakeCa { keep: vec![self.state.cas[keep].id] })
    }

    /// Starts the overlap again for a CA that somebody removed from a caBundle meanwhile, or whose
    /// date is in the future because the clock was put back.
    fn correct_record(&self) -> Option<Step> {
        self.state.cas.iter().find_map(|ca| {
            let since = ca.trusted_since?;
            let was_removed = !self.is_promoted(ca) && !self.is_published(ca);
            (was_removed || since > self.now).then_some(Step::Record { ca: ca.id, since: None })
        })
    }

    fn publish(&self) -> Option<Step> {
        let mut target: BTreeSet<Id> = self.state.cas.iter().map(|ca| ca.id).collect();
        if !self.is_settled() {
            // A replica may still serve a certificate that only these verify.
            let others = self.state.bundles.iter().flatten().filter(|id| !target.contains(*id));
            let others: BTreeSet<Id> = others.copied().collect();
            let is_issuer = |id: &&Id| {
                let mut issuers = self.leaf.iter().flat_map(|leaf| &leaf.issuers);
                issuers.any(|(issuer, _)| issuer == *id)
            };
            let (first, then): (Vec<&Id>, Vec<&Id>) = others.iter().partition(is_issuer);
            target.extend(first.into_iter().chain(then).take(MOST_OTHERS));
        }
        let differs = self.state.bundles.iter().any(|bundle| *bundle != target);
        differs.then_some(Step::Publish(target))
    }

    /// The newest CA that every API server trusts.
    fn trusted_signer(&self) -> Option<usize> {
        let mut valid = self.valid.iter().copied();
        valid.find(|at| self.is_promoted(&self.state.cas[*at]))
    }

    /// The CA that most API servers may trust, if none is trusted by all: the one that was
    /// published first.
    fn best_signer(&self) -> Option<usize> {
        let by_date = |at: &usize| {
            let since = self.state.cas[*at].trusted_since;
            (since.is_none(), since, *at)
        };
        self.trusted_signer().or_else(|| self.valid.iter().copied().min_by_key(by_date))
    }

    fn sign(&self) -> Option<Step> {
        let by = |at: usize| Some(Step::Sign(self.state.cas[at].id));
        let Some(leaf) = self.leaf.filter(|_| self.is_trusted) else {
            return self.best_signer().and_then(by);
        };
        let signer = match (self.trusted_signer(), self.issuer) {
            (Some(newer), Some(issuer)) if newer < issuer => return by(newer),
            // That of a lost Secret: its key is gone.
            (Some(any), None) => return by(any),
            (Some(_) | None, Some(issuer)) => issuer,
            // Until the new CA is trusted, the certificate is used as long as it is valid.
            (None, None) => return None,
        };
        let end = self.state.cas[signer].span.not_after.min(self.now + self.terms.leaf_lifetime);
        let is_due = leaf.span.thirds_left(2) <= self.now && leaf.span.not_after < end;
        if is_due { by(signer) } else { None }
    }

    fn record(&self) -> Option<Step> {
        let is_new = |ca: &&Ca| ca.trusted_since.is_none() && self.is_published(ca);
        let ca = self.state.cas.iter().find(is_new)?;
        Some(Step::Record { ca: ca.id, since: Some(self.now) })
    }

    fn retire(&self) -> Option<Step> {
        let is_over = self.issuer == Some(0) && self.is_trusted && self.is_settled();
        (is_over && self.state.cas.len() > 1).then_some(Step::Retire)
    }

    fn recheck_at(&self) -> SystemTime {
        let overlap = self.terms.overlap;
        let cas = self.state.cas.iter().flat_map(|ca| {
            let promoted = ca.trusted_since.map(|since| since + overlap);
            [Some(ca.span.not_before), Some(ca.span.thirds_left(1)), promoted]
        });
        let leaf = self.state.leaf.iter().flat_map(|Leaf { span, .. }| {
            let settled = span.made() + overlap;
            [span.not_before, span.thirds_left(2), settled, span.not_after].map(Some)
        });
        let times = cas.chain(leaf).flatten().filter(|time| *time > self.now);
        times.min().unwrap_or(self.now + LONGEST).min(self.now + LONGEST)
    }
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
