//! Elections by chance: three processes whose clocks began at different times share one Lease. Requests take
//! their time, answers get lost, processes stand still, are cut off for a while, have a bad line or begin anew,
//! leaders give it up, somebody deletes or empties the Lease, or puts a former leader back into it, or restores the
//! server's data from a backup.
//! Never do two believe that they lead; whoever leads again after a pause finds that nobody else has led since, and
//! never does whoever has seen what is gone after a restore; and when the trouble ends somebody leads. One thing is
//! left out since nothing helps against it: a process that begins within seconds of a deletion knows of no Lease.

use std::time::Duration;

use super::super::{Candidate, GIVEN_UP, Record, Step, Timing};
use crate::time::Moment;

const TICK: u64 = 100;
const PROCESSES: usize = 3;

/// Numbers that look random and are the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The API server.
#[derive(Default)]
struct Server {
    lease: Option<Record>,
    writes: u64,
    /// What was saved last.
    backup: Option<(Record, u64)>,
    restored: u64,
}

impl Server {
    /// Replaces the version that the writer knows, none if it knows of no Lease.
    fn write(&mut self, known: Option<&str>, holder: Option<String>) -> Result<Record, ()> {
        self.put(known, holder, Duration::from_secs(15))
    }

    fn put(&mut self, known: Option<&str>, holder: Option<String>, duration: Duration) -> Result<Record, ()> {
        if self.lease.as_ref().map(|lease| lease.version.as_str()) != known {
            return Err(());
        }
        let (uid, before) = self
            .lease
            .as_ref()
            .map_or_else(|| (self.writes.to_string(), 0), |lease| (lease.uid.clone(), lease.transitions));
        let taken = holder.is_some() && self.lease.as_ref().is_some_and(|lease| lease.holder != holder);
        let version = self.next_version();
        let record = Record { uid, version, transitions: before + i32::from(taken), holder, duration };
        self.lease = Some(record.clone());
        Ok(record)
    }

    /// Others write too, so the same number is hardly ever given twice after a restore; here it never is.
    fn next_version(&mut self) -> String {
        self.writes += 1;
        (self.writes * 1000 + self.restored).to_string()
    }

    /// Somebody writes this name into the Lease, and leaves the rest as it is.
    fn name_by_hand(&mut self, name: &str) {
        let version = self.next_version();
        if let Some(lease) = &mut self.lease {
            (lease.version, lease.holder) = (version, Some(name.to_owned()));
        }
    }

    /// Goes back to what was saved; the version of the Lease then.
    fn restore(&mut self) -> Option<u64> {
        let (lease, writes) = self.backup.clone()?;
        self.restored += 1;
        self.writes = writes;
        let version = lease.version.parse().unwrap();
        self.lease = Some(lease);
        Some(version)
    }
}

enum Answer {
    Saw(Option<Record>),
    Wrote(Result<Record, ()>),
}

struct Request {
    step: Step,
    known: Option<String>,
    started: Moment,
    arrives: u64,
    ends: u64,
    lost: bool,
    answer: Option<Answer>,
}

struct Process {
    name: String,
    /// Its clock began that much before the world's.
    ahead: u64,
    candidate: Candidate,
    known: Option<String>,
    request: Option<Request>,
    wakes: u64,
    /// Nothing comes or goes before.
    cut_until: u64,
    /// Of six answers one comes before.
    bad_until: u64,
    stopped: bool,
    /// It has led.
    led: bool,
    /// It knows a Lease that is gone since a restore, so it must not lead from then on.
    barred: Option<u64>,
}

impl Process {
    fn new(number: usize, life: u64, ahead: u64) -> Self {
        let name = format!("{number}.{life}");
        let candidate = Candidate::new(name.clone(), Timing::default());
        let (known, request, stopped, led, barred) = (None, None, false, false, None);
        let (wakes, cut_until, bad_until) = (0, 0, 0);
        Self { name, ahead, candidate, known, request, wakes, cut_until, bad_until, stopped, led, barred }
    }

    fn clock(&self, now: u64) -> Moment {
        Moment::after_start(Duration::from_millis(now + self.ahead))
    }

    fn leads(&self, now: u64) -> bool {
        self.candidate.leads_until().is_some_and(|until| self.clock(now) < until)
    }

    /// What the network does, whether or not the process stands still.
    fn network(&mut self, server: &mut Server, now: u64) {
        let Some(request) = self.request.as_mut().filter(|it| it.answer.is_none() && now >= it.arrives)
        else {
            return;
        };
        request.answer = Some(match request.step {
            Step::Look => Answer::Saw(server.lease.clone()),
            Step::Create | Step::Take | Step::Renew => {
                Answer::Wrote(server.write(request.known.as_deref(), Some(self.name.clone())))
            }
            Step::Wait(_) | Step::Pause | Step::Stop(_) => panic!("no request"),
        });
    }

    fn act(&mut self, now: u64, chance: &mut Chance, trouble: bool) {
        if self.stopped || now < self.wakes {
            return;
        }
        if let Some(request) = self.request.take_if(|request| now >= request.ends) {
            self.take_in(request, now);
        }
        if self.request.is_some() {
            return;
        }
        let step = self.candidate.decide(self.clock(now)).step;
        match step {
            Step::Wait(wait) => self.wakes = now + u64::try_from(wait.as_millis()).unwrap().max(1),
            Step::Pause => self.candidate.pause(self.clock(now)),
            Step::Stop(_) => self.stopped = true,
            Step::Look | Step::Create | Step::Take | Step::Renew => {
                let slow = if trouble && chance.one_in(4) { 8000 } else { 300 };
                let sent = if trouble { now.max(self.cut_until) } else { now };
                let arrives = sent + chance.below(slow);
                let answered = arrives + chance.below(slow);
                let patience = self.candidate.patience(Duration::from_secs(5), self.clock(now));
                let gives_up = now + u64::try_from(patience.as_millis()).unwrap();
                let bad = now < self.bad_until && !chance.one_in(6);
                let lost = answered > gives_up || (trouble && (bad || chance.one_in(8)));
                let ends = answered.min(gives_up);
                let (known, started) = (self.known.clone(), self.clock(now));
                self.request = Some(Request { step, known, started, arrives, ends, lost, answer: None });
            }
        }
    }

    /// The data of the server went back to a Lease of this version. The server is away for so long meanwhile, and
    /// all requests on their way to it are lost.
    fn restored(&mut self, version: u64, (now, until): (u64, u64)) {
        let latest = self.known.as_ref().map_or(0, |known| known.parse().unwrap());
        if self.led && latest > version {
            self.barred.get_or_insert(now + 10_000); // what it has of its lead
        }
        self.cut_until = self.cut_until.max(until);
        if let Some(request) = self.request.as_mut().filter(|request| request.answer.is_none()) {
            request.arrives = u64::MAX;
        }
    }

    /// A leader that is told to end, with nothing under way.
    fn give_up(&mut self, server: &mut Server) {
        self.candidate.stand_down();
        let _another_version = server.put(self.known.as_deref(), None, GIVEN_UP);
        self.stopped = true;
    }

    fn take_in(&mut self, request: Request, now: u64) {
        let now = self.clock(now);
        match request.answer.filter(|_| !request.lost) {
            None => self.candidate.failed(request.started),
            Some(Answer::Saw(found)) => {
                self.known = found.as_ref().map(|record| record.version.clone());
                self.candidate.saw(found, now);
            }
            Some(Answer::Wrote(Ok(record))) => {
                self.known = Some(record.version.clone());
                self.candidate.wrote(record, request.started, now);
            }
            Some(Answer::Wrote(Err(()))) => self.candidate.conflicted(),
        }
    }
}

/// Requests that their sender gave up may still arrive: they are kept apart until they have.
fn orphaned(process: &mut Process, orphans: &mut Vec<(u64, Option<String>, String)>, now: u64) {
    if let Some(request) = process.request.as_ref()
        && now >= request.ends
        && request.answer.is_none()
        && !matches!(request.step, Step::Look)
    {
        orphans.push((request.arrives, request.known.clone(), process.name.clone()));
    }
}

/// Who led last, and how often somebody led again after a pause.
#[derive(Default)]
struct History {
    seed: u64,
    last: String,
    /// Who was it when the server's data was saved.
    saved: String,
    resumed: u32,
    put_back: u32,
    barred: u32,
    deleted: u64,
}

impl History {
    /// A process that begins now knows whether there is a Lease.
    fn is_calm(&self, now: u64) -> bool {
        now >= self.deleted + 20_000
    }

    /// One moment.
    fn note(&mut self, processes: &mut [Process], now: u64) {
        let mut leaders = processes.iter_mut().filter(|process| process.leads(now));
        let Some(leader) = leaders.next() else { return };
        let another = leaders.next().map(|other| &other.name);
        let when = format!("seed {}, {now} ms", self.seed);
        assert_eq!(another, None, "{when}: {} leads too", leader.name);
        if let Some(from) = leader.barred {
            assert!(now < from, "{when}: {} leads again after a restore", leader.name);
            return; // it leads on until its time is over
        }
        let goes_on = self.last == leader.name;
        assert!(goes_on || !leader.led, "{when}: {} leads again, and so did {}", leader.name, self.last);
        leader.led = true;
        self.last.clone_from(&leader.name);
    }
}

/// What somebody does who does not know of the processes.
fn by_hand(
    (server, processes): (&mut Server, &mut [Process]),
    orphans: &mut Vec<(u64, Option<String>, String)>,
    history: &mut History,
    chance: &mut Chance,
    now: u64,
) {
    if history.is_calm(now) && chance.one_in(1500) && processes.iter().all(|it| it.known.is_some()) {
        server.lease = None;
        history.deleted = now;
    } else if chance.one_in(1500) && server.lease.is_some() {
        let known = server.lease.as_ref().map(|lease| lease.version.clone());
        // Its holder alone is taken out, or its whole spec.
        let duration = if chance.one_in(2) { Duration::ZERO } else { Duration::from_secs(15) };
        server.put(known.as_deref(), None, duration).unwrap();
    }
    if chance.one_in(300) {
        server.backup = server.lease.clone().map(|lease| (lease, server.writes));
        history.saved.clone_from(&history.last);
    }
    let paused = processes.iter().find(|process| process.candidate.is_paused() && process.barred.is_none());
    if let Some(former) = paused.filter(|_| chance.one_in(150)) {
        let another = server.lease.as_ref().is_some_and(|it| it.holder.as_ref() != Some(&former.name));
        history.put_back += u32::from(another && !former.stopped);
        server.name_by_hand(&former.name);
    }
    if chance.one_in(1500)
        && let Some(version) = server.restore()
    {
        orphans.clear();
        // Longer than anybody leads without an answer.
        let until = now + 11_000 + chance.below(40_000);
        for process in &mut *processes {
            process.restored(version, (now, until));
            history.barred += u32::from(process.barred.is_some() && !process.stopped);
        }
        // Whoever began to lead since then led in a time that is gone.
        if processes.iter().all(|process| process.barred.is_some() || !process.leads(now)) {
            history.last.clone_from(&history.saved);
        }
    }
}

fn election(seed: u64) -> History {
    let mut chance = Chance(seed);
    let mut server = Server::default();
    let mut orphans = Vec::new();
    let mut lives = 0;
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|number| Process::new(number, 0, chance.below(1_000_000))).collect();
    let (trouble_ends, end) = (240_000, 320_000);
    let mut history = History { seed, ..History::default() };
    for now in (0..end).step_by(usize::try_from(TICK).unwrap()) {
        let trouble = now < trouble_ends;
        orphans.retain(|(arrives, known, name): &(u64, Option<String>, String)| {
            if now >= *arrives {
                let _late = server.write(known.as_deref(), Some(name.clone()));
            }
            now < *arrives
        });
        if trouble {
            by_hand((&mut server, &mut processes), &mut orphans, &mut history, &mut chance, now);
        }
        for (number, process) in processes.iter_mut().enumerate() {
            process.network(&mut server, now);
            orphaned(process, &mut orphans, now);
            let paused = process.candidate.is_paused();
            process.act(now, &mut chance, trouble);
            history.resumed += u32::from(paused && process.leads(now));
            if trouble && process.request.is_none() && process.leads(now) && chance.one_in(1500) {
                process.give_up(&mut server);
            }
            if trouble && chance.one_in(800) {
                process.wakes = now + chance.below(40_000);
            }
            if trouble && chance.one_in(1000) {
                process.cut_until = process.cut_until.max(now + chance.below(40_000));
            }
            if trouble && chance.one_in(1000) {
                process.bad_until = now + chance.below(60_000);
            }
            if history.is_calm(now) && (process.stopped || (trouble && chance.one_in(2000))) {
                lives += 1;
                *process = Process::new(number, lives, chance.below(1_000_000));
            }
        }
        if trouble && chance.one_in(2000) {
            // The API server is away.
            let until = now + chance.below(60_000);
            for process in &mut processes {
                process.cut_until = process.cut_until.max(until);
            }
        }
        history.note(&mut processes, now);
    }
    assert!(
        processes.iter().any(|process| process.leads(end - TICK)),
        "seed {seed}: nobody leads in the end"
    );
    history
}

#[test]
fn two_never_lead_at_once_and_somebody_leads_in_the_end() {
    let (mut resumed, mut put_back, mut barred) = (0, 0, 0);
    for seed in 0..400 {
        let history = election(seed);
        resumed += history.resumed;
        put_back += history.put_back;
        barred += history.barred;
    }
    assert!(put_back > 40, "former leaders that are put back are a part of this: {put_back}");
    assert!(barred > 40, "and leaders that know what is gone: {barred}");
    assert!(resumed > 400, "pauses that end well are a part of this: {resumed}");
}
