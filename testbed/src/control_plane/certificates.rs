//! Certificates for one run, created anew and deleted with it.

use std::net::IpAddr;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};

/// A certificate and its key, ECDSA P-256, as PEM.
#[derive(Debug)]
pub(super) struct Certified {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// An authority that signs for one purpose.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// Its own certificate.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// For a server that is reached by these names and addresses.
    pub(super) fn server(&self, names: &[&str], addresses: &[IpAddr]) -> Result<Certified> {
        let mut params =
            CertificateParams::new(names.iter().copied().map(str::to_owned).collect::<Vec<_>>())?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name =
            distinguished_name(names.first().copied().unwrap_or("server"), None);
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// For a client: Kubernetes reads the user from the name and a group from the organization.
    pub(super) fn client(&self, user: &str, group: Option<&str>) -> Result<Certified> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(user, group);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Certified> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Certified { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// The key that signs service account tokens, and the one that verifies them.
pub(super) fn token_keys() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}
