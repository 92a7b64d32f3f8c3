//! The threads that guests run on: apart from the operator's own runtime, so that leader election, watches
//! and probes survive a misbehaving guest.
//!
//! Each is a runtime of one thread, and a call stays where it began. A runtime of several threads would wake
//! a second one for each call, only to find nothing to do; and while two threads of a process run, each change
//! of its memory map, of which a fresh instance makes a dozen, interrupts both processors. A guest that spins
//! gives way every tick of the epoch, so that calls beside it on the same thread go on.

use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::engine::EngineError;

/// Enough that one spinning guest leaves another able to run at full speed.
const THREADS: usize = 2;

/// The threads. They end, with what runs on them, when this is dropped.
#[derive(Debug)]
pub(crate) struct GuestThreads {
    seats: Seats,
    stop: CancellationToken,
}

/// A place on a thread, taken for as long as it is held.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    handle: Handle,
    taken: Arc<()>,
}

impl Seat {
    /// Where to spawn.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Gives places; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Seats(Arc<[Seat; THREADS]>);

impl Seats {
    /// A place on the thread with the fewest calls.
    pub(crate) fn take(&self) -> Seat {
        let [first, others @ ..] = &*self.0;
        let fewer =
            |best: &Seat, seat: &Seat| Arc::strong_count(&seat.taken) < Arc::strong_count(&best.taken);
        others.iter().fold(first, |best, seat| if fewer(best, seat) { seat } else { best }).clone()
    }
}

impl GuestThreads {
    pub(crate) fn start() -> Result<Self, EngineError> {
        let stop = CancellationToken::new();
        let ends_if_the_other_fails = stop.clone().drop_guard();
        let seats = [thread(&stop)?, thread(&stop)?];
        ends_if_the_other_fails.disarm();
        Ok(Self { seats: Seats(Arc::new(seats)), stop })
    }

    pub(crate) fn seats(&self) -> &Seats {
        &self.seats
    }
}

impl Drop for GuestThreads {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn thread(stop: &CancellationToken) -> Result<Seat, EngineError> {
    let stop = stop.clone();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(EngineError::Thread)?;
    let handle = runtime.handle().clone();
    let run = move || {
        runtime.block_on(stop.cancelled());
        // Name look-ups under way are not waited for.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("guest".into()).spawn(run).map_err(EngineError::Thread)?;
    Ok(Seat { handle, taken: Arc::new(()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_go_to_the_thread_that_has_the_fewest() {
        let threads = GuestThreads::start().unwrap();
        let seats = threads.seats();
        let held = [(); 4].map(|()| seats.take());
        let on_first = held.iter().filter(|seat| Arc::ptr_eq(&seat.taken, &held[0].taken)).count();
        assert_eq!(on_first, 2);
    }

    #[test]
    fn what_runs_on_the_threads_ends_with_them() {
        let threads = GuestThreads::start().unwrap();
        let task = threads.seats().take().handle().spawn(std::future::pending::<()>());
        drop(threads);
        let waiter = Builder::new_current_thread().build().unwrap();
        assert!(waiter.block_on(task).unwrap_err().is_cancelled());
    }
}
