//! The volumes of a group's claims that restrict its nodes.

use std::borrow::Borrow;

use crate::systems::View;
use crate::systems::fit::{Volume, Volumes};
use crate::view::Name;

/// The volumes of these claims that not every node can mount. A claim without a volume is left out: its
/// volume is created where the pod is.
pub fn of_claims<'v>(
    claims: impl IntoIterator<Item = impl Borrow<Name>>,
    view: &'v View,
) -> Volumes<'v> {
    let volume = |claim: &Name| {
        let name = view.claim(claim)?.volume.as_deref()?;
        let terms = &*view.volume(name)?.terms;
        (!terms.is_empty()).then_some(Volume { claim: (*claim.name).into(), name, terms })
    };
    claims.into_iter().filter_map(|claim| volume(claim.borrow())).collect()
}
