/* Cells: code that is edited and run in the page. Without this script they show code and result.
 *
 * The HTML of results comes from src/softmax_site/tiny_triton/show.py, here as in the build. This
 * script makes editors of the code, and steps through what a run read and wrote.
 */
(function () {
  "use strict";

  const PAUSE = 500;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  /* ---- Colours, with the names that Pygments uses ---- */

  const WORDS = new RegExp(
    [
      /(?<c1>#.*)/,
      /(?<s>[rfb]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/,
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
      html += `${safe(code.slice(at, match.index))}<span class="${name}">${safe(match[0])}</span>`;
      at = match.index + match[0].length;
    }
    return html + safe(code.slice(at));
  }

  /* ---- Editors ---- */

  class Editor {
    constructor(box, label, changed) {
      this.code = box.querySelector("code");
      this.marks = element("div", { class: "run-marks", "aria-hidden": "true" });
      this.area = element("textarea", {
        "aria-label": label,
        spellcheck: "false",
        autocapitalize: "off",
        autocomplete: "off",
        autocorrect: "off",
        wrap: "off",
        rows: "1",
      });
      box.append(this.marks, this.area);
      this.box = box;
      this.escaped = false;
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

    set text(text) {
      this.area.value = text.replace(/\n$/, "");
      this.paint();
      this.marks.replaceChildren();
    }

    paint() {
      this.code.innerHTML = `${coloured(this.area.value)}\n`;
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
      if (key !== "Shift" && key !== "Tab") this.escaped = false;
    }

    type(text) {
      /* Keeps the browser's own undo, which setRangeText does not everywhere. */
      if (!document.execCommand("insertText", false, text)) {
        this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
        this.area.dispatchEvent(new Event("input"));
      }
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
        const bar = element("div", { class: `run-mark ${kind}` });
        bar.style.setProperty("--line", line - 1);
        return bar;
      });
      this.marks.append(...bars);
      return bars;
    }

    /* Mark where a program is, or where it failed, and show that line. */
    point(kind, line) {
      const [bar] = this.mark(kind, ...(line ? [line] : []));
      if (!bar) return;
      const top = bar.offsetTop, { scrollTop, clientHeight } = this.box;
      if (top < scrollTop || top > scrollTop + clientHeight - 40) this.box.scrollTop = top - clientHeight / 3;
    }
  }

  window.CodeEditor = Editor; // the exercises have editors of the same kind

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
      const bytes = { load: 0, store: 0 };
      const seen = this.tensors.map(() => new Map());
      this.steps.slice(0, at).forEach(([, kind, tensor, places]) => {
        const size = places.length * this.tensors[tensor][1];
        if (kind !== "store") bytes.load += size;
        if (kind !== "load") bytes.store += size;
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
      const programs = [...new Set([...of("load"), ...of("store")].map(([program]) => program))];
      const by = programs.length ? ` by program ${programs.join(", ")}` : "";
      this.says.textContent = `This element of ${this.tensors[index][0]}: read ${times(of("load").length)}, written ${times(of("store").length)}${by}.`;
      for (const each of figure.querySelectorAll("[data-place]")) each.classList.toggle("pointed", Number(each.dataset.place) === place);
    }
  }

  /* ---- Cells ---- */

  let last = 0;

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
    const boxes = [...cell.querySelectorAll(".run-editor")];
    const number = ++last;
    const help = element("p", { class: "run-help", id: `run-help-${number}` }, "Ctrl + Enter runs. Tab indents; press Esc first to leave the code with it.");
    const wrong = version(data, "wrong");
    const right = version(data, "right");
    let texts = wrong;
    let running = false;
    let steps = null;

    const editors = boxes.map((box, index) => {
      const name = boxes.length === 1 ? "Code" : index ? "The call" : "The kernel";
      box.removeAttribute("tabindex");
      const editor = new Editor(box, `${name} of ${cell.getAttribute("aria-label")}`, () => state());
      editor.area.setAttribute("aria-describedby", help.id);
      return editor;
    });
    const button = (text, kind, act) => {
      const made = element("button", { type: "button", class: kind }, text);
      made.addEventListener("click", act);
      bar.append(made);
      return made;
    };
    const go = button("Run", "run-go", run);
    const stop = button("Stop", "", () => Runner.stop());
    const mend = wrong.at(-1) !== right.at(-1) && button("Fix it", "", () => swap(texts === wrong ? right : wrong));
    const reset = button("Reset", "", () => swap(wrong));
    const status = element("span", { class: "run-status", role: "status" });
    bar.append(status);
    cell.querySelector(".run-texts").append(help);

    const edited = () => editors.some((editor, index) => editor.text !== texts[index].replace(/\n$/, ""));

    function state() {
      stop.disabled = !running;
      reset.disabled = !edited() && texts === wrong;
      cell.classList.toggle("running", running);
      cell.classList.toggle("edited", edited());
    }

    function fill() {
      editors.forEach((editor, index) => (editor.text = texts[index]));
      if (mend) mend.textContent = texts === wrong ? "Fix it" : "Break it again";
      state();
    }

    function swap(other) {
      texts = other;
      fill();
      if (mend) mark();
      if (running) Runner.stop();
      else run();
    }

    /* The lines by which a mistake and its mend differ. */
    function mark() {
      const [mine] = texts, [theirs] = texts === wrong ? right : wrong;
      const others = new Set(theirs.split("\n"));
      const lines = mine.split("\n").flatMap((line, index) => (others.has(line) ? [] : [index + 1]));
      editors[0].mark(texts === wrong ? "wrong" : "right", ...lines);
    }

    async function run() {
      if (running) return;
      running = true;
      steps?.pause();
      status.textContent = "Running …";
      for (const editor of editors) editor.mark("failed");
      state();
      const begun = performance.now();
      const reply = await Runner.run({ given: data.given, texts: editors.map((editor) => `${editor.text}\n`) });
      const took = performance.now() - begun;
      running = false;
      result.innerHTML = reply.html || (reply.error ? "" : '<p class="run-says">It ran, and has nothing to show.</p>');
      if (reply.error && !reply.html) result.append(element("p", { class: "run-error", role: "alert" }, reply.error.message));
      steps = reply.steps.length ? new Steps(result, reply, editors) : null;
      if (reply.error && reply.error.text !== null) editors[reply.error.text]?.point("failed", reply.error.line);
      status.textContent = reply.error ? "Failed" : `Done in ${took < 1000 ? `${Math.max(1, Math.round(took))} ms` : `${(took / 1000).toFixed(1)} s`}`;
      cell.dataset.took = String(took);
      state();
    }

    cell.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) {
        event.preventDefault();
        run();
      }
    });
    cell.addEventListener("input", () => Runner.warm(), { once: true });
    cell.classList.add("live");
    fill();
    if (mend) mark();
  }

  for (const cell of document.querySelectorAll(".run-cell:not(.live)")) enhance(cell);
})();
