/* Head, body and tail of the first rows of a matrix, between the borders of vectors of 16 bytes. */
import { line, rect, svg, text } from "./moving.js";

const ROWS = 4;

export default {
  start: () => ({ cols: 27, start: 0, vector: 8 }),

  controls: () => [
    { kind: "slider", key: "cols", label: "length N", min: 16, max: 64, step: 1 },
    { kind: "slider", key: "start", label: "first row starts at", min: 0, max: 7, step: 1 },
    { kind: "choice", key: "vector", label: "elements", options: [[8, "16 bits"], [4, "32 bits"]] },
  ],

  numbers({ cols, start, vector }) {
    const rows = Array.from({ length: ROWS }, (_, row) => {
      const begin = start + row * cols, end = begin + cols;
      const first = Math.ceil(begin / vector) * vector, last = Math.floor(end / vector) * vector;
      return { begin, head: first - begin, body: last - first, tail: end - last };
    });
    const sum = (key) => rows.reduce((total, each) => total + each[key], 0);
    return { rows, vectors: sum("body") / vector, edges: sum("head") + sum("tail"), elements: ROWS * cols };
  },

  draw({ cols, vector }, { rows, vectors, edges }, width) {
    const wide = width > 500, left = wide ? 52 : 0, span = cols + vector, cell = (width - left - 2) / span;
    const bar = 24, pitch = wide ? 40 : 54, parts = [text(left, 10, `dashed: every 16 bytes, ${vector} elements`, "small", "start")];
    rows.forEach(({ begin, head, body, tail }, row) => {
      const y = (wide ? 26 : 40) + row * pitch;
      const from = left + (begin % vector) * cell;
      parts.push(text(0, wide ? y + 16 : y - 7, wide ? `row ${row}` : `row ${row}: ${head} + ${body} + ${tail}`, wide ? "ink" : "small ink", "start"));
      const edge = (at, length, name) => {
        if (!length) return;
        parts.push(rect(from + at * cell, y, length * cell - 1, bar, "behind soft", 'rx="1.5"'));
        if (wide && length * cell > 14) parts.push(text(from + (at + length / 2) * cell, y + 16, length * cell > 52 ? `${name} ${length}` : length, "small ink"));
      };
      edge(0, head, "head");
      for (let at = 0; at < body; at += vector) {
        parts.push(rect(from + (head + at) * cell, y, vector * cell - 1, bar, "ours half", 'rx="1.5"'));
      }
      edge(head + body, tail, "tail");
      for (let mark = 0; mark <= span; mark += vector) {
        if (left + mark * cell <= width) parts.push(line(left + mark * cell - 0.5, y - 4, left + mark * cell - 0.5, y + bar + 4, "axis dashed"));
      }
    });
    return [svg(width, (wide ? 22 : 32) + ROWS * pitch, `Four rows of ${cols} elements: ${vectors} whole vectors, and ${edges} elements in heads and tails.`, parts)];
  },

  says({ cols, start, vector }, { rows, vectors, edges, elements }) {
    const [first, second] = rows;
    const parts = ({ head, body, tail }) => `${head} + ${body} + ${tail}`;
    return `Head, body and tail of row 0 are ${parts(first)}, and of row 1 they are ${parts(second)}. ` + (edges === 0
      ? `Every row starts and ends on a vector, so nothing is left over: ${vectors} accesses of 16 bytes.`
      : `Four rows take ${vectors} accesses of 16 bytes and ${edges} of single elements; element by element they take ${elements}.`) +
      (cols % vector === 0 && start ? " A length in whole vectors does not help when the first row starts between two." : "");
  },
};
