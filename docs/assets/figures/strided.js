/* Tiles over neighbouring columns, and the sectors of 32 bytes that each line of a tile touches. */
import { fixed, line, rect, svg, text } from "./moving.js";

const ALONG = 6;

export default {
  start: () => ({ across: 24, wide: 8, size: 4 }),

  controls: () => [
    { kind: "slider", key: "across", label: "columns", min: 4, max: 32, step: 1 },
    { kind: "choice", key: "wide", label: "columns of a tile", options: [[1, "1"], [2, "2"], [4, "4"], [8, "8"], [16, "16"]] },
    { kind: "choice", key: "size", label: "elements", options: [[4, "32 bits"], [2, "16 bits"]] },
  ],

  numbers({ across, wide, size }) {
    const programs = Math.ceil(across / wide);
    let sectors = 0;
    for (let down = 0; down < ALONG; down += 1) {
      for (let program = 0; program < programs; program += 1) {
        const begin = (down * across + program * wide) * size;
        const end = (down * across + Math.min(across, (program + 1) * wide)) * size;
        sectors += Math.ceil(end / 32) - Math.floor(begin / 32);
      }
    }
    const bytes = ALONG * across * size;
    return { programs, sectors, bytes, moved: 32 * sectors, share: bytes / (32 * sectors) };
  },

  draw({ across, wide, size }, { programs, sectors, share }, width) {
    const large = width > 500, left = large ? 76 : 0, cell = Math.min(30, (width - left) / across), parts = [];
    const top = 40, tall = 24;
    parts.push(text(left, 12, "neighbours in memory →", "small", "start"));
    if (large) parts.push(text(0, top + 14, "one softmax", "small", "start"), text(0, top + 29, "runs down ↓", "small", "start"));
    for (let program = 0; program < programs; program += 1) {
      const begin = program * wide, end = Math.min(across, begin + wide), room = (end - begin) * cell;
      if (room > (large ? 16 : 12)) parts.push(text(left + begin * cell + room / 2, 32, large && room > 62 ? `program ${program}` : program, "small ink"));
      for (let down = 0; down < ALONG; down += 1) {
        for (let at = begin; at < end; at += 1) {
          const gap = at === end - 1 ? 3 : 1;
          parts.push(rect(left + at * cell, top + down * tall, cell - gap, tall - 3, `ours ${program % 2 ? "soft" : "half"}`, 'rx="1.5"'));
        }
      }
    }
    for (let down = 0; down < ALONG; down += 1) {
      const per = 32 / size, first = (per - ((down * across) % per)) % per;
      for (let at = first; at <= across; at += per) {
        parts.push(line(left + at * cell - 1, top + down * tall - 2, left + at * cell - 1, top + down * tall + tall - 1, "ink sector"));
      }
    }
    return [svg(width, top + ALONG * tall + 4, `${across} columns of ${ALONG} elements in tiles of ${wide} columns: ${programs} programs touch ${sectors} sectors of 32 bytes and use ${fixed(100 * share, 0)} % of them.`, parts)];
  },

  says: ({ wide }, { programs, sectors, bytes, moved, share }) =>
    `${programs} program${programs > 1 ? "s" : ""} of ${wide} column${wide > 1 ? "s" : ""}. Their lines touch ${sectors} sectors, ${moved} bytes, for ${bytes} bytes that are wanted: ${fixed(100 * share, 0)} % of what memory would move is used, if no cache helps.`,
};
