//! Secrets in every form that a guest might say them in, whole and cut.

use std::time::Duration;

use egress_proxies_core::provider::Secret;
use tokio::time::Instant;

use super::*;

fn request(bootstrap: &str, password: &str) -> CreateRequest {
    CreateRequest {
        name: "px-1".into(),
        attempt_key: String::new(),
        port: 3128,
        placement: serde_json::Map::new(),
        parameters: serde_json::Map::new(),
        bootstrap: Some(Secret::new(bootstrap.into())),
        access: Some(Credentials {
            username: Secret::new("crawler".into()),
            password: Secret::new(password.into()),
        }),
        tags: Default::default(),
    }
}

fn mask() -> Mask {
    Mask::of(&request("#cloud-config\nwrite_key: 0123456789abcdef\n", "p@ss:w/rd%"))
}

#[test]
fn no_form_of_a_secret_survives() {
    let said = format!(
        "user crawler password p@ss:w/rd% basic {} line 'write_key: 0123456789abcdef' data {}",
        STANDARD.encode("crawler:p@ss:w/rd%"),
        STANDARD.encode("p@ss:w/rd%"),
    );
    assert_eq!(mask().hide(&said, false), "user *** password *** basic *** line '***' data ***");
    assert!(!format!("{:?}", mask()).contains("p@ss"));
}

#[test]
fn a_password_is_hidden_as_it_stands_in_urls_json_and_debug_text() {
    for password in ["p@ss:w/rd%", "a$b#c d", "gr\u{fc}n/\u{1f511}", "p\"ss\\word1", "tab\there"] {
        let mask = Mask::of(&request("", password));
        let json = serde_json::Value::from(password).to_string();
        for said in [
            percent(password, UNRESERVED),
            percent(password, UNRESERVED).replace("%20", "+"),
            percent(password, "-._~/"),
            percent(password, USER_INFORMATION),
            percent(password, "-._~!'()*"),
            format!("{password:?}").trim_matches('"').to_owned(),
            json.trim_matches('"').to_owned(),
        ] {
            let hidden = mask.hide(&format!("http://crawler:{said}@host"), false);
            assert!(hidden.starts_with("http://***:***"), "{password}: {said} -> {hidden}");
        }
    }
}

#[test]
fn a_line_of_a_bootstrap_is_hidden_inside_of_json() {
    let bootstrap = "first_key: \"0123456789\"\nsecond_key: abcdefghij\n";
    let mask = Mask::of(&request(bootstrap, "x-x-x-x"));
    let said = serde_json::json!({"user_data": bootstrap}).to_string();
    let hidden = mask.hide(&said, false);
    assert!(!hidden.contains("0123456789") && !hidden.contains("abcdefghij"), "{hidden}");
}

#[test]
fn a_secret_that_is_cut_is_hidden_as_far_as_it_goes() {
    let key = "k3y".repeat(2_000);
    let mask = Mask::of(&request(&format!("content: {key}\n"), "hunter2hunter2"));
    for most in [100, 101, 150, 163, 200, 2_000] {
        let line = mask.line(&format!("it was content: {key}"), most);
        assert_eq!(line, "it was ***", "{most}");
    }
    let line = mask.line(&format!("{}hunter2hunter2", "x".repeat(60)), 67);
    assert_eq!(line, format!("{}***", "x".repeat(60)));
    // Base64 of all of it, cut anywhere.
    let said = STANDARD.encode(format!("content: {key}\n"));
    assert_eq!(mask.line(&said, 500), "***");
}

#[test]
fn pieces_overlap_touch_and_stand_alone() {
    let mask = Mask(["abc", "abcdef", "cde", "x"].map(str::to_owned).into());
    for (text, expected) in [
        ("abcdef", "***"),
        ("abcde", "***"),
        ("ab", "ab"),
        ("zabcz", "z***z"),
        ("xxx", "***"),
        ("x-x", "***-***"),
        ("abcabc", "***"),
        ("\u{fc}abc\u{fc}", "\u{fc}***\u{fc}"),
        ("", ""),
    ] {
        assert_eq!(mask.hide(text, false), expected, "{text}");
    }
}

/// 256 KiB of bootstrap and 8 MiB of words would be minutes if each secret were looked for in all of them.
#[test]
fn the_work_depends_on_what_is_kept_and_not_on_what_is_said() {
    let bootstrap = (0..20_000).map(|n| format!("line-{n:07}\n")).collect::<Vec<_>>().concat();
    let mask = Mask::of(&request(&bootstrap, "hunter2hunter2"));
    let words = "line-0000000 ".repeat(600_000);
    let began = Instant::now();
    for _ in 0..20 {
        assert!(mask.line(&words, 1024).starts_with("*** ***"));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_line_has_no_control_characters_and_an_end() {
    assert_eq!(one_line("a\nb\u{1b}[31m", 100), "a b [31m");
    assert_eq!(one_line("\u{e9}\u{e9}\u{e9}", 4), "\u{e9}\u{e9}\u{2026}");
}
