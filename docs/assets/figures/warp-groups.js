/* Who waits for whom in the kernel of warp groups: events of the kernel's own run. */
import { line, rect, svg, text } from "./moving.js";

const OF = { k: "keys", v: "values", q: "queries" };
const CSS = { scores: "ours", values: "ours soft outlined", weights: "best soft outlined" };
const IN_WORDS = { scores: "its scores of tile", values: "its product with the values of tile", weights: "computes the weights of tile" };
const short = (what, tile) => `${what}${[...String(tile)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("")}`;

/** When each tile lies in its place: asked for, there, read by all. */
const held = (events, of) => events.filter(([, what]) => what === of).map(([, , tile, begin, end]) =>
  ({ tile, begin, end, free: events.find(([, what, other]) => what === `free ${of}` && other === tile)[4] }));

export default {
  start: () => ({ groups: 2, places: 2, dim: 64, at: 100 }),

  controls: () => [
    { kind: "play", key: "at", min: 0, max: 100, step: 1, ms: 90 },
    { kind: "slider", key: "at", label: "time", min: 0, max: 100, step: 1, show: (value) => `${value} %` },
    { kind: "choice", key: "groups", label: "groups", options: [[2, "2"], [3, "3"]] },
    { kind: "choice", key: "places", label: "places", options: [[1, "1"], [2, "2"], [4, "4"]] },
    { kind: "choice", key: "dim", label: "components", options: [[64, "64"], [128, "128"]] },
  ],

  numbers({ groups, places, dim, at }, traces) {
    const events = traces[`${dim} ${groups} ${places}`];
    const end = Math.max(...events.map((each) => each[4])), now = (end * at) / 100;
    const spent = (...kinds) => events.filter(([, what]) => kinds.includes(what)).reduce((sum, each) => sum + each[4] - each[3], 0);
    const waits = (loads) => events.filter(([who, what]) => what.startsWith("await") && (who === groups) === loads).length;
    return {
      end, now, inTurn: spent("scores", "values", "weights"), busy: spent("scores", "values") / end,
      waits: waits(false), waitsToLoad: waits(true),
      doing: events.filter(([, what, , begin, end]) => begin <= now && now < end && (what in CSS || what.startsWith("await"))),
    };
  },

  draw({ groups, places, dim, at }, { now, end }, width, traces) {
    const events = traces[`${dim} ${groups} ${places}`], wide = width > 500;
    const left = wide ? 128 : 62, unit = (width - left - 2) / end, high = 18, parts = [];
    let y = 2;
    const bar = (begin, until, css, words) => {
      if (begin >= now && at < 100) return;
      const x = left + begin * unit, room = (Math.min(until, now) - begin) * unit;
      parts.push(rect(x, y, room - 1, high, css, 'rx="2"'));
      if (room > 6 * words.length) parts.push(text(x + room / 2, y + 13, words, `${wide ? "small" : "tiny"} ${css === "ours" ? "on" : "ink"}`));
    };
    const row = (name, gap) => {
      y += gap;
      parts.push(text(0, y + 13, name, wide ? "ink" : "tiny ink", "start"));
    };
    for (let group = 0; group < groups; group += 1) {
      const mine = events.filter(([who]) => who === group);
      row(wide ? `group ${group + 1}: products` : `${group + 1}: products`, group ? 28 : 0);
      for (const [, what, tile, begin, until] of mine) if (what === "scores" || what === "values") bar(begin, until, CSS[what], String(tile));
      row(wide ? "its warps" : "warps", high + 2);
      for (const [, what, tile, begin, until] of mine) {
        if (what === "weights") bar(begin, until, CSS[what], String(tile));
        if (what.startsWith("await")) bar(begin, until, "empty", what === "await q" ? "q" : short(what.at(-1), tile));
      }
    }
    row(wide ? "warp that loads" : "loads", 32);
    for (const [who, what, tile, begin, until] of events) {
      if (who === groups && what.startsWith("await")) bar(begin, until, "empty", `${short(what.at(-1), tile - places)} read`);
    }
    for (const of of ["k", "v"]) {
      for (let place = 0; place < places; place += 1) {
        row(wide ? `${OF[of]}, place ${place + 1}` : `${OF[of]} ${place + 1}`, place ? high + 2 : 30);
        for (const { tile, begin, end: there, free } of held(events, of)) {
          if (tile % places !== place) continue;
          bar(begin, there, "empty", "");
          bar(there, free, "neutral soft outlined", short(of, tile));
        }
      }
    }
    y += high + 4;
    if (at < 100) parts.push(line(left + now * unit, 0, left + now * unit, y, "ink"));
    return [svg(width, y, `${groups} groups of warps over time, and a warp that loads tiles of keys and of values into ${places} place${places > 1 ? "s" : ""} each.`, parts)];
  },

  says({ groups, places, at }, { end, busy, inTurn, waits, waitsToLoad, doing }) {
    if (at === 100) {
      return `Tensor cores multiply for ${Math.round(100 * busy)} % of ${end} ticks. In turn, products and weights would take ${inTurn}. ` +
        `Groups wait ${waits} times for a tile, and the warp that loads waits ${waitsToLoad} times for a place.`;
    }
    const said = [];
    for (let group = 0; group < groups; group += 1) {
      const mine = doing.filter(([who]) => who === group), own = (what) => mine.find((each) => each[1] === what);
      const waited = mine.find(([, what]) => what.startsWith("await")), product = own("scores") ?? own("values");
      const running = product ? `${IN_WORDS[product[1]]} ${product[2]}` : "";
      if (own("weights")) said.push(`group ${group + 1} ${IN_WORDS.weights} ${own("weights")[2]}${running ? ` beside ${running}` : ""}`);
      else if (waited) said.push(`group ${group + 1} waits for ${waited[1] === "await q" ? "its queries" : `${OF[waited[1].at(-1)]} ${waited[2]}`}`);
      else if (running) said.push(`group ${group + 1} waits for ${running}`);
    }
    const place = doing.find(([who]) => who === groups);
    if (place) said.push(`the warp that loads waits until all groups have read ${OF[place[1].at(-1)]} ${place[2] - places}`);
    return said.length ? `${said.join("; ")}.`.replace(/^./, (first) => first.toUpperCase()) : "Copies are on their way.";
  },
};
