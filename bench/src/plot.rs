//! Plots of the ratios to the peer, as SVG.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::report::{Measurement, Target};

const WIDTH: f64 = 1000.0;
const LABEL: f64 = 430.0;
const ROW: f64 = 26.0;
const TOP: f64 = 46.0;

/// Writes `ratios.svg` into a folder: every ratio that has a target, each with that target as a mark. Nothing if there is none.
pub fn write(measurements: &[Measurement], folder: &Path) -> Result<()> {
    let bars: Vec<Bar> = measurements.iter().filter_map(Bar::new).collect();
    if bars.is_empty() {
        return Ok(());
    }
    let path = folder.join("ratios.svg");
    std::fs::write(&path, draw(&bars)).with_context(|| format!("cannot write {}", path.display()))
}

/// A ratio that should be large.
struct Bar {
    label: String,
    ratio: f64,
    target: f64,
}

impl Bar {
    fn new(measurement: &Measurement) -> Option<Self> {
        let Some(Target::RatioAtLeast(target)) = measurement.target else { return None };
        let ratio = measurement.ratio.filter(|ratio| *ratio > 0.0)?;
        let peer = measurement.peer.as_deref().unwrap_or_default();
        Some(Self { label: format!("{} : {peer}", measurement.metric), ratio, target })
    }
}

/// Bars on a logarithmic scale, because ratios of 0.7 and of 25 are to be seen in one picture.
fn draw(bars: &[Bar]) -> String {
    let values = || bars.iter().flat_map(|bar| [bar.ratio, bar.target]);
    let low = values().fold(1.0, f64::min).log10().floor();
    let high = values().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let x = |ratio: f64| LABEL + (ratio.log10() - low) / (high - low) * (WIDTH - LABEL - 70.0);
    let rows = bars.iter().fold(0.0, |rows, _| rows + 1.0);
    let height = TOP + rows * ROW + 14.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\" font-size=\"14\">Cleat divided by what it stands beside; the line across a bar is the target</text>\n"
    );
    let mut power = low;
    while power <= high {
        let at = x(10_f64.powf(power));
        let (bottom, label) = (height - 10.0, 10_f64.powf(power));
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ccc\"/>\
             <text x=\"{at:.1}\" y=\"38\" text-anchor=\"middle\" fill=\"#666\">{label}</text>"
        );
        power += 1.0;
    }
    let mut y = TOP;
    for bar in bars {
        let (from, to) = (x(1.0).min(x(bar.ratio)), x(1.0).max(x(bar.ratio)));
        let colour = if bar.ratio >= bar.target { "#3a7d44" } else { "#c0392b" };
        let (text, middle, bottom, mark) = (y + 16.0, y + 4.0, y + ROW - 2.0, x(bar.target));
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{from:.1}\" y=\"{middle:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
             <line x1=\"{mark:.1}\" y1=\"{y:.1}\" x2=\"{mark:.1}\" y2=\"{bottom:.1}\" stroke=\"black\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{text:.1}\">{:.2}</text>",
            LABEL - 8.0,
            escape(&bar.label),
            (to - from).max(1.0),
            ROW - 8.0,
            to.max(mark) + 6.0,
            bar.ratio,
        );
        y += ROW;
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_with_a_target_becomes_a_bar_and_nothing_else_does() {
        let fast = Measurement::new("volatile", "a < b", 30.0, "1/s").beside("peer", 10.0);
        let bars: Vec<Bar> =
            [fast.clone().wants(Target::RatioAtLeast(2.0)), fast.clone(), fast.wants(Target::AtMost(1.0))]
                .iter()
                .filter_map(Bar::new)
                .collect();
        assert_eq!(bars.len(), 1);
        let svg = draw(&bars);
        assert!(
            svg.contains("a &lt; b : peer") && svg.contains(">3.00<") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
    }

    #[test]
    fn without_a_ratio_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        write(&[Measurement::new("store", "x", 1.0, "1/s")], folder.path()).unwrap();
        assert!(!folder.path().join("ratios.svg").exists());
    }
}
