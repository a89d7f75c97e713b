use std::time::{Duration, UNIX_EPOCH};

use super::*;

const NAME: &str = "stowplan-webhook.stowplan-system.svc";

/// A pair for `name`, valid from the beginning of year `from` to the beginning of year `to`.
fn pair_of(name: &str, from: i32, to: i32) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(to, 1, 1);
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// About the middle of a year.
fn in_year(year: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_557_600 + 15_000_000)
}

/// The paths of the certificate and of the key.
fn paths(files: &Certificate) -> (&PathBuf, &PathBuf) {
    match &files.source {
        Source::Files { certificate, key } => (certificate, key),
        Source::Secret(_) => panic!("not files"),
    }
}

fn write(files: &Certificate, (certificate, key): &(String, String)) {
    std::fs::write(paths(files).0, certificate).unwrap();
    std::fs::write(paths(files).1, key).unwrap();
}

fn files(folder: &tempfile::TempDir, pair: &(String, String)) -> Certificate {
    let path = |name| folder.path().join(name);
    let files = Certificate::of_files(path("tls.crt"), path("tls.key"), Some(NAME.to_owned()));
    write(&files, pair);
    files
}

fn serving(files: &Certificate) -> Arc<CertifiedKey> {
    files.current.0.load_full().unwrap()
}

#[test]
fn the_old_pair_serves_until_the_new_key_matches() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (pair_of(NAME, 2020, 2040), pair_of(NAME, 2020, 2050));
    let now = in_year(2026);
    let mut files = files(&folder, &old);
    assert!(files.status(now).problem.is_some());
    assert!(matches!(files.refresh(now), Change::Loaded));
    assert!(matches!(files.refresh(now), Change::None));
    let first = serving(&files);

    std::fs::write(paths(&files).0, &new.0).unwrap();
    let change = files.refresh(now);
    assert!(matches!(change, Change::Rejected(Error::Mismatch { .. })), "{change:?}");
    // Reported once, not on every refresh.
    assert!(matches!(files.refresh(now), Change::None));
    assert!(Arc::ptr_eq(&first, &serving(&files)));
    assert_eq!(files.status(now).problem, None);

    std::fs::write(paths(&files).1, &new.1).unwrap();
    assert!(matches!(files.refresh(now), Change::Loaded));
    assert!(!Arc::ptr_eq(&first, &serving(&files)));
}

#[test]
fn the_status_changes_as_time_passes() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = files(&folder, &pair_of(NAME, 2025, 2027));
    let problem = |files: &Certificate, year| files.status(in_year(year)).problem;
    // Not valid yet, but no other pair exists.
    assert!(matches!(files.refresh(in_year(2024)), Change::Loaded));
    assert!(
        problem(&files, 2024).unwrap().ends_with("tls.crt: not valid before 2025-01-01T00:00:00Z")
    );
    assert_eq!(problem(&files, 2025), None);
    assert!(problem(&files, 2027).unwrap().ends_with("tls.crt: expired at 2027-01-01T00:00:00Z"));
    assert_eq!(files.status(in_year(2026)).days_left(in_year(2026)), Some(191));
    assert_eq!(files.status(in_year(2028)).days_left(in_year(2028)), Some(0));
}

#[test]
fn an_untrusted_pair_does_not_replace_a_trusted_one() {
    let folder = tempfile::tempdir().unwrap();
    let now = in_year(2026);
    let mut files = files(&folder, &pair_of(NAME, 2020, 2030));
    assert!(matches!(files.refresh(now), Change::Loaded));
    let first = serving(&files);
    for (bad, why) in [
        (
            pair_of("other.svc", 2020, 2030),
            format!("is for other.svc, and the API server calls {NAME}"),
        ),
        (pair_of(NAME, 2010, 2020), "expired at 2020-01-01T00:00:00Z".to_owned()),
        (pair_of(NAME, 2028, 2040), "not valid before 2028-01-01T00:00:00Z".to_owned()),
    ] {
        write(&files, &bad);
        let Change::Rejected(error) = files.refresh(now) else { panic!("{why}") };
        assert!(error.to_string().ends_with(&why), "{error}");
        assert!(matches!(files.refresh(now), Change::None));
        assert!(Arc::ptr_eq(&first, &serving(&files)));
        assert_eq!(files.status(now).problem, None);
    }
    // The last pair becomes valid in 2028: it is then put into use without a change of the
    // files.
    assert!(matches!(files.refresh(in_year(2028)), Change::Loaded));
    assert_eq!(files.status(in_year(2028)).problem, None);
}

#[test]
fn an_untrusted_pair_is_better_than_none_and_the_newest_of_them_serves() {
    let folder = tempfile::tempdir().unwrap();
    let now = in_year(2026);
    let mut files = files(&folder, &pair_of("other.svc", 2020, 2030));
    assert!(matches!(files.refresh(now), Change::Loaded));
    assert!(files.status(now).problem.is_some());
    write(&files, &pair_of("another.svc", 2020, 2030));
    assert!(matches!(files.refresh(now), Change::Loaded));
    assert!(files.status(now).problem.unwrap().contains("is for another.svc"));
    write(&files, &pair_of(NAME, 2020, 2030));
    assert!(matches!(files.refresh(now), Change::Loaded));
    assert_eq!(files.status(now).problem, None);
}

#[test]
fn an_invalid_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let now = in_year(2026);
    let (certificate, key) = pair_of(NAME, 2020, 2030);
    for (certificate, key, part) in [
        ("", key.as_str(), "tls.crt: holds no PEM certificate"),
        ("garbage", &key, "tls.crt: holds no PEM certificate"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &key,
            "tls.crt: not a certificate",
        ),
        (&certificate, "", "tls.key: not a PEM private key"),
        (&certificate, &certificate, "tls.key: not a PEM private key"),
    ] {
        let mut files = files(&folder, &(certificate.to_owned(), key.to_owned()));
        let Change::Rejected(error) = files.refresh(now) else { panic!("{part}") };
        assert!(error.to_string().contains(part), "{error}");
        assert!(files.status(now).problem.unwrap().contains(part));
    }
    let absent = |name| folder.path().join(name);
    let mut files = Certificate::of_files(absent("absent.crt"), absent("absent.key"), None);
    assert!(matches!(files.refresh(now), Change::Rejected(Error::Read { .. })));
    assert!(matches!(files.refresh(now), Change::None));
    assert!(files.status(now).problem.unwrap().contains("absent.crt"));
}

#[test]
fn files_that_are_deleted_and_restored_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let now = in_year(2026);
    let pair = pair_of(NAME, 2020, 2030);
    let mut files = files(&folder, &pair);
    assert!(matches!(files.refresh(now), Change::Loaded));
    std::fs::remove_file(paths(&files).1).unwrap();
    assert!(matches!(files.refresh(now), Change::Rejected(Error::Read { .. })));
    write(&files, &pair);
    assert!(matches!(files.refresh(now), Change::None));
    assert_eq!(files.status(now).problem, None);
}

#[test]
fn a_secret_is_judged_as_files_are() {
    let now = in_year(2026);
    let secret = Arc::new(SecretContent::new("stowplan-system", "stowplan-tls"));
    let mut certificate = Certificate::of_secret(Arc::clone(&secret), Some(NAME.to_owned()));
    // Nothing is known yet, which is no error.
    assert!(matches!(certificate.refresh(now), Change::None));
    let problem = |certificate: &Certificate| certificate.status(now).problem;
    assert_eq!(problem(&certificate).unwrap(), "no certificate was read yet");
    secret.set(Err("does not exist".to_owned()));
    assert!(matches!(certificate.refresh(now), Change::Rejected(_)));
    assert!(matches!(certificate.refresh(now), Change::None));
    let origin = "Secret stowplan-system/stowplan-tls";
    assert_eq!(problem(&certificate).unwrap(), format!("{origin}: does not exist"));

    let set = |pair: (String, String)| secret.set(Ok((pair.0.into_bytes(), pair.1.into_bytes())));
    set((String::new(), String::new()));
    assert!(matches!(certificate.refresh(now), Change::Rejected(_)));
    assert_eq!(
        problem(&certificate).unwrap(),
        format!("{origin}, tls.crt: holds no PEM certificate")
    );
    set(pair_of(NAME, 2020, 2030));
    assert!(matches!(certificate.refresh(now), Change::Loaded));
    assert_eq!(problem(&certificate), None);
    let first = serving(&certificate);
    // Rubbish, an untrusted pair and a deletion change nothing.
    for content in [
        Ok((vec![b'x'; 256 * 1024], Vec::new())),
        Ok({
            let (certificate, key) = pair_of("other.svc", 2020, 2030);
            (certificate.into_bytes(), key.into_bytes())
        }),
        Err("does not exist".to_owned()),
    ] {
        secret.set(content);
        assert!(matches!(certificate.refresh(now), Change::Rejected(_)));
        assert!(Arc::ptr_eq(&first, &serving(&certificate)));
        assert_eq!(problem(&certificate), None);
    }
    set(pair_of(NAME, 2020, 2040));
    assert!(matches!(certificate.refresh(now), Change::Loaded));
    assert!(!Arc::ptr_eq(&first, &serving(&certificate)));
}
