//! One runner owns the right shards: joins, deaths, handovers, outages, races.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "ownership/database.rs"]
mod database;
#[path = "ownership/faults.rs"]
mod faults;
#[path = "ownership/ledger.rs"]
mod ledger;
#[path = "ownership/moves.rs"]
mod moves;
#[path = "ownership/outages.rs"]
mod outages;
#[path = "ownership/peers.rs"]
mod peers;
#[path = "ownership/recorder.rs"]
mod recorder;
#[path = "ownership/wedges.rs"]
mod wedges;
#[path = "ownership/world.rs"]
mod world;
