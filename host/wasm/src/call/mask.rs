//! Hides the secrets of one call in everything that the guest says.
//!
//! A guest sees the bootstrap and the credentials of the machine it makes. It must not repeat them, and
//! might: in a log line, in the text of an error that quotes a request. The values themselves, their base64
//! form, and the longer lines of the bootstrap are replaced before anything leaves this crate.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use egress_proxies_core::provider::{CreateRequest, Credentials};

/// What a secret is replaced by.
const HIDDEN: &str = "***";
/// Shorter lines of a bootstrap are words like `packages:` and hide nothing.
const LEAST_LINE: usize = 12;
/// Shorter user names would hide half of the text.
const LEAST_NAME: usize = 3;

/// The secrets of one call, longest first.
#[derive(Clone, Default)]
pub(crate) struct Mask {
    secrets: Vec<String>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} secrets)", self.secrets.len())
    }
}

impl Mask {
    /// The secrets of a request to make a machine.
    pub(crate) fn of(request: &CreateRequest) -> Self {
        let mut mask = Self::default();
        if let Some(bootstrap) = &request.bootstrap {
            mask.add_text(bootstrap.expose());
        }
        if let Some(access) = &request.access {
            mask.add_credentials(access);
        }
        mask.sort();
        mask
    }

    fn add_text(&mut self, text: &str) {
        self.add(text.trim());
        let lines = text.lines().map(str::trim).filter(|line| line.len() >= LEAST_LINE);
        self.secrets.extend(lines.map(str::to_owned));
        self.secrets.push(STANDARD.encode(text));
    }

    fn add_credentials(&mut self, access: &Credentials) {
        let (user, password) = (access.username.expose(), access.password.expose());
        self.add(password);
        if user.len() >= LEAST_NAME {
            self.add(user);
        }
        self.secrets.push(STANDARD.encode(format!("{user}:{password}")));
    }

    fn add(&mut self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        self.secrets.push(secret.to_owned());
        // Base64 of a short text is a likely part of any other text.
        if secret.len() >= 4 {
            self.secrets.push(STANDARD.encode(secret));
            self.secrets.push(URL_SAFE_NO_PAD.encode(secret));
        }
    }

    fn sort(&mut self) {
        self.secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.secrets.dedup();
    }

    /// The text without the secrets.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut hidden = text.to_owned();
        for secret in &self.secrets {
            if hidden.contains(secret.as_str()) {
                hidden = hidden.replace(secret.as_str(), HIDDEN);
            }
        }
        hidden
    }
}

/// One line for people: control characters replaced, cut to `most` bytes.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for character in text.trim().chars() {
        let character = if character.is_control() { ' ' } else { character };
        if line.len() + character.len_utf8() > most {
            line.push('…');
            break;
        }
        line.push(character);
    }
    line
}

#[cfg(test)]
mod tests {
    use egress_proxies_core::provider::Secret;

    use super::*;

    fn request() -> CreateRequest {
        CreateRequest {
            name: "px-1".into(),
            attempt_key: String::new(),
            port: 3128,
            placement: serde_json::Map::new(),
            parameters: serde_json::Map::new(),
            bootstrap: Some(Secret::new("#cloud-config\nwrite_key: 0123456789abcdef\n".into())),
            access: Some(Credentials {
                username: Secret::new("crawler".into()),
                password: Secret::new("p@ss:w/rd%".into()),
            }),
            tags: Default::default(),
        }
    }

    #[test]
    fn no_form_of_a_secret_survives() {
        let mask = Mask::of(&request());
        let said = format!(
            "user crawler password p@ss:w/rd% basic {} line 'write_key: 0123456789abcdef' data {}",
            STANDARD.encode("crawler:p@ss:w/rd%"),
            STANDARD.encode("p@ss:w/rd%"),
        );
        assert_eq!(mask.hide(&said), "user *** password *** basic *** line '***' data ***");
        assert!(!format!("{mask:?}").contains("p@ss"));
    }

    #[test]
    fn a_line_has_no_control_characters_and_an_end() {
        assert_eq!(one_line("a\nb\u{1b}[31m", 100), "a b [31m");
        assert_eq!(one_line("ééé", 4), "éé…");
    }
}
