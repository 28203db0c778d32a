//! Findings as SARIF 2.1.0, which code hosts and editors show beside the lines they are about.
//!
//! In:  findings and the dataset's root. Out: one JSON document. Source: OASIS SARIF 2.1.0.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::counts;
use crate::dataset::check::Finding;
use crate::dataset::rule::Severity;

/// The document; files are told relative to `root`.
pub fn document(findings: &[&Finding], root: &Path) -> Value {
    let told: Vec<_> = counts(findings).into_iter().map(|(rule, _)| rule).collect();
    let rules: Vec<Value> = told
        .iter()
        .map(|rule| {
            let info = rule.info();
            json!({
                "id": info.id,
                "shortDescription": {"text": info.title},
                "fullDescription": {"text": info.why},
                "defaultConfiguration": {"level": level(info.severity)},
                "properties": {"fix": info.fix.name()},
            })
        })
        .collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let mut place = json!({"artifactLocation": {"uri": uri(&finding.file), "uriBaseId": "DATASET"}});
            if let Some(line) = finding.line {
                place["region"] = json!({"startLine": line});
            }
            let mut properties = json!({"fix": finding.fix.name()});
            if let Some(bbox) = finding.to_json().get("box") {
                properties["box"] = bbox.clone();
            }
            json!({
                "ruleId": finding.rule.id(),
                "ruleIndex": told.iter().position(|rule| *rule == finding.rule),
                "level": level(finding.severity),
                "message": {"text": finding.message},
                "locations": [{"physicalLocation": place}],
                "properties": properties,
            })
        })
        .collect();
    let driver = json!({"name": "boxwright", "version": env!("CARGO_PKG_VERSION"), "rules": rules});
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": driver},
            "originalUriBaseIds": {"DATASET": {"uri": format!("file://{}/", uri(root).trim_end_matches('/'))}},
            "results": results,
        }],
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

/// A path as a URI reference (RFC 3986): all but letters, digits, `-._~` and `/` as percent signs and numbers.
fn uri(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => text.push(char::from(byte)),
            b'\\' if cfg!(windows) => text.push('/'),
            // Writing to a string does not fail.
            _ => write!(text, "%{byte:02X}").unwrap_or(()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Selection;
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_document_names_each_rule_once_and_each_place() {
        let report = report();
        let (findings, _) = Selection::default().of(&report);
        let document = document(&findings, Path::new("/data/my parts"));
        let run = &document["runs"][0];
        assert_eq!(document["version"], "2.1.0");
        let ids: Vec<&str> =
            run["tool"]["driver"]["rules"].as_array().into_iter().flatten().filter_map(|rule| rule["id"].as_str()).collect();
        assert_eq!(ids, ["out-of-range", "image-without-label", "empty-split"]);
        assert_eq!(run["originalUriBaseIds"]["DATASET"]["uri"], "file:///data/my%20parts/");
        let results = run["results"].as_array().cloned().unwrap_or_default();
        let levels: Vec<&Value> = results.iter().map(|result| &result["level"]).collect();
        assert_eq!(levels, ["error", "warning", "error", "note"]);
        for result in &results {
            let index = result["ruleIndex"].as_u64().and_then(|index| usize::try_from(index).ok());
            assert_eq!(index.and_then(|index| ids.get(index).copied()), result["ruleId"].as_str());
        }
        let place = &results[1]["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "labels/a%20b%231.txt");
        assert_eq!(place["region"]["startLine"], 3);
        assert_eq!(results[1]["properties"]["box"], json!([0.95, 0.5, 0.2, 0.25]));
        assert!(results[0]["locations"][0]["physicalLocation"].get("region").is_none());
    }
}
