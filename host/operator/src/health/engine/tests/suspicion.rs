//! Suspecting the target instead of nearly all proxies.

use super::*;

#[tokio::test(start_paused = true)]
async fn when_all_fail_at_once_verdicts_are_held_and_one_signal_is_raised() {
    for threshold in [1, 3] {
        let names: Vec<String> = (0..10).map(|i| format!("p{i}")).collect();
        let mut fleet: Vec<_> = names.iter().map(|name| proxy(name, None)).collect();
        for facts in &mut fleet {
            facts.probe.as_mut().unwrap().failure_threshold = threshold;
        }
        let rig = Rig::start(&fleet, 256);
        rig.answer_all(&names, &ok());
        pass_seconds(10).await;
        rig.answer_all(&names, &fails(ProbeReason::BadGateway));
        rig.answer("p3", [fails(ProbeReason::Refused)]);
        pass_seconds(300).await;
        for name in &names {
            let expected = if name == "p3" { (false, "Refused") } else { (true, "ProbeSucceeded") };
            assert_eq!(rig.verdict(name), Some(expected), "{name} with threshold {threshold}");
        }
        assert_eq!(rig.suspicions.borrow().keys().collect::<Vec<_>>(), ["https://target.example/"]);

        rig.answer_all(&names, &ok());
        rig.answer("p5", [fails(ProbeReason::BadGateway)]);
        pass_seconds(65).await;
        assert!(rig.suspicions.borrow().is_empty(), "cleared with threshold {threshold}");
        assert_eq!(rig.verdict("p3"), Some((true, "ProbeSucceeded")));
        assert_eq!(rig.verdict("p5"), Some((false, "BadGateway")), "its own fault after all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_fleet_is_judged_although_all_of_it_fails() {
    let rig = Rig::start(&[proxy("a", None), proxy("b", None)], 8);
    rig.answer("a", [ok(), fails(ProbeReason::Timeout)]);
    rig.answer("b", [ok(), fails(ProbeReason::Timeout)]);
    pass_seconds(100).await;
    assert_eq!(rig.verdict("a"), Some((false, "Timeout")));
    assert_eq!(rig.verdict("b"), Some((false, "Timeout")));
    assert!(rig.suspicions.borrow().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_of_the_least_size_is_held_for_as_long_as_all_of_it_fails() {
    for threshold in [1, 3] {
        let (names, fleet) = group(5, threshold);
        let rig = Rig::start(&fleet, 256);
        rig.answer_all(&names, &ok());
        pass_seconds(10).await;
        rig.answer_all(&names, &fails(ProbeReason::BadGateway));
        let bad = || fails(ProbeReason::BadGateway);
        if threshold == 3 {
            rig.answer("p1", [bad(), bad(), bad(), bad(), fails(ProbeReason::Refused), bad()]);
        }
        for _ in 0..60 {
            pass_seconds(10).await;
            let fell: Vec<_> = names.iter().filter(|name| !rig.verdict(name).unwrap().0).collect();
            assert!(fell.is_empty(), "{fell:?} with threshold {threshold}");
        }
        assert_eq!(rig.suspicions.borrow().len(), 1, "it lasts, and one refusal does not end it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_shrinks_while_its_target_is_down_stays_held() {
    let bad = || fails(ProbeReason::BadGateway);
    for dies in [false, true] {
        let (names, mut fleet) = group(5, 3);
        let rig = Rig::start(&fleet, 256);
        rig.answer_all(&names, &ok());
        pass_seconds(10).await;
        rig.answer_all(&names, &bad());
        pass_seconds(120).await;
        assert_eq!(rig.suspicions.borrow().len(), 1);
        let last = fleet.pop().unwrap();
        if dies {
            rig.answer("p4", [fails(ProbeReason::Refused)]);
            fleet.push(last);
        }
        rig.fleet.send_replace(fleet_of(&fleet));
        pass_seconds(300).await;
        assert_eq!(rig.verdict("p4"), dies.then_some((false, "Refused")));
        for name in &names[..4] {
            assert_eq!(rig.verdict(name), Some((true, "ProbeSucceeded")), "{name}, dies: {dies}");
        }
        rig.answer_all(&names[..4], &ok());
        pass_seconds(60).await;
        assert!(rig.suspicions.borrow().is_empty(), "it ends when they pass again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_goes_may_raise_the_suspicion_and_those_that_fell_get_their_verdict_back() {
    let (names, mut fleet) = group(10, 1);
    let rig = Rig::start(&fleet, 256);
    rig.answer_all(&names, &ok());
    pass_seconds(10).await;
    rig.answer_all(&names[..8], &fails(ProbeReason::BadGateway));
    pass_seconds(25).await;
    assert!(rig.suspicions.borrow().is_empty(), "80 % is not more than 80 %");
    assert!(names[..8].iter().all(|name| rig.verdict(name) == Some((false, "BadGateway"))));
    fleet.pop();
    rig.fleet.send_replace(fleet_of(&fleet));
    pass_seconds(1).await;
    assert_eq!(rig.suspicions.borrow().len(), 1);
    for name in &names[..9] {
        assert_eq!(rig.verdict(name), Some((true, "ProbeSucceeded")), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_says_what_most_fail_with_and_shows_no_secret_of_the_url() {
    let (names, mut fleet) = group(6, 3);
    for facts in &mut fleet {
        facts.probe.as_mut().unwrap().url =
            "https://user:hunter2@target.example/path?token=hunter2".to_owned();
    }
    let rig = Rig::start(&fleet, 256);
    rig.answer_all(&names, &ok());
    pass_seconds(10).await;
    rig.answer_all(&names, &fails(ProbeReason::ProbeUrlInvalid));
    rig.answer("p0", [fails(ProbeReason::Timeout)]);
    pass_seconds(60).await;
    let suspicions = rig.suspicions.borrow().clone();
    let (url, suspicion) = suspicions.iter().next().unwrap();
    assert!(suspicion.message.contains("most of them fail with ProbeUrlInvalid"), "{}", suspicion.message);
    assert!(!format!("{suspicions:?}").contains("hunter2"), "{url}");
}

fn group(count: usize, threshold: u32) -> (Vec<String>, Vec<ProxyFacts>) {
    let names: Vec<String> = (0..count).map(|i| format!("p{i}")).collect();
    let mut fleet: Vec<_> = names.iter().map(|name| proxy(name, None)).collect();
    for facts in &mut fleet {
        facts.probe.as_mut().unwrap().failure_threshold = threshold;
    }
    (names, fleet)
}
