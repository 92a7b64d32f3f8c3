//! Listings of several pages: what ends them, and what must not.

use egress_proxies_core::provider::{HostFault, Reason};

use crate::hostile::sample;
use crate::support::guest::Guest;
use crate::support::image::{Machine, nothing};
use crate::support::{machine, owner};

/// Where the request's cursor is, behind the context (36 bytes), the owner's tags and the prefix: whether
/// there is one, and its text.
const CURSOR: u32 = 56;

/// A page with these many machines and this cursor.
fn page(guest: &mut Guest, machines: usize, next: Option<&str>) -> String {
    let rows: Vec<_> = (0..machines).map(|_| Machine::default().words(&mut guest.image)).collect();
    let items = guest.image.list(&rows);
    let words = [vec![0], items, guest.image.option(next), nothing(), nothing(), vec![0; 8]].concat();
    format!("i32.const {}", guest.image.place(&words))
}

#[tokio::test]
async fn a_page_larger_than_asked_for_is_refused() {
    let mut guest = Guest { pages: 16, ..Guest::default() };
    guest.list = page(&mut guest, 101, None);
    let (_started, provider) = sample(&guest, "").await;
    let failure = provider.list_owned(&owner()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Host(HostFault::BadAnswer));
    assert!(failure.message.contains("101 machines"), "{}", failure.message);
    assert!(provider.get(&machine()).await.is_ok());
}

#[tokio::test]
async fn a_listing_that_never_ends_is_cut_off() {
    let mut guest = Guest::default();
    guest.list = page(&mut guest, 1, Some("again"));
    let (_started, provider) = sample(&guest, "").await;
    let failure = provider.list_owned(&owner()).await.unwrap_err();
    assert!(failure.message.contains("cursor that it was given"), "{}", failure.message);
}

#[tokio::test]
async fn machines_without_the_tags_that_were_asked_for_are_left_out_of_a_listing() {
    let (_started, provider) = sample(&Guest::default(), "").await;
    assert_eq!(provider.list_owned(&owner()).await.unwrap().items.len(), 1);
    let other = [("proxy-operator-uid".to_owned(), "u-2".to_owned())].into();
    assert_eq!(provider.list_owned(&other).await.unwrap().items.len(), 0);
}

/// Answers page after page, each with another cursor than the one before.
fn endless() -> Guest {
    let mut guest = Guest::default();
    let (a, b) = (page(&mut guest, 1, Some("a")), page(&mut guest, 1, Some("b")));
    guest.list = format!(
        "(if (result i32)
           (i32.and (i32.load offset={CURSOR} (local.get 0))
             (i32.eq (i32.load8_u (i32.load offset={} (local.get 0))) (i32.const 97)))
           (then ({b})) (else ({a})))",
        CURSOR + 4
    );
    guest
}

/// Each page used to need a permit of its own, and a call in between could take it.
#[tokio::test]
async fn a_listing_has_a_largest_number_of_pages_and_keeps_its_permits_until_then() {
    let (_started, provider) = sample(&endless(), "limits: { concurrency: 1 }").await;
    let tags = owner();
    let target = machine();
    let ended = std::sync::Mutex::new(Vec::new());
    let list = async {
        let failure = provider.list_owned(&tags).await.unwrap_err();
        ended.lock().unwrap().push("list");
        failure
    };
    let get = async {
        provider.get(&target).await.unwrap();
        ended.lock().unwrap().push("get");
    };
    let (failure, ()) = tokio::join!(list, get);
    assert_eq!(*ended.lock().unwrap(), ["list", "get"], "the call in between waits for the last page");
    assert_eq!(failure.reason, Reason::Host(HostFault::BadAnswer));
    assert!(failure.message.contains("more than 100 pages"), "{failure}");
}

/// Where the size of the page that is asked for is, behind the cursor.
const SIZE: u32 = CURSOR + 12;

/// Small pages are endless, the first large one is the last.
#[tokio::test]
async fn a_provider_with_more_machines_than_a_hundred_small_pages_hold_is_asked_for_large_ones() {
    let mut guest = endless();
    let last = page(&mut guest, 3, None);
    guest.list = format!(
        "(if (result i32) (i32.eq (i32.load offset={SIZE} (local.get 0)) (i32.const 1000)) (then ({last})) (else {}))",
        guest.list
    );
    let recorder = crate::support::recorder::Recorder::default();
    let started = crate::support::start_with(&[("p", &guest.component(), "")], |host| {
        egress_proxies_wasm::HostConfig { recorder: recorder.shared(), ..host }
    })
    .await;
    let provider = started.ready("p");
    for calls in [101, 102] {
        assert_eq!(provider.list_owned(&owner()).await.unwrap().items.len(), 1);
        assert_eq!(
            recorder.outcomes("list-by-tag").len(),
            calls,
            "once it is known they are asked for at once"
        );
    }
}

#[tokio::test]
async fn a_listing_starts_anew_after_a_stale_cursor_and_not_for_ever() {
    let mut guest = Guest::default();
    let first = page(&mut guest, 1, Some("x"));
    let stale = [vec![1, 9, 0, 0], guest.image.text("too old"), vec![0; 7], nothing(), vec![0; 8]].concat();
    let stale = format!("i32.const {}", guest.image.place(&stale));
    guest.list = format!(
        "(if (result i32) (i32.load offset={CURSOR} (local.get 0)) (then ({stale})) (else ({first})))"
    );
    let recorder = crate::support::recorder::Recorder::default();
    let started = crate::support::start_with(&[("p", &guest.component(), "")], |host| {
        egress_proxies_wasm::HostConfig { recorder: recorder.shared(), ..host }
    })
    .await;
    let failure = started.ready("p").list_owned(&owner()).await.unwrap_err();
    assert_eq!((failure.reason, failure.message.as_str()), (Reason::Transient, "too old"));
    // That a cursor is stale is an answer; that each one is, a failure.
    let outcomes = [vec!["answered"; 5], vec!["transient"]].concat();
    assert_eq!(recorder.outcomes("list-by-tag"), outcomes, "three first pages, three stale cursors");
}
