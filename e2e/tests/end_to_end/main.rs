//! What is proven on a real Kubernetes. One program, so that everything in it can share one cluster; its tests take turns
//! (`--test-threads=1`), so that what one measures is not the load of another.

mod access;
mod chart;
mod client_go;
mod cluster;
mod conformance;
mod crash;
mod documents;
mod kubectl;
mod leases;
mod scenarios;
