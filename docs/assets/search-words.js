/* A question to the search in words of its index: without small words, and with the nearest word of
   the index for one with which none of them begins. */
const SMALL = new Set(("a an and are can do does for from how i in is it my of on or should " +
  "the to was what when where which who why with you").split(" "));
let known = []; // the words of the index, the most frequent first

export function read({ docs }) {
  const counts = new Map();
  for (const { title, text, tags = [] } of docs) {
    const words = `${title} ${text} ${tags.join(" ")}`.toLowerCase();
    for (const [word] of words.matchAll(/[a-z]{3,}/g)) {
      counts.set(word, (counts.get(word) || 0) + 1);
    }
  }
  known = [...counts].sort(([, a], [, b]) => b - a).map(([word]) => word);
}

/* How many letters are to be added, dropped, changed or swapped with their neighbour. */
function distance(a, b) {
  let before = [], last = [...b].map((_, j) => j);
  last.push(b.length);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] !== b[j - 1]));
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) row[j] = Math.min(row[j], before[j - 2] + 1);
    }
    [before, last] = [last, row];
  }
  return last[b.length];
}

function nearest(typed) {
  const word = typed.toLowerCase();
  if (!/^[a-z]{5,}$/.test(word) || known.some((each) => each.startsWith(word))) return typed;
  for (let far = 1; far <= (word.length > 5 ? 2 : 1); far++) {
    const found = known.find((each) => Math.abs(each.length - word.length) <= far
      && distance(word, each) === far);
    if (found) return found;
  }
  return typed;
}

export function meant(typed) {
  const words = typed.trim().split(/\s+/);
  const large = words.filter((word) => !SMALL.has(word.toLowerCase()));
  return (large.length ? large : words).map(nearest).join(" ");
}
