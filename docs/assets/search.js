/* The theme fetches the index of the search and starts its worker with every page. Here both wait
   until somebody turns to the search: its field has the focus after a click, after "/", and at an
   address with "?q=". On the way to the worker a question loses its small words, and a word with
   which none of the index begins becomes the nearest of them. */
(() => {
  const { Worker } = window, { open } = XMLHttpRequest.prototype;
  const used = new Promise((go) => {
    document.addEventListener("focusin", ({ target }) => target.closest(".md-search") && go());
  });

  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    if (url.endsWith("/search/search_index.json")) {
      const { send } = this;
      this.send = (...body) => used.then(() => send.apply(this, body));
      XMLHttpRequest.prototype.open = open;
    }
    return open.call(this, method, url, ...rest);
  };

  const SMALL = new Set(("a an and are can do does for from how i in is it my of on or should " +
    "the to was what when where which who why with you").split(" "));
  let known = []; // the words of the index, the most frequent first

  function read({ docs }) {
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

  function meant(typed) {
    const words = typed.trim().split(/\s+/);
    const large = words.filter((word) => !SMALL.has(word.toLowerCase()));
    return (large.length ? large : words).map(nearest).join(" ");
  }

  window.Worker = function (url, options) {
    if (!/workers\/search\.\w+\.min\.js$/.test(url)) return new Worker(url, options);
    const standIn = new EventTarget(), started = used.then(() => new Worker(url, options));
    started.then((worker) => worker.addEventListener("message", ({ data }) =>
      standIn.dispatchEvent(new MessageEvent("message", { data }))));
    standIn.postMessage = (message) => started.then((worker) => {
      if (message.type === 0) read(message.data);
      worker.postMessage(message.type === 2 ? { ...message, data: meant(message.data) } : message);
    });
    return standIn;
  };
})();
