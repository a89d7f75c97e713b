//! A pod as a member of its StreamsJob.

use crate::placement::intent::Enforcement;
use crate::systems::streams::api::streams_job::{
    self as api, Enforcement as Wanted, ProcessingElement, StreamsJobSpec,
};
use crate::systems::streams::kinds::streams_job::StreamsJob;
use crate::systems::streams::kinds::streams_job::closure::{Claim, Location, Operator, Unit};
use crate::systems::streams::token::{TOKEN, Token};

/// A pod as a member of its job.
pub(in crate::systems::streams) struct Member<'v> {
    pub(in crate::systems::streams) name: &'v str,
    pub(in crate::systems::streams) job: &'v StreamsJob,
    /// `job.spec`, which is valid.
    pub(in crate::systems::streams) spec: &'v StreamsJobSpec,
    /// The index of the pod's processing element in the spec.
    pub(in crate::systems::streams) index: usize,
    pub(in crate::systems::streams) element: &'v ProcessingElement,
    /// True if an earlier round placed the pod as this element.
    pub(in crate::systems::streams) is_placed: bool,
    /// The processing elements that share a host, among them the pod's.
    pub(in crate::systems::streams) unit: &'v Unit,
}

impl Member<'_> {
    /// Returns the enforcement of colocation, exlocation and isolation.
    pub(in crate::systems::streams) fn enforcement(&self) -> Enforcement {
        match self.spec.enforcement {
            Wanted::Required => Enforcement::Required,
            Wanted::Preferred => Enforcement::Preferred,
        }
    }

    /// The hosts and pools that the pod must be bound to.
    pub(in crate::systems::streams) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.unit.claims_of(self.index, self.spec.enforcement)
    }

    /// The location as the job writes it: a host, `P2`, `P2[5]`.
    pub(in crate::systems::streams) fn format_location(&self, location: &Location) -> String {
        match location {
            Location::Host(_) => {
                let claim = self.unit.claims.iter().find(|claim| claim.location == *location);
                let host = claim.and_then(|claim| self.operator(claim.by)?.host.as_ref());
                let text = host.and_then(|host| host.name.clone().or_else(|| host.address.clone()));
                text.unwrap_or_default()
            }
            Location::Pool { pool, index } => {
                let name = self.spec.pools.get(*pool).map_or("", |pool| pool.name.as_str());
                index.map_or_else(|| name.to_owned(), |index| format!("{name}[{index}]"))
            }
        }
    }

    pub(in crate::systems::streams) fn operator(&self, by: Operator) -> Option<&api::Operator> {
        self.spec.processing_elements.get(by.element)?.operators.get(by.operator)
    }

    /// The element's own colocation tokens, each once.
    pub(in crate::systems::streams) fn colocation(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::new();
        for text in self.element.operators.iter().flat_map(|operator| &operator.host_colocation) {
            // A job with an invalid token is not accepted, so this skips none.
            if let Ok(token) = Token::parse(TOKEN, text)
                && !tokens.contains(&token)
            {
                tokens.push(token);
            }
        }
        tokens
    }

    /// The exlocation tokens of the element's unit.
    pub(in crate::systems::streams) fn exlocation(&self) -> Vec<Token> {
        let tokens = self.unit.exlocations.iter();
        tokens.filter_map(|exlocation| Token::parse(TOKEN, &exlocation.token).ok()).collect()
    }
}
