/* Questions to Python in a worker, which is started with the first of them, and ended and started again when
 * an answer takes too long.
 *
 *     const ask = window.softmaxAsk(base, async () => ({ files, start, names }));
 *     JSON.parse(await ask(JSON.stringify(question), { seconds: 10 }));
 *
 * `base` is the address of the site, and `start` the Python that defines `ask`, a function from text to text.
 */
window.softmaxAsk = function (base, prepare) {
  "use strict";

  let worker = null;
  let ready = null;
  let waiting = new Map();
  let count = 0;

  function stop(why) {
    if (worker) worker.terminate();
    for (const { reject } of waiting.values()) reject(new Error(why));
    worker = ready = null;
    waiting = new Map();
  }

  function send(message) {
    const id = ++count;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      worker.postMessage({ id, ...message });
    });
  }

  function start() {
    worker = new Worker(`${base}assets/ask/worker.js`);
    worker.onmessage = ({ data }) => {
      const { resolve, reject } = waiting.get(data.id) || {};
      waiting.delete(data.id);
      if (data.error !== undefined) reject?.(new Error(data.error));
      else resolve?.(data.answer);
    };
    worker.onerror = () => stop("Python could not be started.");
    const micropython = `${base}assets/run/micropython/micropython.mjs`;
    const mine = worker;
    return prepare().then((what) => (worker === mine ? send({ load: { micropython, names: {}, ...what } }) : null));
  }

  const warm = () => (ready = ready || start());

  async function ask(question, { seconds = 20 } = {}) {
    try {
      await warm();
    } catch (error) {
      stop(error.message);
      throw error;
    }
    const timer = setTimeout(() => stop(`Stopped after ${seconds} seconds. Is there a loop that does not end?`), 1000 * seconds);
    try {
      return await send({ question });
    } finally {
      clearTimeout(timer);
    }
  }

  ask.stop = stop;
  ask.warm = () => warm().catch(() => {});
  return ask;
};
