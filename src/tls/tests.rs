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

fn write(folder: &tempfile::TempDir, (certificate, key): &(String, String)) {
    std::fs::write(folder.path().join("tls.crt"), certificate).unwrap();
    std::fs::write(folder.path().join("tls.key"), key).unwrap();
}

fn files(folder: &tempfile::TempDir, pair: &(String, String)) -> Certificate {
    write(folder, pair);
    let path = |name| folder.path().join(name);
    Certificate::of_files(path("tls.crt"), path("tls.key"), Some(NAME.to_owned()))
}

/// Panics unless a refresh puts the present pair into use.
fn load(certificate: &mut Certificate, now: SystemTime) {
    let change = certificate.refresh(now);
    assert!(matches!(change, Change::Loaded), "{change:?}");
}

/// The error of a refresh. It is reported once, not on every refresh.
fn reject(certificate: &mut Certificate, now: SystemTime) -> String {
    let Change::Rejected(error) = certificate.refresh(now) else { panic!("not rejected") };
    assert!(matches!(certificate.refresh(now), Change::None));
    error.to_string()
}

fn serving(files: &Certificate) -> Arc<CertifiedKey> {
    files.current.0.load_full().unwrap()
}

#[test]
fn the_status_changes_as_time_passes() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = files(&folder, &pair_of(NAME, 2025, 2027));
    assert!(files.status(in_year(2024)).problem.is_some(), "nothing was read yet");
    let problem =
        |files: &Certificate, year| files.status(in_year(year)).problem.unwrap_or_default();
    // Not valid yet, but no other pair exists.
    load(&mut files, in_year(2024));
    assert!(problem(&files, 2024).ends_with("tls.crt: not valid before 2025-01-01T00:00:00Z"));
    assert_eq!(problem(&files, 2025), "");
    assert!(problem(&files, 2027).ends_with("tls.crt: expired at 2027-01-01T00:00:00Z"));
    assert_eq!(files.status(in_year(2026)).days_left(in_year(2026)), Some(191));
    assert_eq!(files.status(in_year(2028)).days_left(in_year(2028)), Some(0));
}

#[test]
fn an_untrusted_pair_does_not_replace_a_trusted_one() {
    let folder = tempfile::tempdir().unwrap();
    let now = in_year(2026);
    let mut files = files(&folder, &pair_of(NAME, 2020, 2030));
    load(&mut files, now);
    let first = serving(&files);
    let other = format!("is for other.svc, and the API server calls {NAME}");
    for (bad, why) in [
        (pair_of("other.svc", 2020, 2030), other),
        (pair_of(NAME, 2010, 2020), "expired at 2020-01-01T00:00:00Z".to_owned()),
        (pair_of(NAME, 2028, 2040), "not valid before 2028-01-01T00:00:00Z".to_owned()),
    ] {
        write(&folder, &bad);
        let error = reject(&mut files, now);
        assert!(error.ends_with(&why), "{error}");
        assert!(Arc::ptr_eq(&first, &serving(&files)));
        assert_eq!(files.status(now).problem, None);
    }
    // The last pair becomes valid in 2028: it is then put into use without a change of the
    // files.
    load(&mut files, in_year(2028));
    assert_eq!(files.status(in_year(2028)).problem, None);
}

#[test]
fn an_untrusted_pair_is_better_than_none_and_the_newest_of_them_serves() {
    let folder = tempfile::tempdir().unwrap();
    let now = in_year(2026);
    let mut files = files(&folder, &pair_of("other.svc", 2020, 2030));
    load(&mut files, now);
    assert!(files.status(now).problem.is_some());
    write(&folder, &pair_of("another.svc", 2020, 2030));
    load(&mut files, now);
    assert!(files.status(now).problem.unwrap().contains("is for another.svc"));
    write(&folder, &pair_of(NAME, 2020, 2030));
    load(&mut files, now);
    assert_eq!(files.status(now).problem, None);
}

#[test]
fn an_invalid_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let now = in_year(2026);
    let (certificate, key) = pair_of(NAME, 2020, 2030);
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (certificate, key, part) in [
        ("garbage", key.as_str(), "tls.crt: holds no PEM certificate"),
        (no_certificate, &key, "tls.crt: not a certificate"),
        (&certificate, &certificate, "tls.key: not a PEM private key"),
    ] {
        let mut files = files(&folder, &(certificate.to_owned(), key.to_owned()));
        let error = reject(&mut files, now);
        assert!(error.contains(part), "{error}");
        assert!(files.status(now).problem.unwrap().contains(part));
    }
    let absent = |name| folder.path().join(name);
    let mut files = Certificate::of_files(absent("absent.crt"), absent("absent.key"), None);
    assert!(reject(&mut files, now).contains("absent.crt"));

    // Files that are deleted and restored change nothing.
    let pair = (certificate, key);
    let mut files = self::files(&folder, &pair);
    load(&mut files, now);
    std::fs::remove_file(folder.path().join("tls.key")).unwrap();
    assert!(reject(&mut files, now).contains("tls.key"));
    write(&folder, &pair);
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
    reject(&mut certificate, now);
    let origin = "Secret stowplan-system/stowplan-tls";
    assert_eq!(problem(&certificate).unwrap(), format!("{origin}: does not exist"));

    let set = |pair: (String, String)| secret.set(Ok((pair.0.into_bytes(), pair.1.into_bytes())));
    set((String::new(), String::new()));
    reject(&mut certificate, now);
    let empty = format!("{origin}, tls.crt: holds no PEM certificate");
    assert_eq!(problem(&certificate).unwrap(), empty);
    set(pair_of(NAME, 2020, 2030));
    load(&mut certificate, now);
    assert_eq!(problem(&certificate), None);
    let first = serving(&certificate);
    // A deletion changes nothing.
    secret.set(Err("does not exist".to_owned()));
    reject(&mut certificate, now);
    assert!(Arc::ptr_eq(&first, &serving(&certificate)));
    assert_eq!(problem(&certificate), None);
}
