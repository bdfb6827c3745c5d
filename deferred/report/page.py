"""The page of a warehouse: all views with lag and health, and each in detail. One HTML text, no scripts, no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from deferred.config import parse_timestamp
from deferred.maintenance.explain import Summary
from deferred.report import drawing
from deferred.report.facts import Details, Facts
from deferred.terminal import moment, plural, seconds, span, until

Actions = Callable[[str], Mapping[str, str]]
"""For a view, labels of buttons and where they lead."""

STYLE = """
:root{color-scheme:light dark;--ink:light-dark(#1f2933,#e6e9ee);--soft:light-dark(#667085,#9aa4b2);
 --line:light-dark(#d7dce3,#3a4250);--paper:light-dark(#fff,#16181d);--panel:light-dark(#f7f8fa,#1f232b);--accent:#017cee}
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;color:var(--ink);
 background:var(--paper)}
h1,h2,h3{line-height:1.2}h2{margin-top:2.2em;border-top:1px solid var(--line);padding-top:1em}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.35em .8em .35em 0;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right}a{color:var(--accent)}.soft{color:var(--soft)}.wide{overflow-x:auto}
pre{background:var(--panel);padding:.8em;overflow-x:auto;border-radius:6px}
.health{font-weight:600;border-radius:1em;padding:.05em .7em;border:1px solid currentColor}
.health.fresh{color:#1a7f4b}.health.stale{color:var(--soft)}.health.late{color:#b26a00}
.health.failing,.health.broken{color:#c9302c}
.problem{border-left:4px solid #c9302c;padding-left:.8em}
.button{display:inline-block;border:1px solid var(--accent);border-radius:6px;padding:.2em .9em;margin-right:.5em;
 text-decoration:none}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
.axis,.edge{stroke:var(--line);fill:none;stroke-width:1.5}.line{stroke:var(--accent);fill:none;stroke-width:2}
.commit{fill:var(--accent)}.cut{stroke-width:2;stroke:var(--soft)}.cut.sp{stroke:#1a7f4b}.cut.si{stroke:#b26a00}
.node{fill:var(--panel);stroke:var(--line);stroke-width:1.5}.node.chosen{stroke-width:3}.node.fresh{stroke:#1a7f4b}
.node.late{stroke:#b26a00}.node.failing,.node.broken{stroke:#c9302c}.node.table{stroke-dasharray:4 3}
rect.log{fill:#5aa9e6}rect.compute{fill:#017cee}rect.write{fill:#7c6fd6}rect.net{fill:#e0a458}rect.apply{fill:#1a7f4b}
rect.verify{fill:#c46ea8}rect.sync,rect.relevance{fill:#a8b5c4}rect.other{fill:#94a3b8}
"""


def page(facts: Facts, actions: Actions | None = None, more: str = "") -> str:
    """Returns the page; `actions` gives each view its buttons, `more` is HTML that follows at the end."""
    details = "".join(
        _view(view, facts, facts.details[view["name"]], actions(view["name"]) if actions else {})
        for view in facts.views
        if view["name"] in facts.details
    )
    return document(
        "Views",
        f'<h1>Views</h1><p class="soft">As of {moment(facts.at)} UTC. Tracked tables: '
        f"{escape(', '.join(facts.tables) or 'none')}.</p>{_list(facts)}{details}{more}",
    )


def document(title: str, body: str) -> str:
    """Returns a whole HTML document in the style of these pages."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    )


def _list(facts: Facts) -> str:
    head = (
        "<tr><th>view<th>health<th>shows (UTC)<th>stale for<th class=n>commits behind<th class=n>rows behind"
        "<th class=n>to apply<th>next due<th class=n>last downtime</tr>"
    )
    return f'<div class="wide"><table id="views">{head}{"".join(map(_line, facts.views))}</table></div>'


def _line(view: Mapping[str, Any]) -> str:
    commits, rows = ("?" if view[of] is None else view[of] for of in ("unseen_commits", "unseen_rows"))
    return (
        f'<tr><td><a href="#view-{escape(view["name"])}">{escape(view["name"])}</a><td>{_health(view)}'
        f"<td>{moment(view['shown'])}<td>{'' if view['fresh'] else span(view['stale_seconds']) or '?'}"
        f"<td class=n>{commits}<td class=n>{rows}<td class=n>{view['pending_batches']}"
        f"<td>{until(view['next_due'])}<td class=n>{seconds(view['downtime_seconds'])}</tr>"
    )


def _health(view: Mapping[str, Any]) -> str:
    return f'<span class="health {view["health"]}">{view["health"]}</span>'


def _view(view: Mapping[str, Any], facts: Facts, details: Details, buttons: Mapping[str, str]) -> str:
    name = escape(view["name"])
    problems = "".join(f'<p class="problem">{escape(view[key])}</p>' for key in ("problem", "failure") if view[key])
    links = "".join(
        f'<a class="button" target="_top" href="{escape(address)}">{escape(label)}</a>'
        for label, address in buttons.items()
    )
    shown, propagated = (parse_timestamp(view[key]) if view[key] else None for key in ("shown", "propagated"))
    return (
        f'<section id="view-{name}"><h2>{name} {_health(view)}</h2>{problems}'
        f"<p>{_behind(view)} Batches to apply: {view['pending_batches']}. Scenario {view['scenario']}.</p>"
        f'<details><summary>Where it is</summary><p class="soft">{escape(view["location"])}</p></details>'
        f"{f'<p>{links}</p>' if links else ''}"
        f"<h3>Lineage</h3>{drawing.lineage(facts.views, view['name'])}"
        f"<h3>Cuts</h3>{drawing.timeline(details.commits, shown, propagated, facts.at)}"
        f"<h3>Operations</h3>{drawing.phases(details.operations[:20])}{_operations(details)}"
        f"<h3>Downtime</h3>{drawing.downtime(details.operations)}"
        f"<h3>How it is maintained</h3>{_explanation(details.explanation)}<pre>{escape(details.sql)}</pre></section>"
    )


def _behind(view: Mapping[str, Any]) -> str:
    """What is to be said of the commits that a view does not show."""
    if view["unreadable"]:
        return "How far it is behind is not known."
    behind = "Up to date." if view["fresh"] else f"Stale for {span(view['stale_seconds'])}."
    return f"{behind} {plural(view['pending_commits'], 'commit')} to propagate."


def _operations(details: Details) -> str:
    if not details.operations:
        return "<p>None so far.</p>"
    rows = "".join(
        f"<tr><td>{moment(op.started_at)}<td>{escape(op.kind)}<td>{escape(op.state)}<td class=n>{op.rows_read}"
        f"<td class=n>{op.rows_deleted}<td class=n>{op.rows_inserted}<td class=n>{op.seconds:.2f}"
        f"<td>{escape(op.message or op.strategy or '')}</tr>"
        for op in details.operations
    )
    head = (
        "<tr><th>started (UTC)<th>operation<th>outcome<th class=n>rows read<th class=n>deleted<th class=n>inserted"
        "<th class=n>seconds<th></tr>"
    )
    return f'<details><summary>As a table</summary><div class="wide"><table>{head}{rows}</table></div></details>'


def _explanation(explanation: Summary | str) -> str:
    if isinstance(explanation, str):
        return f'<p class="problem">{escape(explanation)}</p>'
    cheaper = explanation.cheaper or ("Nothing that is known would make it cheaper.",)
    return (
        f"<p>{escape(explanation.strategy)}: {escape(explanation.reason)}</p>"
        f"<pre>{escape(chr(10).join(explanation.plan))}</pre>"
        f"<ul>{''.join(f'<li>{escape(said)}</li>' for said in (*explanation.costs, *cheaper))}</ul>"
    )
