/* The online recurrence over a row, column by column, and what happens to the sum that was collected. */
import { brief, fixed, line, rect, svg, text } from "./moving.js";

const ROW = [2, 1, 4, -1, 3, 5, 0];
const shown = (x) => (Number.isFinite(x) && Math.abs(x) < 1e5 ? String(+x.toPrecision(6)).replace("-", "−") : brief(x));
const shifted = (x, m) => Math.exp(x - (m === -Infinity ? 0 : m));

export default {
  start: () => ({ row: ROW, at: 5 }),

  controls: () => [
    { kind: "play", key: "at", min: 1, max: ({ row }) => row.length, step: 1, ms: 1200, single: true },
    { kind: "slider", key: "at", label: "columns read", min: 1, max: ({ row }) => row.length, step: 1 },
    { kind: "row", key: "row", label: "your row", most: 10, also: { at: 1 } },
    {
      kind: "presets", label: "Try", options: [
        ["a row", { row: ROW, at: 1 }], ["growing", { row: [1, 2, 3, 4, 5], at: 1 }],
        ["with −∞", { row: [-Infinity, -Infinity, 0.5, -Infinity, 2], at: 1 }],
        ["huge", { row: [1000, 999, 1001, -1e30, 1002], at: 1 }],
      ],
    },
  ],

  numbers({ row, at }) {
    let m = -Infinity, d = 0, plain = 0;
    const steps = row.map((x) => {
      const before = { m, d };
      m = Math.max(m, x); // eq: online-m
      const scale = shifted(before.m, m), term = shifted(x, m);
      d = d * scale + term; // eq: online-d
      plain = Math.fround(plain + Math.fround(Math.exp(x)));
      return { x, m, d, scale, term, plain, before };
    });
    return { steps, ...steps[at - 1] };
  },

  draw({ row, at }, { steps, m, d, scale, term, before, plain }, width) {
    const wide = width > 500, panel = wide ? 380 : 300, side = wide ? 300 : 300, pitch = Math.min(panel / row.length, 56);
    const zero = 186, unit = 140, room = Math.min(pitch * 0.66, 36);
    const left = [
      text(0, 13, "e to the power x − m", "title", "start"), text(panel, 13, `m = ${shown(m)}`, "strong", "end"),
      rect((at - 1) * pitch + 1, 22, pitch - 2, 196, "now", 'rx="6"'),
      line(0, zero, pitch * row.length, zero, "axis"),
      row.map((x, index) => {
        const middle = (index + 0.5) * pitch, read = index < at;
        const high = read ? unit * shifted(x, m) : 0;
        const was = index < at - 1 && m > before.m ? unit * shifted(x, before.m) : 0;
        const label = shown(x), fits = index === at - 1 || label.length * 6.4 < pitch;
        return [
          rect(middle - room / 2, zero - high, room, high, `bar ${x === m ? "ours" : "neutral"}`),
          rect(middle - room / 2, zero - was, room, was, was ? "ghost" : "ghost none"),
          text(middle, zero + 20, fits ? label : "·", read ? "small ink" : "small"),
        ];
      }),
      text(0, 240, before.m < m && at > 1 && before.d ? "outlines: before the maximum rose" : "", "small", "start"),
    ];
    const long = (side - 4) / Math.max(1, ...steps.map((step) => Math.max(step.d, step.before.d)));
    const bar = (y, from, length, css) => rect(from * long, y, length * long, 18, `glide ${css}`);
    const right = [
      text(0, 13, "the sum d", "title", "start"),
      text(0, 44, `before: ${fixed(before.d, 4)}`, "small ink", "start"), bar(52, 0, before.d, "neutral soft"),
      text(0, 94, `rescaled by ${fixed(scale, 4)}: ${fixed(before.d * scale, 4)}`, "small ink", "start"), bar(102, 0, before.d * scale, "neutral"),
      text(0, 144, `plus the new term ${fixed(term, 4)}`, "small ink", "start"), bar(152, 0, before.d * scale, "neutral"), bar(152, before.d * scale, term, "ours"),
      text(0, 196, `d = ${fixed(d, 4)}`, "strong", "start"),
      text(0, 226, "without m, in float32, the sum would be", "small", "start"),
      text(0, 243, Number.isFinite(plain) ? brief(plain, 4) : "∞", plain > 0 && Number.isFinite(plain) ? "small ink" : "small behind", "start"),
    ];
    return [
      svg(panel, 250, `A row of ${row.length} numbers, ${row.map(shown).join(", ")}, of which ${at} are read; the maximum is ${shown(m)}.`, left),
      svg(side, 250, `The sum is ${fixed(d, 4)}: ${fixed(before.d, 4)} times ${fixed(scale, 4)}, plus ${fixed(term, 4)}.`, right),
    ];
  },

  says({ at }, { x, m, d, scale, term, before }) {
    const read = `Column ${at} is ${shown(x)}. `;
    if (at === 1) return `${read}Before it, m = −∞ and d = 0. Now m = ${shown(m)} and d = ${fixed(d, 4)}.`;
    const change = m > before.m
      ? `The maximum rises from ${shown(before.m)} to ${shown(m)}, so the old sum ${fixed(before.d, 4)} shrinks by the factor ${fixed(scale, 4)}`
      : `The maximum stays ${shown(m)}, so the old sum ${fixed(before.d, 4)} keeps its scale`;
    return `${read}${change}; the new term is ${fixed(term, 4)}. Now d = ${fixed(d, 4)}.`;
  },
};
