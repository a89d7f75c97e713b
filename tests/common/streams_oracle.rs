//! Decides whether a small StreamsJob can run as a whole by trying every placement. Written from the
//! meaning of the constraints (docs/streams.md), and apart from the search of the crate, so that the two
//! can be compared.

#![allow(dead_code, reason = "each suite uses its own part")]

/// A set of small numbers.
pub(crate) type Set = u16;

/// Who else is on a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Others {
    Nobody,
    /// A pod of another job: no exclusive pool may have the node.
    Pod,
    /// A sized shared pool of others, likewise.
    SharedPool,
    /// An exclusive pool of others: nothing of this job may run there.
    ExclusivePool,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) tags: Set,
    pub(crate) others: Others,
    pub(crate) is_lost: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// These nodes, in this order.
    Listed(Vec<usize>),
    /// Every node with these tags.
    Tagged(Set),
    /// As many nodes with these tags, which the controller chooses.
    Sized(usize, Set),
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) form: Form,
    pub(crate) is_exclusive: bool,
}

/// A host that an operator asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Host {
    Node(usize),
    Any { pool: usize },
    Member { pool: usize, index: usize },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Element {
    /// One for each operator that asks for a host.
    pub(crate) hosts: Vec<Host>,
    /// The tokens of colocation and of exlocation.
    pub(crate) together: Set,
    pub(crate) apart: Set,
    pub(crate) is_isolated: bool,
}

/// A job, and the cluster that it is to run in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) nodes: Vec<Node>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) elements: Vec<Element>,
}

/// The nodes of elements, and those of the members of each pool that lists or chooses them, as far as they
/// are known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Placement {
    pub(crate) elements: Vec<Option<usize>>,
    pub(crate) pools: Vec<Vec<Option<usize>>>,
}

impl Placement {
    /// Nothing of this job is placed.
    pub(crate) fn empty(model: &Model) -> Self {
        let members = |pool: &Pool| match &pool.form {
            Form::Listed(nodes) => nodes.iter().copied().map(Some).collect(),
            Form::Tagged(_) => Vec::new(),
            Form::Sized(size, _) => vec![None; *size],
        };
        Self {
            elements: vec![None; model.elements.len()],
            pools: model.pools.iter().map(members).collect(),
        }
    }
}

impl Model {
    pub(crate) fn is_possible(&self) -> bool {
        self.complete(&Placement::empty(self)).is_some()
    }

    /// A placement of everything that contains this one; `None`: there is none.
    pub(crate) fn complete(&self, placed: &Placement) -> Option<Placement> {
        let is_carried = |pool: &Pool| match pool.form {
            Form::Tagged(tags) => self.nodes.iter().any(|node| !node.is_lost && node.has(tags)),
            Form::Listed(_) | Form::Sized(..) => true,
        };
        if !self.pools.iter().all(is_carried) {
            return None;
        }
        let mut placement = placed.clone();
        self.choose_members(0, 0, &mut placement).then_some(placement)
    }

    /// Finds what a complete placement breaks; `None`: nothing.
    pub(crate) fn find_fault(&self, placed: &Placement) -> Option<String> {
        for (pool, members) in placed.pools.iter().enumerate() {
            for index in 0..members.len() {
                if !self.may_be_member(pool, index, placed) {
                    return Some(format!("member {index} of pool {pool}"));
                }
            }
        }
        let mut elements = 0..self.elements.len();
        let wrong = elements.find(|element| !self.may_run(*element, placed));
        wrong.map(|element| format!("element {element}"))
    }

    /// Tries every choice of members from this one on, and then every placement of the elements.
    fn choose_members(&self, pool: usize, index: usize, placement: &mut Placement) -> bool {
        let Some(members) = placement.pools.get(pool) else {
            return self.place_elements(0, placement);
        };
        if index == members.len() {
            return self.choose_members(pool + 1, 0, placement);
        }
        if members[index].is_some() {
            return self.may_be_member(pool, index, placement)
                && self.choose_members(pool, index + 1, placement);
        }
        for node in 0..self.nodes.len() {
            placement.pools[pool][index] = Some(node);
            if self.may_be_member(pool, index, placement)
                && self.choose_members(pool, index + 1, placement)
            {
                return true;
            }
        }
        placement.pools[pool][index] = None;
        false
    }

    fn place_elements(&self, element: usize, placement: &mut Placement) -> bool {
        let Some(node) = placement.elements.get(element) else { return true };
        if node.is_some() {
            return self.may_run(element, placement) && self.place_elements(element + 1, placement);
        }
        for node in 0..self.nodes.len() {
            placement.elements[element] = Some(node);
            if self.may_run(element, placement) && self.place_elements(element + 1, placement) {
                return true;
            }
        }
        placement.elements[element] = None;
        false
    }

    /// Returns true if a node may be this member of a pool, beside the other members that are chosen.
    fn may_be_member(&self, pool: usize, index: usize, placement: &Placement) -> bool {
        let Some(node) = placement.pools[pool][index] else { return false };
        let site = &self.nodes[node];
        let (tags, is_marked) = match self.pools[pool].form {
            Form::Sized(_, tags) => (tags, true),
            _ => (0, self.pools[pool].is_exclusive),
        };
        // A shared pool that lists its nodes does not need all of them, and marks none.
        if !is_marked {
            return true;
        }
        let is_exclusive = self.pools[pool].is_exclusive;
        let is_free = match site.others {
            Others::Nobody => true,
            Others::Pod | Others::SharedPool => !is_exclusive,
            Others::ExclusivePool => false,
        };
        let is_shared_with = |other: usize, at: usize| match other == pool {
            true => at != index,
            false => self.is_marked(other) && (is_exclusive || self.pools[other].is_exclusive),
        };
        let mut members = placement.pools.iter().enumerate().flat_map(|(other, members)| {
            members.iter().enumerate().map(move |(at, member)| (other, at, *member))
        });
        let is_taken =
            members.any(|(other, at, member)| member == Some(node) && is_shared_with(other, at));
        !site.is_lost && is_free && site.has(tags) && !is_taken
    }

    /// Returns true if an element may run on its node, beside the elements that have a node.
    fn may_run(&self, element: usize, placement: &Placement) -> bool {
        let Some(node) = placement.elements[element] else { return false };
        let site = &self.nodes[node];
        if site.is_lost || site.others == Others::ExclusivePool {
            return false;
        }
        let own = &self.elements[element];
        let is_asked_for = own.hosts.iter().all(|host| match *host {
            Host::Node(asked) => asked == node,
            Host::Any { pool } => match self.pools[pool].form {
                Form::Tagged(tags) => site.has(tags),
                _ => placement.pools[pool].contains(&Some(node)),
            },
            Host::Member { pool, index } => placement.pools[pool].get(index) == Some(&Some(node)),
        });
        let mut pools = placement.pools.iter().enumerate();
        let is_kept_off = pools.any(|(pool, members)| {
            self.pools[pool].is_exclusive
                && members.contains(&Some(node))
                && !self.is_in_pool(element, pool)
        });
        let others = placement.elements.iter().enumerate().filter(|(other, _)| *other != element);
        let is_beside = others.filter_map(|(other, at)| Some((&self.elements[other], (*at)?)));
        let agrees = is_beside.into_iter().all(|(other, at)| match at == node {
            true => own.apart & other.apart == 0 && !own.is_isolated && !other.is_isolated,
            false => own.together & other.together == 0,
        });
        is_asked_for && !is_kept_off && agrees
    }

    /// Returns true if an element is in a pool: it asks for it, or it asks for no host and must be with one that does.
    fn is_in_pool(&self, element: usize, pool: usize) -> bool {
        let own = &self.elements[element];
        let asks = |of: &Element| of.hosts.iter().any(|host| host.pool() == Some(pool));
        if !own.hosts.is_empty() {
            return asks(own);
        }
        let mut tokens = own.together;
        let joined = |tokens: Set| {
            let mates = self.elements.iter().filter(|other| other.together & tokens != 0);
            mates.fold(tokens, |tokens, mate| tokens | mate.together)
        };
        while joined(tokens) != tokens {
            tokens = joined(tokens);
        }
        self.elements.iter().any(|other| other.together & tokens != 0 && asks(other))
    }

    /// Returns true if the controller marks the nodes of a pool, so that it must have all of them.
    pub(crate) fn is_marked(&self, pool: usize) -> bool {
        self.pools[pool].is_exclusive || matches!(self.pools[pool].form, Form::Sized(..))
    }
}

impl Node {
    fn has(&self, tags: Set) -> bool {
        self.tags & tags == tags
    }
}

impl Host {
    pub(crate) fn pool(self) -> Option<usize> {
        match self {
            Self::Node(_) => None,
            Self::Any { pool } | Self::Member { pool, .. } => Some(pool),
        }
    }
}
