/* One row on its way through a GPU, scene by scene: memory above, programs and their registers
 * below, then what has been moved, then what that took. A scene is a state; `at` is how far it is.
 * What a kernel moves is read off its trace, in the order of its passes. */
import { fixed, grouped, line, rect, svg, text } from "./moving.js";

export const SCENES = ["memory", "lines", "three", "two", "one", "pairs", "programs", "gpus", "backward", "measured"];
const X = [1, 3, 0, 2, 4, 1, 2, 0, 3, 5, 1, 2, 0, 2, 4, 1];
const DY = [0.1, -0.3, 0.2, 0, 0.4, 0.1, -0.2, 0.3, 0, 0.5, -0.1, 0.2, 0.1, 0, -0.4, 0.3];
const N = X.length, TILE = 4;
const RUNG = { memory: "copy", lines: "naive", three: "three_loops", two: "two_loops", one: "single_block", programs: "split_rows", backward: "single_block" };
const BEFORE = { three: "lines", two: "three", one: "two" };
const NAMES = { naive: "five lines of PyTorch", three_loops: "three loops", two_loops: "two loops", single_block: "single block", torch: "torch.softmax", split_rows: "split rows", copy: "a copy" };
const LINES = [["m = max(x)"], ["z = x − m", "z = x − m"], ["e = exp(z)", "e = exp(z)"], ["d = sum(e)"], ["y = e / d", "y = e / d"]].flat();

const summary = (row) => {
  const m = Math.max(...row);
  return { m, d: row.reduce((sum, each) => sum + Math.exp(each - m), 0) };
};
const WHOLE = summary(X), Y = X.map((each) => Math.exp(each - WHOLE.m) / WHOLE.d);
const S = Y.reduce((sum, each, at) => sum + each * DY[at], 0);
const VALUES = {
  x: X, z: X.map((each) => each - WHOLE.m), e: X.map((each) => Math.exp(each - WHOLE.m)), y: Y,
  dy: DY, dx: Y.map((each, at) => each * (DY[at] - S)), copy: X,
};
const COPY = [["read", "x"], ["write", "copy"]];

/** The trips of a kernel over a row, from its trace: [kind, tensor]. */
const trips = (scene, { passes, split }) => scene === "memory" ? COPY : scene === "programs" ?
  ["read", "write"].flatMap((kind) => split.filter((each) => each[0] === 0 && each[1] === kind).map(() => [kind, kind === "read" ? "x" : "y"])) :
  (passes[scene === "backward" ? "backward" : "forward"][RUNG[scene]] ?? []).filter(([, , size]) => size === "MN");

/** What a scene does, one access after another: { kind, name, first, count, trip }. In a loop, a
 * tile is read and then written. */
function accesses(scene, data) {
  const wide = ["lines", "one", "backward"].includes(scene) ? N : scene === "pairs" ? N / 2 : TILE;
  const loops = [];
  (scene === "pairs" ? [COPY[0]] : trips(scene, data)).forEach(([kind, name], trip) => {
    if (kind === "read") loops.push([]);
    loops.at(-1).push({ kind, name, trip });
  });
  return loops.flatMap((loop) => Array.from({ length: N / wide }, (_, at) => loop.map((each) => ({ ...each, first: at * wide, count: wide }))).flat());
}

/** The pair that a program knows after so many accesses. */
function known(scene, done) {
  if (scene === "three") {
    if (done <= 4) return done ? { m: Math.max(...X.slice(0, TILE * done)) } : {};
    const seen = X.slice(0, TILE * Math.min(done - 4, 4));
    return { m: WHOLE.m, d: seen.reduce((sum, each) => sum + Math.exp(each - WHOLE.m), 0) };
  }
  if (scene === "two") return done === 0 ? {} : summary(X.slice(0, TILE * Math.min(done, 4)));
  if (scene === "one") return done ? WHOLE : {};
  if (scene === "lines") return done < 1 ? {} : done < 6 ? { m: WHOLE.m } : WHOLE;
  if (scene === "backward") return { s: done < 2 ? null : S };
  return {};
}

/* ---- Places: of everything that is drawn, in a wide and a narrow picture ---- */

const PLACES = {
  720: { left: 26, cell: 43, tall: 25, memory: [18, 134], registers: [196, 92], strip: 326, bar: 392, height: 434, words: "small" },
  300: { left: 16, cell: 17.6, tall: 15, memory: [13, 84], registers: [126, 60], strip: 208, bar: 250, height: 282, words: "tiny" },
};
const SHOWN = { memory: ["x", "copy"], lines: ["x", "z", "e", "y"], backward: ["y", "dy", "dx"], pairs: ["x"], programs: ["x", "pairs", "y"] };

export default {
  start: ({ scene }) => ({ scene, at: 100 }),

  controls: () => [
    { kind: "play", key: "at", min: 0, max: 100, step: 2, ms: 60 },
    { kind: "slider", key: "at", label: "time", min: 0, max: 100, step: 1, show: (value) => `${value} %` },
  ],

  numbers({ scene: number, at }, data) {
    const scene = SCENES[number], all = accesses(scene, data), place = (all.length * at) / 100;
    const done = Math.floor(place), count = trips(scene, data).length;
    const time = scene === "backward" ? data.backward.split_rows : data.forward[RUNG[scene]];
    return {
      scene, all, done, flight: place - done, trips: count,
      filled: scene === "programs" ? trips(scene, data).map(([kind]) => data.split.filter((each) => each[1] === kind && each[4] <= state_time(at, data)).length / TILES.length) : Array.from({ length: count }, (_, trip) => all.slice(0, done).filter((each) => each.trip === trip).length / all.filter((each) => each.trip === trip).length),
      before: BEFORE[scene] ? trips(BEFORE[scene], data).length : count,
      pair: known(scene, done), whole: WHOLE, shares: Y, gradient: VALUES.dx, dy: DY, s: S, time: time ?? null,
      copy: scene === "backward" ? data.backward.copy : data.forward.copy,
      halves: [summary(X.slice(0, N / 2)), summary(X.slice(N / 2))],
      quarters: [0, 1, 2, 3].map((each) => summary(X.slice(TILE * each, TILE * each + TILE))),
    };
  },

  draw(state, numbers, width, data) {
    const P = { ...PLACES[width], width }, { scene } = numbers;
    const parts = scene === "measured" ? measured(P, data) : [
      ...(scene === "programs" ? programs(P, state, numbers, data) : scene === "gpus" ? gpus(P, state, numbers) : alone(P, numbers)),
      ...below(P, numbers, data),
    ];
    return [svg(width, P.height, this.says(state, numbers, data), parts)];
  },

  says({ at }, { scene, all, done, trips: count, pair, time, halves, whole, s }, data) {
    const of = (each) => `(${fixed(each.m, 0)}, ${fixed(each.d, 2)})`;
    const words = {
      memory: `A program copies a row of ${N} numbers, tile by tile. `,
      lines: `Five lines are five kernels. ${done < all.length ? `${LINES[done]}: ${all[done].kind}s ${all[done].name}. ` : ""}`,
      three: `One kernel, three loops over the row. ${pair.m === undefined ? "" : `m = ${fixed(pair.m, 0)}${pair.d === undefined ? "" : `, d = ${fixed(pair.d, 2)}`}. `}`,
      two: `One loop finds both. ${pair.m === undefined ? "" : `After ${Math.min(done, 4)} of 4 tiles the pair is ${of(pair)}. `}`,
      one: `The row is one tile. ${pair.m === undefined ? "" : `Its pair is ${of(pair)}. `}`,
      pairs: ["Neither half has been read.", `The left half has the pair ${of(halves[0])}.`, `The left half has the pair ${of(halves[0])}, the right half ${of(halves[1])}; merged they are ${of(whole)}.`][done],
      programs: doing(state_time(at, data), data),
      gpus: `The pairs ${of(halves[0])} and ${of(halves[1])} cross the link; no element of the row does.`,
      backward: pair.s === null ? "The sum s needs both rows. " : `Both rows are in registers: s = ${fixed(s, 2)}. `,
      measured: `Measured: from ${grouped(data.forward.naive)} µs to ${grouped(data.forward.split_rows)}. A copy takes ${grouped(data.forward.copy)}.`,
    }[scene];
    return `${words}${count && at === 100 ? ` ${count} trips.` : ""}${time && at === 100 ? ` Measured: ${grouped(time)} µs.` : ""}`;
  },
};

/* ---- The parts of a picture ---- */

/** A value as it stands in a cell, or nothing where there is no room. */
const written = (name, value, P) =>
  ["x", "z", "copy"].includes(name) ? fixed(value, 0) : P.width > 500 ? fixed(value, 2).replace(/^−(0.00)$/, "$1").replace(/^(−?)0\./, "$1.") : "";

/** One element: a box, its value, and in a result a bar as high as its share. */
function cell(P, x, y, name, value, css) {
  const result = ["y", "e"].includes(name), high = result ? Math.max(1, (P.tall - 2) * Math.min(1, value / (name === "e" ? 1 : Math.max(...Y)))) : 0;
  return [
    rect(x, y, P.cell - 2, P.tall, `${css} glide`, 'rx="2"'),
    result ? rect(x, y + P.tall - high, P.cell - 2, high, "best half", 'rx="1"') : "",
    text(x + (P.cell - 2) / 2, y + P.tall / 2 + 4, written(name, value, P), `${P.words} ink`),
  ];
}

const column = (P, at) => P.left + P.cell * at;
const rowOf = (P, shown, name) => {
  const [top, high] = P.memory, at = shown.indexOf(name);
  return top + ((at + 0.5) * high) / shown.length - P.tall / 2;
};

function frame(P, [top, high], words, x = 0, width = P.width) {
  return [text(x, top - 6, words, P.words, "start"), rect(x, top, width, high, "paper", 'rx="8"')];
}

/** Rows in memory; `has(name, at)` says whether an element has been written there. */
function memory(P, shown, has, busy = () => false) {
  return [
    frame(P, P.memory, "memory"),
    shown.filter((name) => name !== "pairs").map((name) => {
      const y = rowOf(P, shown, name);
      return [
        text(P.left / 2, y + P.tall / 2 + 4, name === "copy" ? "y" : name, P.width > 500 ? "strong" : "tiny ink"),
        X.map((_, at) => has(name, at)
          ? cell(P, column(P, at), y, name, VALUES[name][at], busy(name, at) ? "now outlined ours" : "frame")
          : rect(column(P, at), y, P.cell - 2, P.tall, "empty", 'rx="2"')),
      ];
    }),
  ];
}

function pill(P, x, y, pair, css = "ours soft outlined") {
  const words = pair.s !== undefined ? [pair.s === null ? "s ?" : `s ${fixed(pair.s, 2)}`] : [pair.m === undefined ? "m ?" : `m ${fixed(pair.m, 0)}`, pair.d === undefined ? "d ?" : `d ${fixed(pair.d, 2)}`];
  const wide = P.width > 500, high = wide ? 24 : 17, widths = wide ? [58, 58] : words.length > 1 ? [27, 45] : [45];
  return words.map((each, at) => {
    const left = x + (at ? widths[0] : 0), room = widths[at] - 2;
    return [rect(left, y, room, high, css, 'rx="8"'), text(left + room / 2, y + high / 2 + 4, each, wide ? "small strong" : "tiny strong")];
  });
}

/** One program and the tile that flies between it and memory. */
function alone(P, { scene, all, done, flight, pair, halves, whole }) {
  const shown = SHOWN[scene] ?? ["x", "y"], now = all[done], last = all[done - 1];
  const written = (name, at) => name === "x" || (scene === "backward" && name !== "dx") ||
    all.slice(0, done).some((each) => each.kind === "write" && each.name === name && each.first <= at && at < each.first + each.count);
  const busy = (name, at) => now && now.kind === "read" && now.name === name && now.first <= at && at < now.first + now.count;
  const [top, high] = P.registers, lanes = all[0].count, low = top + high - (P.width > 500 ? 34 : 23);
  const lane = (at) => column(P, at % lanes + (lanes === TILE ? 6 : lanes < N ? 4 : 0)), start = top + (P.width > 500 ? 22 : 14);
  const out = [memory(P, shown, written, busy), frame(P, P.registers, "")];
  const held = now?.kind === "write" ? now : last;
  const stays = held && !(scene === "lines" && now && now.kind === "read" && last?.kind === "write");
  for (let at = 0; at < lanes; at++) {
    out.push(stays ? cell(P, lane(at), start, held.name, VALUES[held.name][held.first + at], "best soft") : rect(lane(at), start, P.cell - 2, P.tall, "empty", 'rx="2"'));
  }
  if (now && flight > 0) {
    const way = now.kind === "read" ? flight : 1 - flight, y = rowOf(P, shown, now.name);
    for (let at = 0; at < now.count; at++) {
      const from = column(P, now.first + at), to = lane(at);
      out.push(cell(P, from + (to - from) * way, y + (start - y) * way, now.name, VALUES[now.name][now.first + at], now.kind === "read" ? "ours soft outlined" : "best soft outlined"));
    }
  }
  // Above the tiles that fly past it.
  out.push(text(0, top - 6, scene === "lines" ? `${done < all.length ? `kernel ${LINES[done]}` : "five kernels"}: registers` : "program: registers", `${P.words} halo`, "start"));
  const middle = P.width / 2, room = P.width > 500 ? 58 : 36;
  if (scene === "pairs") {
    const places = [P.left, P.width - 2 * room, middle - room];
    if (done > 0) out.push(pill(P, places[0], low, halves[0]));
    if (done > 1) out.push(pill(P, places[1], low, halves[1]), pill(P, places[2], low, whole, "best soft outlined"));
  } else if (scene !== "memory") out.push(pill(P, middle - (scene !== "backward" ? room : P.width > 500 ? 29 : 22), low, pair));
  return out;
}

const state_time = (at, { split }) => (Math.max(...split.map((each) => each[4])) * at) / 100;
const DOING = { read: "reads", publish: "publishes its pair", poll: "waits", help: "reads a missing chunk", write: "writes" };
const current = (now, split) => TILES.map((program) => split.find((each) => each[0] === program && each[3] <= now && now < each[4])?.[1]);
const TILES = [0, 1, 2, 3];

function doing(now, { split }) {
  const what = current(now, split).map((each, at) => each && `program ${at} ${DOING[each]}`).filter(Boolean);
  return what.length ? `${what.join(", ").replace(/^p/, "P")}.` : "Four programs have shared the row: each read its quarter once, and all four pairs went through memory.";
}

/** Four programs of one row, as their trace has it. */
function programs(P, { at }, { quarters, whole }, data) {
  const now = state_time(at, data), shown = SHOWN.programs, { split } = data;
  const over = (program, what) => split.some((each) => each[0] === program && each[1] === what && each[4] <= now);
  const [top, high] = P.registers, y = rowOf(P, shown, "pairs"), room = P.width > 500 ? 58 : 36, chunk = TILE * P.cell;
  const wide = P.width > 500, state = current(now, split), start = top + (wide ? 20 : 12);
  const out = [
    memory(P, shown, (name, at) => name === "x" || over(Math.floor(at / TILE), "write"), (name, at) => name === "x" && state[Math.floor(at / TILE)] === "read"),
    text(P.left / 2, y + 12, wide ? "pairs" : "", "tiny ink"),
  ];
  for (const program of TILES) {
    const x = column(P, TILE * program);
    out.push(over(program, "publish") ? pill(P, x + chunk / 2 - room, y, quarters[program]) : rect(x + chunk / 2 - room, y, 2 * room - 2, wide ? 24 : 17, "empty", 'rx="8"'));
    out.push(text(x, top - 6, wide ? `program ${program}` : `p${program}`, P.words, "start"), rect(x, top, chunk - 4, high, "paper", 'rx="8"'));
    for (let at = 0; at < TILE; at++) {
      out.push(over(program, "read") ? cell(P, x + at * (P.cell - 2) + 3, start, "x", X[TILE * program + at], "best soft") : "");
    }
    const ready = state[program] === "write" || over(program, "write");
    if (over(program, "read")) out.push(pill(P, x + chunk / 2 - room, top + high - (wide ? 32 : 20), ready ? whole : quarters[program], ready ? "best soft outlined" : undefined));
    if (state[program] === "poll") out.push(text(x + chunk - 8, top - 6, "waits", P.words, "end"));
  }
  return out;
}

/** Two GPUs with half a row each: a pair of each crosses the link. */
function gpus(P, { at }, { halves, whole }) {
  const gap = P.width > 500 ? 30 : 14, half = (P.width - gap) / 2, wide = P.width > 500, small = { ...P, cell: (half - 12) / 8 };
  const room = wide ? 58 : 36, [top, high] = P.registers, low = top + high - (wide ? 34 : 23), way = Math.min(1, Math.max(0, (at - 30) / 40)), out = [], crossing = [];
  [0, 1].forEach((gpu) => {
    const x = gpu * (half + gap), home = x + half / 2 - room, there = (1 - gpu) * (half + gap) + half / 2 - room;
    out.push(frame(P, P.memory, `GPU ${gpu}: memory`, x, half), frame(P, P.registers, `GPU ${gpu}: registers`, x, half));
    for (let each = 0; each < 8; each++) {
      const column = x + 7 + each * small.cell, index = 8 * gpu + each;
      out.push(cell(small, column, rowOf(P, ["x", "y"], "x"), "x", X[index], at < 25 ? "now outlined ours" : "frame"));
      const y = rowOf(P, ["x", "y"], "y");
      out.push(at > 85 ? cell(small, column, y, "y", Y[index], "frame") : rect(column, y, small.cell - 2, P.tall, "empty", 'rx="2"'));
    }
    if (at > 25) out.push(pill(P, home, top + (wide ? 14 : 8), halves[gpu]));
    if (at > 30 && way < 1) crossing.push(pill(P, home + (there - home) * way, top + (wide ? 38 + 26 * gpu : 24 + 18 * gpu), halves[gpu], "best soft outlined"));
    if (way === 1) out.push(pill(P, home, low, whole, "best soft outlined"));
  });
  out.push(line(half, top + high / 2, half + gap, top + high / 2, "ink dashed"), text(P.width / 2, top + high + 14, "link", "tiny ink"));
  return [...out, ...crossing];
}

/** The trips made, those that the scene before still made, and the measured time. */
function below(P, { trips: count, filled, before, time, copy, scene }, data) {
  const out = [], list = trips(scene, data), unit = P.width / 8, high = P.width > 500 ? 26 : 18;
  if (count) {
    out.push(text(0, P.strip - 7, `${count} trips over the whole row${before > count ? `; ${before} before` : ""}${scene === "one" ? P.width > 500 ? "; a longer row spills and makes more" : "; longer rows spill" : ""}`, P.width > 500 ? "strong" : "small strong", "start"));
    for (let at = 0; at < Math.max(before, count); at++) {
      if (at >= count) { out.push(rect(at * unit, P.strip, unit - 3, high, "ghost", 'rx="3"')); continue; }
      const [kind, tensor] = list[at], name = tensor === "copy" ? "y" : tensor, part = filled[at], css = kind === "read" ? "ours" : "best";
      out.push(rect(at * unit, P.strip, unit - 3, high, `${css} soft outlined`, 'rx="3"'), part ? rect(at * unit, P.strip, (unit - 3) * part, high, `${css} half`, 'rx="3"') : "");
      out.push(text(at * unit + (unit - 3) / 2, P.strip + high / 2 + 4, P.width > 500 ? `${kind} ${name}` : `${kind === "read" ? "↓" : "↑"} ${name}`, `${P.words} ink`));
    }
  }
  if (time) {
    const scale = P.width / Math.max(data.forward.naive, time), bar = P.width > 500 ? 18 : 12;
    out.push(text(0, P.bar - 7, scene === "memory" ? `${grouped(time)} µs measured` : `${grouped(time)} µs measured; a copy ${scene === "backward" ? "of three matrices " : ""}${grouped(copy)}`, P.width > 500 ? "strong" : "small strong", "start"));
    out.push(rect(0, P.bar, time * scale, bar, `${{ memory: "neutral", lines: "best" }[scene] ?? "ours"} glide`, 'rx="3"'), line(copy * scale, P.bar - 4, copy * scale, P.bar + bar + 4, "ink dashed"));
  }
  return out;
}

const order = ({ forward }) => Object.entries(forward).filter(([name]) => NAMES[name]).sort((a, b) => b[1] - a[1]);

function measured(P, data) {
  const list = order(data), pitch = (P.height - 24) / list.length, wide = P.width > 500, left = wide ? 150 : 0, most = list[0][1];
  return list.map(([name, time], at) => {
    const y = 14 + at * pitch, long = ((P.width - left - 70) * time) / most, css = name === "copy" ? "neutral" : ["naive", "torch"].includes(name) ? "best" : "ours";
    return [
      text(wide ? left - 10 : 0, wide ? y + pitch / 2 : y + 6, NAMES[name], name === "split_rows" ? "strong" : "ink", wide ? "end" : "start"),
      rect(left, wide ? y + pitch / 2 - 15 : y + 11, long, wide ? 22 : 13, `${css} ${name === "split_rows" || name === "copy" ? "" : "half"} glide`, 'rx="3"'),
      text(left + long + 8, wide ? y + pitch / 2 : y + 22, `${grouped(time)} µs`, "strong", "start"),
    ];
  });
}
