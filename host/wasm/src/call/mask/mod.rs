//! Hides the secrets of one call in everything that the guest says.
//!
//! A guest sees the bootstrap and the credentials of the machine it makes. It must not repeat them, and
//! might: in a log line, in the text of an error that quotes a request. The values themselves, the longer
//! lines of the bootstrap, and the forms that these take in base64, JSON, Rust's debug text and URLs are
//! replaced before anything leaves this crate.
//!
//! Long secrets are kept in pieces, so that a part of one is found too. Texts are cut before they are
//! searched: what a guest can make the host do is bounded by the length that is kept, never by the length
//! that the guest gave.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use egress_proxies_core::provider::{CreateRequest, Credentials};

/// What a secret is replaced by.
const HIDDEN: &str = "***";
/// Shorter lines of a bootstrap are words like `packages:` and hide nothing.
const LEAST_LINE: usize = 12;
/// Shorter user names would hide half of the text.
const LEAST_NAME: usize = 3;
/// Longest piece that is looked for; longer secrets are several pieces.
pub(crate) const MOST_PIECE: usize = 64;
/// Characters besides letters and digits that RFC 3986 never encodes.
const UNRESERVED: &str = "-._~";
/// What browsers and JavaScript leave as it is in the user information of a URL.
const USER_INFORMATION: &str = "-._~!$%&'()*+,";
/// A shorter beginning of a secret at the end of a cut text says nothing.
const LEAST_PREFIX: usize = 6;

/// The secrets of one call; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Mask(Arc<[String]>);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} pieces)", self.0.len())
    }
}

impl Mask {
    /// The secrets of a request to make a machine.
    pub(crate) fn of(request: &CreateRequest) -> Self {
        let mut pieces = Pieces::default();
        if let Some(bootstrap) = &request.bootstrap {
            pieces.bootstrap(bootstrap.expose());
        }
        if let Some(access) = &request.access {
            pieces.credentials(access);
        }
        pieces.done()
    }

    /// One line for people: secrets hidden, control characters replaced, cut to `most` bytes.
    pub(crate) fn line(&self, text: &str, most: usize) -> String {
        let text = text.trim_start();
        let (kept, cut) = beginning(text, most.saturating_add(MOST_PIECE));
        one_line(&self.hide(kept, cut), most)
    }

    /// The text without the secrets. `cut` says that it ends in the middle, so that its last words may be
    /// the beginning of a secret. Its length must be bounded.
    pub(crate) fn hide(&self, text: &str, cut: bool) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let mut hidden = String::with_capacity(text.len());
        // The end of what is covered so far: a secret may begin inside of another one, or right behind it.
        let mut covered: Option<usize> = None;
        for (at, character) in text.char_indices() {
            let rest = text.get(at..).unwrap_or_default();
            let length = if cut && self.is_beginning(rest) { rest.len() } else { self.longest_at(rest) };
            if length > 0 {
                if covered.is_none_or(|end| at > end) {
                    hidden.push_str(HIDDEN);
                }
                covered = covered.max(Some(at + length));
            }
            if covered.is_none_or(|end| at >= end) {
                hidden.push(character);
            }
        }
        hidden
    }

    /// Length of the longest piece that the text begins with.
    fn longest_at(&self, text: &str) -> usize {
        let (mut text, _) = beginning(text, MOST_PIECE);
        loop {
            // The last one that does not sort behind the text. Whatever the text begins with sorts before
            // that one, and that one begins with it too: what both have in common is looked up next.
            let at = self.0.partition_point(|piece| piece.as_str() <= text);
            let Some(piece) = at.checked_sub(1).and_then(|at| self.0.get(at)) else { return 0 };
            let common = common(piece, text);
            if common == piece.len() {
                return common;
            }
            if common == 0 {
                return 0;
            }
            (text, _) = beginning(text, common);
        }
    }

    /// True if the text is the beginning of a piece.
    fn is_beginning(&self, text: &str) -> bool {
        if !(LEAST_PREFIX..MOST_PIECE).contains(&text.len()) {
            return false;
        }
        let at = self.0.partition_point(|piece| piece.as_str() < text);
        self.0.get(at).is_some_and(|piece| piece.starts_with(text))
    }
}

/// Bytes that two texts begin with, both, on a boundary of characters.
fn common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

/// The text up to `most` bytes, on a boundary of characters, and whether there was more.
pub(crate) fn beginning(text: &str, most: usize) -> (&str, bool) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (text.get(..end).unwrap_or_default(), end < text.len())
}

/// Pieces of secrets while they are collected.
#[derive(Default)]
struct Pieces(Vec<String>);

impl Pieces {
    fn bootstrap(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| line.len() >= LEAST_LINE) {
            self.quoted(line);
            self.different(line, &percent(line, UNRESERVED));
        }
        for text in [text, text.trim()] {
            self.base64(text);
        }
        // Without longer lines it is a word or two, which may be the secret itself.
        if text.trim().len() >= LEAST_NAME && !text.trim().contains('\n') {
            self.written(text.trim());
        }
    }

    fn credentials(&mut self, access: &Credentials) {
        let (user, password) = (access.username.expose(), access.password.expose());
        for secret in
            [Some(password), Some(user).filter(|user| user.len() >= LEAST_NAME)].into_iter().flatten()
        {
            self.written(secret);
            // Base64 of a short text is a likely part of any other text.
            if secret.len() >= 4 {
                self.base64(secret);
            }
        }
        self.base64(&format!("{user}:{password}"));
    }

    /// As it is, and as it stands in JSON, in Rust's debug text and in URLs, of which each language has its
    /// own idea.
    fn written(&mut self, secret: &str) {
        self.quoted(secret);
        for plain in
            [UNRESERVED, USER_INFORMATION, "-._~/", "-._~!'()*", "-._~!$&'()*+,;=:@", "-._~!$&'()*+,;=:@/"]
        {
            let encoded = percent(secret, plain);
            self.different(secret, &encoded.replace("%20", "+"));
            self.different(secret, &encoded);
        }
    }

    fn quoted(&mut self, secret: &str) {
        self.add(secret);
        let debug = format!("{secret:?}");
        let json = serde_json::Value::from(secret).to_string();
        for quoted in [debug, json] {
            let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            self.different(secret, inner.unwrap_or(&quoted));
        }
    }

    fn different(&mut self, secret: &str, form: &str) {
        if form != secret {
            self.add(form);
        }
    }

    fn base64(&mut self, secret: &str) {
        for alphabet in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            self.add(&alphabet.encode(secret));
        }
    }

    fn add(&mut self, secret: &str) {
        let mut rest = secret;
        while rest.len() > MOST_PIECE {
            let (piece, _) = beginning(rest, MOST_PIECE);
            self.0.push(piece.to_owned());
            rest = rest.get(piece.len()..).unwrap_or_default();
        }
        // The last one reaches back, so that it is long enough not to be a part of any other text.
        let mut start = secret.len().saturating_sub(MOST_PIECE);
        while !secret.is_char_boundary(start) {
            start += 1;
        }
        let last = secret.get(start..).unwrap_or_default();
        if !last.is_empty() {
            self.0.push(last.to_owned());
        }
    }

    fn done(mut self) -> Mask {
        self.0.sort_unstable();
        self.0.dedup();
        Mask(self.0.into())
    }
}

/// Percent-encoded but for letters, digits and these.
fn percent(text: &str, plain: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let character = char::from(byte);
        if byte.is_ascii_alphanumeric() || plain.contains(character) && byte.is_ascii() {
            encoded.push(character);
        } else {
            // Writing to a string cannot fail.
            let _written = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
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
mod tests;
