//! Generates content that no plan, log or event may contain: keys. It is made right before it is sent, so
//! that it exists nowhere else.

use ring::rand::{self, SystemRandom};
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

/// Generates an Ed25519 key pair: the private key in the format of `openssh-key-v1`, without a passphrase,
/// and the line of the public key.
fn ssh_keys() -> Result<(String, String), String> {
    let seed: [u8; 32] = rand::generate(&SystemRandom::new())
        .map_err(|_| "cannot generate a key: the operating system has no random numbers")?
        .expose();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes");
    let public = pair.public_key().as_ref();
    let public = Ed25519PublicKey::try_from(public).expect("a public key has 32 bytes");
    let pair = Ed25519Keypair { public, private: Ed25519PrivateKey::from_bytes(&seed) };
    let key = PrivateKey::new(KeypairData::Ed25519(pair), "stowplan");
    let key = key.expect("the pair is not encrypted");
    let text = key.to_openssh(LineEnding::LF).expect("an Ed25519 key has a text");
    let line = key.public_key().to_openssh().expect("an Ed25519 key has a text");
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
