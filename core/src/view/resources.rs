//! Amounts of resources: the requests of pods and the capacity of nodes.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::kubernetes::condition;

/// Amounts of resources.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Processor time, in thousandths of a core.
    pub milli_cpu: i64,
    /// Memory, in bytes.
    pub memory: i64,
    /// Other resources by name, in whole units; zero amounts are omitted.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub other: Box<[(Box<str>, i64)]>,
}

impl fmt::Display for Resources {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cpu {}m and memory {} MiB", self.milli_cpu, self.memory >> 20)?;
        self.other.iter().try_for_each(|(name, amount)| write!(formatter, " and {name} {amount}"))
    }
}

impl Resources {
    /// The amount of a resource other than cpu and memory.
    #[must_use]
    pub fn other(&self, name: &str) -> i64 {
        self.other.iter().find(|(known, _)| **known == *name).map_or(0, |(_, amount)| *amount)
    }

    /// Returns true if all amounts are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if these amounts are at least `wanted`.
    #[must_use]
    pub fn covers(&self, wanted: &Self) -> bool {
        self.covers_beside(&[], wanted)
    }

    /// Returns true if these amounts, less all of `taken`, are at least `wanted`.
    #[must_use]
    pub fn covers_beside(&self, taken: &[&Self], wanted: &Self) -> bool {
        // A resource that is not requested does not matter, even on an overcommitted node.
        let enough = |wanted: i64, amount: &dyn Fn(&Self) -> i64| {
            let left = |have: i64, taken: &&Self| have.saturating_sub(amount(taken));
            wanted <= 0 || wanted <= taken.iter().fold(amount(self), left)
        };
        enough(wanted.milli_cpu, &|of| of.milli_cpu)
            && enough(wanted.memory, &|of| of.memory)
            && wanted.other.iter().all(|(name, amount)| enough(*amount, &|of| of.other(name)))
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        self.combine(more, i64::saturating_add)
    }

    /// The difference; can be below zero.
    #[must_use]
    pub fn minus(&self, less: &Self) -> Self {
        self.combine(less, i64::saturating_sub)
    }

    /// The part of these amounts that `used` does not use up.
    #[must_use]
    pub fn beyond(&self, used: &Self) -> Self {
        self.combine(used, |amount, used| amount.saturating_sub(used).max(0))
    }

    /// The larger amount of each resource.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        self.combine(other, i64::max)
    }

    fn combine(&self, with: &Self, join: impl Fn(i64, i64) -> i64) -> Self {
        let mut other: BTreeMap<&str, i64> = BTreeMap::new();
        for name in self.other.iter().chain(&with.other).map(|(name, _)| &**name) {
            other.insert(name, join(self.other(name), with.other(name)));
        }
        Self {
            milli_cpu: join(self.milli_cpu, with.milli_cpu),
            memory: join(self.memory, with.memory),
            other: other
                .into_iter()
                .filter(|(_, amount)| *amount != 0)
                .map(|(name, amount)| (name.into(), amount))
                .collect(),
        }
    }

    /// Parses amounts as in Kubernetes objects. An invalid amount counts as zero.
    #[must_use]
    pub fn read(amounts: Option<&BTreeMap<String, Quantity>>) -> Self {
        let mut read = Self::default();
        let mut other = Vec::new();
        for (name, Quantity(text)) in amounts.into_iter().flatten() {
            let thousandths = thousandths(text).unwrap_or_default();
            // Rounded up, as the scheduler does.
            let units = bounded(thousandths.saturating_add(999).div_euclid(1000));
            match name.as_str() {
                "cpu" => read.milli_cpu = bounded(thousandths),
                "memory" => read.memory = units,
                // Kept separately, in `NodeDetails::pod_limit`.
                "pods" => {}
                _ if units == 0 => {}
                name => other.push((name.into(), units)),
            }
        }
        read.other = other.into();
        read
    }

    /// The requests of a pod as the scheduler computes them: the sum of the containers or the
    /// largest init container, whichever is larger, plus the overhead. A sidecar counts from its
    /// position among the init containers on. Requests at the pod level replace those of the
    /// containers.
    #[must_use]
    pub fn requested(spec: &core::PodSpec) -> Self {
        Self::sum(spec, &Self::of_container)
    }

    fn of_container(container: &core::Container) -> Self {
        let resources = container.resources.as_ref();
        Self::read(resources.and_then(|resources| resources.requests.as_ref()))
    }

    /// Returns the requests of a pod. `of` returns those of a container that runs as long as the pod.
    fn sum(spec: &core::PodSpec, of: &dyn Fn(&core::Container) -> Self) -> Self {
        let mut running = Self::default();
        let mut starting = Self::default();
        for container in spec.init_containers.iter().flatten() {
            if container.restart_policy.as_deref() == Some("Always") {
                running = running.plus(&of(container));
                starting = starting.max(&running);
            } else {
                starting = starting.max(&running.plus(&Self::of_container(container)));
            }
        }
        for container in &spec.containers {
            running = running.plus(&of(container));
        }
        let mut all = running.max(&starting);
        let of_pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        if let Some(amounts) = of_pod {
            let own = Self::read(Some(amounts));
            if amounts.contains_key("cpu") {
                all.milli_cpu = own.milli_cpu;
            }
            if amounts.contains_key("memory") {
                all.memory = own.memory;
            }
            let is_replaced =
                |name: &str| name.starts_with("hugepages-") && amounts.contains_key(name);
            let kept = all.other.iter().filter(|(name, _)| !is_replaced(name));
            let replaced = own.other.iter().filter(|(name, _)| is_replaced(name));
            all.other = kept.chain(replaced).cloned().collect();
        }
        all.plus(&Self::read(spec.overhead.as_ref()))
    }

    /// Returns what the scheduler counts of a pod on a node: of each container its requests, or more while the node
    /// gives it more than it now requests. After the kubelet has said that a resize is infeasible, what the
    /// node gives counts alone.
    #[must_use]
    pub fn counted(pod: &core::Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let lists = pod.status.as_ref().map(|status| {
            [&status.container_statuses, &status.init_container_statuses].into_iter().flatten()
        });
        let statuses: Vec<_> = lists.into_iter().flatten().flatten().collect();
        let is_infeasible = condition(pod, "PodResizePending")
            .is_some_and(|of| of.reason.as_deref() == Some("Infeasible"));
        Self::sum(spec, &|container| {
            let requested = Self::of_container(container);
            let mut statuses = statuses.iter().filter(|status| status.name == container.name);
            let reported = statuses.find_map(|of| Some((of, of.resources.as_ref()?)));
            let Some((status, resources)) = reported else { return requested };
            let allocated = Self::read(status.allocated_resources.as_ref());
            let given = Self::read(resources.requests.as_ref()).max(&allocated);
            if is_infeasible { given } else { requested.max(&given) }
        })
    }
}

fn bounded(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

/// Parses a Kubernetes quantity into thousandths, rounded up: `250m` is 250, `1Ki` is 1,024,000.
/// `None`: not a quantity.
#[must_use]
pub fn thousandths(text: &str) -> Option<i128> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = text.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    // Longer numbers are not realistic amounts, and further digits are far below a thousandth.
    let part = &part[..part.len().min(12)];
    if whole.len() > 20 {
        return None;
    }
    let digits: i128 = format!("0{whole}{part}").parse().ok()?;
    let (times, over): (i128, i128) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000_000, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        "Ei" => (1_000 << 60, 1),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i32 = exponent.parse().ok().filter(|n| (-18..=18).contains(n))?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { (1_000, power) } else { (1_000 * power, 1) }
        }
    };
    let over = over.checked_mul(10_i128.checked_pow(u32::try_from(part.len()).ok()?)?)?;
    let product = digits.checked_mul(times)?;
    let amount = product.div_euclid(over) + i128::from(product.rem_euclid(over) != 0);
    Some(if negative { -amount } else { amount })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn quantities_are_parsed() {
        for (text, amount) in [
            ("0", 0),
            ("1", 1_000),
            ("250m", 250),
            ("0.1", 100),
            ("1.5", 1_500),
            (".5", 500),
            ("5.", 5_000),
            ("100n", 1),
            ("1500u", 2),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("12E2", 1_200_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("5e-1", 500),
            ("-1", -1_000),
            ("+2", 2_000),
        ] {
            assert_eq!(thousandths(text), Some(amount), "{text}");
        }
        let long = "9".repeat(262_144);
        for text in
            ["", "-", ".", "m", "1 ", "1Kb", "1KI", "é", "1.2.3", "0x1", "1e", "1e99", &long]
        {
            assert_eq!(thousandths(text), None, "{text:.20}");
        }
    }

    #[test]
    fn a_pod_requests_the_sum_of_its_containers_or_the_largest_init_container() {
        let requested = |spec| {
            let pod: core::PodSpec = serde_json::from_value(spec).unwrap();
            let requested = Resources::requested(&pod);
            (requested.milli_cpu, requested.memory, requested.other("example.com/gpu"))
        };
        let container = |cpu: &str, memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let mut sidecar = container("1", "1Ki");
        sidecar["restartPolicy"] = json!("Always");
        let gpu = json!({"resources": {"requests": {"example.com/gpu": "2"}}, "name": "g"});
        let sum = json!({"containers": [container("100m", "1Ki"), container("0.2", "1Ki")],
            "initContainers": [container("150m", "4Ki")], "overhead": {"cpu": "1m"}});
        let largest = json!({"containers": [container("1", "0")],
            "initContainers": [container("5", "0"), sidecar, container("3", "0")]});
        let of_pod = json!({"containers": [container("1", "1Ki")],
            "resources": {"requests": {"cpu": "3"}}});
        for (spec, expected) in [
            (json!({"containers": []}), (0, 0, 0)),
            (sum, (301, 4096, 0)),
            (largest, (5000, 1024, 0)),
            (of_pod, (3000, 1024, 0)),
            (json!({"containers": [gpu, gpu]}), (0, 0, 4)),
        ] {
            assert_eq!(requested(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn a_pod_on_a_node_counts_with_what_each_container_has_or_requests() {
        let container =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("s", "1");
        sidecar["restartPolicy"] = json!("Always");
        let status = |name: &str, cpu: &str, allocated: &str| {
            let mut status = container(name, cpu);
            status["allocatedResources"] = json!({"cpu": allocated});
            status["image"] = json!("i");
            status
        };
        let two = json!({"containers": [container("a", "1"), container("b", "2")],
            "overhead": {"cpu": "100m"}});
        let with_sidecar = json!({"containers": [container("a", "1")],
            "initContainers": [container("i", "1"), sidecar]});
        let as_pod = json!({"containers": [container("a", "1")],
            "resources": {"requests": {"cpu": "2"}}});
        let infeasible =
            json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"});
        let running = |statuses: Value| json!({"containerStatuses": statuses});
        let stuck =
            json!({"containerStatuses": [status("a", "500m", "750m")], "conditions": [infeasible]});
        for (what, spec, status, expected) in [
            ("no report", &two, json!({}), 3100),
            (
                "one grows, one shrinks",
                &two,
                running(json!([status("a", "3", "1"), status("b", "1", "2")])),
                5100,
            ),
            ("allocated, not given", &two, running(json!([status("a", "1", "2")])), 4100),
            (
                "given without amounts",
                &two,
                running(json!([{"name": "a", "image": "i", "allocatedResources": {"cpu": "9"}}])),
                3100,
            ),
            ("another container", &two, running(json!([status("c", "9", "9")])), 3100),
            ("infeasible", &two, stuck, 2850),
            (
                "a sidecar",
                &with_sidecar,
                json!({"initContainerStatuses": [status("i", "9", "9"), status("s", "3", "1")]}),
                4000,
            ),
            ("requests of the pod", &as_pod, running(json!([status("a", "9", "9")])), 2000),
        ] {
            let mut pod = json!({"spec": spec, "status": status});
            for list in ["containerStatuses", "initContainerStatuses"] {
                for status in pod["status"][list].as_array_mut().into_iter().flatten() {
                    for (field, value) in
                        [("imageID", json!("")), ("ready", json!(true)), ("restartCount", json!(0))]
                    {
                        status[field] = value;
                    }
                }
            }
            let pod: core::Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(Resources::counted(&pod).milli_cpu, expected, "{what}");
        }
        assert_eq!(Resources::counted(&core::Pod::default()), Resources::default());
    }

    #[test]
    fn requests_of_a_pod_replace_the_huge_pages_of_its_containers() {
        let amounts =
            |pages: &str| json!({"cpu": "1", "hugepages-2Mi": pages, "example.com/gpu": "1"});
        let container = json!({"name": "c", "resources": {"requests": amounts("2Mi")}});
        let mut spec = json!({"containers": [container], "resources": {"requests": {"cpu": "2"}}});
        let pages = |spec: &Value| {
            let spec = serde_json::from_value(spec.clone()).unwrap();
            let all = Resources::requested(&spec);
            (all.other("hugepages-2Mi") >> 20, all.other("example.com/gpu"))
        };
        assert_eq!(pages(&spec), (2, 1));
        spec["resources"]["requests"] = amounts("4Mi");
        assert_eq!(pages(&spec), (4, 1));
    }
}
