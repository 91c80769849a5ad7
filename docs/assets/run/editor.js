/* The editor of cells and of exercises: a textarea over coloured code. */
import { element } from "../element.js";

/* ---- Colours, with the names that Pygments uses ---- */

const WORDS = new RegExp(
  [
    /(?<c1>#.*)/,
    /(?<s>[rfb]{0,2}(?:"""[\s\S]*?(?:"""|(?![^]))|'''[\s\S]*?(?:'''|(?![^]))|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/,
    /(?<nd>^[ \t]*@[\w.]+)/,
    /\b(?<k>and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b/,
    /\b(?<nb>abs|float|int|len|list|max|min|print|range|sum|tuple|zip|enumerate|reversed|round|show|isinstance)\b(?!=)/,
    /(?<mi>\b\d[\d_]*(?:\.\d*)?(?:e[+-]?\d+)?)/,
  ].map((part) => part.source).join("|"),
  "gm",
);

const safe = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

function coloured(code) {
  let html = "";
  let at = 0;
  for (const match of code.matchAll(WORDS)) {
    const [name] = Object.entries(match.groups).find(([, text]) => text !== undefined);
    const lines = safe(match[0]).replaceAll("\n", `</span>\n<span class="${name}">`);
    html += `${safe(code.slice(at, match.index))}<span class="${name}">${lines}</span>`;
    at = match.index + match[0].length;
  }
  return html + safe(code.slice(at));
}

/* ---- The editor ---- */

const touch = matchMedia("(hover: none)");

export class Editor {
  /* `box` has the code, in a <code>; `label` names it to who cannot see it; `changed` is called when it is edited. */
  constructor(box, label, changed = () => {}) {
    this.code = box.querySelector("code");
    this.marks = element("div", { class: "editor-marks", "aria-hidden": "true" });
    this.numbers = element("pre", { class: "editor-numbers", "aria-hidden": "true" });
    this.area = element("textarea", {
      "aria-label": label,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      autocorrect: "off",
      rows: "1",
    });
    box.append(this.numbers, this.marks, this.area);
    this.box = box;
    this.escaped = false;
    this.rows = [];
    new ResizeObserver(() => this.measure()).observe(this.code);
    document.fonts.addEventListener("loadingdone", () => this.measure()); // other widths, perhaps of the same height
    this.area.addEventListener("input", () => {
      this.paint();
      this.marks.replaceChildren();
      changed();
    });
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => (this.escaped = false));
  }

  get text() {
    return this.area.value;
  }

  get lines() {
    return this.text.split("\n");
  }

  set text(text) {
    this.area.value = text.replace(/\n$/, "");
    this.box.style.setProperty("--columns", Math.max(...this.lines.map((line) => line.length)));
    this.paint();
    this.marks.replaceChildren();
  }

  /* Other text in the place of all, which Ctrl + Z takes back. */
  replace(text) {
    const before = document.activeElement;
    if (text.replace(/\n$/, "") === this.text) return;
    this.area.focus({ preventScroll: true });
    this.area.select();
    this.type(text.replace(/\n$/, ""));
    before?.focus({ preventScroll: true });
  }

  paint() {
    const lines = coloured(this.area.value).split("\n");
    this.code.innerHTML = lines.map((line) => `<span class="editor-line">${line}\n</span>`).join("");
    this.measure();
  }

  /* A line that is too long goes on in the next row, and the numbers and marks follow. */
  measure() {
    const height = parseFloat(getComputedStyle(this.code).lineHeight);
    this.rows = [...this.code.children].map((line) => Math.max(1, Math.round(line.offsetHeight / height)));
    const numbers = this.rows.map((rows, index) => `${index + 1}${"\n".repeat(rows - 1)}`).join("\n");
    if (this.numbers.textContent !== numbers) this.numbers.textContent = numbers;
    for (const bar of this.marks.children) this.place(bar);
  }

  place(bar) {
    const before = this.rows.slice(0, bar.dataset.line - 1).reduce((sum, rows) => sum + rows, 0);
    bar.style.setProperty("--row", before);
    bar.style.setProperty("--rows", this.rows[bar.dataset.line - 1] ?? 1);
  }

  /* Tab indents, unless Escape came before it: then it leaves the editor, as everywhere. */
  key(event) {
    const { key } = event;
    if (key === "Escape") {
      this.escaped = true;
      return;
    }
    if (key === "Tab" && !this.escaped && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      this.indent(event.shiftKey);
    } else if (key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.metaKey) {
      const before = this.area.value.slice(0, this.area.selectionStart).split("\n").at(-1);
      const more = /:\s*(#.*)?$/.test(before) ? "    " : "";
      event.preventDefault();
      this.type(`\n${before.match(/^ */)[0]}${more}`);
    }
    if (key === "Backspace") this.outdent(event);
    if (key !== "Shift" && key !== "Tab") this.escaped = false;
  }

  type(text) {
    /* Keeps the browser's own undo, which setRangeText does not everywhere. */
    if (!(text ? document.execCommand("insertText", false, text) : document.execCommand("delete"))) {
      this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
      this.area.dispatchEvent(new Event("input"));
    }
  }

  /* Backspace behind the spaces that begin a line takes as many as Tab has put there. */
  outdent(event) {
    const { selectionStart: at, selectionEnd: to, value } = this.area;
    const before = value.slice(value.lastIndexOf("\n", at - 1) + 1, at);
    if (at !== to || before.length < 2 || before.trim()) return;
    event.preventDefault();
    this.area.setSelectionRange(at - (before.length % 4 || 4), at);
    this.type("");
  }

  indent(back) {
    const { selectionStart: from, selectionEnd: to, value } = this.area;
    const start = value.lastIndexOf("\n", from - 1) + 1;
    if (!back && from === to) {
      this.type(" ".repeat(4 - ((from - start) % 4)));
      return;
    }
    const lines = value.slice(start, to).split("\n");
    const text = lines.map((line) => (back ? line.replace(/^ {1,4}/, "") : `    ${line}`)).join("\n");
    this.area.setSelectionRange(start, to);
    this.type(text);
    this.area.setSelectionRange(start, start + text.length);
  }

  /* Mark lines of one kind: where a program is, where it failed, what is wrong or right. */
  mark(kind, ...lines) {
    for (const each of this.marks.querySelectorAll(`.${kind}`)) each.remove();
    const bars = lines.map((line) => {
      const bar = element("div", { class: `editor-mark ${kind}`, "data-line": line });
      this.place(bar);
      return bar;
    });
    this.marks.append(...bars);
    return bars;
  }

  /* Mark where a program is, or where it failed, and show the first of these lines. */
  point(kind, ...lines) {
    const [bar] = this.mark(kind, ...lines.filter(Boolean));
    if (!bar) return;
    const top = bar.offsetTop, { scrollTop, clientHeight } = this.box;
    if (top < scrollTop || top > scrollTop + clientHeight - 40) this.box.scrollTop = top - clientHeight / 3;
  }
}

/* What the keys do in some editors: a line for below them. `verb` is what Ctrl + Enter does, and where there is no
 * keyboard the button. */
export function help(verb, button, ...editors) {
  const id = `editor-help-${document.querySelectorAll(".editor-help").length + 1}`;
  for (const each of editors) each.area.setAttribute("aria-describedby", id);
  const keys = `Ctrl + Enter ${verb}. Tab indents; press Esc first to leave the code with it.`;
  return element("p", { class: "editor-help", id }, touch.matches ? `The ${button} button ${verb} this code.` : keys);
}

/* Whether a key means: run this. */
export const runs = ({ key, ctrlKey, metaKey, shiftKey }) => key === "Enter" && (ctrlKey || metaKey || shiftKey);
