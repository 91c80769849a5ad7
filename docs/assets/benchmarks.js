/* Interactive charts of the benchmark pages. Without this script a page shows the drawn picture and the tables.
 *
 * A figure names its chart; a link beside it leads to the Vega-Lite specification. The library travels with the site and
 * is loaded only on pages that have a figure. Colours follow the page's scheme.
 */
(function () {
  "use strict";

  // A table wider than the page scrolls, and what scrolls must be reachable by keyboard.
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) table.tabIndex = 0;

  const here = document.currentScript.src;
  let loading;

  function library() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL("vendor/vega.js", here).href;
      script.type = "module";
      script.onload = () => resolve(window.vegaEmbed);
      script.onerror = reject;
      document.head.append(script);
    });
    return loading;
  }

  const dark = () => document.body.dataset.mdColorScheme === "slate";

  function coloured(specification) {
    const copy = structuredClone(specification);
    if (dark()) copy.encoding.color.scale.range = copy.usermeta.dark;
    delete copy.usermeta;
    const text = dark() ? "#e2e4e9" : "#1f2328";
    const grid = dark() ? "#4b5160" : "#d0d4da";
    copy.config = {
      background: "transparent",
      view: { stroke: "transparent" },
      axis: { labelColor: text, titleColor: text, gridColor: grid, domainColor: text, tickColor: text, titleFontWeight: "normal" },
      legend: { labelColor: text, titleColor: text, labelLimit: 0 },
    };
    return copy;
  }

  async function draw(figure, specification) {
    const embed = await library();
    let target = figure.querySelector(".bench-live");
    if (!target) {
      target = document.createElement("div");
      target.className = "bench-live";
      target.setAttribute("role", "figure");
      target.setAttribute("aria-label", specification.description);
      figure.append(target);
    }
    figure.view?.finalize();
    figure.view = await embed(target, coloured(specification), {
      mode: "vega-lite",
      renderer: "svg",
      actions: false,
      tooltip: { theme: dark() ? "dark" : "light" },
    });
    figure.classList.add("bench-drawn");
  }

  async function start() {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    }
    const figures = [...document.querySelectorAll(".bench-figure")];
    if (!figures.length) return;
    const drawn = [];
    for (const figure of figures) {
      const link = document.querySelector(`.bench-spec[data-for="${figure.dataset.chart}"]`);
      if (!link) continue;
      try {
        const specification = await (await fetch(link.href)).json();
        await draw(figure, specification);
        drawn.push([figure, specification]);
      } catch (error) {
        console.error(`The chart ${figure.dataset.chart} stays a picture:`, error);
      }
    }
    new MutationObserver(() => drawn.forEach(([figure, specification]) => draw(figure, specification))).observe(document.body, {
      attributes: true,
      attributeFilter: ["data-md-color-scheme"],
    });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
