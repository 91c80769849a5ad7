/* Which kernel a shape gets: a form, whose answer the library's own planner computes in the page.
 *
 * The answer to the first question stands in the page; Python is loaded when the form is used. What
 * comes back is what src/softmax_site/which_kernel/answer.py makes.
 */
import { askPython } from "./ask/client.js";
import { element } from "./element.js";

const DTYPES = ["float32", "bfloat16", "float16", "float64"];

const shown = (value) => (typeof value === "number" ? count(value) : value === true ? "yes" : value === false ? "no" : value);
const count = (value) => value.toLocaleString("en-US");
const plural = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;

function bytesText(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${value} bytes`;
}

function timeText(us) {
  if (us < 10) return `${us.toFixed(1)} µs`;
  return us < 1000 ? `${us.toFixed(0)} µs` : `${(us / 1000).toPrecision(3)} ms`;
}

/* ---- Python ---- */

const PLANNER = `
import json
import answer
measured = json.loads(measured)
def ask(text):
  try:
      return json.dumps(answer.answer(json.loads(text), measured))
  except answer.Refused as error:
      return json.dumps({"refused": str(error)})
`;

async function planner(asset) {
  const { files, measured } = await (await fetch(asset)).json();
  return { files, start: PLANNER, names: { measured: JSON.stringify(measured) } };
}

/* ---- The form ---- */

function field(label, control, hint) {
  return element("label", { class: "ask-field" }, element("span", {}, label), control, hint ? element("small", {}, hint) : null);
}

function select(name, options, value) {
  const made = element("select", { name });
  for (const [key, text] of options) made.append(element("option", { value: key, selected: key === value }, text));
  return made;
}

function form(known, ask) {
  const text = (name, value, more) => element("input", { name, type: "text", value, autocomplete: "off", spellcheck: "false", ...more });
  const dtypes = DTYPES.map((name) => [name, name]);
  return element("form", { class: "ask" },
    element("div", { class: "ask-row" },
      field("Shape", text("shape", ask.shape.join(" × "), { class: "ask-shape" })),
      field("dim", text("dim", ask.dim, { inputmode: "numeric", class: "ask-short" })),
      field("dtype", select("dtype", dtypes, ask.dtype)),
      field("Operation", select("operation", Object.entries(known.operations), ask.operation)),
      element("button", { type: "submit" }, "Which kernel?")),
    element("details", { class: "ask-more" },
      element("summary", {}, "Strides, offset, dtype of the result, batch invariance, another GPU"),
      element("div", { class: "ask-row" },
        field("Strides of the input", text("strides", "", { placeholder: "contiguous", class: "ask-shape" }), "in elements, one for each size"),
        field("Offset", text("offset", "", { placeholder: "0", inputmode: "numeric", class: "ask-short" }), "elements into a vector"),
        field("Result", select("out_dtype", [["", "same dtype"], ...dtypes], "")),
        element("label", { class: "ask-check" }, element("input", { name: "invariant", type: "checkbox" }), "the same bits in every batch"),
        field("Multiprocessors", text("multiprocessors", "", { placeholder: "132", inputmode: "numeric", class: "ask-short" }), "an H200 has 132"))));
}

function numbers(text, what) {
  const plain = text.replaceAll(/torch\.Size/gi, " ").replaceAll(/(\d)_(?=\d)/g, "$1");
  const words = plain.replaceAll(/[×x*,;()[\]]/g, " ").split(/\s+/).filter(Boolean);
  return words.map((word) => {
    const value = Number(word.replaceAll("−", "-"));
    if (!Number.isInteger(value)) throw new Error(`${what}: "${word}" is not a whole number.`);
    return value;
  });
}

function asked(from) {
  const get = (name) => from.elements[name].value.trim();
  const one = (name, what, fallback) => {
    const found = numbers(get(name), what);
    if (found.length > 1) throw new Error(`${what}: one number.`);
    return found.length ? found[0] : fallback;
  };
  const shape = numbers(get("shape"), "Shape");
  if (!shape.length) throw new Error("Shape: one number or more, as 8192 × 50257.");
  const out = { shape, dim: one("dim", "dim", -1), dtype: get("dtype"), operation: get("operation") };
  const strides = numbers(get("strides"), "Strides");
  if (strides.length) out.strides = strides;
  const offset = one("offset", "Offset", 0);
  if (offset) out.offset = offset;
  if (get("out_dtype")) out.out_dtype = get("out_dtype");
  const multiprocessors = one("multiprocessors", "Multiprocessors", 0);
  if (multiprocessors) out.multiprocessors = multiprocessors;
  if (from.elements.invariant.checked) out.invariant = true;
  return out;
}

/* ---- The answer ---- */

function headline(known, answer, base) {
  const name = answer.kernel;
  const page = known.pages[name];
  const label = element("code", {}, name);
  return element("p", { class: "answer-name" }, page ? element("a", { href: `${base}kernels/${page}/` }, label) : label);
}

function fact(value, label, more) {
  return element("div", { class: "answer-fact" }, element("strong", {}, value), element("span", {}, label), more ? element("small", {}, more) : null);
}

function facts(known, answer) {
  const { bytes, time } = answer;
  const moved = bytes.useful + bytes.again + bytes.copied;
  const more = [
    bytes.again ? "the input is read twice" : "each number once",
    bytes.copied ? `${bytesText(bytes.copied)} of them to copy first` : "",
  ].filter(Boolean).join("; ");
  const programs = answer.programs.map(count).join(" + ");
  const launches = answer.programs.length > 1 ? `in ${answer.programs.length} launches` : `of ${plural(answer.warps || 1, "warp")} each`;
  const share = time && time.copy ? `measured: ${time.copy.toFixed(2)} of a copy's speed` : time ? confidence(time.far) : "nothing like it was measured";
  return element("div", { class: "answer-facts" },
    fact(programs, "programs", answer.warps ? launches : "warps are tuned at the first call"),
    fact(bytesText(moved), "moved", more),
    fact(time ? `${time.far ? "≈ " : ""}${timeText(time.us)}` : "–", `to expect on an ${known.gpu.replace(" and ", " or ")}`, share));
}

const confidence = (far) => far < 1 ? "from measurements nearby" : far < 3 ? "from measurements some way off" : "a guess from far away";

const mark = (yes) => element("span", { class: yes ? "why-answer yes" : "why-answer no" }, yes ? "yes" : "no");
const value = (found) => (typeof found === "boolean" ? shown(found) : count(Math.round(found * 1000) / 1000));
const listed = (pairs) => pairs.map(([name, found]) => `${name.replaceAll("_", " ")} ${value(found)}`).join(", ");
const MODELLED = "No constants were measured on such a GPU. A model estimates the time of every possible choice, and the shortest wins.";

const WHY = "Tables of measured constants, in the order asked, and whether a line of each holds. If one stands here several times, several lines hold: the first counts whose chunks of a row can all run at once. The folds below explain the names.";

/* The tables of measured constants that were asked: whether a line of each holds, and what it says. */
function why(known, answer) {
  const list = element("ol", { class: "why" });
  if (answer.modelled) list.append(element("li", {}, element("p", {}, MODELLED)));
  for (const { table, line, says } of answer.why) {
    const [first] = known.tables[table].says.split(/[.;:] /);
    list.append(element("li", {}, element("div", { class: "why-step" }, mark(line !== null),
      element("p", {}, element("span", { class: "why-question" }, first.replace(/\.$/, "")),
        says.length ? element("span", { class: "why-so" }, listed(says)) : null))));
  }
  return list;
}

function everything(known, answer) {
  const list = element("ol", { class: "why-all" });
  let before;
  for (const { table, line, with: seen } of answer.why) {
    const { says, lines } = known.tables[table];
    list.append(element("li", {}, mark(line !== null), element("div", { class: "why-condition" },
      table === before ? null : element("span", {}, says), element("span", { class: "why-values" }, listed(seen)),
      element("pre", {}, line === null ? lines.join("\n") : `${lines[0]}\n${lines[line + 1]}`))));
    before = table;
  }
  return list;
}

function constants(known, answer) {
  const words = known.fields[answer.geometry] || {};
  const order = Object.keys(words);
  const sorted = [...answer.constants].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b)); // Python's in the page has lost it
  const lines = sorted.map(([name, value]) => [name, shown(value), words[name] || ""]);
  const of = known.fields.Choice;
  if (answer.warps) lines.push(["num_warps", count(answer.warps), of.num_warps]);
  if (answer.registers) lines.push(["max_registers", count(answer.registers), of.max_registers]);
  if (answer.chunks > 1) lines.push(["n_chunks", count(answer.chunks), of.n_chunks]);
  if (answer.chunk_cols) lines.push(["chunk_cols", count(answer.chunk_cols), of.chunk_cols]);
  const body = lines.map(([name, value, text]) => element("tr", {},
    element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, value), element("td", {}, text.replaceAll("`", ""))));
  return element("table", { class: "answer-constants" }, element("tbody", {}, body));
}

function near(time) {
  if (!time) return null;
  const doublings = (far) => far === 0 ? "this very case" : `${far.toFixed(1)} doublings away`;
  return element("ul", { class: "answer-near" }, time.near.map((row) => element("li", {},
    `${row.text}, ${row.dtype}: ${timeText(row.us)}${row.copy ? `, ${row.copy.toFixed(2)} of a copy's speed` : ""}; ${doublings(row.far)}`)));
}

function sentence(ask, answer, field) {
  const get = (name) => (answer.constants.find(([key]) => key === name) || [])[1];
  const rows = plural(get("block_rows") || 1, "row");
  const tiles = get("tiles") > 1 ? `${get("tiles")} tiles of ${count(get("block_cols"))} columns side by side` : `a tile of ${plural(get("block_cols") || 0, "column")}`;
  const all = ask.shape.reduce((a, b) => a * b, 1) / answer.columns;
  const unused = all < get("block_rows") ? `, of which the input fills ${plural(all, "row")}` : "";
  const vector = get("vector") > 1 ? `${get("vector")} elements move at a time` : "";
  const each = {
    RowTile: () => `Each program takes ${rows}, in ${tiles}${unused}.`,
    SplitRows: () => `A row of ${count(answer.columns)} is cut into ${plural(answer.chunks, "chunk")} of ${count(answer.chunk_cols)} at most; ${answer.warps === 1 ? "one warp holds" : `${answer.warps} warps hold`} one${get("depth") ? ", and load the next while they wait" : ""}.`,
    StridedTile: () => `Each program takes ${count(get("block_inner"))} columns side by side, whole, in ${get("tiles") > 1 ? `${get("tiles")} tiles` : "a tile"} of ${count(get("block_cols"))} × ${count(get("block_inner"))}.`,
    SplitStrided: () => `The columns are cut into ${plural(answer.chunks, "chunk")} of ${count(get("block_cols"))}; a program holds one chunk of ${count(get("block_inner"))} columns side by side.`,
    TwoPass: () => `Programs walk down ${answer.chunks > 1 ? `${count(answer.chunks)} chunks` : "the columns"} in tiles of ${count(get("block_cols"))} × ${count(get("block_inner"))}, twice.`,
  }[field];
  const first = each ? each() : "One program takes one row and walks it twice.";
  const around = {
    copy: "The inputs are copied first, since no kernel takes their layout.",
    convert: "The inputs are converted to float64 first.",
  };
  return [first, vector ? `${vector}.` : "", ...answer.around.map((name) => around[name] || "")].filter(Boolean).join(" ");
}

function show(into, known, ask, answer, base) {
  into.replaceChildren(
    element("div", { class: "answer-head" },
      element("p", { class: "answer-asked" }, `${known.operations[ask.operation]} of ${ask.shape.map(count).join(" × ")}, ${ask.dtype}${ask.dim === -1 ? "" : `, dim ${ask.dim}`}`),
      headline(known, answer, base),
      element("p", { class: "answer-sentence" }, sentence(ask, answer, answer.geometry))),
    facts(known, answer),
    element("h2", { class: "answer-title" }, "Why"),
    element("p", { class: "answer-sentence" }, WHY),
    why(known, answer),
    element("details", { class: "answer-fold" }, element("summary", {}, "The tables of measured constants, and the lines that decided"), everything(known, answer)),
    element("details", { class: "answer-fold" }, element("summary", {}, "The constants that the kernel is compiled with"), constants(known, answer)),
    ...(answer.time ? [element("details", { class: "answer-fold" }, element("summary", {}, "Where the time comes from"), near(answer.time))] : []));
}

function enhance(box) {
  const start = JSON.parse(box.querySelector("script").textContent);
  const asset = new URL(box.dataset.asset, location.href).href;
  const base = new URL("../", asset).href;
  const made = form(start, start.ask);
  const says = element("p", { class: "ask-says", role: "status" });
  const into = element("div", { class: "answer", "aria-live": "polite" });
  box.append(made, says, into);
  box.hidden = false;
  show(into, start, start.ask, start.answer, base);

  const python = askPython(() => planner(asset));
  const state = () => [...new FormData(made).values()].join("|");
  let turn = 0;
  let last = state();

  async function run() {
    if (state() === last) return; // Enter in a field is a change and a submission
    last = state();
    const mine = ++turn;
    says.classList.remove("wrong");
    try {
      const ask = asked(made);
      if (turn === 1) says.textContent = "Loading Python …";
      const answer = JSON.parse(await python(JSON.stringify(ask)));
      if (mine !== turn) return;
      says.textContent = "";
      if (answer.refused) throw new Error(answer.refused);
      show(into, start, ask, answer, base);
    } catch (error) {
      if (mine !== turn) return;
      into.replaceChildren(); // no answer to what was asked before
      says.textContent = error.message;
      says.classList.add("wrong");
    }
    box.dataset.turn = String(mine);
  }

  made.addEventListener("submit", (event) => { event.preventDefault(); run(); });
  made.addEventListener("change", run);

  function take(ask) {
    made.elements.shape.value = ask.shape.join(" × ");
    for (const name of ["dim", "dtype", "operation"]) made.elements[name].value = ask[name];
    for (const name of ["strides", "offset", "out_dtype", "multiprocessors"]) made.elements[name].value = "";
    made.elements.invariant.checked = false;
    box.scrollIntoView({ block: "start", behavior: "auto" });
    made.elements.shape.focus({ preventScroll: true });
    run();
  }

  for (const row of document.querySelectorAll("[data-ask]")) {
    const cell = row.cells[0];
    const button = element("button", { type: "button", class: "ask-this" }, cell.textContent);
    button.addEventListener("click", () => take(JSON.parse(row.dataset.ask)));
    cell.replaceChildren(button);
  }
}

document.querySelectorAll(".which-kernel").forEach(enhance);
