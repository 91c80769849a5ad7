/* The theme fetches the index of the search with every page. Here the request waits until somebody
   turns to the search: its field has the focus after a click, after "/", and at an address with "?q=". */
(() => {
  const { open } = XMLHttpRequest.prototype;
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
})();
