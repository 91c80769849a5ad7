/* Exercises: code that a reader fills in, checked in the page. Without this script the code stands there, with
 * the name of its file, which a command checks.
 *
 * What checks it is the Python in src/softmax_playground/checker; it is loaded with the first check.
 */
import { askPython } from "./ask/client.js";
import { element } from "./element.js";
import { Editor, help, runs } from "./run/editor.js";
import { smallTriton } from "./run/small-triton.js";

const MEMORY = "softmax-exercises";
const MENDED = "softmax-mistakes";
const ANSWER = /^ANSWER = (.*)$/m;

const START = `
import json
from softmax_playground.checker import in_page
import small_triton
from small_triton import session
def line_of(error):
    return session._where(error)["line"] or None
with open("/sheets.json") as file:
    sheets = json.load(file)
with open("/ladder.json") as file:
    ladder = json.load(file)
def ask(request):
    return in_page.answer(small_triton, line_of, sheets, request, ladder)
`;

/* ---- What has been solved, and what was written ---- */

function remembered(where = MEMORY) {
  try {
    return JSON.parse(localStorage.getItem(where)) || {};
  } catch {
    return {};
  }
}

function remember(name, change, where = MEMORY) {
  const all = remembered(where);
  all[name] = { ...all[name], ...change };
  try {
    localStorage.setItem(where, JSON.stringify(all));
  } catch { /* not allowed to, or full: nothing is remembered */ }
}

function forget(where = MEMORY) {
  try {
    localStorage.removeItem(where);
  } catch { /* nothing was remembered */ }
}

/* ---- Python ---- */

const ask = askPython(async () => {
  const [own, small] = await Promise.all([fetch(new URL("practice.json", import.meta.url)).then((file) => file.json()), smallTriton()]);
  return { files: { ...own.files, ...small.files }, start: START };
});

/* ---- An exercise ---- */

/* What an answer is typed into: the element to focus, and the file as it stands there. */
function codeEditor(name, source, box) {
  const code = box.querySelector(".editor");
  const editor = new Editor(code, `Your code for ${name}`);
  editor.text = source;
  code.after(help("checks", "Check", editor));
  return { field: editor.area, get: () => `${editor.text}\n`, set: (text) => { editor.text = text; }, mark: (line) => editor.point("failed", line) };
}

/* To predict takes a field for a number, which is filled into the file. */
function numberField(name, source, box, skeleton) {
  const field = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", class: "exercise-number", "aria-label": `Your number for ${name}` });
  const label = element("label", { class: "exercise-predict" }, element("span", {}, "Your number"), field);
  const set = (text) => {
    const found = text.match(ANSWER)[1];
    field.value = found === "..." ? "" : found;
  };
  const get = () => {
    const typed = field.value.trim();
    if (!typed) throw new Error("Type a number into the field first.");
    return skeleton.replace(ANSWER, () => `ANSWER = ${typed}`);
  };
  set(source);
  return { label, field, get, set, mark() {} };
}

/* The hints of a box are shown one after another. */
function inSteps(box) {
  const hints = [...box.querySelectorAll("details.tip")];
  const show = () => hints.forEach((hint, at) => { hint.hidden = at > 0 && !hints[at - 1].open; });
  for (const hint of hints) hint.addEventListener("toggle", show);
  show();
}

/* A link to the exercise after this one, or to the page after the last. */
function next(box) {
  const boxes = [...document.querySelectorAll(".exercise")];
  const heading = boxes[boxes.indexOf(box) + 1]?.previousElementSibling;
  if (heading) return element("a", { href: `#${heading.id}` }, `Next: ${heading.firstChild.textContent}`);
  const page = document.querySelector("a.next");
  return page && element("a", { href: page.href }, page.textContent);
}

/* How long a softmax should take, its place among the rungs, and how to time it. */
function onLadder({ us, predicted, rungs }, name, source) {
  const file = `${name}.py`;
  const download = element("a", { href: `data:text/x-python;charset=utf-8,${encodeURIComponent(source)}`, download: file }, "download it");
  const command = element("code", {}, `python -m exercises ${name} --time --file ${file}`);
  const all = us ? [...rungs, ["yours", us]].sort((one, other) => one[1] - other[1]) : [];
  const rows = all.map(([label, time]) => element("li", label === "yours" ? { class: "yours" } : {},
    element("span", {}, label), element("span", { class: "bar", style: `--share: ${rungs[0][1] / time}` }), element("span", {}, `${label === "yours" ? "≈ " : ""}${Math.round(time).toLocaleString("en")} µs`)));
  return [element("p", {}, predicted, us && " The longer a bar, the faster:"), element("ol", {}, ...rows),
    element("p", {}, "To time it on your GPU, ", download, " and run ", command, " in a clone.")];
}

function enhance(box) {
  const name = box.dataset.exercise;
  const predicts = box.dataset.source !== undefined;
  const skeleton = predicts ? box.dataset.source : box.querySelector(".editor").textContent.trimEnd();
  const was = remembered()[name] || {};
  const made = (predicts ? numberField : codeEditor)(name, was.source || skeleton, box, skeleton);
  const check = element("button", { type: "button", class: "exercise-check" }, "Check");
  const reset = element("button", { type: "button", class: "exercise-reset" }, "Start over");
  const says = element("p", { class: "exercise-says", role: "status" });
  const bar = element("div", { class: "exercise-bar" }, made.label, check, reset);
  const place = element("div", { class: "exercise-place" });
  box.querySelector(".exercise-help").before(bar, says, place);

  function show(solved, message) {
    says.textContent = "";
    says.className = `exercise-says ${solved ? "right" : "wrong"}`;
    says.append(element("span", { class: "exercise-sign", "aria-hidden": "true" }, solved ? "✓" : "✗"), ` ${message} `);
    if (solved) says.append(next(box) || "");
    box.classList.toggle("is-solved", Boolean(remembered()[name]?.solved));
  }

  let running = false;

  async function run() {
    if (running) {
      ask.stop("Stopped.");
      return;
    }
    running = true;
    check.textContent = "Stop";
    says.className = "exercise-says";
    says.textContent = "Checking …";
    place.replaceChildren();
    try {
      const source = made.get();
      const answer = JSON.parse(await ask(JSON.stringify({ name, source })));
      const { solved, message, line } = answer;
      remember(name, solved ? { source, solved: true } : { source });
      show(solved, message);
      made.mark(line);
      if (answer.predicted) place.append(...onLadder(answer, name, source));
    } catch (error) {
      show(false, error.message);
    }
    running = false;
    check.textContent = "Check";
    box.dataset.checked = String(Number(box.dataset.checked || 0) + 1);
  }

  check.addEventListener("click", run);
  made.field.addEventListener("keydown", (event) => {
    if (!runs(event) && !(predicts && event.key === "Enter")) return;
    event.preventDefault();
    run();
  });
  reset.addEventListener("click", () => {
    made.set(skeleton);
    remember(name, { source: undefined });
    says.textContent = "";
    says.className = "exercise-says";
    place.replaceChildren();
    made.field.focus();
  });
  inSteps(box);
  const solution = box.querySelector(".solution");
  const take = element("button", { type: "button", class: "exercise-reset" }, predicts ? "Put it into the field" : "Put it into the editor");
  take.addEventListener("click", () => {
    made.set(solution.dataset.source);
    made.field.scrollIntoView({ block: "nearest" });
    made.field.focus();
  });
  solution.append(take);
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
  const next = items.find((item) => !solved.includes(item))?.querySelector("a");
  if (next) says.append(element("a", { href: next.href }, `${solved.length ? "Next" : "Begin with"}: ${next.textContent}`), " ");
  if (begun) {
    const button = element("button", { type: "button", class: "exercise-reset" }, "Forget what I have done");
    button.addEventListener("click", () => { forget(); mark(list); });
    says.append(button);
  }
  list.querySelector(".exercise-progress")?.remove();
  list.prepend(says);
}

/* ---- Mistakes: cells that fail until they are mended ---- */

/* What goes wrong is told first; the lines of the fix are a second step. */
function twoSteps(cell) {
  const why = cell.querySelector(".run-why");
  if (!why) return;
  const fix = element("details", { class: "run-why", hidden: "" }, element("summary", {}, "The fix"));
  why.querySelector("summary").textContent = "What goes wrong";
  fix.append(why.querySelector("pre"));
  why.after(fix);
  why.addEventListener("toggle", () => { fix.hidden = !why.open && !fix.open; });
}

function mistakes(says) {
  const cells = [...document.querySelectorAll(".run-mistake")];

  function count() {
    const all = remembered(MENDED);
    const number = (what) => cells.filter((cell) => all[cell.id]?.[what]).length;
    for (const cell of cells) cell.classList.toggle("is-mended", Boolean(all[cell.id]?.mended));
    const next = cells.find((cell) => !all[cell.id]?.mended);
    says.replaceChildren(element("span", { role: "status" }, `${number("found")} of ${cells.length} seen to fail, ${number("mended")} mended by you. `));
    if (next) says.append(element("a", { href: `#${next.id}` }, `Next: ${next.querySelector(".run-title").textContent}`), " ");
    if (number("found")) {
      const button = element("button", { type: "button", class: "exercise-reset" }, "Forget what I have done");
      button.addEventListener("click", () => { forget(MENDED); count(); });
      says.append(button);
    }
  }

  /* A run has ended: it failed as it stood, or it passes with what the reader wrote and is still checked. */
  function ended(cell) {
    const own = cell.classList.contains("edited");
    const checks = [...cell.querySelectorAll("textarea")].some((area) => /^\s*expect\(/m.test(area.value));
    if (cell.querySelector(".run-result .run-error")) remember(cell.id, { found: true }, MENDED);
    else if (cell.querySelector(".run-passed") && own && checks) remember(cell.id, { mended: true }, MENDED);
    count();
  }

  for (const cell of cells) {
    twoSteps(cell);
    new MutationObserver(() => ended(cell)).observe(cell.querySelector(".run-result"), { childList: true });
    cell.addEventListener("toggle", () => {
      if (cell.open) for (const other of cells) if (other !== cell) other.open = false;
    });
  }
  count();
}

document.querySelectorAll(".exercise").forEach(enhance);
document.querySelectorAll(".exercise-mistakes").forEach(mistakes);
document.querySelectorAll(".exercise-list").forEach(mark);
