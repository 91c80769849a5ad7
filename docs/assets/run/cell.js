/* Cells: code that is edited and run in the page. Without this script they show code and result.
 *
 * The HTML of results comes from src/softmax_playground/small_triton/show.py, here as in the build.
 */
import { element } from "../element.js";
import { Editor, help, runs } from "./editor.js";
import { found, keep, link, linked } from "./kept.js";
import * as runner from "./runner.js";
import { Trace } from "./trace.js";

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
  let ran = null; // the texts that the result is of
  let running = false;
  let next = false; // whether a run waits for the one that goes on to be stopped
  let trace = null;

  const editors = boxes.map((box, index) => {
    const name = boxes.length === 1 ? "Code" : index ? "The call" : "The kernel";
    box.removeAttribute("tabindex");
    const made = new Editor(box, `${name} of ${title}`, edit);
    made.text = wrong[index];
    return made;
  });
  bar.replaceChildren(); // the build's buttons, which keep the place of these
  const act = (text, kind, does) => {
    const made = element("button", { type: "button", class: kind }, text);
    made.addEventListener("click", does);
    return made;
  };
  const button = (...how) => {
    const made = act(...how);
    bar.append(made);
    return made;
  };
  button("Run", "run-go", afresh);
  const stop = button("Stop", "", () => runner.stop());
  const mend = wrong.at(-1) !== right.at(-1) && button("Fix it", "", () => swap(texts === wrong ? right : wrong));
  const reset = button("Reset", "", () => swap(wrong));
  button("Link", "", share);
  const why = element("p", { class: "run-comes", role: "status" });
  const tries = data.tries.map(([label, old, other, words]) => {
    const tried = wrong.map((text) => text.replace(old, () => other));
    const made = button("", "run-try", () => swap(texts === tried ? wrong : tried));
    return [made, tried, words, label];
  });
  if (tries.length) bar.after(why);
  const status = element("span", { class: "run-status", role: "status" });
  bar.append(status);
  cell.querySelector(".run-text:last-of-type").append(help("runs", "Run", ...editors));

  const edited = () => editors.some((editor, index) => editor.text !== texts[index].replace(/\n$/, ""));
  const written = () => editors.map((editor) => `${editor.text}\n`);

  function state() {
    stop.disabled = !running;
    reset.disabled = !edited() && texts === wrong;
    // What a try did holds for its own code.
    why.textContent = (!edited() && tries.find(([, tried]) => texts === tried)?.[2]) || "";
    cell.classList.toggle("running", running);
    cell.classList.toggle("edited", edited());
    cell.classList.toggle("stale", written().join() !== ran);
  }

  function edit() {
    keep(data.name, edited() ? editors.map((editor) => editor.text) : null);
    state();
    if (!running) status.textContent = cell.classList.contains("stale") ? "Edited, not run yet" : "";
  }

  /* Code that the reader has written before, or that a link has brought. It is not run unasked. */
  async function restore() {
    const { texts: theirs, from } = (await found(data.name)) ?? {};
    if (theirs?.length !== editors.length) return;
    editors.forEach((editor, index) => (editor.text = theirs[index]));
    if (edited()) status.textContent = `${from}, not run yet`;
    state();
    if (linked()?.[1] === data.name) cell.scrollIntoView();
  }

  async function share() {
    const address = await link(data.name, editors.map((editor) => editor.text));
    history.replaceState(null, "", address);
    const copied = await navigator.clipboard?.writeText(address).then(() => true, () => false);
    status.textContent = copied ? "Link copied: it carries this code" : "The address of this page now carries this code";
  }

  function fill() {
    editors.forEach((editor, index) => editor.replace(texts[index]));
    keep(data.name, null);
    label();
  }

  function label() {
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
    afresh();
  }

  /* Runs what the editors show now, in the place of a run that goes on. */
  function afresh() {
    next = running;
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

  function where(step) {
    trace.go(step);
    result.querySelector(".run-trace").scrollIntoView({ block: "nearest" });
  }

  async function run() {
    if (running) return;
    running = true;
    trace?.pause();
    status.textContent = "Running …";
    for (const editor of editors) editor.mark("failed");
    state();
    const begun = performance.now();
    const asked = { given: data.given, right: data.right, again: data.again, texts: written() };
    const reply = await runner.run(asked, (seconds) => (status.textContent = `Running: it takes ${Math.round(seconds)} s in this browser, up to ${Math.round(4 * seconds)} if it is busy …`));
    const took = performance.now() - begun;
    const fold = boxes[reply.error?.text]?.closest(".run-fold");
    if (fold) fold.open = true; // the line that failed is in it
    running = false;
    if (next) {
      next = false;
      return run();
    }
    ran = asked.texts.join();
    cell.classList.remove("unrun");
    result.innerHTML = reply.html || (reply.error || mend ? "" : '<p class="run-says">It ran, and has nothing to show.</p>');
    if (mend && !reply.error) result.prepend(element("p", { class: "run-passed" }, "✓ Fixed: it no longer fails."));
    if (reply.error && !reply.html) result.append(element("p", { class: "run-error", role: "alert" }, reply.error.message));
    trace = reply.steps.length ? new Trace(result, reply, editors) : null;
    if (reply.verdict?.step) result.querySelector(".run-verdict").append(" ", act("Show where", "", () => where(reply.verdict.step)));
    if (reply.error && reply.error.text !== null) editors[reply.error.text]?.point("failed", reply.error.line);
    status.textContent = reply.error ? "Failed" : `Done in ${took < 1000 ? `${Math.max(1, Math.round(took))} ms` : `${(took / 1000).toFixed(1)} s`}`;
    cell.dataset.took = String(took);
    state();
  }

  cell.addEventListener("keydown", (event) => {
    if (!runs(event)) return;
    event.preventDefault();
    afresh();
  });
  cell.addEventListener("input", runner.warm, { once: true });
  cell.classList.add("live", "unrun");
  ran = written().join();
  label();
  restore();
}

for (const cell of document.querySelectorAll(".run-cell")) enhance(cell);
