//! Clocks that count suspension, behind a seam.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use tokio::time::Instant;

/// A moment of a [`Clock`], as the time since that clock's origin. Moments of different clocks have nothing to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

impl Moment {
    /// The moment that long after the clock's origin.
    pub const fn new(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// How long after the clock's origin it is.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long after another moment this one is; zero if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// The moment that much later; at the end of time there is no later one.
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

/// Something that tells the time, never goes back, and goes on while the machine sleeps.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// The time since the machine started, with the time during which it was suspended.
///
/// The standard library's clock stands still during suspension: a runner that slept for an hour would go on as if nobody
/// could have taken its shards.
#[derive(Debug, Clone, Copy, Default)]
pub struct Boot;

impl Boot {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    /// Other systems either count suspension in this one or have no clock that does.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
}

impl Clock for Boot {
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(Self::ID);
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Moment(Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0)))
    }
}

/// The runtime's own clock, which stands and jumps as a simulation or a paused test wants it.
#[derive(Debug, Clone, Copy)]
pub struct Simulated(Instant);

impl Simulated {
    /// A clock that starts now.
    pub fn starting_now() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Simulated {
    fn now(&self) -> Moment {
        Moment(self.0.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_runs() {
        let first = Boot.now();
        std::thread::sleep(Duration::from_millis(2));
        let passed = Boot.now().since(first);
        assert!(passed >= Duration::from_millis(2), "{passed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_simulated_clock_follows_the_runtime() {
        let clock = Simulated::starting_now();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now(), Moment::new(Duration::from_secs(3600)));
    }
}
