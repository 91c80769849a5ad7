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
  const waiting = new Map();
  let worker = null;
  let count = 0;

  const failed = (message) => ({ html: "", printed: "", tensors: [], steps: [], error: { text: null, line: 0, message } });

  function settle(id, reply) {
    waiting.get(id)?.(reply);
    waiting.delete(id);
  }

  function begin(message) {
    worker?.terminate();
    for (const id of [...waiting.keys()]) settle(id, failed(message));
    worker = null;
  }

  function warm() {
    if (worker) return;
    worker = new Worker(new URL("worker.js", here), { type: "module" });
    worker.onmessage = ({ data: { id, reply, failure } }) => {
      if (reply) settle(id, reply);
      else begin(failure);
    };
    worker.onerror = () => begin("Python could not be loaded.");
  }

  window.Runner = {
    warm,
    run(request) {
      warm();
      count += 1;
      const id = count;
      worker.postMessage({ id, request });
      return new Promise((resolve) => waiting.set(id, resolve));
    },
    stop() {
      begin("Stopped.");
      warm();
    },
  };
})();
