/* Exercises: code that a reader fills in, checked in the page. Without this script the code stands there, with
 * the command that checks the file.
 *
 * What checks it is the Python in exercises/checker; it is loaded with the first check.
 */
(function () {
  "use strict";

  const MEMORY = "softmax-exercises";
  const SECONDS = 10;

  const START = `
from checker import in_page
import tiny_triton
from tiny_triton import session
def line_of(error):
    return session._where(error)["line"] or None
def ask(request):
    return in_page.answer(tiny_triton, line_of, request)
`;

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  /* ---- What has been solved, and what was written ---- */

  function remembered() {
    try {
      return JSON.parse(localStorage.getItem(MEMORY)) || {};
    } catch {
      return {};
    }
  }

  function remember(name, change) {
    const all = remembered();
    all[name] = { ...all[name], ...change };
    try {
      localStorage.setItem(MEMORY, JSON.stringify(all));
    } catch { /* not allowed to, or full: nothing is remembered */ }
  }

  function forget() {
    try {
      localStorage.removeItem(MEMORY);
    } catch { /* nothing was remembered */ }
  }

  /* ---- Python ---- */

  let python = null;

  function checker(asset) {
    const base = new URL("../", asset).href;
    python = python || window.softmaxAsk(base, async () => {
      const [own, runtime] = await Promise.all([asset, `${base}assets/run/runtime.json`].map(async (url) => (await fetch(url)).json()));
      const small = Object.entries(runtime.files).map(([name, text]) => [`tiny_triton/${name}`, text]);
      return { files: { ...own.files, ...Object.fromEntries(small) }, start: START };
    });
    return python;
  }

  /* ---- An exercise ---- */

  function editor(name, source, code) {
    const help = element("p", { class: "exercise-help", id: `help-${name}` }, "Ctrl + Enter checks. Tab indents; press Esc first to leave the code with it.");
    const editor = new window.CodeEditor(code, `Your code for ${name}`, () => {});
    editor.area.setAttribute("aria-describedby", help.id);
    editor.text = source;
    code.after(help);
    return { last: help, field: editor.area, get: () => `${editor.text}\n`, set: (text) => { editor.text = text; }, mark: (line) => editor.point("failed", line) };
  }

  /* To predict a number takes a field and no editor; the code above it stays as it is. */
  function numberField(name, source, code, before) {
    const field = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", class: "exercise-number", "aria-label": `Your number for ${name}` });
    const line = /^ANSWER = .*$/m;
    const set = (value) => {
      const found = value.match(/^ANSWER = (.*)$/m);
      field.value = found && found[1] !== "..." ? found[1] : "";
    };
    set(source);
    const get = () => {
      const typed = field.value.trim().replaceAll("−", "-").replaceAll(",", "").replace(/^\+/, "");
      return before.replace(line, `ANSWER = ${typed || "..."}`);
    };
    const box = element("label", { class: "exercise-predict" }, element("span", {}, "Your number"), field);
    return { box, last: code, field, get, set, mark() {} };
  }

  function enhance(box) {
    const name = box.dataset.exercise;
    const asset = new URL(box.dataset.asset, location.href).href;
    const code = box.querySelector(".highlight");
    const skeleton = code.textContent.trimEnd();
    const predicts = box.dataset.kind === "predict";
    const was = remembered()[name] || {};
    const make = predicts ? numberField : editor;
    if (predicts && skeleton.trim().split("\n").length < 6) {
      const [, question] = skeleton.match(/^"""Predict\. ([^]*?)"""/);
      code.before(element("p", { class: "exercise-question" }, question.replace(/\s+/g, " ")));
      code.hidden = true;
    }
    const made = make(name, was.source || skeleton, code, skeleton);
    const check = element("button", { type: "button", class: "exercise-check" }, "Check");
    const reset = element("button", { type: "button", class: "exercise-reset" }, "Start over");
    const says = element("p", { class: "exercise-says", role: "status" });
    const bar = element("div", { class: "exercise-bar" }, ...(made.box ? [made.box] : []), check, reset);
    made.last.after(bar, says);

    function show(solved, message) {
      says.textContent = "";
      says.className = `exercise-says ${solved ? "right" : "wrong"}`;
      says.append(element("span", { class: "exercise-sign", "aria-hidden": "true" }, solved ? "✓" : "✗"), ` ${message}`);
      box.classList.toggle("is-solved", Boolean(remembered()[name]?.solved));
    }

    let running = false;

    async function run() {
      const ask = checker(asset);
      if (running) {
        ask.stop("Stopped.");
        return;
      }
      running = true;
      check.textContent = "Stop";
      says.className = "exercise-says";
      says.textContent = "Checking …";
      const source = made.get();
      try {
        const { solved, message, line } = JSON.parse(await ask(JSON.stringify({ name, source }), { seconds: SECONDS }));
        remember(name, solved ? { source, solved: true } : { source });
        show(solved, message);
        made.mark(line);
      } catch (error) {
        show(false, error.message);
      }
      running = false;
      check.textContent = "Check";
      box.dataset.checked = String(Number(box.dataset.checked || 0) + 1);
    }

    check.addEventListener("click", run);
    made.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (predicts || event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        run();
      }
    });
    reset.addEventListener("click", () => {
      made.set(skeleton);
      remember(name, { source: undefined });
      says.textContent = "";
      says.className = "exercise-says";
      made.field.focus();
    });
    const solution = document.querySelector(`[data-solution="${name}"]`);
    if (solution) {
      const take = element("button", { type: "button", class: "exercise-reset" }, predicts ? "Put it into the field" : "Put it into the editor");
      take.addEventListener("click", () => {
        made.set(solution.querySelector("code").textContent.trimEnd());
        made.field.scrollIntoView({ block: "nearest" });
        made.field.focus();
      });
      solution.append(take);
    }
    if (was.solved) {
      box.classList.add("is-solved");
      show(true, "You have solved this one.");
    }
  }

  /* ---- The list ---- */

  function mark(list) {
    const all = remembered();
    const items = [...list.querySelectorAll("[data-exercise-name]")];
    const solved = items.filter((item) => all[item.dataset.exerciseName]?.solved);
    for (const item of items) {
      item.classList.toggle("is-solved", solved.includes(item));
      item.querySelector(".exercise-done")?.remove();
      if (solved.includes(item)) item.append(element("span", { class: "exercise-done" }, "✓ solved"));
    }
    const begun = Object.keys(all).length > 0;
    const says = element("p", { class: "exercise-progress" }, element("span", { role: "status" }, `${solved.length} of ${items.length} solved. `));
    if (begun) {
      const button = element("button", { type: "button", class: "exercise-reset" }, "Forget what I have done");
      button.addEventListener("click", () => { forget(); mark(list); });
      says.append(button);
    }
    list.querySelector(".exercise-progress")?.remove();
    list.append(says);
  }

  document.querySelectorAll(".exercise").forEach(enhance);
  document.querySelectorAll(".exercise-list").forEach(mark);
})();
