#!/usr/bin/env python3
"""Draws the dashboard from a running Prometheus, without Grafana.

    deploy/grafana/render.py --prometheus=http://127.0.0.1:9090 --minutes=5 --out=dashboard.html

Runs the queries of dashboards/tlm.json, lays the results out in its grid and writes one HTML page;
--png=FILE converts the page to a picture with chromium.
"""

import argparse
import html
import json
import math
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

DASHBOARD = pathlib.Path(__file__).parent / "dashboards" / "tlm.json"
COLORS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#8ab8ff",
          "#ffa6b0", "#c0d8ff"]
NAMED_COLORS = {"green": "#73bf69", "red": "#f2495c", "orange": "#ff9830", "blue": "#5794f2"}
CELL_W, CELL_H, GAP, POINTS = 64, 34, 8, 120


def expression(text, step):
    """A panel's query with the dashboard's variables at All."""
    text = text.replace("$__rate_interval", f"{max(4 * step, 20)}s")
    return text.replace("$instance", ".*").replace("$model", ".*")


def ask(base, expr, start, end, step):
    """[(labels, [(time, value)])]; raises ValueError with Prometheus' own words."""
    query = urllib.parse.urlencode({"query": expr, "start": start, "end": end, "step": step})
    try:
        with urllib.request.urlopen(f"{base}/api/v1/query_range?{query}", timeout=30) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        raise ValueError(f"{expr}: {error.read().decode()}") from error
    return [(series["metric"], [(float(t), float(v)) for t, v in series["values"] if v != "NaN"])
            for series in answer["data"]["result"]]


def legend(template, labels):
    text = re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), template)
    return text.strip() or "-"


def shown(value, unit):
    """A number for people, in the panel's unit."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        if value >= 1 or value == 0:
            return f"{value:.3g} s"
        return f"{1e3 * value:.3g} ms" if value >= 1e-3 else f"{1e6 * value:.3g} µs"
    if unit == "bytes":
        for suffix in ("B", "KiB", "MiB", "GiB"):
            if value < 1024 or suffix == "GiB":
                return f"{value:.3g} {suffix}"
            value /= 1024
    text = f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"
    return text + (" req/s" if unit == "reqps" else "")


def stacked(series):
    """Each series on top of those before it: [(name, lower, upper)] of {time: value}."""
    floor, layers = {}, []
    for name, points in series:
        upper = {t: floor.get(t, 0) + v for t, v in points}
        layers.append((name, {t: floor.get(t, 0) for t in upper}, upper))
        floor.update(upper)
    return layers


def ceiling(value):
    """The next larger number that four lines divide well."""
    if value <= 0:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if m * power >= value)


def colors_of(panel, series):
    """A color for each series: the panel's override of its name, else the next of the palette."""
    fixed = {override["matcher"]["options"]: prop["value"]["fixedColor"]
             for override in panel["fieldConfig"]["overrides"]
             for prop in override["properties"] if prop["id"] == "color"}
    return [NAMED_COLORS[fixed[name]] if name in fixed else COLORS[i % len(COLORS)]
            for i, (name, _) in enumerate(series)]


def chart(panel, series, width, height, start, end):
    """A panel's curves as SVG."""
    defaults = panel["fieldConfig"]["defaults"]
    stack = defaults["custom"]["stacking"]["mode"] == "normal"
    layers = (stacked(series) if stack
              else [(name, None, dict(points)) for name, points in series])
    top = defaults.get("max") or ceiling(
        max([value for _, _, upper in layers for value in upper.values()] + [0]))
    left, right, bottom = 62, 10, 18
    inner_w, inner_h = width - left - right, height - bottom - 6

    def at(t, v):
        return (f"{left + (t - start) / (end - start) * inner_w:.1f},"
                f"{6 + inner_h - min(v / top, 1) * inner_h:.1f}")

    parts = [f'<svg width="{width}" height="{height}" fill="#9fa7b3" font-size="10.5" '
             'font-family="sans-serif">']
    if not any(points for _, points in series):
        return (f'{parts[0]}<text x="{width / 2}" y="{height / 2}" font-size="14" '
                'text-anchor="middle">No data</text></svg>')
    for i in range(5):
        y = 6 + inner_h * (1 - i / 4)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y}" y2="{y}" class="grid"/>'
                     f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">'
                     f'{html.escape(shown(top * i / 4, defaults["unit"]))}</text>')
    for i in range(4):
        t = start + (end - start) * (i + 0.5) / 4
        parts.append(f'<text x="{at(t, 0).split(",")[0]}" y="{height - 3}" text-anchor="middle">'
                     f'{time.strftime("%H:%M:%S", time.gmtime(t))}</text>')
    for color, (_, lower, upper) in zip(colors_of(panel, series), layers):
        times = sorted(upper)
        if not times:
            continue
        line = " ".join(at(t, upper[t]) for t in times)
        if stack:
            base = " ".join(at(t, lower[t]) for t in reversed(times))
            parts.append(f'<polygon points="{line} {base}" fill="{color}" opacity="0.35"/>')
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" '
                     'stroke-width="1.5"/>')
    return "".join(parts) + "</svg>"


def legend_of(panel, series, unit, room):
    rows = []
    for color, (name, points) in zip(colors_of(panel, series), series[:room]):
        last = shown(points[-1][1], unit) if points else "-"
        rows.append(f'<span><i style="background:{color}"></i>'
                    f'{html.escape(name)} <b>{html.escape(last)}</b></span>')
    return f'<div class="legend">{"".join(rows)}</div>'


def color_of(panel, value):
    color = "blue"  # without thresholds
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            color = step["color"]
    return NAMED_COLORS[color]


def panel_html(panel, series, start, end):
    grid = panel["gridPos"]
    box = (f'left:{grid["x"] * CELL_W}px;top:{grid["y"] * CELL_H}px;'
           f'width:{grid["w"] * CELL_W - GAP}px;height:{grid["h"] * CELL_H - GAP}px')
    title = html.escape(panel["title"])
    if panel["type"] == "row":
        return f'<div class="row" style="{box}">{title}</div>'
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if panel["type"] == "stat":
        points = series[0][1] if series else []
        text = shown(points[-1][1], unit) if points else "No data"
        color = color_of(panel, points[-1][1]) if points else "#888"
        body = f'<div class="stat" style="color:{color}">{html.escape(text)}</div>'
    else:
        letters = sum(len(name) + 14 for name, _ in series[:8])
        lines = min(math.ceil(8 * letters / (grid["w"] * CELL_W)), 4)
        body = chart(panel, series, grid["w"] * CELL_W - GAP - 12,
                     grid["h"] * CELL_H - GAP - 34 - 20 * lines, start, end)
        body += legend_of(panel, series, unit, 8)
    return f'<div class="panel" style="{box}"><h3>{title}</h3>{body}</div>'


STYLE = """
body{background:#111217;color:#ccccdc;font:12px sans-serif;margin:12px}
.board{position:relative}.panel,.row{position:absolute;box-sizing:border-box}
.panel{background:#181b1f;border:1px solid #2c3235;border-radius:3px;padding:4px 6px;overflow:hidden}
.row{font-size:15px;font-weight:bold;padding:6px 2px}h3{font-size:12.5px;margin:2px 0 4px}
h1{font-size:18px;margin:0 0 8px}h1 small{font-weight:normal;margin-left:12px}
.stat{font-size:38px;text-align:center;padding-top:14px}.grid{stroke:#2c3235}
.legend span{margin-right:12px;white-space:nowrap}
.legend{line-height:18px}.legend i{display:inline-block;width:12px;height:3px;margin:0 5px 3px 0}
"""


def heading(base, title, start, end):
    """The dashboard's title, and the models, devices and time that it shows."""
    served = sorted({f'{labels["model_name"]} on {labels["device"]}'
                     for labels, _ in ask(base, "tlm_model_info", start, end, end - start)})
    times = [time.strftime(form, time.gmtime(t))
             for form, t in (("%Y-%m-%d %H:%M", start), ("%H:%M UTC", end))]
    return (f'<h1>{html.escape(title)}<small>'
            f'{html.escape(" · ".join([*served, " to ".join(times)]))}</small></h1>')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--out", required=True, help="the page")
    parser.add_argument("--png", help="a picture of it")
    args = parser.parse_args()
    dashboard = json.loads(DASHBOARD.read_text())
    end = time.time()
    start = end - 60 * args.minutes
    step = max(int((end - start) / POINTS), 1)
    parts, empty = [], []
    for panel in dashboard["panels"]:
        series = []
        for target in panel.get("targets", []):
            found = ask(args.prometheus, expression(target["expr"], step), start, end, step)
            if not found and "tlm_gpu_" not in target["expr"]:  # servers on CPUs have no such
                empty.append(f'{panel["title"]}: {target["expr"]}')
            series += [(legend(target["legendFormat"], labels), points)
                       for labels, points in found]
        parts.append(panel_html(panel, series, start, end))
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"]) * CELL_H
    page = (f'<!DOCTYPE html><meta charset="utf-8"><title>tlm</title><style>{STYLE}</style>'
            f'{heading(args.prometheus, dashboard["title"], start, end)}'
            f'<div class="board" style="height:{height}px">{"".join(parts)}</div>')
    pathlib.Path(args.out).write_text(page, encoding="utf-8")
    for query in empty:
        print(f"no data: {query}", file=sys.stderr)
    if args.png:
        subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu",
                        "--hide-scrollbars", f"--window-size={24 * CELL_W + 24},{height + 60}",
                        f"--screenshot={pathlib.Path(args.png).resolve()}",
                        pathlib.Path(args.out).resolve().as_uri()],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
