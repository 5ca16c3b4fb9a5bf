//! Which representation the client wants.

use crate::status::Failure;

/// What is shown of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// All of it.
    #[default]
    Whole,
    /// Only its metadata.
    Metadata,
    /// A row of a table.
    Table,
}

/// How it is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON.
    #[default]
    Json,
    /// YAML.
    Yaml,
}

/// Reads an `Accept` header: the first entry that can be served wins.
pub(crate) fn accept(header: Option<&str>) -> Result<(Format, View), Failure> {
    let header = header.unwrap_or_default().trim();
    if header.is_empty() {
        return Ok((Format::Json, View::Whole));
    }
    header.split(',').find_map(entry).ok_or_else(Failure::not_acceptable)
}

fn entry(text: &str) -> Option<(Format, View)> {
    let mut parts = text.split(';').map(str::trim);
    let format = match parts.next()? {
        "application/json" | "application/*" | "*/*" => Format::Json,
        "application/yaml" => Format::Yaml,
        _ => return None,
    };
    let (mut kind, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => kind = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    let view = match kind {
        "" => View::Whole,
        "Table" if group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1") => View::Table,
        "PartialObjectMetadata" | "PartialObjectMetadataList" if group == "meta.k8s.io" => View::Metadata,
        _ => return None,
    };
    Some((format, view))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_can_be_served_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accept(Some(table)).unwrap().1, View::Table);
        assert_eq!(accept(None).unwrap(), (Format::Json, View::Whole));
        assert_eq!(accept(Some("application/vnd.kubernetes.protobuf, */*")).unwrap().0, Format::Json);
        assert_eq!(accept(Some("application/yaml")).unwrap().0, Format::Yaml);
        assert_eq!(accept(Some("application/json;stream=watch")).unwrap().1, View::Whole);
        assert_eq!(
            accept(Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")).unwrap().1,
            View::Metadata
        );
        assert!(accept(Some("text/html")).is_err());
        assert!(accept(Some("application/json;as=Else;g=meta.k8s.io;v=v1")).is_err());
    }
}
