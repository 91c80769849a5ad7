/* The stepper of the online recurrence. Without this script the page shows the tables it reads.
 *
 * The data are the steps that a kernel wrote (src/softmax_site/computed/online_stepper.py); nothing is computed here but heights:
 * a bar is exp(x_j - m) of a column already read, m being the maximum so far.
 */
(function () {
  "use strict";

  const shown = (value) => String(value).replace("-", "−");
  const fixed = (value) => shown(value.toFixed(4));

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function sentence(steps, at) {
    if (at < 0) return "Nothing is read yet: m = −∞ and d = 0.";
    const { x, m, d, scale, term } = steps[at];
    const read = `Column ${at + 1} holds ${shown(x)}. `;
    if (at === 0) return `${read}It is the maximum so far: m = ${shown(m)}, and d = ${fixed(d)}.`;
    const before = steps[at - 1];
    if (m > before.m) {
      return `${read}The maximum rises from ${shown(before.m)} to ${shown(m)}, so the old sum ${fixed(before.d)} shrinks by ` +
        `the factor ${fixed(scale)}; the new term is ${fixed(term)}. Now d = ${fixed(d)}.`;
    }
    return `${read}The maximum stays ${shown(m)}, so the old sum ${fixed(before.d)} keeps its scale; ` +
      `the new term is ${fixed(term)}. Now d = ${fixed(d)}.`;
  }

  function enhance(figure) {
    const rows = JSON.parse(figure.querySelector("script").textContent);
    const tables = [...figure.querySelectorAll("table")];
    let row = 0;
    let at = -1;

    const choice = element("select", { "aria-label": "Row" });
    rows.forEach(({ name }, index) => choice.append(element("option", { value: index }, name)));
    const start = element("button", { type: "button" }, "Start over");
    const back = element("button", { type: "button" }, "Back");
    const next = element("button", { type: "button" }, "Next column");
    const hint = element("span", {}, "Keys: ← → Home End");
    const bars = element("div", { class: "stepper-bars", "aria-hidden": "true" });
    const says = element("p", { class: "stepper-says", role: "status" });
    const controls = element("div", { class: "stepper-controls" }, choice, start, back, next, hint);
    figure.prepend(controls, bars, says);
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", "The online recurrence, step by step");

    function drawRow() {
      tables.forEach((table, index) => { table.hidden = index !== row; });
      bars.replaceChildren(...rows[row].steps.map(({ x }) =>
        element("div", { class: "stepper-bar" }, element("span", {}), element("span", {}, shown(x)))));
    }

    function draw() {
      const { steps } = rows[row];
      const m = at < 0 ? 0 : steps[at].m;
      [...bars.children].forEach((bar, index) => {
        const read = index <= at;
        bar.classList.toggle("ahead", !read);
        bar.classList.toggle("is-max", read && steps[index].x === m);
        bar.firstChild.style.height = `${read ? Math.max(1, 84 * Math.exp(steps[index].x - m)) : 1}%`;
      });
      [...tables[row].tBodies[0].rows].forEach((line, index) => {
        line.classList.toggle("ahead", index > at);
        if (index === at) line.setAttribute("aria-current", "step");
        else line.removeAttribute("aria-current");
      });
      says.textContent = sentence(steps, at);
      start.disabled = back.disabled = at < 0;
      next.disabled = at === steps.length - 1;
    }

    function go(target) {
      const focused = document.activeElement;
      at = Math.min(Math.max(target, -1), rows[row].steps.length - 1);
      draw();
      // A button that has just been disabled hands its focus on, so that the keyboard is not lost.
      if (focused && focused.disabled) (focused === next ? back : next).focus();
    }

    choice.addEventListener("change", () => { row = Number(choice.value); at = -1; drawRow(); draw(); });
    start.addEventListener("click", () => go(-1));
    back.addEventListener("click", () => go(at - 1));
    next.addEventListener("click", () => go(at + 1));
    figure.addEventListener("keydown", (event) => {
      if (event.target === choice || event.altKey || event.ctrlKey || event.metaKey) return;
      const target = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: -1, End: Infinity }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      go(target);
    });
    drawRow();
    draw();
  }

  document.querySelectorAll(".stepper").forEach(enhance);
})();
