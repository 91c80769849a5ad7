/* Runs Python in the page: `Runner.run(request)` promises a reply, `Runner.stop()` ends whatever runs.
 *
 * Requests and replies are those of src/softmax_site/tiny_triton/session.py:
 *
 *     Runner.run({ texts: ["x = Tensor([[1.0, 2.0]])\nshow(x)"], given: {} })
 *       .then(({ html, printed, tensors, steps, error }) => …)
 *
 * `given` are names of the library's modules, such as {merge: "triton_softmax.kernels.device.monoid"}.
 * A run that was stopped, or that used up the memory, has an error without a line. Nothing is loaded
 * before the first run or `Runner.warm()`.
 */
(function () {
  "use strict";

  const here = document.currentScript.src;
  const START = `import sys
sys.path.append("/lib")
from tiny_triton import session
session.provide(library)
ask = session.answer`;

  const ask = window.softmaxAsk(new URL("../../", here).href, async () => {
    const { files, library } = await (await fetch(new URL("runtime.json", here))).json();
    const named = Object.entries(files).map(([name, text]) => [`lib/tiny_triton/${name}`, text]);
    return { files: Object.fromEntries(named), start: START, names: { library: JSON.stringify(library) } };
  });

  const failed = (message) => ({ html: "", printed: "", tensors: [], steps: [], error: { text: null, line: 0, message } });

  window.Runner = {
    warm: ask.warm,
    async run(request) {
      try {
        return JSON.parse(await ask(JSON.stringify(request), { seconds: 86400 }));
      } catch (problem) {
        /* Stopped, or what Python could not catch itself: its memory or its stack is used up. */
        const message = problem.message.trim().split("\n").at(-1);
        ask.stop(message);
        return failed(message);
      }
    },
    stop() {
      ask.stop("Stopped.");
      ask.warm();
    },
  };
})();
