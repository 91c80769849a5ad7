/* The programs of one row over time, from the events of the kernel's own run. */
import { line, rect, svg, text } from "./moving.js";

const KINDS = { read: "ours soft outlined", publish: "ours", poll: "empty", help: "behind soft outlined", write: "best soft outlined" };
const label = (what, chunk, wide) => (what === "publish" ? "" : what === "help" ? `read ${wide ? "chunk " : ""}${chunk}` : what);
const NOW = { read: "reads", publish: "publishes", poll: "polls", help: "reads a chunk for another", write: "writes" };
const PROGRAMS = [0, 1, 2, 3];
const below = "₀₁₂₃";

export default {
  start: ({ absent }) => ({ absent, patience: 8, at: 100 }),

  controls: () => [
    { kind: "play", key: "at", min: 0, max: 100, step: 1, ms: 70 },
    { kind: "slider", key: "at", label: "time", min: 0, max: 100, step: 1, show: (value) => `${value} %` },
    { kind: "choice", key: "absent", label: "missing program", options: [[-1, "none"], [0, "0"], [1, "1"], [2, "2"], [3, "3"]] },
    { kind: "choice", key: "patience", label: "polls again", options: [[2, "2 times"], [8, "8 times"], [24, "24 times"]] },
  ],

  numbers({ absent, patience, at }, { traces }) {
    const events = traces[`${absent} ${patience}`];
    const end = Math.max(...events.map((each) => each[4])), now = (end * at) / 100;
    const of = (kind) => events.filter((each) => each[1] === kind);
    return {
      end, now, finished: of("write").map((each) => [each[0], each[4]]),
      words: of("publish").map((each) => [each[2], each[4]]),
      reads: of("read").length, helps: of("help").length,
      helpers: new Set(of("help").map((each) => each[0])).size,
      doing: PROGRAMS.map((program) => events.find((each) => each[0] === program && each[3] <= now && now < each[4])?.[1] ?? null),
    };
  },

  draw({ absent, patience, at }, { words, now }, width, { traces }) {
    const wide = width > 500, left = wide ? 84 : 28, bar = 26, pitch = 36, top = 6;
    const last = Math.max(...Object.entries(traces).filter(([key]) => key.endsWith(` ${patience}`)).flatMap(([, events]) => events.map((each) => each[4])));
    const unit = (width - left - 4) / last, bottom = top + 4 * pitch, parts = [];
    for (const program of PROGRAMS) {
      parts.push(text(0, top + program * pitch + 17, wide ? `program ${program}` : `p${program}`, "ink", "start"));
      if (program === absent) parts.push(text(left, top + program * pitch + 17, "does not run", "small halo", "start"));
    }
    const known = words.filter(([, tick]) => tick <= now).sort((a, b) => a[1] - b[1]);
    known.forEach(([chunk, tick], at) => {
      const x = left + tick * unit;
      parts.push(line(x, top - 4, x, bottom + 2, "axis dashed"), text(x, bottom + 16 + (wide ? 0 : 13 * (at % 2)), `w${below[chunk]}`, "small ink"));
    });
    for (const [program, what, chunk, begin, end] of traces[`${absent} ${patience}`]) {
      if (begin >= now && at < 100) continue;
      const x = left + begin * unit, room = (Math.min(end, now) - begin) * unit, y = top + program * pitch;
      parts.push(rect(x, y, room - 1, bar, KINDS[what], 'rx="2"'));
      const words = label(what, chunk, wide);
      if (room > 6.4 * words.length + 4) parts.push(text(x + room / 2, y + 17, words, `small ink ${what === "poll" ? "halo" : ""}`));
    }
    parts.push(text(0, bottom + 16, "words", wide ? "ink" : "small ink", "start"));
    if (at < 100) parts.push(line(left + now * unit, top - 4, left + now * unit, bottom + 4, "ink"));
    return [svg(width, bottom + (wide ? 24 : 38), `Four programs over time${absent < 0 ? "" : `, of which program ${absent} does not run`}: each reads its chunk, publishes a word, polls for the others, and writes.`, parts)];
  },

  says({ absent, patience, at }, { helps, helpers, reads, doing, words, end }) {
    if (at < 100) {
      const each = PROGRAMS.filter((program) => doing[program]).map((program) => `program ${program} ${NOW[doing[program]]}`);
      return `${each.length ? each.join(", ").replace(/^p/, "P") : "Nothing runs"}.`;
    }
    const last = words.reduce((a, b) => (b[1] > a[1] ? b : a));
    // A program may give up more than once: on the missing chunk, and on one that comes late.
    const helped = `${helpers === 1 ? "one program" : `${helpers} programs`} gave up polling and read ${helps === 1 ? "a chunk" : `${helps} chunks`} for others`;
    return (absent < 0 ? "All four run. " : `Program ${absent} does not run, and its chunk stays unwritten until it does. `) +
      (helps ? `After polling again ${patience} times, ${helped}: ${reads + helps} chunks were read instead of the ${reads} that these programs own.` : `The last word is w${below[last[0]]}; no program had to read another's chunk.`) +
      ` The last program is done after ${end} ticks.`;
  },
};
