use super::super::authority::{State, Step, Terms, plan};
use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn names() -> ServiceNames {
    ServiceNames::new("stowplan-webhook", "stowplan-system")
}

/// A moment in 2026.
fn now() -> SystemTime {
    NOW + DAY * 365 * 56
}

fn ca(at: SystemTime) -> KnownCa {
    let pair = make_ca(at, DAY * 365).unwrap();
    read_ca(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap()
}

fn read_leaf(of: &[&KnownCa], pair: &Pair, names: &ServiceNames) -> Result<Leaf, String> {
    let mut certificates = Certificates::default();
    of.iter().for_each(|ca| certificates.add_ca(ca));
    certificates.read_leaf(pair.certificate.as_bytes(), pair.key.as_bytes(), names)
}

#[test]
fn a_certificate_is_verified_by_its_ca_alone_and_does_not_outlive_it() {
    // In one second: their names are equal, and their keys are not.
    let (own, other) = (ca(now()), ca(now()));
    assert_ne!(own.ca.id, other.ca.id);
    let pair = sign(&own, &names(), now(), DAY * 30).unwrap();
    let leaf = read_leaf(&[&other, &own], &pair, &names()).unwrap();
    assert_eq!(leaf.issuers, [(own.ca.id, own.ca.span)]);
    assert_eq!(leaf.span, Span::starting(now(), DAY * 30));
    assert_eq!(own.ca.span, Span::starting(now(), DAY * 365));
    assert_eq!(read_leaf(&[&other], &pair, &names()).unwrap().issuers, []);

    let (certificate, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
    let validity = parse_pair(certificate, key, "certificate", "key").unwrap().1;
    let of_service =
        [".stowplan-system.svc", ".stowplan-system.svc.cluster.local", ".stowplan-system", ""];
    assert_eq!(validity.names, of_service.map(|rest| format!("stowplan-webhook{rest}")));

    // It does not outlive its CA.
    let pair = sign(&own, &names(), now() + DAY * 360, DAY * 30).unwrap();
    let leaf = read_leaf(&[&own], &pair, &names()).unwrap();
    assert_eq!(leaf.span.not_after, own.ca.span.not_after);
}

#[test]
fn what_cannot_be_used_is_an_error_that_says_why() {
    let own = ca(now());
    let pair = sign(&own, &names(), now(), DAY).unwrap();
    let other = ca(now());
    let long = vec![b'x'; 256 * 1024];
    let no_pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let of_ca = (own.pair.certificate.as_bytes(), own.pair.key.as_bytes());
    let cases: [(&[u8], &[u8], &str); 8] = [
        (b"", of_ca.1, "holds no PEM certificate"),
        (b"rubbish", of_ca.1, "holds no PEM certificate"),
        (no_pem, of_ca.1, "not a certificate"),
        (b"\xff\xfe", of_ca.1, "the certificate is not PEM"),
        (&long, of_ca.1, "the certificate has 262144 bytes"),
        (of_ca.0, &long, "the key has 262144 bytes"),
        (of_ca.0, b"", "not a PEM private key"),
        (of_ca.0, other.pair.key.as_bytes(), "the key does not belong to the certificate"),
    ];
    for (certificate, key, why) in cases {
        let problem = read_ca(certificate, key).unwrap_err();
        assert!(problem.contains(why), "{why}: {problem}");
        let leaf = Certificates::default().read_leaf(certificate, key, &names());
        assert!(leaf.unwrap_err().contains(why), "{why}");
    }
    let problem = read_ca(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap_err();
    assert_eq!(problem, "the certificate is not one of a CA");
    let problem = read_leaf(&[&own], &pair, &ServiceNames::new("other", "stowplan-system"));
    assert_eq!(problem.unwrap_err(), "the certificate is not for other.stowplan-system.svc");

    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let certificate = ca_parameters("x").self_signed(&key).unwrap();
    let problem = read_ca(certificate.pem().as_bytes(), key.serialize_pem().as_bytes());
    assert_eq!(problem.unwrap_err(), "the key is not one of ECDSA P-256");
    // The issuer in certificates is the name that stowplan gives its CAs.
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut parameters = ca_parameters("company");
    parameters.distinguished_name.push(DnType::OrganizationName, "Company");
    let certificate = parameters.self_signed(&key).unwrap().pem();
    let problem = read_ca(certificate.as_bytes(), key.serialize_pem().as_bytes());
    assert_eq!(problem.unwrap_err(), "the subject of the CA is not one common name");
}

#[test]
fn a_bundle_is_read_and_written() {
    let (old, new) = (ca(now()), ca(now() + DAY));
    let mut certificates = Certificates::default();
    certificates.add_bundle(old.pair.certificate.as_bytes());
    certificates.add_ca(&new);
    let both = BTreeSet::from([old.ca.id, new.ca.id]);
    let bundle = certificates.format_bundle(&both);
    let expected = [&new, &old].map(|ca| ca.pair.certificate.replace('\r', ""));
    assert_eq!(bundle.replace('\r', ""), expected.concat());
    assert_eq!(Certificates::default().add_bundle(bundle.as_bytes()), both);
    // What is no certificate is not kept.
    let mixed =
        format!("{bundle}rubbish\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert_eq!(Certificates::default().add_bundle(mixed.as_bytes()), both);
    let none = BTreeSet::new();
    for rubbish in [&b""[..], b"rubbish", b"\xff", &vec![b'x'; 256 * 1024]] {
        assert_eq!(Certificates::default().add_bundle(rubbish), none);
    }
}

/// A caBundle into which another program has written many CAs: what is written is what is read.
#[test]
fn many_other_cas_do_not_hide_the_own_one() {
    let own = ca(now());
    let others: Vec<_> = (0..20).map(|day| ca(now() + DAY * (day + 1))).collect();
    let bundle: String = others.iter().map(|other| other.pair.certificate.as_str()).collect();
    let mut certificates = Certificates::default();
    certificates.add_ca(&own);
    let present = certificates.add_bundle(bundle.as_bytes());
    assert_eq!(present.len(), MOST_IN_BUNDLE);
    let state = State { ca: Some(own.ca.clone()), leaf: None, bundles: vec![present] };
    let Some(Step::Publish(target)) = plan(&state, &Terms::default(), now()) else {
        panic!("nothing is published")
    };
    assert_eq!(target.len(), 1 + MOST_OTHERS);
    let written = certificates.format_bundle(&target);
    assert_eq!(certificates.add_bundle(written.as_bytes()), target);
    let state = State { bundles: vec![target], ..state };
    assert!(matches!(plan(&state, &Terms::default(), now()), Some(Step::Sign)));
}
