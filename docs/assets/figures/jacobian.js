/* The Jacobian of softmax as a heat map, and its product with a gradient, by both routes. */
import { bars, brief, fixed, line, rect, svg, text } from "./moving.js";
import { softmax } from "./softmax.js";

const ROW = [1, 2, 3, 0.5, 2.4];
const DY = [0.1, 0.6, -0.4, 0.2, 0.5];
const signed = (value) => (Math.abs(value) < 5e-4 ? fixed(0) : (value > 0 ? "+" : "") + fixed(value));
const below = "₁₂₃₄₅";
/** What differs by less is equal: both routes round, and nothing else here is as small. */
const ROUNDING = 1e-12;

export default {
  start: () => ({ x: ROW, dy: DY }),

  controls(state, data) {
    const rows = [["as it was", { x: ROW, dy: DY }], ["one large", { x: [0, 0, 5, -2, 0] }], ["equal row", { x: [1, 1, 1, 1, 1] }]];
    const gradients = [["dy = 1", { dy: [1, 1, 1, 1, 1] }], ["dy one-hot", { dy: [0, 0, 1, 0, 0] }]];
    return [{ kind: "presets", label: "Try", options: data.vjp ? [...rows, ...gradients] : rows }];
  },

  numbers({ x, dy }) {
    const { y } = softmax(x);
    const J = y.map((a, i) => y.map((b, j) => a * ((i === j) - b))); // eq: softmax-jacobian
    const s = y.reduce((sum, each, at) => sum + each * dy[at], 0);
    const dx = y.map((each, at) => each * (dy[at] - s)); // eq: softmax-vjp
    const product = J.map((row) => row.reduce((sum, each, at) => sum + each * dy[at], 0));
    return { y, J, s, dx, product, apart: Math.max(...dx.map((each, at) => Math.abs(each - product[at]))) };
  },

  draw({ x, dy }, { y, J, s, dx }, width, { vjp }) {
    const wide = width > 500, side = wide && vjp ? 196 : wide ? 290 : 300, pitch = side / 5;
    const size = wide ? (vjp ? 268 : 380) : 300, cell = (size - 20) / 5, tall = wide && !vjp ? 50 : 46;
    const top = Math.max(...J.flat().map(Math.abs), 0.1);
    const left = [
      text(0, 13, "x", "title", "start"),
      bars(x, { left: 0, zero: 108, unit: 14, pitch, css: "neutral", digits: 1, key: "x", label: "x", min: -2, max: 5, step: 0.1, numbersAt: 152 }),
      text(0, 184, "y = softmax(x)", "title", "start"),
      bars(y, { left: 0, zero: 268, unit: 72, pitch, numbersAt: 286 }),
    ];
    const heat = [text(0, 13, "J", "title", "start"), text(14, 13, "  y down, x across", "small", "start")];
    for (let i = 0; i < 5; i += 1) {
      heat.push(text(20 + cell * (i + 0.5), 34, `x${below[i]}`, "small"), text(7, 44 + tall * (i + 0.5), `y${below[i]}`, "small"));
      for (let j = 0; j < 5; j += 1) {
        const kind = J[i][j] >= 0 ? "ours" : "behind";
        const tint = 0.06 + 0.4 * (Math.abs(J[i][j]) / top);
        heat.push(rect(20 + cell * j, 40 + tall * i, cell - 3, tall - 3, kind, `fill-opacity="${tint.toFixed(2)}" rx="3"`));
        heat.push(text(20 + cell * (j + 0.5) - 1.5, 42 + tall * (i + 0.5), signed(J[i][j]), "cell"));
      }
    }
    const right = [
      text(0, 13, "dy", "title", "start"), text(side, 13, `mean s = ${fixed(s)}`, "small ink", "end"),
      bars(dy, { left: 0, zero: 84, unit: 44, pitch, css: "neutral", digits: 1, key: "dy", label: "dy", min: -1, max: 1, step: 0.05, numbersAt: 152 }),
      line(0, 84 - 44 * s, side, 84 - 44 * s, "ink dashed"),
      text(0, 184, "dx = J dy = y ⊙ (dy − s)", "title", "start"),
      bars(dx, { left: 0, zero: 228, unit: 100, pitch, numbersAt: 286 }),
    ];
    const pictures = [
      svg(side, 296, `A row of five numbers, ${x.map((each) => fixed(each, 1)).join(", ")}, and its softmax, ${y.map((each) => fixed(each)).join(", ")}.`, left),
      svg(size, 40 + 5 * tall + (wide && !vjp ? 6 : 26), `Its Jacobian, 25 numbers: on the diagonal ${J.map((row, i) => fixed(row[i])).join(", ")}; all others are negative.`, heat),
    ];
    if (vjp) pictures.push(svg(side, 296, `A gradient dy, ${dy.map((each) => fixed(each, 1)).join(", ")}, and what comes out, dx: ${dx.map((each) => fixed(each)).join(", ")}.`, right));
    return pictures;
  },

  says({ dy }, { y, J, s, apart }, { vjp }) {
    if (vjp) {
      const up = dy.filter((each) => each - s > ROUNDING).length;
      const equal = dy.every((each) => Math.abs(each - s) <= ROUNDING);
      return (equal
        ? `Every entry of dy is the mean ${fixed(s)}, so dx is 0: softmax does not change when all inputs grow alike. `
        : `Entries of dy above the mean ${fixed(s)} come out positive (${up} of 5), each in proportion to its y. `) +
        `Building and applying the matrix takes 50 products and stores 25 numbers; the dot product takes 10 and stores one. The largest difference between the two: ${apart ? brief(apart) : "none"}.`;
    }
    const most = y.indexOf(Math.max(...y));
    const sum = J.reduce((total, row) => total + row[most], 0);
    return `Raising x${below[most]} by a little raises y${below[most]} by ${fixed(J[most][most])} of that, and lowers the others by as much together: ` +
      `column ${most + 1} adds up to ${Math.abs(sum) < ROUNDING ? "0" : brief(sum)}. No entry of the diagonal can pass 0.250.`;
  },
};
