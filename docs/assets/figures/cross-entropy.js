/* Cross-entropy of five logits: softmax, the target distribution, and their difference, which is the
 * gradient at the logits. */
import { bars, fixed, rect, svg, text } from "./moving.js";

const ROW = [1, 2.5, -0.5, 2, 0.5];

export default {
  start: () => ({ x: ROW, target: 4, smoothing: 0 }),

  controls: () => [
    { kind: "slider", key: "target", label: "target", min: 1, max: 5, step: 1 },
    { kind: "slider", key: "smoothing", label: "label smoothing, %", min: 0, max: 50, step: 5 },
    { kind: "presets", label: "Try", options: [
      ["certain and right", { x: [0, 0, 0, 5, 0], target: 4, smoothing: 0 }],
      ["certain and wrong", { x: [0, 5, 0, 0, 0], target: 4, smoothing: 0 }],
      ["as it was", { x: ROW, target: 4, smoothing: 0 }],
    ] },
  ],

  numbers({ x, target, smoothing }) {
    const m = Math.max(...x), e = x.map((each) => Math.exp(each - m)), d = e.reduce((a, b) => a + b);
    const y = e.map((each) => each / d), share = smoothing / 100;
    const pi = x.map((_, at) => (at === target - 1 ? 1 - share : 0) + share / 5);
    const loss = Math.log(d) + pi.reduce((sum, each, at) => sum + each * (m - x[at]), 0); // eq: cross-entropy-smoothed
    return { y, pi, gradient: y.map((each, at) => each - pi[at]), loss }; // eq: cross-entropy-soft-gradient
  },

  draw({ x, target }, { y, pi, gradient, loss }, width) {
    const wide = width > 500, panel = wide ? 330 : 300, pitch = panel / 5;
    const mark = rect((target - 1) * pitch + 2, 22, pitch - 4, 290, "now", 'rx="6"');
    const left = [
      mark,
      text(0, 13, "logits x", "title", "start"),
      bars(x, { left: 0, zero: 120, unit: 18, pitch, css: "neutral", digits: 1, key: "x", label: "logit", min: -2, max: 5, numbersAt: 176 }),
      text(0, 206, "target π", "title", "start"),
      bars(pi, { left: 0, zero: 286, unit: 60, pitch, css: "neutral", digits: 2, numbersAt: 304 }),
    ];
    const right = [
      mark,
      text(0, 13, "softmax y", "title", "start"),
      bars(y, { left: 0, zero: 112, unit: 84, pitch, numbersAt: 130 }),
      text(0, 158, "gradient y − π", "title", "start"),
      bars(gradient, { left: 0, zero: 228, unit: 56, pitch, numbersAt: 304 }),
      text(panel, 13, `loss ${fixed(loss)}`, "strong", "end"),
    ];
    return [
      svg(panel, 316, `Five logits, ${x.map((each) => fixed(each, 1)).join(", ")}, and the target distribution ${pi.map((each) => fixed(each, 2)).join(", ")}.`, left),
      svg(panel, 316, `Their softmax, ${y.map((each) => fixed(each)).join(", ")}, and the gradient, softmax less target: ${gradient.map((each) => fixed(each)).join(", ")}; the loss is ${fixed(loss)}.`, right),
    ];
  },

  says({ target, smoothing }, { y, pi, gradient, loss }) {
    const own = target - 1, way = gradient[own] < 0 ? "up" : "down";
    return `The loss is ${fixed(loss)}. Class ${target}, the target, has ${fixed(y[own])} of the row and should have ${fixed(pi[own], 2)}, ` +
      `so a step against the gradient moves its logit ${way}. ` + (smoothing ? "Smoothing asks for a share of every class. " : "") + "The five gradients add up to 0.";
  },
};
