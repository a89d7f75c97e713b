//! Over random sequences of pauses, losses and interruptions, every API server trusts every
//! certificate that a replica may be serving.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

const TERMS: Terms = Terms {
    ca_lifetime: Duration::from_secs(4_800),
    leaf_lifetime: Duration::from_secs(900),
    overlap: Duration::from_secs(60),
};

/// How far API servers and replicas are behind, at most.
const LAG: Duration = Duration::from_secs(59);

/// Two thirds of the certificate's life, less the time that a new CA needs.
const LONGEST_PAUSE: Duration = Duration::from_secs(400);

#[derive(Clone, Debug)]
enum Event {
    /// The controller works for so many seconds.
    Work(u64),
    /// No controller leads for so many seconds, or until the certificate is about to expire.
    Pause(u64),
    /// The controller ends after so many steps.
    Interrupt(usize),
    LoseCa,
    LoseLeaf,
    /// Somebody adds a certificate to the first caBundle.
    AddForeign,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1_u64..1_200).prop_map(Event::Work),
        2 => (1_u64..240).prop_map(Event::Pause),
        2 => (0_usize..4).prop_map(Event::Interrupt),
        1 => Just(Event::LoseCa),
        1 => Just(Event::LoseLeaf),
        1 => Just(Event::AddForeign),
    ]
}

/// A value, and until when it was the present one.
type Past<T> = (T, SystemTime);

struct World {
    now: SystemTime,
    state: State,
    /// Dates of all CAs that were ever made.
    spans: Vec<(Id, Span)>,
    /// The last certificate that was in the Secret: replicas serve it even after its deletion.
    served: Option<Leaf>,
    past_leaves: Vec<Past<Leaf>>,
    past_bundles: Vec<Past<BTreeSet<Id>>>,
    most_in_bundle: usize,
    /// How long the controller has paused since the certificate was one of a trusted CA.
    paused: Duration,
    /// Not before the first certificate could be trusted.
    is_checked: bool,
}

impl World {
    fn new() -> Self {
        let state = State { bundles: vec![BTreeSet::new(); 2], ..State::default() };
        let mut world = Self {
            now: SystemTime::UNIX_EPOCH + SECOND * 1_000_000,
            state,
            spans: Vec::new(),
            served: None,
            past_leaves: Vec::new(),
            past_bundles: Vec::new(),
            most_in_bundle: 0,
            paused: Duration::ZERO,
            is_checked: false,
        };
        world.work(TERMS.overlap * 2);
        world.is_checked = true;
        world
    }

    /// Carries out steps until nothing is left to do, at most so many.
    fn converge(&mut self, most: usize) {
        for count in 0.. {
            self.look();
            let step = plan(&self.state, &TERMS, self.now);
            if step.is_none() && self.is_settled() {
                self.paused = Duration::ZERO;
            }
            let Some(step) = step.filter(|_| count < most) else { return };
            assert!(count < 12, "it does not come to an end: {step:?} of {:?}", self.state);
            self.carry_out(step);
        }
    }

    /// Sees whether every caBundle has the CA.
    fn look(&mut self) {
        let Some(ca) = &mut self.state.ca else { return };
        let is_published = self.state.bundles.iter().all(|bundle| bundle.contains(&ca.id));
        ca.published_since = is_published.then(|| ca.published_since.unwrap_or(self.now));
    }

    fn carry_out(&mut self, step: Step) {
        let now = self.now;
        let State { ca, leaf, bundles } = &mut self.state;
        match step {
            Step::MakeCa => {
                let mut id = Id::default();
                id[..8].copy_from_slice(&(self.spans.len() as u64).to_be_bytes());
                let span = Span::starting(now, TERMS.ca_lifetime);
                self.spans.push((id, span));
                *ca = Some(Ca { id, span, published_since: None });
            }
            Step::Publish(target) => {
                self.most_in_bundle = self.most_in_bundle.max(target.len());
                for bundle in bundles {
                    self.past_bundles.push((std::mem::replace(bundle, target.clone()), now));
                }
            }
            Step::Sign => {
                let ca = ca.as_ref().unwrap();
                let mut span = Span::starting(now, TERMS.leaf_lifetime);
                span.not_after = span.not_after.min(ca.span.not_after);
                let new = Leaf { issuers: vec![(ca.id, ca.span)], span };
                self.past_leaves.extend(self.served.replace(new.clone()).map(|old| (old, now)));
                *leaf = Some(new);
            }
        }
        self.check();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + SECOND * 17);
            self.check();
        }
    }

    fn work(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.converge(usize::MAX);
            self.pass(TERMS.interval().min(end.duration_since(self.now).unwrap()));
        }
        self.converge(usize::MAX);
    }

    /// Every API server trusts every replica.
    fn check(&self) {
        if !self.is_checked {
            return;
        }
        let is_seen = |until: &SystemTime| *until + LAG >= self.now;
        let past = self.past_bundles.iter().filter(|(_, until)| is_seen(until));
        let bundles: Vec<_> = past.map(|(bundle, _)| bundle).chain(&self.state.bundles).collect();
        let past = self.past_leaves.iter().filter(|(_, until)| is_seen(until));
        for leaf in past.map(|(leaf, _)| leaf).chain(&self.served) {
            assert!(leaf.span.contains(self.now), "expired: {leaf:?} of {:?}", self.state);
            for bundle in &bundles {
                let is_trusted = leaf
                    .issuers
                    .iter()
                    .any(|(id, span)| bundle.contains(id) && span.contains(self.now));
                assert!(is_trusted, "{leaf:?} by {bundle:?} of {:?}", self.state);
            }
        }
    }

    /// The certificate is one of the present CA, and has been for the overlap.
    fn is_settled(&self) -> bool {
        let (Some(ca), Some(leaf)) = (&self.state.ca, &self.state.leaf) else { return false };
        leaf.issuers.iter().any(|(id, _)| *id == ca.id)
            && ca.published_since.is_some_and(|since| since + TERMS.overlap <= self.now)
            && self.state.bundles.iter().all(|bundle| bundle.len() == 1)
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Work(seconds) => self.work(SECOND * u32::try_from(*seconds).unwrap()),
            Event::Pause(seconds) => {
                let most = (LONGEST_PAUSE - self.paused).as_secs();
                let time = SECOND * u32::try_from(most.min(*seconds)).unwrap();
                self.paused += time;
                self.pass(time);
            }
            Event::Interrupt(steps) => {
                self.converge(*steps);
                // The next one has seen nothing.
                self.state.ca.iter_mut().for_each(|ca| ca.published_since = None);
            }
            // Two losses at once leave no way without a gap.
            Event::LoseCa if self.is_settled() => self.state.ca = None,
            Event::LoseLeaf if self.is_settled() => self.state.leaf = None,
            Event::LoseCa | Event::LoseLeaf => {}
            Event::AddForeign => {
                let old = self.state.bundles[0].clone();
                self.past_bundles.push((old, self.now));
                self.state.bundles[0].insert([255; 32]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_api_server_trusts_every_replica(events in prop::collection::vec(event(), 1..60)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
        }
        world.work(TERMS.overlap * 4);
        if !world.is_settled() {
            // A new CA was due meanwhile.
            world.work(TERMS.overlap * 4);
        }
        // What somebody has added is gone, and the certificate is of a CA whose key is there.
        prop_assert!(world.is_settled(), "{:?}", world.state);
    }
}

#[test]
fn over_years_each_ca_is_replaced_and_two_are_the_most() {
    let mut world = World::new();
    for _ in 0..200 {
        world.work(TERMS.ca_lifetime / 10);
    }
    assert_eq!(world.most_in_bundle, 2);
    // A CA is replaced after two thirds of its life.
    assert!((25..=31).contains(&world.spans.len()), "{} CAs", world.spans.len());
}
