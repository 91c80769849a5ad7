/* Rounding errors measured in the page, in float32, beside their bounds: of an output over the
 * length of its row, and of one exponential over the row's offset. */
import { brief, curve, dot, grouped, line, svg, text } from "./moving.js";

const f = Math.fround;
const U = 2 ** -24;
const POWERS = [2, 4, 6, 8, 10, 12, 14, 16, 18];
const OFFSETS = [0, 1, 2, 3, 4, 5, 6];
const TRIALS = 4;

/** n numbers evenly between −width and width: the same in every language (a generator modulo 2³²). */
function row(n, width, seed) {
  let state = seed >>> 0;
  return Float32Array.from({ length: n }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return width * ((state >>> 8) / 2 ** 23 - 1);
  });
}

function inTree(e) {
  let sums = e;
  while (sums.length > 1) {
    const next = new Float32Array(sums.length / 2);
    for (let at = 0; at < next.length; at += 1) next[at] = sums[2 * at] + sums[2 * at + 1];
    sums = next;
  }
  return sums[0];
}

/** The worst error of the largest output of some rows, in units u, summed in order and in a tree. */
function lengthError(power, width) {
  const n = 2 ** power;
  let chain = 0, tree = 0;
  for (let trial = 1; trial <= TRIALS; trial += 1) {
    const x = row(n, width, 1000 * power + trial), m = x.reduce((a, b) => Math.max(a, b), -Infinity);
    const e = new Float32Array(n);
    let exact = 0, sum = 0;
    for (let at = 0; at < n; at += 1) {
      exact += Math.exp(x[at] - m);
      e[at] = Math.exp(f(x[at] - m));
      sum = f(sum + e[at]);
    }
    chain = Math.max(chain, Math.abs(f(1 / sum) * exact - 1) / U);
    tree = Math.max(tree, Math.abs(f(1 / inTree(e)) * exact - 1) / U);
  }
  const bound = Math.log(n) + 3; // eq: softmax-error-bound, entropy-identity
  return { n, chain, tree, chainBound: bound + n - 1, treeBound: bound + power };
}

/** The worst relative error of exp(x − m) by a power of two, scaled first and subtracted first. */
function offsetError(power, width) {
  const offset = 10 ** power, c = f(Math.LOG2E);
  const x = row(1024, width, 7).map((each) => f(offset + each)), m = Math.max(...x), low = Math.min(...x);
  let first = 0, after = 0;
  for (const each of x) {
    const exact = Math.exp(each - m);
    // eq: exp2-scale-first-error, exp2-subtract-first-error
    first = Math.max(first, Math.abs(f(2 ** f(f(each * c) - f(m * c))) / exact - 1));
    after = Math.max(after, Math.abs(f(2 ** f(f(each - m) * c)) / exact - 1));
  }
  const largest = Math.max(Math.abs(low), Math.abs(m));
  return { offset, first, after, firstBound: U * (2 * largest + 2 * (m - low) + 1), afterBound: U * (3 * (m - low) + 1) };
}

const known = new Map();
function measured(width) {
  if (!known.has(width)) {
    known.set(width, { lengths: POWERS.map((power) => lengthError(power, width)), offsets: OFFSETS.map((power) => offsetError(power, width)) });
  }
  return known.get(width);
}

const raised = (value) => [...String(value)].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("");

function plot(rows, at, { x, xs, y: [low, high, step], name, series, panel, title, xTitle }) {
  const left = 40, right = panel - 12, top = 34, bottom = 208;
  const xAt = (value) => left + ((right - left) * (x(value) - xs[0])) / (xs[1] - xs[0]);
  const yAt = (value) => bottom - ((bottom - top) * (Math.log10(Math.max(value, 10 ** low)) - low)) / (high - low);
  const out = [text(0, 13, title, "title", "start"), text((left + right) / 2, bottom + 36, xTitle)];
  for (let power = low; power <= high; power += step) {
    out.push(line(left, yAt(10 ** power), right, yAt(10 ** power), "grid"), text(left - 6, yAt(10 ** power) + 4, power === 0 ? "1" : `10${raised(power)}`, "small", "end"));
  }
  rows.forEach((each, index) => { if (index % 2 === 0) out.push(text(xAt(each), bottom + 17, name(each), "small")); });
  const now = rows[at];
  out.push(line(xAt(now), top, xAt(now), bottom, "axis"));
  for (const [key, css, label] of series) {
    out.push(curve(rows.map((each) => [xAt(each), yAt(each[`${key}Bound`])]), `${css} dashed`), curve(rows.map((each) => [xAt(each), yAt(each[key])]), css));
    out.push(rows.map((each) => dot(xAt(each), yAt(each[key]), each === now ? 5 : 3, css)));
    const spot = rows[css === "ours" ? rows.length - 3 : 3];
    const y = css === "ours" ? yAt(spot[key]) + 20 : yAt(spot[`${key}Bound`]) - 9;
    out.push(text(xAt(spot), y, label, `${css} halo`, css === "ours" ? "middle" : "end"));
  }
  return out;
}

export default {
  start: () => ({ power: 10, offset: 3, width: 5 }),

  controls: () => [
    { kind: "slider", key: "power", label: "length N", min: 2, max: 18, step: 2, show: (value) => grouped(2 ** value) },
    { kind: "slider", key: "offset", label: "offset", min: 0, max: 6, step: 1, show: (value) => grouped(10 ** value) },
    { kind: "slider", key: "width", label: "numbers within ±", min: 1, max: 20, step: 1 },
  ],

  numbers({ power, offset, width }) {
    const { lengths, offsets } = measured(width);
    return { length: lengths[POWERS.indexOf(power)], at: offsets[OFFSETS.indexOf(offset)] };
  },

  draw({ power, offset, width }, { length, at }, size) {
    const { lengths, offsets } = measured(width), panel = size > 500 ? 340 : 300;
    return [
      svg(panel, 252, `Error of an output over the length: at ${length.n} columns ${brief(length.chain)} u in order, ${brief(length.tree)} u in a tree.`, plot(lengths, POWERS.indexOf(power), {
        x: ({ n }) => Math.log2(n), xs: [2, 18], y: [-1, 6, 1], name: ({ n }) => `2${raised(Math.log2(n))}`, panel,
        series: [["chain", "behind", "in order"], ["tree", "ours", "in a tree"]], title: "Error of an output, in u", xTitle: "length of the row",
      })),
      svg(panel, 252, `Error of one exponential over the offset: at ${at.offset} it is ${brief(at.first)} scaled first, ${brief(at.after)} subtracted first.`, plot(offsets, OFFSETS.indexOf(offset), {
        x: (each) => Math.log10(each.offset), xs: [0, 6], y: [-8, 0, 2], name: (each) => (each.offset > 1 ? `10${raised(Math.log10(each.offset))}` : "1"), panel,
        series: [["first", "behind", "scaled first"], ["after", "ours", "subtracted first"]], title: "Relative error of one exponential", xTitle: "offset of the row",
      })),
    ];
  },

  says: (_, { length, at }) =>
    `At ${grouped(length.n)} columns: ${brief(length.chain)} u in order (bound ${brief(length.chainBound)}), ${brief(length.tree)} u in a tree (bound ${brief(length.treeBound)}). ` +
    `At an offset of ${grouped(at.offset)}: ${brief(at.first)} scaled first (bound ${brief(at.firstBound)}), ${brief(at.after)} subtracted first (bound ${brief(at.afterBound)}).`,
};
