//! Findings for other eyes: which of them are told, and as what kind of document.
//!
//! In:  a check's report, and what of it is asked for.
//! Out: the findings that are told, in their order; documents of them in `sarif.rs` (for code hosts) and `html.rs` (for people).

pub mod html;
pub mod sarif;

use super::check::{CheckReport, Finding};
use super::rule::{Rule, Severity};

/// Which findings are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of these rules; empty: of all.
    pub rules: Vec<Rule>,
    /// At least as severe; `None`: all.
    pub severity: Option<Severity>,
    /// No more than these; `None`: all.
    pub max: Option<usize>,
}

impl Selection {
    /// Whether a finding is asked for, however many there are.
    pub fn asks_for(&self, finding: &Finding) -> bool {
        (self.rules.is_empty() || self.rules.contains(&finding.rule)) && self.severity.is_none_or(|least| finding.severity >= least)
    }

    /// The findings that are told, and how many more were asked for.
    pub fn of<'a>(&self, report: &'a CheckReport) -> (Vec<&'a Finding>, usize) {
        let mut findings: Vec<&Finding> = report.findings.iter().filter(|finding| self.asks_for(finding)).collect();
        let n = findings.len();
        findings.truncate(self.max.unwrap_or(n));
        let n_more = n - findings.len();
        (findings, n_more)
    }
}

/// The rules of these findings with their counts, in the order of the table.
pub fn counts(findings: &[&Finding]) -> Vec<(Rule, usize)> {
    let count = |rule| findings.iter().filter(|finding| finding.rule == rule).count();
    Rule::ALL.into_iter().map(|rule| (rule, count(rule))).filter(|&(_, n)| n > 0).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::geom::Xywhn;

    pub(in crate::dataset) fn finding(rule: Rule, severity: Severity, file: &str, line: Option<usize>) -> Finding {
        let bbox = line.map(|_| Xywhn { cx: 0.95, cy: 0.5, w: 0.2, h: 0.25 });
        let message = format!("<{}> & \"more\"", rule.id());
        Finding { rule, severity, fix: rule.info().fix, file: file.into(), image: None, line, bbox, message }
    }

    pub(in crate::dataset) fn report() -> CheckReport {
        let findings = vec![
            finding(Rule::EmptySplit, Severity::Error, "data.yaml", None),
            finding(Rule::OutOfRange, Severity::Warning, "labels/a b#1.txt", Some(3)),
            finding(Rule::OutOfRange, Severity::Error, "labels/b.txt", Some(1)),
            finding(Rule::ImageWithoutLabel, Severity::Info, "data.yaml", None),
        ];
        CheckReport { findings, ..CheckReport::default() }
    }

    #[test]
    fn findings_are_chosen_by_rule_and_severity_and_the_rest_is_counted() {
        let report = report();
        let n = |selection: Selection| {
            let (told, n_more) = selection.of(&report);
            (told.len(), n_more)
        };
        assert_eq!(n(Selection::default()), (4, 0));
        assert_eq!(n(Selection { max: Some(3), ..Selection::default() }), (3, 1));
        assert_eq!(n(Selection { severity: Some(Severity::Warning), ..Selection::default() }), (3, 0));
        let rules = vec![Rule::OutOfRange, Rule::ImageWithoutLabel];
        assert_eq!(n(Selection { rules: rules.clone(), severity: Some(Severity::Error), max: None }), (1, 0));
        assert_eq!(n(Selection { rules, severity: None, max: Some(0) }), (0, 3));
        let (told, _) = Selection::default().of(&report);
        assert_eq!(counts(&told), [(Rule::OutOfRange, 2), (Rule::ImageWithoutLabel, 1), (Rule::EmptySplit, 1)]);
    }
}
