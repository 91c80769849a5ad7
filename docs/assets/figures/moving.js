/* Figures that move. A figure is a module beside this one whose default export has
 *
 *   start(data)                    the state that the page shows first: numbers, arrays, words
 *   controls(state, data)          what a reader can set: see `makers`
 *   numbers(state, data)           everything that is computed, from the state alone
 *   draw(state, numbers, width, data)   the picture: a list of SVG texts for a width of 300 or 720
 *   says(state, numbers, data)     the picture in a sentence, read out when it changes
 *
 * all of them pure. The first picture lies in the page (python -m softmax_site.figures puts it
 * there); this script adds controls and handles and draws again whenever the state changes.
 */

import { element } from "../element.js";

export const WIDTHS = [720, 300];

/* ---- Drawing ---- */

const escape = (words) => String(words).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const place = (value) => +value.toFixed(2);

/** A number with fixed digits and a true minus sign, which what rounds to 0 does not have. */
export const fixed = (value, digits = 3) =>
  Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−") : value > 0 ? "∞" : "−∞";

/** A number in two or three digits, with a power of ten where it is very large or small. */
export function brief(value, digits = 2) {
  if (!Number.isFinite(value) || value === 0) return fixed(value, 0);
  if (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5) return String(+value.toPrecision(digits)).replace("-", "−");
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const raised = [...String(+power)].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("");
  return `${String(+mantissa).replace("-", "−")}·10${raised}`;
}

export const grouped = (value) => Math.round(value).toLocaleString("en-US");

export const text = (x, y, words, css = "", anchor = "middle") =>
  `<text x="${place(x)}" y="${place(y)}" text-anchor="${anchor}" class="${css}">${escape(words)}</text>`;

export const rect = (x, y, w, h, css, more = "") =>
  `<rect x="${place(x)}" y="${place(y)}" width="${place(Math.max(w, 0))}" height="${place(Math.max(h, 0))}" class="${css}" ${more}/>`;

/** Squares of one colour, by their corners: one element, however many they are. */
export const squares = (corners, side, css) => {
  const sides = `h${place(side)}v${place(side)}h${place(-side)}z`;
  return `<path d="${corners.map(([x, y]) => `M${place(x)} ${place(y)}${sides}`).join("")}" class="${css} squares"/>`;
};

export const line = (x1, y1, x2, y2, css) =>
  `<path d="M${place(x1)} ${place(y1)}L${place(x2)} ${place(y2)}" class="${css}"/>`;

export const cross = (x, y, side, css) =>
  `<path d="M${place(x)} ${place(y)}l${place(side)} ${place(side)}m0 ${place(-side)}l${place(-side)} ${place(side)}" class="${css}"/>`;

export const curve = (points, css) =>
  `<path d="M${points.map(([x, y]) => `${place(x)} ${place(y)}`).join("L")}" class="${css}"/>`;

export const dot = (x, y, r, css) => `<circle cx="${place(x)}" cy="${place(y)}" r="${r}" class="${css}"/>`;

export const svg = (width, height, says, parts) =>
  `<svg viewBox="0 0 ${place(width)} ${place(height)}" width="${place(width)}" height="${place(height)}" role="img" ` +
  `aria-label="${escape(says)}">${parts.flat(Infinity).join("")}</svg>`;

/** A place in a picture that can be dragged along an axis, from the pixel of `min` to that of `max`. */
export function handle(x, y, { key, label, value, min, max, step, axis = "y", from, to }) {
  const data = { key, label, value, min, max, step, axis, from: place(from), to: place(to) };
  const attributes = Object.entries(data).map(([name, each]) => `data-${name}="${escape(each)}"`).join(" ");
  return `<g class="handle" transform="translate(${place(x)} ${place(y)})" ${attributes}>` +
    `<circle r="15" class="reach"/><circle r="6" class="knob"/></g>`;
}

/** Bars on a line at `zero`, each with its number, and with handles where a key says what they move. */
export function bars(values, { left, zero, unit, pitch, css = "ours", digits = 3, ghosts, key, label, min, max, step = 0.1, numbersAt }) {
  const wide = Math.min(pitch * 0.66, 40);
  const out = [line(left, zero, left + pitch * values.length, zero, "axis")];
  values.forEach((value, at) => {
    const middle = left + pitch * (at + 0.5), x = middle - wide / 2;
    const high = (Number.isFinite(value) ? value : 0) * unit;
    const kind = value < 0 && css === "ours" ? "behind" : css;
    out.push(rect(x, zero - Math.max(high, 0), wide, Math.max(Math.abs(high), 0.5), `bar ${kind}`));
    if (ghosts) out.push(rect(x, zero - Math.max(ghosts[at] * unit, 0), wide, Math.abs(ghosts[at] * unit), "ghost"));
    const y = numbersAt ?? (value < 0 ? zero - high + 15 : zero - high - 6);
    out.push(text(middle, y, fixed(value, digits), pitch < 44 ? "tiny" : "small"));
    if (key) {
      out.push(handle(middle, zero - high, {
        key: `${key}.${at}`, label: `${label} ${at + 1}`, value, min, max, step,
        from: zero - min * unit, to: zero - max * unit,
      }));
    }
  });
  return out;
}

/** The frame that lies in a page: the first picture in both widths. */
export function frame(figure, data) {
  const state = figure.start(data);
  const numbers = figure.numbers(state, data);
  return WIDTHS.map((width) => {
    const pictures = figure.draw(state, numbers, width, data).join("\n");
    return `<div class="panels" data-width="${width}">\n${pictures}\n</div>`;
  }).join("\n") + "\n";
}

/* ---- Changing what is there ---- */

/** Make `old` what `next` is and keep its elements, so that focus stays and sizes can glide. */
function patch(old, next) {
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes], after = [...next.childNodes];
  after.forEach((child, at) => {
    const mine = before[at];
    if (!mine) old.append(child);
    else if (mine.nodeName !== child.nodeName) mine.replaceWith(child);
    else if (child.nodeType === Node.ELEMENT_NODE) patch(mine, child);
    else if (mine.data !== child.data) mine.data = child.data;
  });
  before.slice(after.length).forEach((child) => child.remove());
}

function picture(parts) {
  const made = element("template");
  made.innerHTML = `\n${parts.join("\n")}\n`;
  for (const each of made.content.querySelectorAll(".handle")) {
    const { label, value, min, max } = each.dataset;
    const attributes = { role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": min, "aria-valuemax": max, "aria-valuenow": value };
    for (const [name, words] of Object.entries(attributes)) each.setAttribute(name, words);
    each.closest("svg").setAttribute("role", "group");
  }
  return made.content;
}

/** Words to a row of numbers, or to what is wrong with them. */
function parse(words, most) {
  const parts = words.replaceAll("−", "-").split(/[\s,;]+/).filter(Boolean);
  const row = parts.map((part) => (/^-(inf(inity)?|∞)$/i.test(part) ? -Infinity : Number(part)));
  if (!row.length || row.some((each) => Number.isNaN(each) || each === Infinity)) return "Numbers, separated by commas; -inf is one.";
  return row.length > most ? `At most ${most} numbers.` : row;
}

const of = (bound, state) => (typeof bound === "function" ? bound(state) : bound);

const snap = (value, min, max, step) =>
  +Math.min(max, Math.max(min, min + Math.round((value - min) / step) * step)).toFixed(6);

const KEYS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };

const plain = (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/* ---- Controls: { kind, key, … } becomes an element, and a function that shows the state. A `max`
 * may be a function of the state. ---- */

const makers = {
  /** A number: label, min, max, step, show(value). */
  slider({ key, label, min, max, step, show = String }, set) {
    const input = element("input", { type: "range", min, step, "data-key": key, "aria-label": label });
    const output = element("span", { class: "value", "aria-hidden": "true" });
    input.addEventListener("input", () => set(key, +input.value));
    const update = (value, state) => {
      input.max = of(max, state);
      input.value = value;
      input.setAttribute("aria-valuetext", show(value));
      output.textContent = show(value);
    };
    return [element("label", { class: "control slider" }, element("span", {}, label), input, output), update];
  },
  /** On or off: label. */
  toggle({ key, label }, set) {
    const input = element("input", { type: "checkbox", "data-key": key });
    input.addEventListener("change", () => set(key, input.checked));
    return [element("label", { class: "control toggle" }, input, element("span", {}, label)), (value) => { input.checked = value; }];
  },
  /** One of some words: label, options [[value, words], …]. */
  choice({ key, label, options }, set) {
    const box = element("span", { class: "control choice", role: "group", "aria-label": label });
    const buttons = options.map(([value, words]) => {
      const button = element("button", { type: "button", "data-key": key, "data-value": value }, words);
      button.addEventListener("click", () => set(key, value));
      return button;
    });
    box.append(element("span", {}, label), ...buttons);
    return [box, (now) => options.forEach(([value], at) => buttons[at].setAttribute("aria-pressed", String(value === now)))];
  },
  /** Whole states: options [[words, part of a state], …]. */
  presets({ label, options }, set) {
    const box = element("span", { class: "control choice", role: "group", "aria-label": label }, element("span", {}, label));
    for (const [words, part] of options) {
      const button = element("button", { type: "button" }, words);
      button.addEventListener("click", () => { for (const [key, value] of Object.entries(part)) set(key, structuredClone(value)); });
      box.append(button);
    }
    return [box, () => {}];
  },
  /** Numbers that a reader types: label, at most how many, and what is set with them. */
  row({ key, label, most, also }, set) {
    const input = element("input", { type: "text", "data-key": key, "aria-label": label, placeholder: "3, 1, -inf, 1e30" });
    const wrong = element("span", { class: "wrong", role: "alert" });
    const form = element("form", { class: "control own" }, element("span", {}, label), input, element("button", { type: "submit" }, "Use"), wrong);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const row = parse(input.value, most), right = Array.isArray(row);
      input.setAttribute("aria-invalid", String(!right));
      wrong.textContent = right ? "" : row;
      if (right) for (const [name, value] of Object.entries({ [key]: row, ...also })) set(name, value);
    });
    return [form, () => {}];
  },
  /** Walk a number from min to max, a step every ms. Where motion is unwanted, and with a button of
   * its own where a reader may want to think in between (`single`), a step a click. */
  play({ key, min, max, step, ms = 400, label = "Play", single = false }, set, get, state) {
    const button = element("button", { type: "button", class: "play" }, label);
    const box = element("span", { class: "control" }, button);
    let timer = null;
    const stop = () => { clearInterval(timer); timer = null; delete button.dataset.on; button.textContent = still() ? "Step" : label; };
    const walk = () => {
      const next = snap(get(key) + step, min, of(max, state), step);
      set(key, next);
      if (next >= of(max, state)) stop();
    };
    button.addEventListener("click", () => {
      if (timer) { stop(); return; }
      if (get(key) >= of(max, state)) set(key, min);
      else if (still()) walk();
      if (still()) return;
      timer = setInterval(walk, ms);
      button.textContent = "Pause";
      button.dataset.on = "";
    });
    if (single && !still()) {
      const next = element("button", { type: "button", class: "play" }, "Step");
      next.addEventListener("click", () => {
        stop();
        if (get(key) >= of(max, state)) set(key, min);
        else walk();
      });
      box.prepend(next);
    }
    stop();
    return [box, () => {}];
  },
};

/* ---- A figure in a page ---- */

export function mount(root, figure, data) {
  const state = structuredClone(figure.start(data));
  const panels = [...root.querySelectorAll(".panels")];
  const says = element("p", { class: "moving-says", role: "status" });
  const box = element("div", { class: "controls" });
  let planned = false, shown = [], drawn = null;

  /** The panels that the style sheet shows in this width. */
  const seen = () => panels.find((each) => each.offsetParent) ?? panels[0];
  const get = (key) => key.split(".").reduce((part, name) => part[name], state);
  function set(key, value) {
    const names = key.split("."), last = names.pop();
    names.reduce((part, name) => part[name], state)[last] = value;
    if (!planned) { planned = true; queueMicrotask(update); }
  }

  function update() {
    planned = false;
    const numbers = figure.numbers(state, data);
    drawn = seen();
    const next = element("div", { class: "panels", "data-width": drawn.dataset.width });
    next.append(picture(figure.draw(state, numbers, +drawn.dataset.width, data)));
    patch(drawn, next);
    for (const [key, show] of shown) show(key ? get(key) : undefined, state);
    says.setAttribute("aria-live", box.querySelector("[data-on]") ? "off" : "polite");
    says.textContent = figure.says(state, numbers, data);
    root.dataset.state = JSON.stringify(state, plain);
    root.dataset.numbers = JSON.stringify(numbers, plain);
  }

  shown = figure.controls(state, data).map((control) => {
    const [made, show] = makers[control.kind](control, set, get, state);
    box.append(made);
    return [control.key, show];
  });
  root.querySelector(".panels").before(box);
  root.querySelector("figcaption").before(says);
  root.classList.add("live");
  update();
  new ResizeObserver(() => { if (seen() !== drawn) update(); }).observe(root);

  /* What moves it from outside: a part of its state. */
  root.addEventListener("state", ({ detail }) => { for (const [key, value] of Object.entries(detail)) set(key, value); });

  const take = (each, value) => set(each.dataset.key, snap(value, +each.dataset.min, +each.dataset.max, +each.dataset.step));

  root.addEventListener("keydown", (event) => {
    const each = event.target.closest(".handle");
    if (!each || event.altKey || event.ctrlKey || event.metaKey) return;
    const { value, min, max, step } = each.dataset;
    const ends = { Home: +min, End: +max };
    const target = ends[event.key] ?? (KEYS[event.key] && +value + KEYS[event.key] * step);
    if (target === undefined) return;
    event.preventDefault();
    take(each, target);
  });

  // A finger on a handle moves it and not the page; `touch-action` does nothing inside an SVG.
  root.addEventListener("touchstart", (event) => { if (event.target.closest(".handle")) event.preventDefault(); }, { passive: false });

  root.addEventListener("pointerdown", (event) => {
    const each = event.target.closest(".handle");
    if (!each) return;
    event.preventDefault();
    each.focus({ preventScroll: true });
    each.setPointerCapture(event.pointerId);
    const inverse = each.closest("svg").getScreenCTM().inverse();
    const move = ({ clientX, clientY }) => {
      const at = new DOMPoint(clientX, clientY).matrixTransform(inverse);
      const { axis, from, to, min, max } = each.dataset;
      take(each, +min + ((at[axis] - from) / (to - from)) * (max - min));
    };
    root.classList.add("dragged");
    each.addEventListener("pointermove", move);
    each.addEventListener("lostpointercapture", () => {
      each.removeEventListener("pointermove", move);
      root.classList.remove("dragged");
    }, { once: true });
  });
}

if (typeof document !== "undefined") {
  for (const root of document.querySelectorAll(".moving[data-figure]")) {
    const data = JSON.parse(root.querySelector("script")?.textContent ?? "null");
    import(`./${root.dataset.figure}.js`).then((module) => mount(root, module.default, data));
  }
}
