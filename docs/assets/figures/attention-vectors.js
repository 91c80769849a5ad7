/* The triple (m, d, a) of one query: tiles of two keys, values of four components, and one factor that
 * rescales all five sums. */
import { bars, brief, fixed, line, rect, svg, text } from "./moving.js";

const SCORES = [0.5, 1.5, -0.5, 2.5, 1, 3.2], TILE = 2;
const VALUES = [
  [0.8, -0.4, 1, 0.6, -0.9, 0.3],
  [0.2, 0.9, -0.7, 0.4, 0.5, -0.6],
  [-0.5, 0.3, 0.6, -0.8, 0.7, 0.9],
  [1, -0.2, 0.4, 0.1, -0.6, 0.5],
];
const list = (values) => values.map((each) => fixed(each, 2)).join(", ");

export default {
  start: () => ({ x: SCORES, step: 2 }),

  controls: () => [
    { kind: "play", key: "step", min: 1, max: 3, step: 1, ms: 1600, single: true },
    { kind: "slider", key: "step", label: "tiles seen", min: 1, max: 3, step: 1 },
    { kind: "presets", label: "Try", options: [
      ["falling scores", { x: [3.2, 2.5, 1.5, 1, 0.5, -0.5], step: 1 }], ["a huge one at last", { x: [0.5, 1.5, -0.5, 2.5, 1, 4], step: 3 }],
      ["as it was", { x: SCORES, step: 2 }],
    ] },
  ],

  numbers({ x, step }) {
    let m = -Infinity, d = 0, a = VALUES.map(() => 0), now = null;
    for (let tile = 0; tile < step; tile += 1) {
      const before = { d, a }, keys = [0, 1].map((at) => TILE * tile + at);
      const top = Math.max(m, ...keys.map((key) => x[key]));
      const scale = m === -Infinity ? 0 : Math.exp(m - top), p = keys.map((key) => Math.exp(x[key] - top));
      const grew = top > m && tile > 0;
      m = top;
      d = d * scale + p[0] + p[1]; // eq: online-tile
      a = VALUES.map((row, at) => a[at] * scale + p[0] * row[keys[0]] + p[1] * row[keys[1]]); // eq: attention-merge
      now = { m, d, a, scale, before, grew };
    }
    return { ...now, o: a.map((each) => each / d) };
  },

  draw({ x, step }, { d, a, scale, before, o }, width) {
    const panel = width > 500 ? 330 : 300, pitch = (panel - 20) / 6, high = 27, top = 184;
    const left = [
      rect(20 + (step - 1) * TILE * pitch + 1, 22, TILE * pitch - 2, 272, "now", 'rx="6"'),
      text(0, 13, "scores x = α q·k", "title", "start"),
      bars(x, { left: 20, zero: 98, unit: 15, pitch, css: "neutral", digits: 1, key: "x", label: "score", min: -2, max: 4, numbersAt: 146 }),
      text(0, 174, "values v", "title", "start"),
      VALUES.map((row, at) => [
        text(6, top + high * at + 18, at + 1, "small"),
        row.map((value, key) => [
          rect(20 + key * pitch + 3, top + high * at + 2, pitch - 6, high - 4, `${value < 0 ? "behind" : "ours"} soft`, 'rx="3"'),
          text(20 + (key + 0.5) * pitch, top + high * at + 18, fixed(value, 1), "small ink"),
        ]),
      ]),
    ];
    const sums = [d, ...a], old = [before.d, ...before.a], names = ["d", "a₁", "a₂", "a₃", "a₄"];
    const from = 24, end = panel - 52, zero = from + (end - from) * 0.36;
    const span = Math.max(1.2, ...[...sums, ...old].map((each) => Math.max(each, -each / 0.56))), unit = (end - zero) / span;
    const bar = (y, begin, length, css) => rect(zero + Math.min(begin, begin + length) * unit, y, Math.abs(length) * unit, 13, `glide ${css}`);
    const right = [
      text(0, 13, "five sums", "title", "start"), text(panel, 13, step > 1 ? `each × ${fixed(scale)}, then + its terms` : "the first tile's terms", "small ink", "end"),
      line(zero, 24, zero, 246, "axis"),
      sums.map((sum, at) => {
        const y = 28 + 44 * at, kept = old[at] * scale, more = sum - kept;
        return [
          text(0, y + 19, names[at], "strong", "start"),
          bar(y, 0, old[at], "neutral soft"), bar(y + 16, 0, kept, "neutral"), bar(y + 16, kept, more, more < 0 ? "behind" : "ours"),
          text(panel, y + 19, fixed(sum), "ink", "end"),
        ];
      }),
      text(0, 276, `output so far, a / d: ${list(o)}`, "strong", "start"),
    ];
    return [
      svg(panel, 298, `Six scores, ${x.map((each) => fixed(each, 1)).join(", ")}, each with a value of four components; tile ${step} is read now.`, left),
      svg(panel, 298, `After ${step} tiles d is ${fixed(d)} and a is ${list(a)}; the output so far is ${list(o)}.`, right),
    ];
  },

  says({ step }, { m, scale, grew, o }) {
    return `Tile ${step} holds keys ${2 * step - 1} and ${2 * step}. ` + (step === 1 ? "It starts all sums. " : grew
      ? `The maximum rises to ${fixed(m, 1)}, so d and all components of a shrink by the same ${brief(scale, 3)}. `
      : `The maximum stays ${fixed(m, 1)}, and nothing is rescaled. `) +
      (step === 3 ? `All keys seen: a / d = (${list(o)}) is the output.` : `So far a / d = (${list(o)}).`);
  },
};
