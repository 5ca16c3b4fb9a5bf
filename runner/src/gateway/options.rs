//! How the gateway behaves, and how much it takes.

use std::time::Duration;

/// How the gateway behaves, and how much it takes.
#[derive(Debug, Clone)]
pub struct Options {
    /// The largest body of a request, in bytes. It has to fit into a frame between peers.
    pub body: usize,
    /// The most that the headers of a request may have, in bytes.
    pub headers: usize,
    /// How many requests are answered at once; those beyond are told to come back. Those that wait or stream count.
    pub requests: usize,
    /// How many connections there are at once; those beyond are not accepted until one ends.
    pub connections: usize,
    /// How long a request may take. Persisted work goes on after it.
    pub timeout: Duration,
    /// The longest that somebody may ask to wait for an end.
    pub wait: Duration,
    /// How long it may take to send the head of a request, and then its body.
    pub read: Duration,
    /// How long requests have to end when the gateway stops.
    pub drain: Duration,
    /// How often a stream without news shows that it is there.
    pub heartbeat: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            headers: 32 << 10,
            requests: 1024,
            connections: 4096,
            timeout: Duration::from_secs(30),
            wait: Duration::from_secs(60),
            read: Duration::from_secs(15),
            drain: Duration::from_secs(10),
            heartbeat: Duration::from_secs(15),
        }
    }
}
