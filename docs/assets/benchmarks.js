/* What moves in the plots of the benchmark pages: which series show, and what stands under the pointer.
 *
 * Everything is in the page already. A plot takes the keyboard as one stop: arrow keys walk along its columns, Enter
 * opens the row of the column, Escape lets go. A finger does what a pointer does.
 */
(function () {
  "use strict";

  function open(hash) {
    const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
    const [fold, tab] = ["details", ".tabbed-block"].map((kind) => target && target.closest(kind));
    const which = tab && [...tab.parentElement.children].indexOf(tab);
    const input = tab && tab.closest(".tabbed-set").querySelectorAll(":scope > input")[which];
    if (!(fold && !fold.open) && !(input && !input.checked)) return;
    if (fold) fold.open = true;
    if (input) input.checked = true;
    target.scrollIntoView();
  }

  function keys(plot) {
    for (const button of plot.querySelectorAll(".plot-keys button")) {
      button.disabled = false;
      button.addEventListener("click", () => {
        const show = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(show));
        for (const part of plot.querySelectorAll("g[data-series]")) {
          if (part.dataset.series === button.dataset.series) part.classList.toggle("off", !show);
        }
      });
    }
  }

  function pointer(area) {
    const bands = [...area.querySelectorAll(".band")];
    const tip = area.querySelector(".plot-tip");
    let at = -1;

    function show(index) {
      bands[at]?.classList.remove("now");
      at = index;
      tip.textContent = "";
      if (at < 0) return;
      bands[at].classList.add("now");
      const [first, ...rest] = bands[at].dataset.tip.split("\n");
      const link = document.createElement("a");
      link.href = bands[at].dataset.href;
      link.textContent = first;
      link.tabIndex = -1;
      tip.append(link, ...rest.map((line) => Object.assign(document.createElement("span"), { textContent: line })));
      // Beside the column, towards the middle.
      const [band, whole] = [bands[at].getBoundingClientRect(), area.getBoundingClientRect()];
      const left = at < bands.length / 2;
      tip.style.left = left ? `${band.right - whole.left + 4}px` : "auto";
      tip.style.right = left ? "auto" : `${whole.right - band.left + 4}px`;
    }

    const follow = () => (location.hash = bands[at].dataset.href);
    bands.forEach((band, index) => {
      band.addEventListener("pointerenter", () => show(index));
      band.addEventListener("click", (event) => {
        show(index);
        if (event.pointerType === "mouse" && band.dataset.href) follow();
      });
    });
    area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(-1));
    area.tabIndex = 0;
    area.setAttribute("role", "group");
    area.setAttribute("aria-label", `${area.dataset.label}: arrow keys walk through the columns, Enter opens the row`);
    area.addEventListener("keydown", (event) => {
      if (event.key === "Tab") show(-1);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: bands.length - 1, Escape: -1 }[event.key];
      if (event.key === "Enter" && at >= 0 && bands[at].dataset.href) follow();
      if (to === undefined) return;
      event.preventDefault();
      show(event.key === "Escape" ? -1 : Math.max(0, Math.min(bands.length - 1, to)));
    });
  }

  for (const plot of document.querySelectorAll(".plot")) {
    keys(plot);
    plot.querySelectorAll(".plot-area").forEach(pointer);
  }
  // A table wider than the page scrolls, and what scrolls must be reachable by keyboard.
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) table.tabIndex = 0;
  addEventListener("hashchange", () => open(location.hash));
  open(location.hash);
})();
