/* The stepper of the online recurrence. Without this script the page shows the tables it reads.
 *
 * The rows of the page carry the steps that a kernel wrote (src/softmax_site/computed/online_stepper.py).
 * A row that a reader types is computed here, by the same recurrence and guard.
 */
(function () {
  "use strict";

  const MOST = 16;
  const PAUSE = 1400;

  const shown = (value) => (Number.isFinite(value) ? String(value) : value > 0 ? "∞" : "-∞").replace("-", "−");
  const fixed = (value) => value.toFixed(4).replace("-", "−");

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const shifted = (x, m) => Math.exp(x - (m === -Infinity ? 0 : m));

  /* eq. online-m, online-d */
  function recurrence(row) {
    let m = -Infinity, d = 0;
    return row.map((x) => {
      const before = m;
      m = Math.max(m, x);
      const scale = shifted(before, m), term = shifted(x, m);
      d = d * scale + term;
      return { x, m, d, scale, term };
    });
  }

  function parse(text) {
    const words = text.replaceAll("−", "-").split(/[\s,;]+/).filter(Boolean);
    const row = words.map((word) => (/^-(inf(inity)?|∞)$/i.test(word) ? -Infinity : Number(word)));
    if (!row.length || row.some((x) => Number.isNaN(x) || x === Infinity)) return "Type numbers, separated by commas; -inf is one.";
    return row.length > MOST ? `At most ${MOST} numbers.` : row;
  }

  function sentence(steps, at) {
    const { x, m, d, scale, term } = steps[at];
    const read = `Column ${at + 1} is ${shown(x)}. `;
    if (at === 0) return `${read}Before it, m = −∞ and d = 0. Now m = ${shown(m)} and d = ${fixed(d)}.`;
    const before = steps[at - 1];
    if (m > before.m) {
      return `${read}The maximum rises from ${shown(before.m)} to ${shown(m)}, so the old sum ${fixed(before.d)} shrinks by ` +
        `the factor ${fixed(scale)}; the new term is ${fixed(term)}. Now d = ${fixed(d)}.`;
    }
    return `${read}The maximum stays ${shown(m)}, so the old sum ${fixed(before.d)} keeps its scale; ` +
      `the new term is ${fixed(term)}. Now d = ${fixed(d)}.`;
  }

  function tableOf(template, name, steps) {
    const table = template.cloneNode(true);
    table.caption.textContent = name;
    table.tBodies[0].replaceChildren(...steps.map(({ x, m, d, scale, term }, index) => {
      const cells = [index + 1, shown(x), shown(m), fixed(scale), fixed(term), fixed(d)];
      return element("tr", {}, ...cells.map((cell) => element("td", {}, String(cell))));
    }));
    return table;
  }

  function enhance(figure) {
    const rows = JSON.parse(figure.querySelector("script").textContent);
    const tables = [...figure.querySelectorAll("table")];
    let row = 0;
    let at = 0;
    let timer = null;

    const choice = element("select", { "aria-label": "Row" });
    rows.forEach(({ name }, index) => choice.append(element("option", { value: index }, name)));
    const own = element("input", { type: "text", "aria-label": "A row of your own", placeholder: "your own: 3, 1, 4, -inf" });
    const use = element("button", { type: "submit" }, "Use");
    const form = element("form", { class: "stepper-own" }, own, use);
    const play = element("button", { type: "button" }, "Play");
    const start = element("button", { type: "button" }, "Start over");
    const back = element("button", { type: "button" }, "Back");
    const next = element("button", { type: "button" }, "Next column");
    const bars = element("div", { class: "stepper-bars", "aria-hidden": "true" });
    const sums = element("div", { class: "stepper-sums", "aria-hidden": "true" });
    const says = element("p", { class: "stepper-says", role: "status" });
    const rowsBar = element("div", { class: "stepper-controls" }, choice, form);
    const steps = element("div", { class: "stepper-controls" }, play, back, next, start, element("span", {}, "Keys: ← → Home End"));
    figure.prepend(rowsBar, bars, sums, says, steps);
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", "The online recurrence, step by step");

    function sum(label, ...parts) {
      return element("div", { class: "stepper-sum" }, element("span", {}, label), element("div", {}, ...parts));
    }

    function part(kind, width, text) {
      const made = element("span", { class: `stepper-part ${kind}` }, text);
      made.style.width = `${width}%`;
      return made;
    }

    function drawRow() {
      tables.forEach((table, index) => { table.hidden = index !== row; });
      bars.replaceChildren(...rows[row].steps.map(({ x }) => element(
        "div", { class: "stepper-bar" },
        element("span", { class: "stepper-room" }, element("span", { class: "was" }), element("span", { class: "is" })),
        element("span", {}, shown(x)))));
    }

    function draw() {
      const { steps: all } = rows[row];
      const { m, d, scale, term } = all[at];
      const before = at ? all[at - 1] : { m: -Infinity, d: 0 };
      [...bars.children].forEach((bar, index) => {
        const { x } = all[index];
        const read = index <= at;
        bar.classList.toggle("ahead", !read);
        bar.classList.toggle("is-max", read && x === m);
        bar.querySelector(".is").style.height = read ? `${100 * shifted(x, m)}%` : "0";
        // What the bar was before this step, where it has just been rescaled.
        bar.querySelector(".was").style.height = index < at && m > before.m ? `${100 * shifted(x, before.m)}%` : "0";
      });
      const unit = 100 / Math.max(1, ...all.map((step) => step.d));
      sums.replaceChildren(
        sum("d before", part("old", before.d * unit, ""), part("number", 0, fixed(before.d))),
        sum("d after", part("old", before.d * scale * unit, ""), part("new", term * unit, ""), part("number", 0, `${fixed(before.d * scale)} + ${fixed(term)}`)));
      [...tables[row].tBodies[0].rows].forEach((line, index) => {
        line.classList.toggle("ahead", index > at);
        if (index === at) line.setAttribute("aria-current", "step");
        else line.removeAttribute("aria-current");
      });
      says.textContent = sentence(all, at);
      start.disabled = back.disabled = at === 0;
      next.disabled = at === all.length - 1;
      play.textContent = timer ? "Pause" : "Play";
    }

    function go(target) {
      const focused = document.activeElement;
      at = Math.min(Math.max(target, 0), rows[row].steps.length - 1);
      draw();
      // A button that has just been disabled hands its focus on, so that the keyboard is not lost.
      if (focused && focused.disabled) (focused === next ? back : next).focus();
    }

    function stop() {
      clearInterval(timer);
      timer = null;
    }

    function take(index) {
      stop();
      row = index;
      at = 0;
      choice.value = String(index);
      drawRow();
      draw();
    }

    choice.addEventListener("change", () => take(Number(choice.value)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const typed = parse(own.value);
      own.setAttribute("aria-invalid", String(typeof typed === "string"));
      if (typeof typed === "string") { stop(); draw(); says.textContent = typed; return; }
      const name = `Your row: (${typed.map(shown).join(", ")})`;
      const index = choice.querySelector("[data-own]") ? rows.length - 1 : rows.length;
      rows[index] = { name, steps: recurrence(typed) };
      const table = tableOf(tables[0], name, rows[index].steps);
      if (tables[index]) tables[index].replaceWith(table);
      else tables[index - 1].after(table);
      tables[index] = table;
      const option = choice.querySelector("[data-own]") || choice.appendChild(element("option", { value: index, "data-own": "" }));
      option.textContent = name;
      take(index);
    });
    play.addEventListener("click", () => {
      if (timer) { stop(); draw(); return; }
      if (at === rows[row].steps.length - 1) at = 0;
      timer = setInterval(() => {
        if (at + 1 >= rows[row].steps.length - 1) stop();
        go(at + 1);
      }, PAUSE);
      draw();
    });
    for (const [button, target] of [[start, () => 0], [back, () => at - 1], [next, () => at + 1]]) {
      button.addEventListener("click", () => { stop(); go(target()); });
    }
    figure.addEventListener("keydown", (event) => {
      if (event.target === choice || event.target === own || event.altKey || event.ctrlKey || event.metaKey) return;
      const target = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: Infinity }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      stop();
      go(target);
    });
    take(0);
  }

  document.querySelectorAll(".stepper").forEach(enhance);
})();
