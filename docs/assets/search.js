/* The theme fetches the index of the search and starts its worker with every page. Here both wait
   until somebody turns to the search: its field has the focus after a click, after "/", and at an
   address with "?q=". */
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

  window.Worker = function (url, options) {
    if (!/workers\/search\.\w+\.min\.js$/.test(url)) return new Worker(url, options);
    const standIn = new EventTarget(), started = used.then(() => new Worker(url, options));
    started.then((worker) => worker.addEventListener("message", ({ data }) =>
      standIn.dispatchEvent(new MessageEvent("message", { data }))));
    standIn.postMessage = (message) => started.then((worker) => worker.postMessage(message));
    return standIn;
  };
})();
