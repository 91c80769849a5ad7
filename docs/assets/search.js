/* The theme fetches the index of the search and starts its worker with every page. Here both wait
   until somebody turns to the search: its field has the focus after a click, after "/", and at an
   address with "?q=". A question is put into words of the index on the way to the worker. */
(() => {
  const { Worker } = window, { open } = XMLHttpRequest.prototype;
  const words = new URL("search-words.js", document.currentScript.src).href;
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

  window.Worker = function (url, options) {
    if (!/workers\/search\.\w+\.min\.js$/.test(url)) return new Worker(url, options);
    const standIn = new EventTarget(), started = used.then(() => new Worker(url, options));
    const asking = used.then(() => import(words));
    started.then((worker) => worker.addEventListener("message", ({ data }) =>
      standIn.dispatchEvent(new MessageEvent("message", { data }))));
    standIn.postMessage = (message) => Promise.all([started, asking]).then(([worker, asked]) => {
      if (message.type === 0) asked.read(message.data);
      if (message.type === 2) message = { ...message, data: asked.meant(message.data) };
      worker.postMessage(message);
    });
    return standIn;
  };
})();
