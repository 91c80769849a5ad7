/* Rows of a matrix in tiles whose sides are powers of two. */
import { fixed, grouped, rect, svg, text } from "./moving.js";

const powerOf2 = (n) => 2 ** Math.ceil(Math.log2(n));

export default {
  start: () => ({ cols: 12, rows: 6, side: 4 }),

  controls: () => [
    { kind: "slider", key: "cols", label: "columns", min: 1, max: 32, step: 1 },
    { kind: "slider", key: "rows", label: "rows", min: 1, max: 8, step: 1 },
    { kind: "choice", key: "side", label: "rows to a program", options: [[1, "1"], [2, "2"], [4, "4"], [8, "8"]] },
  ],

  numbers({ cols, rows, side }) {
    const tile = Math.max(16, powerOf2(cols)), programs = Math.ceil(rows / side);
    const lanes = programs * side * tile;
    return { tile, programs, lanes, used: rows * cols, share: (rows * cols) / lanes };
  },

  draw({ cols, rows, side }, { tile, programs, used, lanes }, width) {
    const wide = width > 500, left = wide ? 84 : 30, cell = (width - left) / tile, parts = [];
    let y = 20;
    for (let program = 0; program < programs; program += 1) {
      parts.push(text(0, y + 14, wide ? `program ${program}` : `p${program}`, "ink", "start"));
      for (let at = 0; at < side; at += 1, y += 20) {
        const row = program * side + at;
        for (let col = 0; col < tile; col += 1) {
          const inside = row < rows && col < cols, gap = cell > 12 ? 2 : 1;
          parts.push(rect(left + col * cell, y, cell - gap, 18, inside ? `ours ${program % 2 ? "half" : ""}` : "empty", 'rx="1.5"'));
        }
      }
      y += 8;
    }
    parts.push(text(left, 10, `${tile} lanes to a row`, "small", "start"));
    return [svg(width, 190, `${rows} rows of ${cols} columns in ${programs} tiles of ${side} rows of ${tile} lanes: ${used} of ${lanes} lanes have an element.`, parts)];
  },

  says: ({ side }, { tile, programs, used, lanes, share }) =>
    `${programs} program${programs > 1 ? "s" : ""}, each with a tile of ${side} × ${tile}: ${grouped(used)} of ${grouped(lanes)} lanes have an element (${fixed(100 * share, 0)} %). The dashed ones are masked: they move no bytes, but take their part of the registers and of the time to compute.`,
};
