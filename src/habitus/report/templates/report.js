"use strict";
// Charts: drawn once, and again when the colour scheme changes.
(() => {
  const specs = JSON.parse(document.getElementById("chart-specs").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const font = getComputedStyle(document.body).fontFamily;
  const views = [];

  // Okabe and Ito's palette: told apart by colour-blind readers; lighter shades on dark ground.
  const palette = (isDark) => isDark
    ? { text: "#e8eaed", faint: "#a4acb6", grid: "#2f353d", ground: "#171a1f",
        category: ["#6cb6ea", "#a4acb6", "#f0a35e"], chance: "#f0c04a",
        diverging: ["#a8560f", "#343a42", "#1c6fb0"] }
    : { text: "#1b1f24", faint: "#59636e", grid: "#e4e7eb", ground: "#ffffff",
        category: ["#0b62a4", "#6b7580", "#b8500c"], chance: "#8a5a00",
        diverging: ["#e58a3a", "#f0f1f3", "#5aa5de"] };

  const config = (isDark) => {
    const c = palette(isDark);
    return {
      background: null, font, aria: false,
      view: { stroke: null },
      range: { category: c.category, diverging: c.diverging },
      axis: { labelColor: c.text, titleColor: c.faint, gridColor: c.grid, domain: false,
              ticks: false, labelFontSize: 12, labelPadding: 6 },
      axisY: { grid: false, labelLimit: 150, labelPadding: 12 },
      axisX: { labelColor: c.faint, labelFontSize: 11 },
      style: {
        interval: { strokeWidth: 3, opacity: 0.55, strokeCap: "round" },
        figure: { filled: true, size: 75, opacity: 1 },
        figures: { align: "left", dx: 8, baseline: "middle", color: c.text, fontSize: 11.5 },
        share: { height: { band: 0.62 }, cornerRadiusEnd: 2 },
        chance: { color: c.chance, strokeWidth: 1.5, strokeDash: [4, 3] },
        "chance-tick": { color: c.chance, thickness: 2, bandSize: 14 },
        cell: { stroke: c.ground, strokeWidth: 2 },
        "cell-value": { color: c.text, fontSize: 12.5, fontWeight: 600, baseline: "middle" },
        "cell-items": { color: c.text, fontSize: 10, baseline: "middle", opacity: 0.85 },
        column: { labelColor: c.text, labelFontSize: 11, labelLimit: 110 },
      },
    };
  };

  const draw = (isDark) => {
    while (views.length) views.pop().finalize();
    for (const [id, spec] of Object.entries(specs)) {
      const place = document.getElementById(`chart-${id}`);
      if (!place) continue;
      place.dataset.scheme = isDark ? "dark" : "light";
      vegaEmbed(place, spec, {
        mode: "vega-lite", ast: true, actions: false, renderer: "svg",
        config: config(isDark), tooltip: { theme: isDark ? "dark" : "light" },
      }).then((result) => views.push(result), (error) => {
        place.textContent = "This chart could not be drawn; the table below has its numbers.";
        console.error(`chart ${id}: ${error.message}`);
      });
    }
  };

  draw(dark.matches);
  dark.addEventListener("change", () => draw(dark.matches));
})();

// Items: filters and search.
(() => {
  const form = document.getElementById("filters");
  if (!form) return;
  const items = [...document.querySelectorAll(".item")];
  const counter = document.getElementById("item-count");
  const texts = new Map();
  const plain = (text) => text.normalize("NFKC").toLocaleLowerCase();
  const textOf = (item) => {
    if (!texts.has(item)) texts.set(item, plain(item.textContent));
    return texts.get(item);
  };
  const apply = () => {
    const wanted = plain(form.elements.search.value.trim());
    let shown = 0;
    for (const item of items) {
      const fits = ["culture", "domain", "outcome"].every((key) =>
        !form.elements[key].value || form.elements[key].value === item.dataset[key])
        && (!wanted || textOf(item).includes(wanted));
      item.hidden = !fits;
      shown += fits;
    }
    counter.textContent = `${shown.toLocaleString("en")} of ${items.length.toLocaleString("en")} shown`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
})();
