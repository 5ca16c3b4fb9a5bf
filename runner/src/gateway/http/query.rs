//! What stands behind the question mark.

use std::time::{Duration, SystemTime};

use chrono::DateTime;
use percent_encoding::percent_decode_str;

use crate::gateway::Problem;
use crate::runner::duration;

/// How long a page is if nothing is said, and at most.
const PAGE: u32 = 100;
const LONGEST_PAGE: u32 = 1000;

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    /// The first value of a parameter; an empty one counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn wait(&self) -> Result<Duration, Problem> {
        read_wait(self.get("wait").unwrap_or_default())
    }

    pub(super) fn limit(&self) -> Result<u32, Problem> {
        let Some(text) = self.get("limit") else { return Ok(PAGE) };
        // What is no number is too large for one, too.
        page(text.parse().ok().filter(|limit| *limit > 0).unwrap_or(u32::MAX))
    }

    /// Whether something is only to be shown and not to be done.
    pub(super) fn dry_run(&self) -> Result<bool, Problem> {
        match self.get("dryRun") {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::parameter("dryRun", "it is true or false")),
        }
    }

    pub(super) fn at(&self) -> Result<Option<SystemTime>, Problem> {
        due(self.get("at").unwrap_or_default(), self.get("after").unwrap_or_default())
    }
}

/// How long a page is; as usual if nothing is said.
pub(in crate::gateway) fn page(limit: u32) -> Result<u32, Problem> {
    match limit {
        0 => Ok(PAGE),
        1..=LONGEST_PAGE => Ok(limit),
        _ => Err(Problem::parameter("limit", format!("it is a number from 1 to {LONGEST_PAGE}"))),
    }
}

/// How long to wait; not at all if nothing is said.
pub(in crate::gateway) fn read_wait(text: &str) -> Result<Duration, Problem> {
    if text.is_empty() {
        return Ok(Duration::ZERO);
    }
    duration(text).map_err(|why| Problem::parameter("wait", why))
}

/// When something is due, said as a time or as a delay.
pub(in crate::gateway) fn due(at: &str, after: &str) -> Result<Option<SystemTime>, Problem> {
    match (at, after) {
        ("", "") => Ok(None),
        (at, "") => time("at", at).map(Some),
        ("", after) => {
            let delay = duration(after).map_err(|why| Problem::parameter("after", why))?;
            let due = SystemTime::now().checked_add(delay);
            due.map(Some).ok_or_else(|| Problem::parameter("after", "that is too long"))
        }
        _ => Err(Problem::parameter("after", "at says when already")),
    }
}

/// A time that a parameter says.
pub(in crate::gateway) fn time(name: &str, text: &str) -> Result<SystemTime, Problem> {
    let time = DateTime::parse_from_rfc3339(text).map_err(|error| {
        let why =
            format!("{text:?} is not a time as RFC 3339 has it, such as 2026-01-31T08:00:00Z ({error})");
        Problem::parameter(name, why)
    })?;
    Ok(time.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_read() {
        let query = Query::parse("wait=30s&type=a%2Bb+c&phase=Running&phase=Failed&limit=&x");
        assert_eq!(query.wait().unwrap(), Duration::from_secs(30));
        assert_eq!(query.get("type"), Some("a+b c"));
        assert_eq!(query.all("phase").collect::<Vec<_>>(), ["Running", "Failed"]);
        assert_eq!(query.limit().unwrap(), 100);
        assert_eq!(query.get("x"), None);
    }

    #[test]
    fn a_time_is_said_in_one_of_two_ways() {
        assert_eq!(due("", "").unwrap(), None);
        let at = due("2026-01-31T08:00:00+01:00", "").unwrap();
        assert_eq!(at, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_842_800)));
        assert!(due("", "5m").unwrap() > Some(SystemTime::now()));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (text, name) in [
            ("wait=soon", "wait"),
            ("limit=0", "limit"),
            ("limit=many", "limit"),
            ("at=noon", "at"),
            ("after=1d", "after"),
            ("at=2026-01-31T08:00:00Z&after=1s", "after"),
        ] {
            let query = Query::parse(text);
            let problem = query.wait().err().or(query.limit().err()).or(query.at().err()).unwrap();
            assert_eq!(problem.reason(), "InvalidParameter");
            assert!(problem.detail().starts_with(name), "{}", problem.detail());
        }
    }
}
