/* Cells: code that is edited and run in the page. Without this script they show code and result.
 *
 * The HTML of results comes from src/softmax_playground/small_triton/show.py, here as in the build. This
 * script makes editors of the code, and steps through what a run read and wrote.
 */
import { element } from "../element.js";
import { Editor, help, runs } from "./editor.js";
import * as runner from "./runner.js";

const PAUSE = 500;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/* ---- What a run read and wrote, step by step ---- */

const WORD = { load: "reads", store: "writes", atomic: "reads and writes" };

class Steps {
  constructor(result, reply, editors) {
    this.result = result;
    this.editors = editors;
    this.steps = reply.steps;
    this.tensors = reply.tensors;
    this.figures = [...result.querySelectorAll("[data-tensor]")];
    this.written = this.tensors.map((_, index) => this.steps.some(([, kind, tensor]) => tensor === index && kind !== "load"));
    this.timer = null;
    this.slider = element("input", { type: "range", min: "0", max: String(this.steps.length), step: "1", "aria-label": "Read or write" });
    this.says = element("p", { class: "run-says", role: "status" });
    const button = (label, text, act) => {
      const made = element("button", { type: "button", "aria-label": label }, text);
      made.addEventListener("click", act);
      return made;
    };
    this.play = button("Play", "Play", () => (this.timer ? this.pause() : this.start()));
    const controls = element(
      "div",
      { class: "run-steps" },
      button("One step back", "‹", () => this.go(this.at - 1)),
      this.slider,
      button("One step on", "›", () => this.go(this.at + 1)),
    );
    if (!calm.matches) controls.append(this.play);
    this.slider.addEventListener("input", () => {
      this.pause();
      this.show(Number(this.slider.value));
    });
    result.append(controls, this.says);
    for (const figure of this.figures) {
      figure.addEventListener("pointerover", (event) => this.point(figure, event.target));
      figure.addEventListener("pointerleave", () => this.show(this.at));
    }
    this.go(this.steps.length);
  }

  go(at) {
    this.pause();
    this.slider.value = Math.max(0, Math.min(at, this.steps.length));
    this.show(Number(this.slider.value));
  }

  start() {
    if (this.at === this.steps.length) this.show(0);
    this.play.textContent = "Pause";
    this.timer = setInterval(() => {
      this.slider.value = this.at + 1;
      this.show(this.at + 1);
      if (this.at === this.steps.length) this.pause();
    }, PAUSE);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }

  /* The state after `at` accesses. */
  show(at) {
    this.at = at;
    const bytes = { load: 0, store: 0, atomic: 0 };
    const seen = this.tensors.map(() => new Map());
    this.steps.slice(0, at).forEach(([, kind, tensor, places]) => {
      const size = places.length * this.tensors[tensor][1];
      bytes[kind] += size;
      for (const place of places) {
        const before = seen[tensor].get(place) ?? { load: 0, store: 0 };
        if (kind !== "store") before.load += 1;
        if (kind !== "load") before.store += 1;
        seen[tensor].set(place, before);
      }
    });
    const [, kind, tensor, places, line, path] = at > 0 && at < this.steps.length ? this.steps[at - 1] : [];
    this.figures.forEach((figure) => {
      const index = Number(figure.dataset.tensor);
      const now = new Set(index === tensor ? places : []);
      for (const cell of figure.querySelectorAll("[data-place]")) {
        const place = Number(cell.dataset.place);
        const was = seen[index].get(place);
        cell.classList.toggle("now", now.has(place));
        cell.classList.toggle("stored", now.has(place) && kind !== "load");
        cell.classList.toggle("touched", was !== undefined);
        cell.classList.toggle("again", was?.load > 1);
        cell.classList.toggle("unwritten", this.written[index] && !was?.store);
      }
    });
    for (const each of this.result.querySelectorAll("[data-count]")) each.textContent = bytes[each.dataset.count];
    this.says.textContent = this.sentence(at);
    this.editors.forEach((editor, index) => editor.point("now", path === `<text ${index}>` ? line : 0));
    this.slider.setAttribute("aria-valuetext", this.says.textContent);
  }

  sentence(at) {
    if (at === 0) return "Nothing is read yet.";
    const [program, kind, tensor, places] = this.steps[at - 1];
    const count = places.length === 1 ? "1 element" : `${places.length} elements`;
    const step = `Program ${program} ${WORD[kind]} ${count} of ${this.tensors[tensor][0]}.`;
    return at === this.steps.length ? `All ${at} steps. Move the slider to see them one by one.` : `Step ${at} of ${this.steps.length}: ${step}`;
  }

  /* How often an element was read and written, while the pointer is on it. */
  point(figure, cell) {
    const place = Number(cell.dataset?.place ?? NaN);
    if (Number.isNaN(place)) return;
    const index = Number(figure.dataset.tensor);
    const of = (kind) => this.steps.filter((step) => step[2] === index && step[1] === kind && step[3].includes(place));
    const times = (count) => (count === 1 ? "once" : count === 2 ? "twice" : count ? `${count} times` : "never");
    const programs = [...new Set([...of("load"), ...of("store")].map(([program]) => `program ${program}`))];
    const by = programs.length ? ` by ${programs.join(", ")}` : "";
    this.says.textContent = `This element of ${this.tensors[index][0]}: read ${times(of("load").length)}, written ${times(of("store").length)}${by}.`;
    for (const each of figure.querySelectorAll("[data-place]")) each.classList.toggle("pointed", Number(each.dataset.place) === place);
  }
}

/* ---- Cells ---- */

/* The texts of a cell, of a mistake with its wrong or its right lines; as `Cell.texts` in cells.py. */
function version({ kernel, code }, kind) {
  const other = kind === "wrong" ? "# right" : "# wrong";
  const lines = code.split("\n").filter((line) => !line.endsWith(other));
  return [kernel, lines.map((line) => line.replace(/ *# (wrong|right)$/, "")).join("\n")].filter(Boolean);
}

function enhance(cell) {
  const data = JSON.parse(cell.querySelector("script").textContent);
  const result = cell.querySelector(".run-result");
  const bar = cell.querySelector(".run-bar");
  const boxes = [...cell.querySelectorAll(".editor")];
  const title = cell.querySelector(".run-title").textContent;
  const wrong = version(data, "wrong");
  const right = version(data, "right");
  let texts = wrong;
  let running = false;
  let steps = null;

  const editors = boxes.map((box, index) => {
    const name = boxes.length === 1 ? "Code" : index ? "The call" : "The kernel";
    box.removeAttribute("tabindex");
    return new Editor(box, `${name} of ${title}`, state);
  });
  const button = (text, kind, act) => {
    const made = element("button", { type: "button", class: kind }, text);
    made.addEventListener("click", act);
    bar.append(made);
    return made;
  };
  button("Run", "run-go", run);
  const stop = button("Stop", "", () => runner.stop());
  const mend = wrong.at(-1) !== right.at(-1) && button("Fix it", "", () => swap(texts === wrong ? right : wrong));
  const reset = button("Reset", "", () => swap(wrong));
  const why = element("p", { class: "run-comes", role: "status" });
  const tries = data.tries.map(([label, old, other, words]) => {
    const tried = wrong.map((text) => text.replace(old, () => other));
    const made = button("", "run-try", () => swap(texts === tried ? wrong : tried));
    return [made, tried, words, label];
  });
  if (tries.length) bar.after(why);
  const status = element("span", { class: "run-status", role: "status" });
  bar.append(status);
  cell.querySelector(".run-text:last-of-type").append(help("runs", ...editors));

  const edited = () => editors.some((editor, index) => editor.text !== texts[index].replace(/\n$/, ""));

  function state() {
    stop.disabled = !running;
    reset.disabled = !edited() && texts === wrong;
    // What a try did holds for its own code.
    why.textContent = (!edited() && tries.find(([, tried]) => texts === tried)?.[2]) || "";
    cell.classList.toggle("running", running);
    cell.classList.toggle("edited", edited());
  }

  function fill() {
    editors.forEach((editor, index) => (editor.text = texts[index]));
    if (mend) mend.textContent = texts === wrong ? "Fix it" : "Break it again";
    // Run runs what the editor shows; the way back stands on the button that led away.
    for (const [made, tried, , label] of tries) {
      made.textContent = texts === tried ? `Undo: ${label}` : `${label[0].toUpperCase()}${label.slice(1)}`;
      made.classList.toggle("tried", texts === tried);
    }
    state();
  }

  function swap(other) {
    texts = other;
    fill();
    mark();
    if (running) runner.stop();
    else run();
  }

  /* The lines by which a mistake and its mend differ, or a try and the code as it was. */
  function mark() {
    const others = texts === wrong ? right : wrong;
    editors.forEach((editor, at) => {
      const theirs = new Set(others[at].split("\n"));
      const lines = texts[at].split("\n").flatMap((line, index) => (theirs.has(line) ? [] : [index + 1]));
      editor.mark(mend && texts === wrong ? "wrong" : "right", ...lines);
    });
  }

  async function run() {
    if (running) return;
    running = true;
    steps?.pause();
    status.textContent = "Running …";
    for (const editor of editors) editor.mark("failed");
    state();
    const begun = performance.now();
    const reply = await runner.run({ given: data.given, texts: editors.map((editor) => `${editor.text}\n`) });
    const took = performance.now() - begun;
    const fold = boxes[reply.error?.text]?.closest(".run-fold");
    if (fold) fold.open = true; // the line that failed is in it
    running = false;
    result.innerHTML = reply.html || (reply.error || mend ? "" : '<p class="run-says">It ran, and has nothing to show.</p>');
    if (mend && !reply.error) result.prepend(element("p", { class: "run-passed" }, "✓ Fixed: it no longer fails."));
    if (reply.error && !reply.html) result.append(element("p", { class: "run-error", role: "alert" }, reply.error.message));
    steps = reply.steps.length ? new Steps(result, reply, editors) : null;
    if (reply.error && reply.error.text !== null) editors[reply.error.text]?.point("failed", reply.error.line);
    status.textContent = reply.error ? "Failed" : `Done in ${took < 1000 ? `${Math.max(1, Math.round(took))} ms` : `${(took / 1000).toFixed(1)} s`}`;
    cell.dataset.took = String(took);
    state();
  }

  cell.addEventListener("keydown", (event) => {
    if (!runs(event)) return;
    event.preventDefault();
    run();
  });
  cell.addEventListener("input", runner.warm, { once: true });
  cell.classList.add("live");
  fill();
}

for (const cell of document.querySelectorAll(".run-cell")) enhance(cell);
