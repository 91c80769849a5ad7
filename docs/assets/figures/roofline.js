/* Every rung under its roof: elements a second over elements for each byte that it asks for. */
import { brief, curve, dot, fixed, grouped, line, svg, text } from "./moving.js";

const NAMES = {
  naive: "naive", three_loops: "three loops", two_loops: "two loops", single_block: "single block",
  packed_rows: "packed rows", aligned_rows: "aligned rows", split_rows: "split rows",
  strided: "strided", split_strided: "split strided", two_pass: "two pass", torch: "PyTorch",
};

/** What was measured of each kernel at this length, or of its columns at the nearest. */
function measured({ way, dtype, length }, { points }) {
  const near = (each) => Math.abs(Math.log(each[2] / length));
  const rows = points.filter((each) => each[0] === way && each[1] === dtype);
  return Object.keys(NAMES).flatMap((name) => {
    const mine = rows.filter((each) => each[3] === name && (name.includes("strided") || name === "two_pass" || each[2] === length));
    return mine.length ? [mine.reduce((a, b) => (near(b) < near(a) ? b : a))] : [];
  });
}

/** Heights of labels, at least `gap` apart, as near to where they belong as they can. */
function apart(wanted, gap, low, high) {
  const order = wanted.map((y, at) => [y, at]).sort((a, b) => a[0] - b[0]);
  let edge = low;
  const placed = order.map(([y]) => { edge = Math.max(y, edge); const here = edge; edge += gap; return here; });
  const over = Math.max(0, edge - gap - high);
  return placed.reduce((all, y, at) => { all[order[at][1]] = y - over; return all; }, []);
}

const colour = (name, share) => (name === "torch" ? "neutral" : share < 0.8 ? "behind" : "ours");

export default {
  start: (data) => ({ way: "forward", dtype: "bfloat16", step: Math.min(2, data.lengths.length - 1) }),

  controls: (state, data) => [
    { kind: "slider", key: "step", label: "columns", min: 0, max: data.lengths.length - 1, step: 1, show: (value) => grouped(data.lengths[value]) },
    { kind: "choice", key: "way", label: "pass", options: [["forward", "forward"], ["backward", "backward"]] },
    { kind: "choice", key: "dtype", label: "type", options: [["float32", "float32"], ["bfloat16", "bfloat16"]] },
  ],

  numbers({ way, dtype, step }, data) {
    const size = dtype === "float32" ? 4 : 2;
    const points = measured({ way, dtype, length: data.lengths[step] }, data).map(([, , length, name, speed, moves, copy]) => {
      const intensity = 1 / (moves * size), roof = Math.min(copy * intensity, data.exponentials);
      return { name, length, speed, intensity, copy, roof, share: speed / roof };
    });
    return { points, copy: points[0].copy };
  },

  draw({ way, dtype, step }, { points, copy }, width, data) {
    const wide = width > 500, left = 44, right = width - (wide ? 150 : 8), top = 34, bottom = 262;
    const xs = [1 / 48, 2], ys = [3e10, 8e12];
    const log = (value, [low, high]) => Math.log(value / low) / Math.log(high / low);
    const xAt = (value) => left + (right - left) * log(value, xs), yAt = (value) => bottom - (bottom - top) * log(value, ys);
    const parts = [text(0, 13, "elements a second", "title", "start")];
    for (const [value, words] of [[1e11, "10¹¹"], [1e12, "10¹²"]]) {
      parts.push(line(left, yAt(value), right, yAt(value), "grid"), text(left - 6, yAt(value) + 4, words, "small", "end"));
    }
    for (const bytes of [32, 16, 8, 4, 2, 1]) parts.push(line(xAt(1 / bytes), bottom, xAt(1 / bytes), bottom + 5, "axis"), text(xAt(1 / bytes), bottom + 18, bytes, "small"));
    parts.push(line(left, bottom, right, bottom, "axis"), text((left + right) / 2, bottom + 36, wide ? "bytes moved for an element, fewer to the right →" : "bytes moved for an element →"));
    const knee = data.exponentials / copy;
    parts.push(curve([[left, yAt(copy * xs[0])], [xAt(knee), yAt(data.exponentials)], [right, yAt(data.exponentials)]].filter(([x]) => x <= right), "ink"));
    parts.push(text(right, yAt(data.exponentials) - 9, "one exponential an element", "small ink", "end"));
    parts.push(text(xAt(1 / 11), yAt(copy / 11) - 12, wide ? "memory, as a copy has it" : "memory: a copy", "small ink", "end"));
    const labels = apart(points.map(({ speed }) => yAt(speed)), 15, top, bottom - 6);
    points.forEach(({ name, speed, intensity, share }, at) => {
      const x = xAt(intensity), y = yAt(speed), css = colour(name, share);
      parts.push(dot(x, y, 5, css));
      if (wide) {
        parts.push(curve([[x + 7, y], [right - 6, labels[at]]], "grid"), text(right, labels[at] + 4, NAMES[name], "small ink", "start"), text(width, labels[at] + 4, `${fixed(100 * share, 0)} %`, `small ${css}`, "end"));
      }
    });
    if (!wide) {
      [...points].sort((a, b) => b.share - a.share).forEach(({ name, share }, at) => {
        const y = bottom + 62 + 17 * at;
        parts.push(text(left, y, NAMES[name], "ink", "start"), text(right, y, `${fixed(100 * share, 0)} % of its roof`, colour(name, share), "end"));
      });
    }
    const says = points.map(({ name, share }) => `${NAMES[name]} ${fixed(100 * share, 0)} %`).join(", ");
    return [svg(width, bottom + (wide ? 44 : 62 + 17 * points.length), `Kernels under their roof, ${way}, ${dtype}, ${data.lengths[step]} columns: ${says} of it.`, parts)];
  },

  says({ way, dtype, step }, { points, copy }, data) {
    const over = points.filter(({ share }) => share > 1.02).map(({ name }) => NAMES[name]);
    const best = points.reduce((a, b) => (b.speed > a.speed ? b : a));
    return `${way === "forward" ? "Forward" : "Backward"}, ${dtype}, ${grouped(data.lengths[step])} columns: a copy moves ${brief(copy / 1e12, 3)} TB/s; fastest is ${NAMES[best.name]}, at ${fixed(100 * best.share, 0)} % of its roof.` +
      (over.length ? ` Above the line: ${over.join(", ")}; a cache answers some of the reads.` : "");
  },
};
