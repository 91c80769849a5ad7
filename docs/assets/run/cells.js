/* Loads what makes cells run when a reader comes near one. A page that is left above it loads nothing. */
(function () {
  "use strict";

  const here = document.currentScript.src;

  function load() {
    const needed = [];
    if (!window.softmaxAsk) needed.push("../ask/client.js");
    if (!window.Runner) needed.push("runner.js");
    if (!window.CodeEditor) needed.push("cell.js");
    for (const name of needed) {
      const script = document.createElement("script");
      script.src = new URL(name, here);
      script.async = false; // in this order
      document.head.append(script);
    }
  }

  const near = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      near.disconnect();
      load();
    },
    { rootMargin: "400px" },
  );
  for (const cell of document.querySelectorAll(".run-cell")) near.observe(cell);
})();
