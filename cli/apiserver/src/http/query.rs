//! The parameters of a request.

use crate::status::Failure;

/// Decodes `%41`, and leaves what is no valid escape as it is.
pub(super) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
            .flatten();
        match escaped {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// All parameters, in order, with those that have a meaning everywhere taken out by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what stands after the question mark.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(&key.replace('+', " ")), percent_decode(&value.replace('+', " ")))
        });
        Self(pairs.collect())
    }

    /// The first value of a parameter; an empty one counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// A parameter that is true or false.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        // A bare parameter counts as set, and so does everything that is not a way to say no.
        Some(!matches!(value.as_str(), "false" | "0" | "False" | "FALSE" | "f" | "F"))
    }

    /// A parameter that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        self.get(name)
            .map(|text| {
                text.parse().map_err(|_| {
                    Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
                })
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query =
            Query::parse("labelSelector=a%3Db%2Cc&watch&limit=5&x=a+b&dryRun=All&dryRun=None&f=false&e=");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.flag("f"), Some(false));
        assert_eq!(query.flag("none"), None);
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.get("x"), Some("a b"));
        assert_eq!(query.get("e"), None);
        assert_eq!(query.all("dryRun"), ["All", "None"]);
        assert!(query.number("x").is_err());
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        assert_eq!(percent_decode("%zz%4"), "%zz%4");
        assert_eq!(percent_decode("%e2%82%ac"), "€");
    }
}
