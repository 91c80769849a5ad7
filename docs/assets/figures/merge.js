/* A row merged in a tree whose uppermost cut can be moved, in float32. */
import { brief, curve, dot, fixed, handle, line, rect, svg, text } from "./moving.js";

const f = Math.fround;
const shifted = (x, m) => (m === -Infinity ? 0 : f(Math.exp(f(x - m))));
const ROWS = {
  mixed: [1.3, 0.4, 2.6, -0.7, 1.9, 0.2, 2.1, -1.4],
  growing: [-3, -2, -1, 0, 1, 2, 3, 4],
  peak: [0.3, -0.2, 9, 0.1, 0.4, -0.5, 0.2, 0.6],
  infinite: [-Infinity, -Infinity, -Infinity, 0.7, 1.1, -Infinity, 0.3, 2],
};

/** (m, d) of a union, rounded after every operation. */
function merge(a, b) {
  const m = Math.max(a.m, b.m); // eq: merge
  return { m, d: f(f(a.d * shifted(a.m, m)) + f(b.d * shifted(b.m, m))) };
}

/** The tree over x[from..to), cut at `cut` and below that in the middle or one by one. */
function tree(x, from, to, way, cut) {
  if (to - from === 1) return { m: x[from], d: x[from] === -Infinity ? 0 : 1, from, to, height: 0 };
  const at = cut ?? (way === "pairs" ? from + Math.ceil((to - from) / 2) : to - 1);
  const left = tree(x, from, at, way), right = tree(x, at, to, way);
  return { ...merge(left, right), from, to, left, right, height: Math.max(left.height, right.height) + 1 };
}

export default {
  start: () => ({ row: "mixed", cut: 3, way: "pairs" }),

  controls: () => [
    { kind: "slider", key: "cut", label: "cut", min: 1, max: 7, step: 1, show: (value) => `${value} | ${8 - value}` },
    { kind: "choice", key: "way", label: "within the parts", options: [["pairs", "in pairs"], ["chain", "one by one"]] },
    { kind: "choice", key: "row", label: "row", options: [["mixed", "mixed"], ["growing", "growing"], ["peak", "one large"], ["infinite", "with −∞"]] },
  ],

  numbers({ row, cut, way }) {
    const x = ROWS[row].map(f), top = Math.max(...x);
    const exact = x.reduce((sum, each) => sum + Math.exp(each - top), 0);
    const ulp = 2 ** (Math.floor(Math.log2(exact)) - 23);
    const cuts = [1, 2, 3, 4, 5, 6, 7].map((at) => tree(x, 0, 8, way, at).d);
    const root = tree(x, 0, 8, way, cut);
    const pair = ({ m, d }) => ({ m, d });
    return {
      x, m: root.m, d: root.d, left: pair(root.left), right: pair(root.right), exact, cuts,
      errors: cuts.map((d) => (d - exact) / ulp), height: root.height,
    };
  },

  draw({ cut, way }, { x, exact, errors, left, right, m, d }, width) {
    const wide = width > 500, pitch = (wide ? 440 : 300) / 8, root = tree(x, 0, 8, way, cut);
    const edges = [], nodes = [], tall = 172 / Math.max(root.height, 3);
    const place = (node, depth) => {
      const at = { x: 0, y: 62 };
      if (!node.height) at.x = (node.from + 0.5) * pitch;
      else {
        const a = place(node.left, depth + 1), b = place(node.right, depth + 1);
        at.x = (a.x + b.x) / 2;
        at.y = 62 + tall * node.height;
        for (const [child, from] of [[node.left, a], [node.right, b]]) {
          edges.push(curve([[from.x, from.y], [at.x, at.y]], shifted(child.m, node.m) < 1 ? "behind edge" : "ours edge"));
        }
        nodes.push(dot(at.x, at.y, depth ? 4 : 6, depth < 2 ? "ours" : "neutral"));
      }
      return at;
    };
    place(root, 0);
    const cutX = cut * pitch;
    const above = [
      line(cutX, 6, cutX, 70, "ink dashed"),
      x.map((each, at) => [
        rect(at * pitch + 2, 34, pitch - 4, 28, "paper", 'rx="4"'),
        text((at + 0.5) * pitch, 52, fixed(each, Number.isInteger(each) ? 0 : 1), "small ink"),
      ]),
      edges, nodes,
      handle(cutX, 14, { key: "cut", label: "cut", value: cut, min: 1, max: 7, step: 1, axis: "x", from: pitch, to: 7 * pitch }),
    ];
    const side = wide ? 250 : 300, far = Math.max(1, Math.ceil(Math.max(...errors.map(Math.abs)))), middle = 178;
    const pairOf = (each) => `${fixed(each.m, 1)}, ${each.d ? each.d.toFixed(7) : "0"}`;
    const sums = [
      text(0, 13, "(m, d) in float32", "title", "start"),
      [["left", left], ["right", right], ["merged", { m, d }], ["exact", { m, d: exact }]].map(([name, each], at) => [
        text(0, 38 + 20 * at, name, at === 2 ? "strong" : "", "start"),
        text(side, 38 + 20 * at, pairOf(each), at === 2 ? "cell strong" : "cell", "end"),
      ]),
      line(28, middle, side, middle, "axis"),
      text(0, 128, "error of d by cut, in units of its last digit", "small", "start"),
      text(20, middle + 4, "0", "tiny", "end"), text(20, middle - 26, `+${fixed(far, 0)}`, "tiny", "end"), text(20, middle + 34, `−${fixed(far, 0)}`, "tiny", "end"),
      errors.map((each, at) => {
        const at_x = 46 + at * ((side - 60) / 6), y = middle - (30 * each) / far, now = at + 1 === cut;
        return [line(at_x, middle, at_x, y, now ? "ours" : "grid"), dot(at_x, y, now ? 5 : 3.5, now ? "ours" : "neutral"), text(at_x, middle + 56, at + 1, now ? "small strong" : "small")];
      }),
    ];
    return [
      svg(pitch * 8, 244, `Eight numbers are merged in a tree, first cut after ${cut}.`, above),
      svg(side, 244, `Left part (m, d) = (${pairOf(left)}), right part (${pairOf(right)}), merged (${pairOf({ m, d })}).`, sums),
    ];
  },

  says({ cut }, { left, right, m, errors, cuts }) {
    const smaller = left.m < right.m ? ["left", left] : right.m < left.m ? ["right", right] : null;
    const apart = new Set(cuts).size;
    return `${smaller ? `The ${smaller[0]} part has the smaller maximum, so its sum is multiplied by ${brief(shifted(smaller[1].m, m), 3)}` : "Both parts have the same maximum, so both sums keep their scale"}; ` +
      `the other keeps its own. Without rounding, every cut gives the same pair. In float32 the seven cuts give ${apart === 1 ? "one d" : `${apart} different d`}, ` +
      `at most ${fixed(Math.max(...errors.map(Math.abs)), 1)} units of its last digit from the exact one.`;
  },
};
