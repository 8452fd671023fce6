"""A doctor's report for people and machines: text, Markdown, SARIF, JUnit. (JSON is the report.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

from holdfast import __version__
from holdfast.ready.points import Finding, Report, Result

SYMBOLS = {
    "pass": "✓",
    "fail": "✗",
    "warn": "!",
    "not exercised": "·",
    "n/a": "–",
    "waived": "○",
}


def text(report: Report) -> str:
    """For a terminal: a line for each point, what is wrong below it, and the headline."""
    lines = [f"{report.project}  profile {report.profile}, layers: {report.layers}"]
    for result in report.results:
        lines.append(
            f"{SYMBOLS[result.verdict]} {result.point.id} {result.point.title}: {_said(result)}"
        )
        lines += _details(result)
    return "\n".join([*lines, report.headline])


def _said(result: Result) -> str:
    """What follows the title: the verdict, and in a word what it rests on."""
    if result.verdict == "pass":
        return "; ".join(
            f"{each.message} [{each.tier}]" for each in result.findings if each.outcome == "pass"
        )
    if result.verdict == "waived" and result.waiver is not None:
        waiver = result.waiver
        return f"waived by {waiver.by} until {waiver.until}: {waiver.why}"
    if result.verdict in ("not exercised", "n/a"):
        why = "; ".join(
            dict.fromkeys(f.message for f in result.findings if f.outcome == result.verdict)
        )
        return f"{result.verdict}{f' ({why})' if why else ''}"
    return result.verdict


def _details(result: Result) -> list[str]:
    lines: list[str] = []
    for each in result.findings:
        if each.outcome not in ("fail", "warn"):
            continue
        known = " (in the baseline)" if each.known else ""
        place = f"{each.place}: " if each.place else ""
        lines.append(f"    {place}{each.message} [{each.tier}]{known}")
        if each.evidence:
            lines += [f"      {line}" for line in each.evidence.splitlines()]
    if lines and result.verdict in ("fail", "warn"):
        lines += [f"    fix: {result.point.fix}", f"    see: {result.point.link}"]
    return lines


def markdown(report: Report) -> str:
    """For a pull request or a wiki."""
    lines = [
        f"**{report.headline}** (profile `{report.profile}`)",
        "",
        "| point | verdict | |",
        "|---|---|---|",
    ]
    for result in report.results:
        what = "<br>".join(
            _cell(each) for each in result.findings if each.outcome in ("fail", "warn")
        )
        named = f"[{result.point.id}]({result.point.link}) {result.point.title}"
        lines.append(f"| {named} | {SYMBOLS[result.verdict]} {result.verdict} | {what} |")
    return "\n".join(lines)


def _cell(finding: Finding) -> str:
    place = f"`{finding.place}` " if finding.place else ""
    return (place + finding.message).replace("|", "\\|").replace("\n", " ")


def sarif(report: Report) -> dict[str, Any]:
    """SARIF 2.1.0, as code-scanning services read it."""
    rules = [
        {
            "id": result.point.id,
            "shortDescription": {"text": result.point.title},
            "help": {"text": f"{result.point.fix} (see {result.point.link})"},
        }
        for result in report.results
    ]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "holdfast doctor", "version": __version__, "rules": rules}
                },
                "results": [
                    _sarif_result(each, result)
                    for result in report.results
                    for each in result.findings
                    if each.outcome in ("fail", "warn")
                ],
            }
        ],
    }


def _sarif_result(finding: Finding, result: Result) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ruleId": finding.point,
        "level": "error" if finding.outcome == "fail" else "warning",
        "message": {"text": f"{finding.message}. {result.point.fix}"},
        "partialFingerprints": {"holdfast/v1": finding.fingerprint},
    }
    if finding.file is not None:
        place: dict[str, Any] = {"artifactLocation": {"uri": finding.file}}
        if finding.line is not None:
            place["region"] = {"startLine": finding.line}
        found["locations"] = [{"physicalLocation": place}]
    if finding.known:
        found["suppressions"] = [{"kind": "external", "justification": "in the baseline"}]
    if result.waiver is not None:
        why = f"{result.waiver.by}, until {result.waiver.until}: {result.waiver.why}"
        found["suppressions"] = [{"kind": "inSource", "justification": why}]
    return found


def junit(report: Report) -> str:
    """JUnit XML: a test case a point; what was not exercised is skipped, never passed."""
    skipped = ("not exercised", "n/a", "waived")
    suite = ET.Element(
        "testsuite",
        name="holdfast doctor",
        tests=str(len(report.results)),
        failures=str(report.count("fail")),
        errors="0",
        skipped=str(sum(result.verdict in skipped for result in report.results)),
    )
    for result in report.results:
        case = ET.SubElement(suite, "testcase", classname="holdfast.doctor",
                             name=f"{result.point.id} {result.point.title}")  # fmt: skip
        if result.verdict == "fail":
            what = "\n".join(_details(result))
            ET.SubElement(case, "failure", message=result.point.title).text = what
        elif result.verdict in skipped:
            ET.SubElement(case, "skipped", message=_said(result))
        elif result.verdict == "warn":
            ET.SubElement(case, "system-out").text = "\n".join(_details(result))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


TEXTS: dict[str, Callable[[Report], str]] = {"text": text, "md": markdown, "junit": junit}
DATA: dict[str, Callable[[Report], Any]] = {"json": Report.as_json, "sarif": sarif}
FORMATS = ("text", "json", "sarif", "junit", "md")
