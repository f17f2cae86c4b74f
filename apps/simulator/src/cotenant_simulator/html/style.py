"""How the report looks, in light and dark."""

from typing import Final

CSS: Final = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d2125;--soft:#5c6670;--rule:#dfe3e6;--good:#1d7a4f;
--bad:#b3361e;--k0:#33658a;--k1:#d08c2c;--k2:#5f9e6e;--k3:#a08bc0;--k4:#8c949c;--k5:#c8553d;--k6:#2a9d8f;--k7:#b56576}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1c2024;--ink:#e6e9ec;--soft:#9aa5b0;--rule:#343b42;
--good:#58c08c;--bad:#f0806a;--k0:#6ea6d0;--k1:#e6ae5c;--k2:#86c796;--k3:#bfaee0;--k4:#7b858f;--k5:#e8806a;
--k6:#5cc7ba;--k7:#d98fa0}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1360px;margin:0 auto;padding:24px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:20px;margin:40px 0 4px}h3{font-size:16px;margin:0 0 8px}
p{margin:4px 0}.soft,.unit{color:var(--soft)}.unit{font-weight:400}
.arms{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:16px;margin-top:16px}
.arm{min-width:0}
.single{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
figure{margin:0 0 16px;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px}
figcaption{font-weight:600;margin-bottom:6px}
figure ul{list-style:none;margin:6px 0 0;padding:0;display:flex;flex-wrap:wrap;gap:4px 16px;color:var(--soft);
font-size:13px}
figure svg{display:block;width:100%;height:auto}
.none{color:var(--soft);padding:24px 0;text-align:center}
.key,.dash{display:inline-block;width:14px;height:10px;margin-right:6px;border-radius:2px;background:currentColor}
.dash{height:0;border-top:2px dashed currentColor;background:none;vertical-align:middle}
.k0{color:var(--k0)}.k1{color:var(--k1)}.k2{color:var(--k2)}.k3{color:var(--k3)}.k4{color:var(--k4)}
.k5{color:var(--k5)}.k6{color:var(--k6)}.k7{color:var(--k7)}
.area{fill:currentColor;fill-opacity:.82}.band{fill:currentColor;fill-opacity:.2}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:5 4}
.grid{stroke:var(--rule)}.tick{fill:var(--soft);font-size:11px}.hint{fill:transparent}
.hint:hover{fill:var(--ink);fill-opacity:.08}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin:12px 0;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 16px 4px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--soft);font-weight:600}.num{white-space:nowrap}
.good{color:var(--good)}.bad{color:var(--bad)}
pre{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px;overflow-x:auto;font-size:12.5px}
summary{cursor:pointer;color:var(--soft);margin:8px 0}
"""
