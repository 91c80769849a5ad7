/* Softmax of a row, shifted and divided by a temperature. */
import { bars, brief, fixed, svg, text } from "./moving.js";

/** Of the whole row, with its maximum taken away first: m, d, y. */
export function softmax(x) {
  const m = Math.max(...x); // eq: softmax-safe
  const e = x.map((each) => Math.exp(each - m));
  const d = e.reduce((sum, each) => sum + each, 0);
  return { m, d, y: e.map((each) => each / d) };
}

const ROW = [1, 2, 3, 0.5, 2.4];
const tau = (power) => fixed(2 ** power, power < 0 ? 2 : 1);

export default {
  start: () => ({ x: ROW, shift: 0, power: 0 }),

  controls: () => [
    { kind: "slider", key: "shift", label: "shift c", min: -120, max: 120, step: 1, show: (value) => fixed(value, 0) },
    { kind: "slider", key: "power", label: "temperature τ", min: -4, max: 4, step: 0.25, show: tau },
    {
      kind: "presets", label: "Try", options: [
        ["overflow", { shift: 88 }], ["cold", { shift: 0, power: -3 }], ["hot", { shift: 0, power: 4 }],
        ["as it was", { x: ROW, shift: 0, power: 0 }],
      ],
    },
  ],

  numbers({ x, shift, power }) {
    const z = x.map((each) => each / 2 ** power + shift);
    const naive = z.map((each) => Math.fround(Math.exp(each)));
    const sum = naive.reduce((total, each) => Math.fround(total + each), 0);
    return { z, ...softmax(z), plain: softmax(x).y, naive: naive.map((each) => Math.fround(each / sum)), sum };
  },

  draw({ x, shift, power }, { y, z, plain, naive, sum }, width) {
    const wide = width > 500, panel = wide ? 320 : 300, pitch = panel / 5;
    const broken = naive.some(Number.isNaN) || sum === 0;
    const name = `x${power ? ` / ${tau(power)}` : ""}${shift ? ` ${shift < 0 ? "−" : "+"} ${Math.abs(shift)}` : ""}`;
    // What a shift or a temperature does to the numbers stands there once there is one.
    const under = (label, values, css) => (shift || power) ? [
      text(0, 268, label, "small", "start"),
      values.map((words, at) => text((at + 0.5) * pitch, 288, words, `small ${css}`)),
    ] : [];
    const left = [
      text(0, 13, "the row x", "title", "start"),
      bars(x, { left: 0, zero: 164, unit: 26, pitch, css: "neutral", digits: 1, key: "x", label: "x", min: -2, max: 5, numbersAt: 236 }),
      under(`${name} =`, z.map((each) => fixed(each, power > 0 ? 2 : 1)), "ink"),
    ];
    const right = [
      text(0, 13, `softmax(${name})`, "title", "start"),
      bars(y, { left: 0, zero: 216, unit: 176, pitch, ghosts: plain, numbersAt: 236 }),
      under("without subtracting the maximum, in float32:", naive.map((each) => fixed(each)), broken ? "behind" : ""),
    ];
    return [
      svg(panel, 296, `A row of five numbers: ${x.map((each) => fixed(each, 1)).join(", ")}.`, left),
      svg(panel, 296, `Its softmax, shifted by ${fixed(shift, 0)} at temperature ${tau(power)}: ${y.map((each) => fixed(each)).join(", ")}.`, right),
    ];
  },

  says({ x, shift, power }, { y, plain, naive, sum, z }) {
    const most = Math.max(...y);
    if (!shift && !power) return `The largest input, ${fixed(Math.max(...x), 1)}, gets the largest share, ${fixed(most)}; the five shares, rounded here, add up to 1.`;
    const heat = power ? `The temperature ${power < 0 ? "sharpens" : "flattens"} the row: its largest share goes from ${fixed(Math.max(...plain))} to ${fixed(most)}. ` : "";
    const moved = Math.max(...y.map((each, at) => Math.abs(each - plain[at])));
    const shifted = shift && !power ? `The shift changes no share${moved ? `, except by rounding (${brief(moved)})` : ""}. ` : "";
    const top = Math.max(...z);
    if (naive.some(Number.isNaN)) {
      return heat + shifted + (sum === 0
        ? `Without subtracting the maximum, every exponential is 0 in float32, and 0/0 is NaN.`
        : `Without subtracting the maximum, e to the ${fixed(top, 1)} is ∞ in float32, and ∞/∞ is NaN.`);
    }
    return heat + shifted + `Without subtracting the maximum, the sum of exponentials is ${brief(sum, 3)}; past 3.4·10³⁸, float32 has only ∞.`;
  },
};
