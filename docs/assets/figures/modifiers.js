/* Five scores on their way into a softmax: scaled, capped, masked, with a sink beside them. */
import { bars, fixed, rect, svg, text } from "./moving.js";
import { softmax } from "./softmax.js";

const ROW = [1, 3, -1, 2, 4], NONE = -6;
const said = (value) => (value === NONE ? "−∞" : fixed(value, 1));
const START = { x: ROW, scale: 1, cap: 0, kept: 4, sink: 1 };

export default {
  start: () => START,

  controls: () => [
    { kind: "slider", key: "scale", label: "scale α", min: 0, max: 2, step: 0.125, show: (value) => fixed(value, 2) },
    { kind: "slider", key: "kept", label: "keys kept", min: 1, max: 5, step: 1 },
    { kind: "slider", key: "sink", label: "sink σ", min: NONE, max: 6, step: 0.5, show: said },
    { kind: "choice", key: "cap", label: "cap χ", options: [[0, "none"], [1, "1"], [2, "2"], [4, "4"]] },
    { kind: "presets", label: "Try", options: [
      ["bare", { x: ROW, scale: 1, cap: 0, kept: 5, sink: NONE }],
      ["attend to nothing", { sink: 6 }],
      ["as it was", START],
    ] },
  ],

  numbers({ x, scale, cap, kept, sink }) {
    const xi = x.map((each) => (cap ? cap * Math.tanh((scale * each) / cap) : scale * each)); // eq: modifiers-definition
    const row = xi.map((each, at) => (at < kept ? each : -Infinity)); // eq: modifiers-masked
    const { m, d, y } = softmax([...row, sink === NONE ? -Infinity : sink]); // eq: modifiers-sink
    return { xi: row, m, d, y: y.slice(0, 5), share: y[5], bare: softmax(x).y };
  },

  draw({ x, kept, sink }, { xi, m, d, y, share, bare }, width) {
    const panel = width > 500 ? 330 : 300, pitch = panel / 6, end = 5.5 * pitch;
    const mark = rect(1, 22, kept * pitch - 2, 282, "now", 'rx="6"');
    const left = [
      mark,
      text(0, 13, "scores x", "title", "start"),
      bars(x, { left: 0, zero: 108, unit: 18, pitch, css: "neutral", digits: 1, key: "x", label: "score", min: -3, max: 4, numbersAt: 182 }),
      text(end, 182, "sink", "small"),
      text(0, 212, "after scale, cap and mask: ξ", "title", "start"),
      bars([...xi, sink === NONE ? -Infinity : sink], { left: 0, zero: 262, unit: 5, pitch, digits: 1, numbersAt: 298 }),
    ];
    const right = [
      mark,
      text(0, 13, "softmax y", "title", "start"),
      text(panel, 13, `m = ${fixed(m, 1)}, d = ${fixed(d)}`, "strong", "end"),
      bars(y, { left: 0, zero: 264, unit: 216, pitch, ghosts: bare, numbersAt: 284 }),
      bars([share], { left: 5 * pitch, zero: 264, unit: 216, pitch, css: "neutral", numbersAt: 284 }),
      text(end, 300, "to the sink", "tiny"),
    ];
    return [
      svg(panel, 308, `Five scores, ${x.map((each) => fixed(each, 1)).join(", ")}, and what they are after scale, cap and mask: ${xi.map((each) => fixed(each, 1)).join(", ")}.`, left),
      svg(panel, 308, `Their softmax with a sink: ${y.map((each) => fixed(each)).join(", ")}; ${fixed(share)} goes to the sink.`, right),
    ];
  },

  says({ kept, sink }, { m, d, y, share }) {
    const sum = y.reduce((a, b) => a + b);
    return `The pair of ${kept === 5 ? "five keys" : kept === 1 ? "one key" : `the first ${kept} keys`}${sink === NONE ? "" : " and the sink"} is m = ${fixed(m, 1)}, d = ${fixed(d)}. ` +
      `The outputs add up to ${fixed(sum)}${share ? `, and ${fixed(share)} goes to the sink` : ""}.`;
  },
};
