//! Asks the API server which rights the user and the accounts of stowplan have.

use std::collections::BTreeMap;
use std::future::Future;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::facts::{Answer, Facts, Read, Role};
use super::read::{AT_ONCE, request};
use super::rights::{self, Right, forbidden};

/// Asks which rights are missing: those of the user, and those of stowplan's accounts.
pub(super) async fn read_rights(client: &Client, facts: &mut Facts) {
    let own = facts.namespace.clone().unwrap_or_default();
    let policy = facts.policy_name.as_deref().and_then(|name| name.split_once('/'));
    let (reader, administrator) = rights::needed_by_check(policy.map(|(_, name)| name));
    let asked: Vec<Right> = reader.into_iter().chain(administrator).collect();
    let ask = |right: Right| {
        let own = own.as_str();
        async move {
            let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
            let (resource_attributes, non_resource_attributes) = attributes(&right, own);
            let spec = SelfSubjectAccessReviewSpec { resource_attributes, non_resource_attributes };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let parameters = PostParams::default();
            let created = reviews.create(&parameters, &review);
            let created = request("create selfsubjectaccessreviews", created).await?;
            Ok(Answer { right, is_allowed: created.status.is_some_and(|status| status.allowed) })
        }
    };
    facts.missing = collect(asked, ask).await.map(|answers| {
        answers.into_iter().filter(|of| !of.is_allowed).map(|of| of.right).collect()
    });
    let accounts: BTreeMap<Role, (String, Vec<String>)> = facts
        .containers()
        .filter_map(|(role, deployment, container)| {
            let spec = deployment.spec.as_ref()?.template.spec.as_ref()?;
            let account = spec.service_account_name.clone();
            let account = account.unwrap_or_else(|| "default".to_owned());
            Some((role, (account, container.args.clone().unwrap_or_default())))
        })
        .collect();
    let may_not = facts
        .missing
        .as_ref()
        .is_ok_and(|missing| missing.iter().any(|right| right.resource == "subjectaccessreviews"));
    for (role, (account, arguments)) in accounts {
        if may_not {
            let right = "create subjectaccessreviews.authorization.k8s.io";
            facts.rights.insert(role, forbidden(right));
            continue;
        }
        let user = format!("system:serviceaccount:{own}:{account}");
        let ask = |right: Right| {
            let (own, user) = (own.as_str(), user.clone());
            async move {
                let reviews = Api::<SubjectAccessReview>::all(client.clone());
                let (resource_attributes, non_resource_attributes) = attributes(&right, own);
                let spec = SubjectAccessReviewSpec {
                    resource_attributes,
                    non_resource_attributes,
                    user: Some(user),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{own}"),
                        "system:authenticated".to_owned(),
                    ]),
                    ..SubjectAccessReviewSpec::default()
                };
                let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
                let parameters = PostParams::default();
                let created = reviews.create(&parameters, &review);
                let created = request("create subjectaccessreviews", created).await?;
                let is_allowed = created.status.is_some_and(|status| status.allowed);
                Ok(Answer { right, is_allowed })
            }
        };
        let answers = collect(rights::needed_by(role, &arguments), ask).await;
        facts.rights.insert(role, answers.map(|answers| (account, answers)));
    }
}

/// Asks about all rights. The first that cannot be asked about is the error.
async fn collect<F: Future<Output = Read<Answer>>>(
    rights: Vec<Right>,
    ask: impl Fn(Right) -> F,
) -> Read<Vec<Answer>> {
    let answers: Vec<Read<Answer>> =
        stream::iter(rights.into_iter().map(ask)).buffered(AT_ONCE).collect().await;
    answers.into_iter().collect()
}

/// The question about a right, as reviews have it.
fn attributes(
    right: &Right,
    own: &str,
) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    let verb = Some(right.verb.clone());
    if right.resource.starts_with('/') {
        return (None, Some(NonResourceAttributes { path: Some(right.resource.clone()), verb }));
    }
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        verb,
        name: right.name.clone(),
        namespace: right.is_own.then(|| own.to_owned()),
        ..ResourceAttributes::default()
    };
    (Some(attributes), None)
}
