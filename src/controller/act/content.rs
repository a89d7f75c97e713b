//! Generates content that no plan, log or event may contain: keys. It is made right before it is sent, so
//! that it exists nowhere else.

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::Ed25519PublicKey;
use ssh_key::{LineEnding, PrivateKey};

use stowplan_core::systems::plan::Content;

/// Adds generated content to a document.
///
/// # Errors
/// If the operating system has no random numbers, or the document is not an object.
pub(super) fn fill(object: &mut Value, content: Content) -> Result<(), String> {
    match content {
        Content::SshKeys => {
            let (private, public) = ssh_keys()?;
            let Value::Object(fields) = object else {
                return Err("the document is not an object".to_owned());
            };
            let data = json!({"ssh-privatekey": private, "ssh-publickey": public});
            fields.insert("stringData".to_owned(), data);
            Ok(())
        }
    }
}

/// Where the seed is in the document that ring generates: PKCS #8, version 2 (RFC 8410, section 10.3).
const SEED: std::ops::Range<usize> = 16..48;

/// Generates an Ed25519 key pair: the private key in the format of `openssh-key-v1`, without a passphrase,
/// and the line of the public key.
fn ssh_keys() -> Result<(String, String), String> {
    let failed = |what: &str| format!("cannot generate a key: {what}");
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
        .map_err(|_| failed("the operating system has no random numbers"))?;
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref())
        .map_err(|error| failed(&error.to_string()))?;
    let public = Ed25519PublicKey::try_from(pair.public_key().as_ref())
        .map_err(|error| failed(&error.to_string()))?;
    let seed = document.as_ref().get(SEED).ok_or_else(|| failed("it has no seed"))?;
    let private = Ed25519PrivateKey::try_from(seed).map_err(|error| failed(&error.to_string()))?;
    let pair = KeypairData::Ed25519(Ed25519Keypair { public, private });
    let key = PrivateKey::new(pair, "stowplan").map_err(|error| failed(&error.to_string()))?;
    let text = key.to_openssh(LineEnding::LF).map_err(|error| failed(&error.to_string()))?;
    let line = key.public_key().to_openssh().map_err(|error| failed(&error.to_string()))?;
    Ok((text.to_string(), line + "\n"))
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn the_keys_belong_together_and_are_new_each_time() {
        let mut secrets = [json!({"kind": "Secret"}), json!({"kind": "Secret"})];
        for secret in &mut secrets {
            fill(secret, Content::SshKeys).unwrap();
            let data = &secret["stringData"];
            let [private, public] =
                ["ssh-privatekey", "ssh-publickey"].map(|key| data[key].as_str().unwrap());
            let private = PrivateKey::from_openssh(private).unwrap();
            assert!(public.starts_with("ssh-ed25519 ") && public.ends_with(" stowplan\n"));
            assert_eq!(private.public_key().to_openssh().unwrap(), public.trim_end());
            // A signature with the private key proves that the public one is its own.
            let KeypairData::Ed25519(pair) = private.key_data() else { panic!("another kind") };
            let pair = Ed25519KeyPair::from_seed_unchecked(pair.private.as_ref()).unwrap();
            let signature = pair.sign(b"message");
            let public = private.public_key().key_data().ed25519().unwrap();
            UnparsedPublicKey::new(&ED25519, public.as_ref())
                .verify(b"message", signature.as_ref())
                .unwrap();
        }
        assert_ne!(secrets[0], secrets[1]);
        assert!(fill(&mut json!([]), Content::SshKeys).is_err());
    }
}
