/* The accumulator of attention: one query, keys one by one, and a weighted sum of their values that
 * is rescaled whenever the largest score grows. */
import { bars, brief, fixed, line, rect, svg, text } from "./moving.js";

const SCORES = [0.5, 1.5, -0.5, 2.5, 1, 3.2];
const VALUES = [0.8, -0.4, 1, 0.6, -0.9, 0.3];
const plus = (value) => `${value < 0 ? "−" : "+"} ${fixed(Math.abs(value))}`;

export default {
  start: () => ({ x: SCORES, v: VALUES, step: 1 }),

  controls: () => [
    { kind: "play", key: "step", min: 1, max: 6, step: 1, ms: 1200, single: true },
    { kind: "slider", key: "step", label: "keys seen", min: 1, max: 6, step: 1 },
    { kind: "presets", label: "Try", options: [
      ["growing scores", { x: [-1.5, -0.5, 0.5, 1.5, 2.5, 3.5], step: 1 }],
      ["falling", { x: [3.5, 2.5, 1.5, 0.5, -0.5, -1.5], step: 1 }], ["as it was", { x: SCORES, v: VALUES, step: 1 }],
    ] },
  ],

  numbers({ x, v, step }) {
    let m = -Infinity, d = 0, a = 0;
    const steps = x.map((score, at) => {
      const before = { d, a };
      const top = Math.max(m, score);
      const scale = m === -Infinity ? 0 : Math.exp(m - top), term = Math.exp(score - top);
      m = top;
      d = d * scale + term; // eq: online-d
      a = a * scale + term * v[at]; // eq: attention-accumulator
      return { m, d, a, scale, term, before };
    });
    const now = steps[step - 1];
    return { ...now, result: now.a / now.d, weights: x.slice(0, step).map((score) => Math.exp(score - now.m)), last: steps[5].a / steps[5].d };
  },

  draw({ x, v, step }, { d, a, scale, term, before, weights, result }, width) {
    const wide = width > 500, panel = wide ? 330 : 300, pitch = panel / 6;
    const row = (values, more) => bars(values, { left: 0, pitch, css: "neutral", digits: 1, ...more });
    const marks = rect((step - 1) * pitch + 2, 22, pitch - 4, 268, "now", 'rx="6"');
    const left = [
      marks,
      text(0, 13, "scores x = q·k", "title", "start"),
      row(x, { zero: 92, unit: 15, key: "x", label: "score", min: -2, max: 4, step: 0.1, numbersAt: 140 }),
      text(0, 172, "values v", "title", "start"),
      row(v, { zero: 228, unit: 36, key: "v", label: "value", min: -1, max: 1, step: 0.1, numbersAt: 284 }),
    ];
    const most = Math.max(1, before.d, d), unit = (panel - 20) / most, span = Math.max(1, Math.abs(before.a), Math.abs(a)) * 1.15;
    const middle = panel / 2, reach = (panel / 2 - 4) / span;
    const bar = (y, from, length, css) => rect(Math.min(from, from + length), y, Math.abs(length), 14, `glide ${css}`);
    const signed = (value) => (value < 0 ? "behind" : "ours");
    const right = [
      text(0, 13, "weights relative to m, of the keys seen", "title", "start"),
      bars([...weights, ...Array(6 - weights.length).fill(0)], { left: 0, zero: 84, unit: 44, pitch, css: "ours", digits: 2, numbersAt: 102 }),
      text(0, 136, "denominator d", "title", "start"), text(panel, 136, `${fixed(before.d)} · ${fixed(scale)} + ${fixed(term)} = ${fixed(d)}`, "small ink", "end"),
      bar(146, 0, before.d * unit, "neutral soft"), bar(164, 0, before.d * scale * unit, "neutral"), bar(164, before.d * scale * unit, term * unit, "ours"),
      text(0, 206, "accumulator a", "title", "start"), text(panel, 206, `${fixed(before.a)} · ${fixed(scale)} ${plus(a - before.a * scale)} = ${fixed(a)}`, "small ink", "end"),
      line(middle, 212, middle, 252, "axis"),
      bar(216, middle, before.a * reach, "neutral soft"), bar(234, middle, before.a * scale * reach, "neutral"),
      bar(234, middle + before.a * scale * reach, (a - before.a * scale) * reach, signed(a - before.a * scale)),
      text(0, 284, `output so far: a / d = ${fixed(result)}`, "strong", "start"),
    ];
    return [
      svg(panel, 292, `Six scores, ${x.map((each) => fixed(each, 1)).join(", ")}, and six values, ${v.map((each) => fixed(each, 1)).join(", ")}; key ${step} is read now.`, left),
      svg(panel, 292, `After ${step} keys the denominator is ${fixed(d)}, the accumulator ${fixed(a)}, the output ${fixed(result)}.`, right),
    ];
  },

  says({ x, step }, { m, scale, result, last }) {
    const grew = step > 1 && scale < 1;
    return `Key ${step} has the score ${fixed(x[step - 1], 1)}. ` + (step === 1 ? "It starts d and a. " : grew
      ? `The maximum rises to ${fixed(m, 1)}, so d and a both shrink by ${brief(scale, 3)} before its term is added. `
      : `The maximum stays ${fixed(m, 1)}, and nothing is rescaled. `) +
      (step === 6 ? `All keys seen: a / d = ${fixed(last)}, the average of the values with the weights softmax(x).` : `So far a / d = ${fixed(result)}; with all keys it will be ${fixed(last)}.`);
  },
};
