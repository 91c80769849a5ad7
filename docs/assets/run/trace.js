/* What a run did, step by step: the line, every name of the program as a tile of lanes, and the memory.
 *
 *     const trace = new Trace(result, reply, editors);
 *     trace.go(12);
 *
 * `reply` is what src/softmax_playground/small_triton/session.py answers; `result` has the figures of its
 * tensors. A step is a statement of one program, and is shown as it has just run.
 */
import { element } from "../element.js";

const PAUSE = 500;
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const WORD = { load: "reads", store: "writes", atomic: "reads and writes" };
const PASSING = new Set(["returned", "condition"]);

const button = (label, text, act) => {
  const made = element("button", { type: "button", "aria-label": label }, text);
  made.addEventListener("click", act);
  return made;
};

function choice(label, act) {
  const made = element("select", { "aria-label": label });
  made.addEventListener("change", () => act(Number(made.value)));
  return made;
}

/* A tile: its name, and a square for each lane. */
function tile(name, value, set) {
  const numbers = value.lanes.flat().map((text) => Math.abs(Number(text.replace("−", "-")))).filter(Number.isFinite);
  const largest = Math.max(...numbers, 0) || 1;
  const rows = value.lanes.map((row, i) => {
    const lanes = row.map((text, j) => {
      const masked = value.masked[i]?.[j];
      const size = Math.abs(Number(text.replace("−", "-")));
      const lane = element("span", { class: `lane${masked ? " masked" : ""}${text.startsWith("−") ? " minus" : ""}`, title: masked ? "masked" : null }, text);
      lane.style.setProperty("--tint", Number.isFinite(size) ? (size / largest).toFixed(2) : "0");
      return lane;
    });
    return element("span", { class: "lanes" }, lanes);
  });
  const size = value.shape.join(" × ");
  const all = value.shape.reduce((count, each) => count * each, 1);
  const cut = value.lanes.flat().length < all;
  const kind = [value.of && `→ ${value.of}`, size, cut && "cut"].filter(Boolean).join(", ");
  return element(
    "div",
    { class: `run-name${set ? " set" : ""}${value.shape.length ? "" : " one"}`, "data-name": name, title: value.dtype },
    element("span", { class: "run-name-head" }, element("b", {}, name), kind ? ` ${kind}` : null),
    element("span", { class: "run-lanes" }, rows),
  );
}

export class Trace {
  constructor(result, reply, editors) {
    Object.assign(this, { result, editors, steps: reply.steps, tensors: reply.tensors, values: reply.values });
    this.figures = [...result.querySelectorAll("[data-tensor]")];
    for (const cell of result.querySelectorAll("td[data-place]")) cell.dataset.last = cell.textContent;
    this.written = this.tensors.map((_, index) => this.accesses(this.steps).some(([kind, tensor]) => tensor === index && kind !== "load"));
    this.timer = null;
    this.slider = element("input", { type: "range", min: "0", max: String(this.steps.length), step: "1", "aria-label": "Step" });
    this.says = element("p", { class: "run-says", role: "status" });
    this.line = element("code", { class: "run-line" });
    this.names = element("div", { class: "run-registers", tabindex: "0", role: "group", "aria-label": "The names of the program" });
    this.program = choice("Program", (at) => this.go(at));
    this.turn = choice("Turn of a loop", (at) => this.go(at));
    this.play = button("Play", "Play", () => (this.timer ? this.pause() : this.start()));
    const controls = element(
      "div",
      { class: "run-steps" },
      button("One step back", "‹", () => this.go(this.at - 1)),
      this.slider,
      button("One step on", "›", () => this.go(this.at + 1)),
      calm.matches ? null : this.play,
    );
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    result.append(element("div", { class: "run-trace" }, controls, element("div", { class: "run-where" }, this.program, this.turn), this.says, this.line, this.names));
    for (const figure of this.figures) {
      figure.addEventListener("pointerover", (event) => this.point(figure, event.target));
      figure.addEventListener("pointerleave", () => this.show(this.at));
    }
    const firsts = new Map(this.steps.map((step, at) => [this.run(step), at]).reverse());
    this.program.append(...[...firsts].reverse().map(([, at]) => element("option", { value: String(at + 1) }, `Program ${this.steps[at].who}`)));
    this.program.disabled = firsts.size < 2;
    this.all = true; // the run as a whole, until the reader chooses a step
    this.show(this.steps.length);
  }

  /* What is common to the steps of one program of one launch. */
  run = (step) => step.frame[0][0].split(".").slice(0, 2).join(".");
  accesses = (steps) => steps.flatMap((step) => step.accesses);

  /* From the run as a whole to its steps: the code that they point at comes out of its fold. */
  begin() {
    if (this.all) for (const { box } of this.editors) box.closest(".run-fold")?.setAttribute("open", "");
    this.all = false;
  }

  go(at) {
    this.pause();
    this.begin();
    this.show(Math.max(0, Math.min(at, this.steps.length)));
  }

  start() {
    this.begin();
    if (this.at === this.steps.length) this.show(0);
    this.play.textContent = "Pause";
    this.timer = setInterval(() => {
      this.show(this.at + 1);
      if (this.at === this.steps.length) this.pause();
    }, PAUSE);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }

  /* The state after `at` steps. */
  show(at) {
    this.at = at;
    this.slider.value = at;
    const step = at ? this.steps[at - 1] : null;
    this.memory(at, step);
    this.registers(at, step);
    this.where(at, step);
    this.says.textContent = this.sentence(at, step);
    const [text, first, last] = (!this.all && step?.at) || [];
    this.editors.forEach((editor, index) => {
      const lines = text === index ? Array.from({ length: last - first + 1 }, (_, i) => first + i) : [];
      editor.point("now", ...lines);
    });
    this.line.textContent = text === undefined ? "" : this.editors[text].lines.slice(first - 1, last).map((line) => line.trim()).join(" ");
    this.slider.setAttribute("aria-valuetext", this.says.textContent);
  }

  memory(at, step) {
    const bytes = { load: 0, store: 0, atomic: 0 };
    const seen = this.tensors.map(() => new Map());
    this.accesses(this.steps).forEach(([, tensor, places, texts]) => {
      places.forEach((place, i) => seen[tensor].has(place) || seen[tensor].set(place, { load: 0, store: 0, text: texts[i], sure: false }));
    });
    for (const [kind, tensor, places, texts] of this.accesses(this.steps.slice(0, at))) {
      bytes[kind] += places.length * this.tensors[tensor][1];
      places.forEach((place, i) => {
        const each = seen[tensor].get(place);
        each.load += kind !== "store";
        each.store += kind !== "load";
        each.text = texts[i];
      });
    }
    const now = this.tensors.map(() => new Map());
    if (!this.all) for (const [kind, tensor, places] of step?.accesses ?? []) places.forEach((place) => now[tensor].set(place, kind));
    for (const figure of this.figures) {
      const index = Number(figure.dataset.tensor);
      for (const cell of figure.querySelectorAll("[data-place]")) {
        const place = Number(cell.dataset.place);
        const was = seen[index].get(place);
        const kind = now[index].get(place);
        cell.classList.toggle("now", kind !== undefined);
        cell.classList.toggle("stored", kind !== undefined && kind !== "load");
        cell.classList.toggle("touched", was?.load + was?.store > 0);
        cell.classList.toggle("again", was?.load > 1);
        cell.classList.toggle("unwritten", this.written[index] && !was?.store && !was?.load);
        if (cell.dataset.last !== undefined) cell.textContent = !this.all && was?.store ? was.text : cell.dataset.last;
      }
    }
    for (const each of this.result.querySelectorAll("[data-count]")) each.textContent = bytes[each.dataset.count];
  }

  /* The names of the function that runs, and of those that have called it. */
  registers(at, step) {
    const frames = (step?.frame ?? []).map(([number, name]) => ({ number, name, values: new Map() }));
    for (const each of this.steps.slice(0, at)) {
      const own = frames.find(({ number }) => number === each.frame.at(-1)[0]);
      for (const [name, value] of own ? each.names : []) {
        const { of, shape } = this.values[value];
        const whole = of && !shape.length && this.values[value].lanes[0][0] === "0"; // a tensor as it was handed over
        if (whole || (PASSING.has(name) && each !== step)) continue;
        own.values.delete(name); // the last to be set is the first to be shown
        own.values.set(name, value);
      }
    }
    const now = new Set(step?.names.map(([name]) => name));
    const shown = frames.filter(({ values }) => values.size);
    this.names.replaceChildren(
      ...shown.map((frame) =>
        element(
          "div",
          { class: "run-frame" },
          shown.length > 1 ? element("p", { class: "run-frame-name" }, frame.name) : null,
          [...frame.values].reverse().map(([each, value]) => tile(each, this.values[value], frame === frames.at(-1) && now.has(each))),
        ),
      ),
    );
    this.names.hidden = !this.names.childElementCount;
  }

  /* Which program and which turn the choices show, and the turns there are in that program. */
  where(at, step) {
    const mine = step ? this.run(step) : "";
    const turns = this.steps.flatMap((each, index) => (each.turns && this.run(each) === mine ? [index + 1] : []));
    const said = (index) => {
      const { at: place, names } = this.steps[index - 1];
      return `Line ${place[1]}: ${names.map(([name, value]) => `${name} = ${this.values[value].lanes.flat().join(" ")}`).join(", ")}`;
    };
    this.turn.replaceChildren(element("option", { value: String(at) }, turns.length ? "Turns" : "No loop"), ...turns.map((index) => element("option", { value: String(index) }, said(index))));
    this.turn.disabled = !turns.length;
    this.turn.value = String(turns.filter((index) => index <= at).at(-1) ?? at);
    const first = [...this.program.options].find(({ value }) => this.run(this.steps[value - 1]) === mine);
    if (first) first.selected = true;
  }

  sentence(at, step) {
    const count = this.steps.length;
    if (!step) return "Nothing has run yet.";
    if (this.all) return `All ${count} steps. Move the slider to see them one by one.`;
    const did = step.accesses.map(([kind, tensor, places]) => `${WORD[kind]} ${places.length === 1 ? "1 element" : `${places.length} elements`} of ${this.tensors[tensor][0]}`);
    const names = step.names.filter(([name]) => !PASSING.has(name)).map(([name]) => name);
    const own = step.names.length > names.length ? ["returns"] : names.length ? [`sets ${names.join(", ")}`] : [];
    if (step.names[0]?.[0] === "condition") own[0] = "asks whether to go on";
    const line = step.at ? `, line ${step.at[1]}` : "";
    return `Step ${at} of ${count}: program ${step.who}${line} ${[...did, ...own].join(" and ") || "has run"}.`;
  }

  /* How often an element was read and written, while the pointer is on it. */
  point(figure, cell) {
    const place = Number(cell.dataset?.place ?? NaN);
    if (Number.isNaN(place)) return;
    const index = Number(figure.dataset.tensor);
    const of = (kinds) => this.steps.flatMap((step) => step.accesses.filter((each) => each[1] === index && kinds.includes(each[0]) && each[2].includes(place)).map(() => step.who));
    const reads = of("load atomic"), writes = of("store atomic");
    const times = ({ length }) => (length === 1 ? "once" : length === 2 ? "twice" : length ? `${length} times` : "never");
    const programs = [...new Set([...reads, ...writes].map((who) => `program ${who}`))];
    const by = programs.length ? ` by ${programs.join(", ")}` : "";
    this.says.textContent = `This element of ${this.tensors[index][0]}: read ${times(reads)}, written ${times(writes)}${by}.`;
    for (const each of figure.querySelectorAll("[data-place]")) each.classList.toggle("pointed", Number(each.dataset.place) === place);
  }
}
