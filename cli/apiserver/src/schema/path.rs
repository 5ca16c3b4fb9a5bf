//! Field paths as text: `spec.list[0]`, `properties[name]`.

/// The path of a named field.
pub(crate) fn child(base: &str, name: &str) -> String {
    if base.is_empty() { name.to_owned() } else { format!("{base}.{name}") }
}

/// The path of a map's entry.
pub(crate) fn key(base: &str, name: &str) -> String {
    format!("{base}[{name}]")
}

/// The path of a list's element.
pub(crate) fn index(base: &str, position: usize) -> String {
    format!("{base}[{position}]")
}
