//! The credential by which the runners of a Cluster and the operator know each other.
//!
//! It is one Secret with a token per line: the first is presented, each is accepted. A rotation takes three steps, with time between
//! them for the kubelets to bring the file to every runner: the new token is accepted, then presented, then the old one is
//! accepted no more. So at no time does anybody present what another does not yet know.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::names::annotation;

/// How long a kubelet may take to bring a changed Secret to its pods.
const SPREAD: Duration = Duration::from_secs(180);
/// The key in the Secret, and the name of the file.
pub const KEY: &str = "token";

/// A credential as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credential {
    /// The first is presented, each is accepted.
    pub tokens: Vec<String>,
    /// What it was last rotated for.
    pub rotated: Option<String>,
    /// Since when it is in its present step, in Unix seconds; None if it rests.
    pub since: Option<i64>,
}

impl Credential {
    /// Reads a stored one.
    pub fn of(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?.get(KEY)?;
        let text = String::from_utf8_lossy(&data.0);
        let tokens: Vec<_> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let annotations = secret.annotations();
        let since = annotations.get(annotation::SINCE).and_then(|since| since.parse().ok());
        let rotated = annotations.get(annotation::ROTATED).cloned();
        (!tokens.is_empty()).then_some(Self { tokens, rotated, since })
    }

    /// What is presented.
    pub fn presented(&self) -> &str {
        self.tokens.first().map_or("", String::as_str)
    }

    /// What is stored.
    pub fn text(&self) -> String {
        self.tokens.iter().fold(String::new(), |text, token| text + token + "\n")
    }

    /// The credential as it should be now, and after how long it has to be looked at again.
    pub fn next(
        before: Option<&Self>,
        wanted: Option<&String>,
        now: Timestamp,
        fresh: impl FnOnce() -> String,
    ) -> (Self, Option<Duration>) {
        let Some(before) = before else {
            return (Self { tokens: vec![fresh()], rotated: wanted.cloned(), since: None }, None);
        };
        let mut next = before.clone();
        match before.since {
            None if wanted.is_some() && wanted != before.rotated.as_ref() => {
                next.tokens.truncate(1);
                next.tokens.push(fresh());
                next.rotated = wanted.cloned();
                next.since = Some(now.as_second());
            }
            None => return (next, None),
            Some(since) => {
                let passed = Duration::from_secs(u64::try_from(now.as_second() - since).unwrap_or(0));
                // The second of the steps begins after one such time, the third after two.
                if passed < SPREAD {
                    return (next, Some(SPREAD - passed));
                } else if passed < SPREAD * 2 {
                    next.present_newest();
                    return (next, Some(SPREAD * 2 - passed));
                }
                next.present_newest();
                next.tokens.truncate(1);
                next.since = None;
                return (next, None);
            }
        }
        (next, Some(SPREAD))
    }

    /// Which of the two is the new one is told by the mark in front of it.
    fn present_newest(&mut self) {
        self.tokens.sort_by_key(|token| std::cmp::Reverse(born(token)));
    }
}

/// A token that nobody can guess. The time in front says which of two is newer.
pub fn token(now: Timestamp) -> String {
    let mut token = format!("{:x}-", now.as_millisecond());
    for byte in rand::random::<[u8; 32]>() {
        // Writing to a String cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    token
}

fn born(token: &str) -> i64 {
    token.split_once('-').and_then(|(time, _)| i64::from_str_radix(time, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_never_presents_what_is_not_yet_accepted() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let wanted = Some("monday".to_owned());
        let (first, again) = Credential::next(None, None, at(0), || token(at(0)));
        assert_eq!((first.tokens.len(), again), (1, None));
        let (same, again) = Credential::next(Some(&first), None, at(5), || unreachable!());
        assert_eq!((&same, again), (&first, None));

        let (second, again) = Credential::next(Some(&first), wanted.as_ref(), at(10), || token(at(10)));
        assert_eq!((second.tokens.len(), &second.tokens[0]), (2, &first.tokens[0]));
        assert_eq!(again, Some(SPREAD));
        let (early, _) = Credential::next(Some(&second), wanted.as_ref(), at(100), || unreachable!());
        assert_eq!(early, second);
        let (third, _) = Credential::next(Some(&second), wanted.as_ref(), at(200), || unreachable!());
        assert_eq!(third.tokens, [second.tokens[1].clone(), second.tokens[0].clone()]);
        let (fourth, again) = Credential::next(Some(&third), wanted.as_ref(), at(400), || unreachable!());
        assert_eq!((fourth.tokens.as_slice(), again), (&third.tokens[..1], None));
        let (rests, again) = Credential::next(Some(&fourth), wanted.as_ref(), at(500), || unreachable!());
        assert_eq!((rests, again), (fourth, None));
    }
}
