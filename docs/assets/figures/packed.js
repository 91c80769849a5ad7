/* Rows of a matrix in tiles whose sides are powers of two: one tile, or narrow ones side by side. */
import { fixed, grouped, line, rect, svg, text } from "./moving.js";

const powerOf2 = (n) => 2 ** Math.ceil(Math.log2(n));

/** Columns of a tile, as the library chooses them for many short rows that are read element by element. */
const narrow = (cols) => {
  const power = powerOf2(cols);
  return cols === power || power <= 4 ? power : Math.max(2, Math.min(16, power / 4));
};

export default {
  start: () => ({ cols: 12, rows: 6, side: 4, tiling: "one" }),

  controls: () => [
    { kind: "slider", key: "cols", label: "columns", min: 1, max: 32, step: 1 },
    { kind: "slider", key: "rows", label: "rows", min: 1, max: 8, step: 1 },
    { kind: "choice", key: "side", label: "rows per program", options: [[1, "1"], [2, "2"], [4, "4"], [8, "8"]] },
    { kind: "choice", key: "tiling", label: "tiles", options: [["one", "one"], ["narrow", "narrow ones"]] },
  ],

  numbers({ cols, rows, side, tiling }) {
    const tile = tiling === "one" ? powerOf2(cols) : narrow(cols), tiles = Math.ceil(cols / tile);
    const programs = Math.ceil(rows / side), lanes = programs * side * tile * tiles;
    return { tile, tiles, programs, lanes, used: rows * cols, share: (rows * cols) / lanes };
  },

  draw({ cols, rows, side }, { tile, tiles, programs, used, lanes }, width) {
    const wide = width > 500, left = wide ? 84 : 30, parts = [], across = tile * tiles;
    const cell = Math.min((width - left) / across, 44), gap = cell > 12 ? 2 : 1;
    let y = 20;
    for (let program = 0; program < programs; program += 1) {
      parts.push(text(0, y + 14, wide ? `program ${program}` : `p${program}`, "ink", "start"));
      for (let at = 0; at < side; at += 1, y += 20) {
        const row = program * side + at;
        for (let col = 0; col < across; col += 1) {
          const inside = row < rows && col < cols;
          parts.push(rect(left + col * cell, y, cell - gap, 18, inside ? `ours ${program % 2 ? "half" : ""}` : "empty", 'rx="1.5"'));
        }
      }
      for (let edge = 1; edge < tiles; edge += 1) {
        const x = left + edge * tile * cell - gap / 2;
        parts.push(line(x, y - side * 20 - 2, x, y, "ink sector"));
      }
      y += 8;
    }
    parts.push(text(left, 10, tiles > 1 ? `${tiles} tiles of ${tile} lanes` : `${tile} lane${tile > 1 ? "s" : ""}`, "small", "start"));
    return [svg(width, 190, `${rows} rows of ${cols} columns; ${programs} programs with ${tiles} × ${tile} lanes to each of ${side} rows: ${used} of ${lanes} lanes have an element.`, parts)];
  },

  says: ({ side }, { tile, tiles, programs, used, lanes, share }) =>
    `${programs > 1 ? `${programs} programs, each` : "1 program"} with ${tiles > 1 ? `${tiles} tiles` : "a tile"} of ${side} × ${tile}: ${grouped(used)} of ${grouped(lanes)} lanes have an element (${fixed(100 * share, 0)} %). ` +
    (share < 1 ? "The dashed ones are masked: they move no bytes, but take their part of the registers and of the time to compute." : "None is idle."),
};
