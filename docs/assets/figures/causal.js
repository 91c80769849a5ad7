/* Which scores are computed under a causal mask: a program takes a row of tiles, up to the diagonal. */
import { cross, fixed, grouped, rect, squares, svg, text } from "./moving.js";

const QUERIES = 16;
const SHAPES = { "4x4": [4, 4], "4x2": [4, 2], "2x4": [2, 4], "8x8": [8, 8] };
const REAL = 16384, BLOCK = 128;

export default {
  start: () => ({ tile: "4x4", earlier: 0, query: 6 }),

  controls: () => [
    { kind: "choice", key: "tile", label: "tile, queries × keys", options: Object.keys(SHAPES).map((name) => [name, name.replace("x", " × ")]) },
    { kind: "choice", key: "earlier", label: "keys before the first query", options: [[0, "0"], [8, "8"]] },
    { kind: "slider", key: "query", label: "the program of query", min: 0, max: QUERIES - 1, step: 1 },
  ],

  numbers({ tile, earlier, query }) {
    const [high, wide] = SHAPES[tile], keys = QUERIES + earlier, tiles = [];
    for (let first = 0; first < QUERIES; first += high) {
      for (let key = 0; key < keys; key += wide) {
        const kind = key > first + high - 1 + earlier ? "skipped" : key + wide - 1 <= first + earlier ? "whole" : "masked";
        tiles.push({ first, key, kind });
      }
    }
    const count = (kind) => tiles.filter((each) => each.kind === kind).length;
    const whole = count("whole"), masked = count("masked"), program = Math.floor(query / high);
    const needed = (QUERIES * (QUERIES + 1)) / 2 + QUERIES * earlier;
    const mine = tiles.filter((each) => each.first === program * high && each.kind !== "skipped").length;
    return { tiles, keys, high, wide, whole, masked, skipped: count("skipped"), needed, computed: (whole + masked) * high * wide, program, mine };
  },

  draw({ earlier }, { tiles, keys, high, wide, needed, computed, program }, width) {
    const panel = width > 500 ? 330 : 300, left = 4, cell = (panel - 2 * left) / 24, top = 32;
    const grid = [text(left, 22, "keys →, queries ↓", "small", "start")], whole = [];
    for (const { first, key, kind } of tiles) {
      for (let query = first; query < first + high; query += 1) {
        for (let at = key; at < key + wide; at += 1) {
          const x = left + at * cell, y = top + query * cell, kept = at <= query + earlier;
          if (kind === "whole") whole.push([x + 0.5, y + 0.5]);
          if (kind === "masked") grid.push(rect(x + 0.5, y + 0.5, cell - 1, cell - 1, kept ? "ours half" : "behind soft"));
          if (kind === "masked" && !kept) grid.push(cross(x + 3, y + 3, cell - 6, "behind"));
        }
      }
      grid.push(rect(left + key * cell, top + first * cell, wide * cell, high * cell, "frame"));
    }
    grid.push(squares(whole, cell - 1, "ours"), rect(left - 2, top + program * high * cell - 2, keys * cell + 4, high * cell + 4, "chosen"));
    const all = QUERIES * keys, unit = (panel - 2) / all;
    const row = (y, name, value, css, more = 0) => [
      text(0, y, name, "ink", "start"), text(panel, y, grouped(value), "strong", "end"),
      rect(0, y + 7, value * unit, 13, css), more ? rect((value - more) * unit, y + 7, more * unit, 13, "behind soft") : "",
    ];
    const right = [
      text(0, 13, "scores", "title", "start"),
      row(44, "of all pairs", all, "neutral soft"), row(92, "that the mask keeps", needed, "ours"), row(140, "computed", computed, "ours", computed - needed),
      rect(0, 196, cell - 1, cell - 1, "ours"), text(20, 207, "in a whole tile: no mask is needed", "small ink", "start"),
      rect(0, 218, cell - 1, cell - 1, "ours half"), text(20, 229, "kept, in a tile that the diagonal cuts", "small ink", "start"),
      rect(0, 240, cell - 1, cell - 1, "behind soft"), cross(3, 243, cell - 7, "behind"),
      text(20, 251, "computed, then set to −∞", "small ink", "start"),
      rect(0, 262, cell - 1, cell - 1, "frame"), text(20, 273, "in a tile that is never visited", "small ink", "start"),
    ];
    return [
      svg(panel, top + QUERIES * cell + 6, `A grid of ${QUERIES} queries and ${keys} keys in tiles of ${high} × ${wide}; program ${program} is marked.`, grid),
      svg(panel, 282, `${computed} of ${all} scores are computed, ${needed} kept.`, right),
    ];
  },

  says(_, { whole, masked, skipped, program, mine, computed, needed }) {
    const blocks = REAL / BLOCK, share = (100 * (blocks + 1)) / (2 * blocks);
    return `Program ${program} visits ${mine} tile${mine === 1 ? "" : "s"}. All programs together compute ${whole} whole and ${masked} masked tiles and skip ${skipped}: ` +
      `${grouped(computed)} scores for the ${grouped(needed)} that the mask keeps. With ${grouped(REAL)} queries and keys in tiles of ${BLOCK} × ${BLOCK} it is ${fixed(share, 1)} % of all scores.`;
  },
};
