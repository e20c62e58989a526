"""The style sheet of the pages of evaluations."""

from __future__ import annotations

STYLE = """
:root{--paper:#fbfbf9;--card:#fff;--ink:#1c2330;--soft:#667085;--line:#e4e6eb;--blue:#2563c9;--amber:#b45309;--grey:#b6becb}
@media (prefers-color-scheme:dark){:root{--paper:#11141a;--card:#181c24;--ink:#e7eaf0;--soft:#98a2b3;--line:#2a303c;--blue:#7db0ff;--amber:#f5a65b;--grey:#4a5364}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
header,main{max-width:820px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:26px;line-height:1.25;margin:0;overflow-wrap:anywhere}
header p{color:var(--soft);margin:4px 0 0;overflow-wrap:anywhere}
h2{font-size:19px;margin:0 0 8px;overflow-wrap:anywhere}
h3{font-size:15px;margin:22px 0 6px}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 22px;margin:18px 0}
section p{margin:0 0 10px;color:var(--soft)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);font-size:13px;padding-bottom:4px}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:right;vertical-align:top;unicode-bidi:isolate;white-space:nowrap}
thead th{font-size:13px;font-weight:500;color:var(--soft)}
tbody th{font-weight:500}
tbody th,th.words,td.words{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9em}
th:first-child,td:first-child{padding-left:0}th:last-child,td:last-child{padding-right:0}
tbody tr:last-child th,tbody tr:last-child td{border-bottom:0}
figure{margin:10px 0;overflow-x:auto}
figcaption{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
svg text{fill:var(--ink)}
svg .tick{fill:var(--soft);font-variant-numeric:tabular-nums}svg .small{font-size:10px}
.grid{stroke:var(--line);stroke-width:1}
.whisker{stroke:var(--blue);stroke-width:1.5}
.mark{stroke:var(--amber);stroke-width:2}.dashed{stroke-width:1.5;stroke-dasharray:4 4}
circle.dot{fill:var(--blue);stroke:var(--blue);stroke-width:1.5}circle.hollow{fill:var(--card)}circle.soft{fill-opacity:.75;stroke:none}
rect.bar{fill:var(--blue)}rect.wrong{fill:var(--grey)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:0 28px}
.key{display:inline-block;margin:0 5px 0 12px;vertical-align:middle}.key:first-child{margin-left:0}
.key.dot{width:9px;height:9px;border-radius:50%;background:var(--blue);border:1.5px solid var(--blue)}.key.hollow{background:none}
.key.mark{width:2px;height:12px;background:var(--amber)}
.key.bar{width:10px;height:10px;background:var(--blue)}.key.wrong{background:var(--grey)}
details{margin:6px 0}summary{cursor:pointer;color:var(--soft);font-size:13px}
@media (max-width:520px){section{padding:14px 14px}header,main{padding:0 10px}header{padding-top:20px}}
@media print{section{break-inside:avoid}}
"""
