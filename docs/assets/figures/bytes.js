/* A race of the rungs: all move the same number of elements a tick, and the one that moves the
 * fewest is done first. */
import { fixed, grouped, line, rect, svg, text } from "./moving.js";

const NAMES = { naive: "naive", three_loops: "three loops", two_loops: "two loops", single_block: "single block" };
const SHAPES = { square: [4096, 4096], odd: [1823, 781], long: [64, 131072] };

/** The passes of a rung: "read" or "write", of which tensor, and how many elements that has. */
const parts = (rung, M, N) => rung.map(([kind, name, size]) => ({ kind, name, elements: size === "MN" ? M * N : M }));

const initial = (word) => word[0].toUpperCase();

function bytesText(bytes) {
  const units = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const [unit, name] = units.find(([size]) => bytes >= size) ?? [1, "B"];
  return `${(bytes / unit).toFixed(bytes / unit < 100 ? 1 : 0)} ${name}`;
}

export default {
  start: () => ({ at: 100, way: "forward", shape: "square", size: 4 }),

  controls: () => [
    { kind: "play", key: "at", min: 0, max: 100, step: 1, ms: 60 },
    { kind: "slider", key: "at", label: "time", min: 0, max: 100, step: 1, show: (value) => `${value} %` },
    { kind: "choice", key: "way", label: "pass", options: [["forward", "forward"], ["backward", "backward"]] },
    { kind: "choice", key: "shape", label: "matrix", options: Object.entries(SHAPES).map(([name, [M, N]]) => [name, `${grouped(M)} × ${grouped(N)}`]) },
    { kind: "choice", key: "size", label: "elements", options: [[4, "32 bits"], [2, "16 bits"]] },
  ],

  numbers({ at, way, shape, size }, data) {
    const [M, N] = SHAPES[shape];
    const rungs = Object.entries(data[way]).map(([name, rung]) => {
      const total = parts(rung, M, N).reduce((sum, each) => sum + each.elements, 0);
      return { name, total };
    });
    const most = Math.max(...rungs.map(({ total }) => total)), now = (most * at) / 100;
    return {
      least: Math.min(...rungs.map(({ total }) => total)) * size,
      rungs: rungs.map(({ name, total }) => ({ name, bytes: total * size, moved: Math.min(total, now) * size })),
    };
  },

  draw({ at, way, shape, size }, { rungs, least }, width, data) {
    const [M, N] = SHAPES[shape], wide = width > 500, left = wide ? 96 : 0, right = wide ? 128 : 0;
    const most = Math.max(...rungs.map(({ bytes }) => bytes)), unit = (width - left - right) / most;
    const pitch = wide ? 50 : 66, bar = 26, now = (most * at) / 100, drawn = [];
    rungs.forEach(({ name, bytes, moved }, index) => {
      const y = (wide ? 22 : 40) + index * pitch;
      let x = 0;
      drawn.push(text(0, wide ? y + 17 : y - 8, NAMES[name], bytes === least ? "strong" : "ink", "start"));
      drawn.push(text(width, wide ? y + 11 : y - 8, wide ? bytesText(moved) : `${bytesText(moved)} of ${bytesText(bytes)}`, moved === bytes ? "small strong" : "small ink", "end"));
      if (wide) drawn.push(text(width, y + 26, moved === bytes ? (bytes === least ? "done: the least" : `done: ${fixed(bytes / least, 1)} × that`) : `of ${bytesText(bytes)}`, "tiny", "end"));
      for (const { kind, name: tensor, elements } of parts(data[way][name], M, N)) {
        const long = elements * size * unit;
        if (long < 0.3) { x += elements * size; continue; }
        const done = Math.max(0, Math.min(elements * size, moved - x)) * unit;
        const css = kind === "read" ? "ours" : "best";
        drawn.push(rect(left + x * unit, y, long - 2, bar, `${css} soft outlined`, 'rx="2"'));
        if (done > 2) drawn.push(rect(left + x * unit, y, done - 2, bar, css, 'rx="2"'));
        const words = [`${kind} ${tensor}`, `${initial(kind)} ${tensor}`, initial(kind)].find((each) => 6 * each.length + 6 < long);
        if (words) drawn.push(text(left + x * unit + long / 2 - 1, y + 17, words, done > long / 2 ? "small on" : "small ink"));
        x += elements * size;
      }
    });
    const end = (wide ? 22 : 40) + 4 * pitch - 18;
    if (at < 100) drawn.push(line(left + now * unit, 14, left + now * unit, end, "ink dashed"));
    drawn.push(text(left, 10, "time, at the same speed for all →", "small", "start"));
    return [svg(width, end + 4, `Bytes of four rungs, ${way}, ${M} × ${N}: ${rungs.map(({ name, bytes }) => `${NAMES[name]} ${bytesText(bytes)}`).join(", ")}.`, drawn)];
  },

  says({ way, shape }, { rungs, least }) {
    const [M, N] = SHAPES[shape], last = rungs.at(-1);
    return `${way === "forward" ? "Forward" : "Backward"}, ${grouped(M)} rows of ${grouped(N)} columns: naive has to move ${bytesText(rungs[0].bytes)}, ${fixed(rungs[0].bytes / least, 2)} times the ${bytesText(last.bytes)} of the single block` +
      (last.moved === last.bytes && rungs[0].moved < rungs[0].bytes ? `, which is done; naive has moved ${bytesText(rungs[0].moved)}.` : ".");
  },
};
