//! A small Kubernetes API machinery, served from inside another process.
