//! What becomes of each effect of an operator process: it is carried out, refused, answered late, its answer
//! is lost, or the process ends there, or its lead pauses. A process that has ended has no further effects, whatever
//! was under way in it; one that pauses begins none, and goes on afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A call of the provider, or a request about one Proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// A live read of the object.
    Look,
    /// A write of finalizers and annotations.
    Metadata,
    /// A write of the status.
    Status,
    Validate,
    Create,
    Get,
    Delete,
    List,
}

/// How an operator fares at an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// It ends before the effect is sent.
    Before,
    /// It ends when the effect has happened and its answer was not seen yet.
    After,
    /// It goes on; the effect has happened, its answer is lost.
    Lost,
    /// Its lead pauses before the effect is sent.
    PausesBefore,
    /// Its lead pauses when the effect has happened and its answer was not seen yet.
    PausesAfter,
}

pub(crate) const WAYS: [Way; 5] = [Way::Before, Way::After, Way::Lost, Way::PausesBefore, Way::PausesAfter];

/// The `nth` effect of one kind in the life of a Proxy, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) effect: Effect,
    pub(crate) nth: usize,
}

/// What becomes of one effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Fine,
    /// Nothing happens, and the answer says that it failed.
    Refused,
    DiesBefore,
    DiesAfter,
    AnswerLost,
    /// It happens at once, the answer comes later.
    Late(Duration),
    /// The answer is a passed deadline; it happens after that.
    LandsLate(Duration),
    /// The lead pauses, and it is held back. One that only reads is carried out.
    HeldBack,
    /// It happens, the lead pauses, and the answer is not waited for. Whoever only reads gets one.
    BrokenOff,
}

impl Effect {
    /// It changes nothing: the fence is not asked.
    pub(crate) fn only_reads(self) -> bool {
        match self {
            Self::Look | Self::Validate | Self::Get | Self::List => true,
            Self::Metadata | Self::Status | Self::Create | Self::Delete => false,
        }
    }
}

/// A pause at an effect: longer than it may take until a write is broken off.
const PAUSE: Duration = Duration::from_millis(500);
/// From the beginning of a pause until nothing of which the question was asked before it can begin any more, on a
/// machine that is busy.
const ASKED_BEFORE: Duration = Duration::from_millis(200);

/// Longest time between the start of a provider call and its effect, as the fake provider says of itself.
pub(crate) const LONGEST_CALL: Duration = Duration::from_millis(400);

struct State {
    /// One effect goes wrong in one way.
    once: Option<(Point, Way)>,
    /// So many effects of a hundred go wrong.
    weather: u32,
    /// The process fares so at the effect that is so many from now.
    strikes: Option<(usize, Way)>,
    /// The lead pauses: since when, and until when.
    pause: Option<(Instant, Instant)>,
    /// What began in a pause.
    begun_in_pause: Vec<Effect>,
    seen: Vec<Effect>,
    struck: BTreeMap<&'static str, u64>,
    /// Writes that were under way when their process ended: they may land whenever the API server comes to it.
    torn: u64,
    rng: StdRng,
}

/// Fates of all effects in one small world, across the operator processes in it.
pub(crate) struct Fates {
    state: Mutex<State>,
}

impl Fates {
    pub(crate) fn calm() -> Arc<Self> {
        Self::of_seed(0)
    }

    /// One effect goes wrong in one way.
    pub(crate) fn once(point: Point, way: Way) -> Arc<Self> {
        let fates = Self::of_seed(0);
        fates.state.lock().unwrap().once = Some((point, way));
        fates
    }

    /// All is well at first; what goes wrong later follows from the seed.
    pub(crate) fn of_seed(seed: u64) -> Arc<Self> {
        let rng = StdRng::seed_from_u64(seed);
        let state = State {
            once: None,
            weather: 0,
            strikes: None,
            pause: None,
            begun_in_pause: Vec::new(),
            seen: Vec::new(),
            struck: BTreeMap::new(),
            torn: 0,
            rng,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The lead pauses for so long.
    pub(crate) fn pause(&self, length: Duration) {
        self.state.lock().unwrap().pauses(length);
    }

    /// Whether the lead is not paused.
    pub(crate) fn may_act(&self) -> bool {
        self.state.lock().unwrap().pause.is_none()
    }

    /// Ends pauses when they are over, for ever, and counts them. As in the election it is told before anybody may act.
    pub(crate) async fn end_pauses(&self, resumed: &watch::Sender<u64>) {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut state = self.state.lock().unwrap();
            if state.pause.is_some_and(|(_, until)| Instant::now() >= until) {
                resumed.send_modify(|pauses| *pauses += 1);
                state.pause = None;
            }
        }
    }

    /// Resolves when the lead is not paused.
    pub(crate) async fn after_a_pause(&self) {
        while !self.may_act() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Effects that began while nobody might act.
    pub(crate) fn begun_in_pause(&self) -> Vec<Effect> {
        self.state.lock().unwrap().begun_in_pause.clone()
    }

    /// So many effects of a hundred go wrong from now on; with none, nothing else does either.
    pub(crate) fn weather(&self, percent: u32) {
        let mut state = self.state.lock().unwrap();
        state.weather = percent;
        state.strikes = state.strikes.filter(|_| percent > 0);
    }

    pub(crate) fn strikes_in(&self, effects: usize, way: Way) {
        self.state.lock().unwrap().strikes = Some((effects, way));
    }

    /// All effects so far, in order.
    pub(crate) fn seen(&self) -> Vec<Effect> {
        self.state.lock().unwrap().seen.clone()
    }

    /// What went wrong so far: how often each kind.
    pub(crate) fn struck(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().unwrap().struck.clone()
    }

    /// Writes that may have landed after the next process had begun.
    pub(crate) fn torn(&self) -> u64 {
        self.state.lock().unwrap().torn
    }

    fn draw(&self, effect: Effect) -> Fate {
        let mut state = self.state.lock().unwrap();
        state.seen.push(effect);
        if state.pause.is_some_and(|(since, _)| since.elapsed() > ASKED_BEFORE) {
            state.begun_in_pause.push(effect);
        }
        let nth = state.seen.iter().filter(|seen| **seen == effect).count();
        let strikes = match &mut state.strikes {
            Some((left, way)) if *left <= 1 => Some(*way),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        let once = state.once.filter(|(point, _)| *point == Point { effect, nth }).map(|(_, way)| way);
        let fate = match strikes.or(once) {
            Some(way) => fate_of(way),
            None => state.draw_weather(),
        };
        if strikes.is_some() {
            state.strikes = None;
        }
        if matches!(fate, Fate::HeldBack | Fate::BrokenOff) {
            state.pauses(PAUSE);
        }
        if let Some(name) = name_of(fate) {
            *state.struck.entry(name).or_default() += 1;
        }
        fate
    }
}

fn fate_of(way: Way) -> Fate {
    match way {
        Way::Before => Fate::DiesBefore,
        Way::After => Fate::DiesAfter,
        Way::Lost => Fate::AnswerLost,
        Way::PausesBefore => Fate::HeldBack,
        Way::PausesAfter => Fate::BrokenOff,
    }
}

impl State {
    fn pauses(&mut self, length: Duration) {
        let now = Instant::now();
        let (since, until) = self.pause.unwrap_or((now, now));
        self.pause = Some((since, until.max(now + length)));
        *self.struck.entry("pauses").or_default() += 1;
    }

    fn draw_weather(&mut self) -> Fate {
        let (rng, percent) = (&mut self.rng, self.weather);
        if percent == 0 || rng.random_range(0..100) >= percent {
            return Fate::Fine;
        }
        let late = Duration::from_millis(rng.random_range(20..350));
        match rng.random_range(0..12) {
            0..3 => Fate::Refused,
            3..6 => Fate::AnswerLost,
            6..8 => Fate::Late(late),
            8..10 => Fate::LandsLate(late),
            10 => Fate::DiesBefore,
            _ => Fate::DiesAfter,
        }
    }
}

fn name_of(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Fine => None,
        Fate::Refused => Some("refused"),
        Fate::DiesBefore => Some("operators ended before"),
        Fate::DiesAfter => Some("operators ended after"),
        Fate::AnswerLost => Some("answers lost"),
        Fate::Late(_) => Some("answers late"),
        Fate::LandsLate(_) => Some("effects after their deadline"),
        Fate::HeldBack => Some("held back by a pause"),
        Fate::BrokenOff => Some("broken off by a pause when they had happened"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_begins_in_a_pause_is_found() {
    let fates = Fates::calm();
    let process = Process::new(Arc::clone(&fates));
    let begins = |effect| process.act(effect, |fate| assert_eq!(fate, Fate::Fine));
    fates.pause(Duration::from_secs(1));
    assert!(!fates.may_act());
    begins(Effect::Create);
    assert_eq!(fates.begun_in_pause(), [], "it was asked for before");
    tokio::time::advance(ASKED_BEFORE * 2).await;
    begins(Effect::Delete);
    let resumed = watch::channel(0).0;
    let ended = tokio::time::timeout(Duration::from_secs(1), fates.end_pauses(&resumed)).await;
    assert!(ended.is_err() && fates.may_act() && *resumed.borrow() == 1);
    begins(Effect::Get);
    assert_eq!(fates.begun_in_pause(), [Effect::Delete]);
}

/// One operator process.
pub(crate) struct Process {
    fates: Arc<Fates>,
    ended: Mutex<bool>,
    told: Notify,
    under_way: AtomicUsize,
}

/// A write about a Proxy that was sent and is not answered yet.
pub(crate) struct UnderWay {
    process: Arc<Process>,
    is_answered: bool,
}

impl UnderWay {
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.process.under_way.fetch_sub(1, Ordering::SeqCst);
        // What a pause breaks off has landed long before its process begins anything again.
        if !self.is_answered && *self.process.ended.lock().unwrap() {
            self.process.fates.state.lock().unwrap().torn += 1;
        }
    }
}

impl Process {
    pub(crate) fn new(fates: Arc<Fates>) -> Arc<Self> {
        let (ended, told, under_way) = (Mutex::new(false), Notify::new(), AtomicUsize::new(0));
        Arc::new(Self { fates, ended, told, under_way })
    }

    /// Carries out an effect as its fate wants. The process cannot end in the middle of `act`: a task that is
    /// aborted may still run to its next await, seconds later on a busy machine, and must not act then.
    pub(crate) fn act<T>(&self, effect: Effect, act: impl FnOnce(Fate) -> T) -> T {
        let ended = self.ended.lock().unwrap();
        act(if *ended { Fate::DiesBefore } else { self.fates.draw(effect) })
    }

    /// Resolves when its lead is not paused.
    pub(crate) async fn after_a_pause(&self) {
        self.fates.after_a_pause().await;
    }

    /// From now on it has no effects.
    pub(crate) fn end(&self) {
        *self.ended.lock().unwrap() = true;
    }

    /// The process ends here; never returns.
    pub(crate) async fn ends<T>(&self) -> T {
        self.end();
        self.told.notify_one();
        std::future::pending().await
    }

    /// A write is sent now.
    pub(crate) fn sends(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay { process: Arc::clone(self), is_answered: false }
    }

    /// From now on it has no effects; resolves when those that it had are over.
    pub(crate) async fn ends_between_writes(&self) {
        self.end();
        while self.under_way.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Resolves when the process has ended.
    pub(crate) async fn ended(&self) {
        self.told.notified().await;
    }
}
