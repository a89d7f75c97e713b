//! Asks the API server which rights the accounts of stowplan have.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::facts::{Answer, Facts, Read, Role};
use super::read::{AT_ONCE, request};
use super::rights::{self, Right};

/// Asks which rights the accounts have.
pub(super) async fn read_rights(
    client: &Client,
    facts: &Facts,
) -> BTreeMap<Role, Read<(String, Vec<Answer>)>> {
    let own = facts.namespace.as_deref().unwrap_or_default();
    let mut read = BTreeMap::new();
    for (role, deployment, container) in facts.containers() {
        let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let account = pod.and_then(|pod| pod.service_account_name.clone());
        let account = account.unwrap_or_else(|| "default".to_owned());
        let rights = rights::needed_by(role, container.args.as_deref().unwrap_or_default());
        let asked = rights.into_iter().map(|right| ask(client, own, &account, right));
        let answers: Read<Vec<Answer>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await;
        read.insert(role, answers.map(|answers| (account, answers)));
    }
    read
}

async fn ask(client: &Client, own: &str, account: &str, right: Right) -> Read<Answer> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(right.verb.clone()),
        name: right.name.clone(),
        namespace: right.is_own.then(|| own.to_owned()),
        ..ResourceAttributes::default()
    };
    let of_namespace = format!("system:serviceaccounts:{own}");
    let groups = ["system:serviceaccounts", of_namespace.as_str(), "system:authenticated"];
    let spec = SubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        user: Some(format!("system:serviceaccount:{own}:{account}")),
        groups: Some(groups.map(str::to_owned).to_vec()),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    let parameters = PostParams::default();
    let created = reviews.create(&parameters, &review);
    let created = request("create subjectaccessreviews.authorization.k8s.io", created).await?;
    Ok(Answer { right, is_allowed: created.status.is_some_and(|status| status.allowed) })
}
