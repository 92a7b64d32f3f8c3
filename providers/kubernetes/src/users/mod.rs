//! The user file for Squid's `basic_ncsa_auth`.
//!
//! The password itself never leaves the component: the file has its SHA-256 crypt hash, which crypt(3) of
//! every current image can check.

use egress_proxies_provider_sdk::failure::{invalid, new};
use egress_proxies_provider_sdk::model::{Credentials, Failure, Reason};
use sha_crypt::{PasswordHash, PasswordHasher as _, ShaCrypt};

/// crypt(3) takes 512 bytes, and the helper's line must hold the password percent-encoded.
const MAX_BYTES: usize = 256;

/// Can the user file hold these?
pub(crate) fn check(credentials: &Credentials) -> Result<(), Failure> {
    let user = &credentials.username;
    if user.is_empty() || user.len() > MAX_BYTES {
        return Err(refuse(
            "username",
            &format!("it has {} bytes; 1 to {MAX_BYTES} are possible", user.len()),
        ));
    }
    if user.contains(':') || user.chars().any(char::is_control) {
        return Err(refuse("username", "a colon or control characters cannot be sent by a client"));
    }
    if user.starts_with(['#', ' ']) {
        return Err(refuse("username", "Squid's user file cannot hold one that starts with # or a space"));
    }
    let password = &credentials.password;
    if password.is_empty() || password.len() > MAX_BYTES {
        return Err(refuse(
            "password",
            &format!("it has {} bytes; 1 to {MAX_BYTES} are possible", password.len()),
        ));
    }
    if password.chars().any(char::is_control) {
        return Err(refuse("password", "control characters cannot be sent by a client"));
    }
    Ok(())
}

fn refuse(field: &str, why: &str) -> Failure {
    let pointer = format!("/access/{field}");
    let message =
        format!("{field} of the proxy's credentials: {why}. Change the Secret named in auth.secretRef");
    invalid(pointer, message)
}

/// The file's text. `salt` is 12 random bytes.
pub(crate) fn file(credentials: &Credentials, salt: &[u8]) -> Result<String, Failure> {
    check(credentials)?;
    // With crypt(3)'s default of 5000 rounds: the file is as secret as the password.
    let hash: PasswordHash = ShaCrypt::SHA256
        .hash_password_with_salt(credentials.password.as_bytes(), salt)
        .map_err(|_| new(Reason::Permanent, "the password of the proxy's credentials cannot be hashed"))?;
    Ok(format!("{}:{}\n", credentials.username, hash.as_str()))
}

#[cfg(test)]
mod tests;
