//! The user file against the hash's own verifier.

use sha_crypt::PasswordVerifier as _;

use super::*;

fn credentials(username: &str, password: &str) -> Credentials {
    Credentials { username: username.into(), password: password.into() }
}

#[test]
fn every_odd_password_is_verified_by_its_own_hash_alone() {
    let passwords = ["p", "@", ":", "/", "%", "$", "#", " ", "ü", "p@: /%$#\"'\\ü", &"x".repeat(256)];
    for password in passwords {
        let text = file(&credentials("crawl er", password), &[7; 12]).unwrap();
        let hash = text.strip_prefix("crawl er:").unwrap().strip_suffix('\n').unwrap();
        assert!(hash.starts_with("$5$") && !hash.contains(':'), "{hash}");
        ShaCrypt::SHA256.verify_password(password.as_bytes(), hash).unwrap();
        assert!(ShaCrypt::SHA256.verify_password(b"another", hash).is_err());
    }
}

#[test]
fn another_salt_is_another_hash() {
    let hash = |salt: [u8; 12]| file(&credentials("u", "p"), &salt).unwrap();
    assert_ne!(hash([1; 12]), hash([2; 12]));
}

/// Made by crypt(3) of a Debian 12: `python3 -c 'import crypt; print(crypt.crypt("p@: ü", "$5$rounds=5000$abcdefghijklmnop"))'`.
#[test]
fn the_format_is_that_of_crypt() {
    let hash = "$5$rounds=5000$abcdefghijklmnop$U79KlOzyPXMJxPC8UOhQg37kJif2lilIIReIDmA6n9A";
    ShaCrypt::SHA256.verify_password("p@: ü".as_bytes(), hash).unwrap();
}
