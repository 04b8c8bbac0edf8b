"""The pages in a real browser: charts are drawn, nothing injected runs, nothing overflows."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from habitus.report import render_comparison, render_run
from tests import report_samples as samples

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path"),
]

INJECTED = (
    "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"
)

PROBE = """
setTimeout(() => {
  const tips = [];
  for (const mark of document.querySelectorAll(".chart svg .mark-symbol path, .chart svg .mark-rect path")) {
    const box = mark.getBoundingClientRect();
    const at = { bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 };
    for (const kind of ["pointerover", "pointermove"])
      mark.dispatchEvent(new PointerEvent(kind, at));
    const tip = document.getElementById("vg-tooltip-element");
    if (tip) tips.push(tip.innerHTML);
  }
  const search = document.querySelector("#filters [name=search]");
  let found = null;
  if (search) {
    search.value = "เชียงใหม่";
    search.dispatchEvent(new Event("input", { bubbles: true }));
    found = [...document.querySelectorAll(".item")].filter((item) => !item.hidden).length;
  }
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({
    charts: document.querySelectorAll(".chart").length,
    drawn: document.querySelectorAll(".chart svg").length,
    scheme: document.querySelector(".chart").dataset.scheme,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    width: document.documentElement.clientWidth,
    images: document.querySelectorAll("img").length,
    tips: [...new Set(tips)], found,
    sides: ["ar", "th"].map((lang) => {
      const text = document.querySelector(`.data[lang=${lang}]`);
      return text && [getComputedStyle(text).direction, getComputedStyle(text).fontFamily.slice(0, 20)];
    }),
  });
  document.body.append(out);
}, 1500);
"""


def probed(html: str) -> str:
    """Add the probe as one more script that the policy knows."""
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    html = html.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ", 1)
    # The last one: the chart library holds "</body>" in a string.
    head, _, tail = html.rpartition("</body>")
    return f"{head}<script>{PROBE}</script></body>{tail}"


def browse(folder, html: str, width: int = 1280, dark: bool = False):
    """Open `html`; return the title, what the probe saw, and the console's lines."""
    path = folder / "page.html"
    path.write_text(probed(html), encoding="utf-8")
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=5000",
        "--enable-logging=stderr",
        f"--window-size={width},1000",
        "--dump-dom",
    ]
    if dark:
        command.append("--blink-settings=preferredColorScheme=0")
    done = subprocess.run(
        [*command, path.as_uri()], capture_output=True, text=True, timeout=90, check=True
    )
    match = re.search('<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stderr[-2000:]
    seen = match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    title = re.search("<title>(.*?)</title>", done.stdout)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return title[1] if title else "", json.loads(seen), console


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_a_run_in_a_browser(tmp_path, width, dark):
    _, seen, console = browse(tmp_path, render_run(samples.run()), width, dark)
    assert console == []
    assert seen["drawn"] == seen["charts"] > 5
    assert seen["scheme"] == ("dark" if dark else "light")
    assert seen["overflow"] <= 0
    assert seen["found"] == 4
    assert seen["sides"][0][0] == "rtl"
    assert seen["sides"][1][0] == "ltr"
    assert "Naskh" in seen["sides"][0][1]


@pytest.mark.parametrize("width", [1280, 360])
def test_a_comparison_in_a_browser(tmp_path, width):
    labels = ["embedded:one", "embedded:two", "judge:" + "long-" * 30]
    runs = [samples.run(label, seed=seed) for seed, label in enumerate(labels)]
    pairs = [
        samples.comparison(labels[a], labels[b], 0.1, 0.2) for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    _, seen, console = browse(tmp_path, render_comparison(runs, pairs), width)
    assert console == []
    assert seen["drawn"] == seen["charts"] == 5
    assert seen["overflow"] <= 0


def test_injected_markup_stays_text(tmp_path):
    data = samples.run()
    dirty = replace(
        data,
        label=INJECTED,
        notes=(INJECTED,),
        metrics=tuple(
            metric.model_copy(
                update={"group": {key: value + INJECTED for key, value in metric.group.items()}}
                if "culture" in metric.group
                else {}
            )
            for metric in data.metrics
        ),
        examples=tuple(
            (item.model_copy(update={"culture": INJECTED, "reason": INJECTED}), judgement)
            for item, judgement in data.examples
        ),
    )
    title, seen, console = browse(tmp_path, render_run(dirty))
    assert title.startswith("&lt;img src=x")
    assert seen["images"] == 0
    assert seen["drawn"] == seen["charts"]
    assert console == []
    assert any("&lt;img src=x" in tip for tip in seen["tips"])
    assert not any("<img" in tip for tip in seen["tips"])
